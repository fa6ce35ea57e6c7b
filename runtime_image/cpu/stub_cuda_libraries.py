#!/usr/bin/env python3
"""Let a CUDA build of torch load on a machine that has no CUDA libraries, so that a CPU image need not carry them.

torch's plain Linux wheel links against CUDA, cuDNN, NCCL and others (3.5 GB of packages) even where it only ever
computes on the CPU. The loader wants every one of those libraries, and every function that torch names, at import.
This writes, for each library that is absent, a library of the same name whose functions end the process with a
message that says so. A CPU engine calls none of them: CUDA's own runtime, which torch does ask for devices, is small
and stays real.

With a CPU build of torch (`+cpu`), or with all libraries present, nothing is written.

Use: `python stub_cuda_libraries.py`, with the interpreter whose torch it is. Needs binutils and a C compiler.
"""

import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

# Real, never a stub: torch.cuda.is_available() calls it, and it answers "no driver" by itself.
RUNTIME = "libcudart.so"

# Which functions belong to which library. Names are the libraries' public prefixes; the first match wins.
LIBRARY_PREFIXES = {
    "libcublasLt.so": ("cublasLt",),
    "libcublas.so": ("cublas",),
    "libcudnn.so": ("cudnn",),
    "libcufft.so": ("cufft",),
    "libcufile.so": ("cuFile",),
    "libcupti.so": ("cupti",),
    "libcurand.so": ("curand",),
    "libcusparseLt.so": ("cusparseLt",),
    "libcusparse.so": ("cusparse",),
    "libnccl.so": ("nccl", "pnccl"),
    "libnvrtc.so": ("nvrtc",),
    "libnvshmem_host.so": ("nvshmem", "_nvshmem", "_Znvshmem", "_ZN7nvshmem"),
}


def needed_libraries(readelf_dynamic: str) -> set[str]:
    """The sonames in `readelf --dynamic` output, such as `libcublas.so.13`."""
    return set(re.findall(r"\(NEEDED\)\s+Shared library: \[([^]]+)\]", readelf_dynamic))


def undefined_symbols(nm_undefined: str) -> dict[str, str]:
    """The names in `nm --dynamic --undefined-only` output, each with its version ("" for none)."""
    return dict(re.findall(r"^\s+[Uw] ([^@\s]+)@?@?(\S*)", nm_undefined, flags=re.MULTILINE))


def stub_plan(
    needed: Iterable[str], symbols: Mapping[str, str], present: Iterable[str]
) -> dict[str, dict[str, str]]:
    """The stubs to write, for libraries that are needed and not present: soname → function → version."""
    have = set(present)
    stem_of = {soname: re.sub(r"\.so.*", ".so", soname) for soname in needed}
    wanted = {
        stem: soname for soname, stem in stem_of.items() if stem in LIBRARY_PREFIXES and soname not in have
    }
    plan: dict[str, dict[str, str]] = {soname: {} for soname in wanted.values()}
    for symbol, version in sorted(symbols.items()):
        for stem, prefixes in LIBRARY_PREFIXES.items():
            if symbol.startswith(prefixes):
                if stem in wanted:
                    plan[wanted[stem]][symbol] = version
                break
    return plan


def stub_source(soname: str, symbols: Iterable[str]) -> str:
    """A C file whose functions each say what was called, and end the process."""
    lines = [
        "#include <stdio.h>",
        "#include <stdlib.h>",
        "static void absent(const char *name) {",
        f'    fprintf(stderr, "%s was called, but this is a CPU image without {soname}\\n", name);',
        "    abort();",
        "}",
    ]
    lines += [f'void {symbol}(void) {{ absent("{symbol}"); }}' for symbol in symbols]
    return "\n".join(lines) + "\n"


def version_script(symbols: Mapping[str, str]) -> str:
    """A linker's version script that gives each function the version under which it is asked for."""
    by_version: dict[str, list[str]] = {}
    for symbol, version in symbols.items():
        by_version.setdefault(version, []).append(symbol)
    return "".join(
        f"{version} {{ global: {' '.join(f'{name};' for name in names)} }};\n"
        for version, names in sorted(by_version.items())
        if version
    )


def write_stub(directory: Path, soname: str, symbols: Mapping[str, str]) -> None:
    """Compile one stub into `directory`."""
    with tempfile.TemporaryDirectory() as scratch:
        source, versions = Path(scratch, "stub.c"), Path(scratch, "versions")
        source.write_text(stub_source(soname, symbols))
        flags = ["-shared", "-fPIC", "-Os", "-s", f"-Wl,-soname,{soname}"]
        if script := version_script(symbols):
            versions.write_text(script)
            flags.append(f"-Wl,--version-script={versions}")
        subprocess.run(["gcc", *flags, "-o", str(directory / soname), str(source)], check=True)


def tool_output(*command: str) -> str:
    """What a binutils program prints, in English whatever the locale."""
    environ = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environ).stdout


def main() -> int:
    site_packages = Path(sysconfig.get_path("purelib"))
    libraries = sorted(Path(site_packages, "torch", "lib").glob("*.so"))
    if not libraries:
        print(f"no torch in {site_packages}", file=sys.stderr)
        return 1
    paths = [str(path) for path in libraries]
    needed = needed_libraries(tool_output("readelf", "--dynamic", *paths))
    symbols = undefined_symbols(tool_output("nm", "--dynamic", "--undefined-only", *paths))
    present = {path.name for path in Path(site_packages, "nvidia").rglob("*.so*")}
    if any(name.startswith(RUNTIME) for name in needed) and not any(
        name.startswith(RUNTIME) for name in present
    ):
        print(f"torch needs {RUNTIME}, and no package in {site_packages} has it", file=sys.stderr)
        return 1
    plan = stub_plan(needed, symbols, present)
    for soname, functions in sorted(plan.items()):
        write_stub(libraries[0].parent, soname, functions)
        print(f"{soname}: {len(functions)} functions stand in for the absent library")
    return 0


if __name__ == "__main__":
    sys.exit(main())
