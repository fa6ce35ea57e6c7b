"""Stand-ins for CUDA's libraries: they load, with the versions asked for, and say what is wrong when called."""

import ctypes
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "runtime_image" / "cpu" / "stub_cuda_libraries.py"

# Lines as binutils 2.40 prints them for torch 2.13's libtorch_cuda.so.
READELF = """
Dynamic section at offset 0x1bfd3a08 contains 41 entries:
  Tag        Type                         Name/Value
 0x0000000000000001 (NEEDED)             Shared library: [libcudart.so.13]
 0x0000000000000001 (NEEDED)             Shared library: [libcublas.so.13]
 0x0000000000000001 (NEEDED)             Shared library: [libcublasLt.so.13]
 0x0000000000000001 (NEEDED)             Shared library: [libnccl.so.2]
 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]
 0x000000000000000e (SONAME)             Library soname: [libtorch_cuda.so]
"""
NM = """
/torch/lib/libtorch_cuda.so:
                 U cublasLtMatmul@libcublasLt.so.13
                 U cublasSgemm_v2@libcublas.so.13
                 U cudaMalloc@libcudart.so.13
                 w __gmon_start__
                 U malloc@GLIBC_2.2.5
                 U ncclAllReduce
"""


@pytest.fixture(scope="module")
def stubs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("stub_cuda_libraries", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def plan(stubs: ModuleType, *, present: set[str]) -> dict[str, dict[str, str]]:
    needed, symbols = stubs.needed_libraries(READELF), stubs.undefined_symbols(NM)
    result: dict[str, dict[str, str]] = stubs.stub_plan(needed, symbols, present)
    return result


def test_each_absent_library_gets_the_functions_that_are_asked_of_it(stubs: ModuleType) -> None:
    assert plan(stubs, present={"libcudart.so.13"}) == {
        "libcublas.so.13": {"cublasSgemm_v2": "libcublas.so.13"},
        "libcublasLt.so.13": {"cublasLtMatmul": "libcublasLt.so.13"},
        "libnccl.so.2": {"ncclAllReduce": ""},
    }


def test_a_library_that_is_there_is_left_alone(stubs: ModuleType) -> None:
    everything = {"libcudart.so.13", "libcublas.so.13", "libcublasLt.so.13", "libnccl.so.2"}

    assert plan(stubs, present=everything) == {}


def test_a_cpu_build_of_torch_needs_no_stub(stubs: ModuleType) -> None:
    assert stubs.stub_plan({"libc.so.6", "libgomp.so.1"}, {"malloc": "GLIBC_2.2.5"}, set()) == {}


def compile_library(path: Path, source: str, *flags: str) -> None:
    code = path.with_suffix(".c")
    code.write_text(source)
    subprocess.run(["gcc", "-shared", "-fPIC", str(code), "-o", str(path), *flags], check=True)


def test_a_library_loads_beside_stubs_with_the_versions_it_was_linked_with(
    stubs: ModuleType, tmp_path: Path
) -> None:
    real, stub = tmp_path / "real", tmp_path / "stub"
    real.mkdir()
    stub.mkdir()
    (real / "versions").write_text("libcublas.so.13 { global: *; };\n")
    compile_library(
        real / "libcublas.so.13", "int cublasAnswer(void) { return 42; }",
        "-Wl,-soname,libcublas.so.13", f"-Wl,--version-script={real / 'versions'}",
    )  # fmt: skip
    user = stub / "libuser.so"
    compile_library(
        user, "int cublasAnswer(void); int ask(void) { return cublasAnswer(); }",
        str(real / "libcublas.so.13"), "-Wl,-rpath,$ORIGIN", "-Wl,-z,now",
    )  # fmt: skip

    stubs.write_stub(stub, "libcublas.so.13", {"cublasAnswer": "libcublas.so.13"})

    ctypes.CDLL(str(user))


def test_a_call_ends_the_process_and_names_function_and_library(stubs: ModuleType, tmp_path: Path) -> None:
    stubs.write_stub(tmp_path, "libnccl.so.2", {"ncclAllReduce": ""})
    call = f"import ctypes; ctypes.CDLL({str(tmp_path / 'libnccl.so.2')!r}).ncclAllReduce()"

    done = subprocess.run([sys.executable, "-c", call], capture_output=True, text=True, check=False)

    assert done.returncode == -6  # SIGABRT
    assert "ncclAllReduce was called, but this is a CPU image without libnccl.so.2" in done.stderr


def test_without_torch_the_command_fails_and_says_so() -> None:
    environ = {**os.environ, "PYTHONPATH": ""}

    done = subprocess.run(
        [sys.executable, str(SCRIPT)], capture_output=True, text=True, check=False, env=environ
    )

    assert done.returncode == 1
    assert done.stderr.startswith("no torch in ")
