"""The cluster's programs, built once from pinned Go modules into a cache outside the repository.

Each module under ``go/`` has its own cache folder, named by a hash of its sources, its go.mod and go.sum, the
compiler's version and the build flags; so a change to one module rebuilds that module only, and two checkouts
share what is equal. A program is written beside its final name and moved there when the build has succeeded: a
killed build leaves no half program.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from devcluster.errors import BuildError, PreflightError

KUBERNETES_VERSION = "v1.36.3"
OLDEST_KUBERNETES_VERSION = "v1.31.14"
OLDEST_KUBERNETES = "1.31"
"""The oldest that is supported, by which `light_cluster` runs where DEVCLUSTER_KUBERNETES says so."""
POLICY_ENFORCER = "kube-router"
"""Its firewall alone is run: it holds pods' traffic to NetworkPolicies by iptables and ipset."""
MINIMUM_GO = (1, 26)
SOURCES = Path(__file__).resolve().parent / "go"


def _stamp(version: str) -> str:
    """Linker flags that tell the version: kubectl and helm refuse a server of which they cannot parse it."""
    major, minor, _ = version.removeprefix("v").split(".")
    return " ".join(
        f"-X {package}.{variable}={value}"
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
        for variable, value in (("gitVersion", version), ("gitMajor", major), ("gitMinor", minor))
    )


@dataclass(frozen=True, kw_only=True)
class Program:
    """One executable: ``package`` of the Go module in ``go/<module>``."""

    name: str
    module: str
    package: str
    stamp: str = ""
    tags: str = ""
    on_demand: bool = False
    """Built only when it is asked for by name."""

    @property
    def ldflags(self) -> str:
        return f"-s -w {self.stamp}".strip()


def _kubernetes(name: str) -> Program:
    return Program(
        name=name,
        module="kubernetes",
        package=f"k8s.io/kubernetes/cmd/{name}",
        stamp=_stamp(KUBERNETES_VERSION),
    )


def _containerd(name: str) -> Program:
    package = f"github.com/containerd/containerd/v2/cmd/{name}"
    return Program(name=name, module="containerd", package=package, tags="no_btrfs no_devmapper no_zfs")


# The API server comes first: it compiles most of the packages that the others share.
PROGRAMS: tuple[Program, ...] = (
    _kubernetes("kube-apiserver"),
    _kubernetes("kube-controller-manager"),
    _kubernetes("kube-scheduler"),
    _kubernetes("kubelet"),
    _kubernetes("kube-proxy"),
    _kubernetes("kubectl"),
    Program(name="etcd", module="etcd", package="."),
    _containerd("containerd"),
    _containerd("containerd-shim-runc-v2"),
    _containerd("ctr"),
    Program(name="coredns", module="coredns", package="."),
    Program(name="helm", module="helm", package="helm.sh/helm/v4/cmd/helm"),
    Program(name="gpu-plugin", module="deviceplugin", package="."),
    Program(name="pause", module="static", package="./pause"),
    Program(name="echo", module="static", package="./echo"),
    Program(
        name=POLICY_ENFORCER,
        module="kube-router",
        package="github.com/cloudnativelabs/kube-router/v2/cmd/kube-router",
        on_demand=True,
    ),
    Program(
        name=f"kube-apiserver-{OLDEST_KUBERNETES}",
        module=f"kubernetes-{OLDEST_KUBERNETES}",
        package="k8s.io/kubernetes/cmd/kube-apiserver",
        stamp=_stamp(OLDEST_KUBERNETES_VERSION),
        on_demand=True,
    ),
)
KUBERNETES_CHOICES = ("", OLDEST_KUBERNETES)


def api_server_program(kubernetes: str) -> str:
    """The API server's program: of the newest Kubernetes, or of `kubernetes`, such as 1.31."""
    return f"kube-apiserver-{kubernetes}" if kubernetes else "kube-apiserver"


def light_programs(kubernetes: str) -> tuple[str, ...]:
    """What the light form of a cluster runs."""
    return ("etcd", api_server_program(kubernetes), "kubectl")


def whole_programs(*, network_policies: bool) -> tuple[str, ...]:
    """What a whole cluster runs, and the tools that go with it."""
    enforcer = (POLICY_ENFORCER,) if network_policies else ()
    return (*(program.name for program in PROGRAMS if not program.on_demand), *enforcer)


def cache_root(environ: Mapping[str, str]) -> Path:
    """The folder of all built programs: ``$XDG_CACHE_HOME/llmservice/devcluster``."""
    base = environ.get("XDG_CACHE_HOME") or str(Path(environ.get("HOME", "/root")) / ".cache")
    return Path(base) / "llmservice" / "devcluster"


def find_go(environ: Mapping[str, str]) -> str | None:
    """The Go compiler on PATH, or where Go's own archive puts it: sudo resets PATH."""
    return shutil.which("go", path=f"{environ.get('PATH', '')}:/usr/local/go/bin")


def parse_go_version(text: str) -> tuple[int, int]:
    """``go version go1.26.8 linux/amd64`` → ``(1, 26)``."""
    word = next((w for w in text.split() if w.startswith("go1.")), "")
    numbers = word.removeprefix("go").split(".")
    try:
        return int(numbers[0]), int(numbers[1])
    except (ValueError, IndexError):
        raise PreflightError(
            f"cannot read Go's version from {text.strip()!r}; is `go` the Go compiler?"
        ) from None


def module_hash(sources: Mapping[str, bytes], programs: tuple[Program, ...], go_version: str) -> str:
    """Names what a build depends on; equal inputs give an equal name (16 hex digits)."""
    digest = hashlib.sha256(go_version.encode())
    for path in sorted(sources):
        digest.update(f"\0{path}\0{len(sources[path])}\0".encode())
        digest.update(sources[path])
    for program in programs:
        digest.update(repr((program.name, program.package, program.ldflags, program.tags)).encode())
    return digest.hexdigest()[:16]


def read_sources(module: Path) -> dict[str, bytes]:
    """All files that a module's build reads, by relative path."""
    wanted = (path for path in module.rglob("*") if path.suffix in {".go", ".mod", ".sum"})
    return {str(path.relative_to(module)): path.read_bytes() for path in wanted}


class Binaries:
    """Finds and builds the programs."""

    def __init__(
        self,
        *,
        environ: Mapping[str, str] | None = None,
        sources: Path = SOURCES,
        say: Callable[[str], None] = print,
        programs: tuple[Program, ...] = PROGRAMS,
    ) -> None:
        self._environ = dict(os.environ if environ is None else environ)
        self._sources = sources
        self._say = say
        self._programs = {program.name: program for program in programs}
        self._folders: dict[str, Path] = {}
        self._version: str | None = None
        self.root = cache_root(self._environ)

    def path(self, name: str) -> Path:
        """Where program ``name`` is, or will be once built."""
        return self._folder(self._programs[name].module) / name

    def missing(self, names: tuple[str, ...] | None = None) -> list[str]:
        """Names of the programs not built yet, in building order; all, without a compiler to ask for its version.

        Without `names`: of those that are not built on demand only.
        """
        usual = tuple(name for name, program in self._programs.items() if not program.on_demand)
        wanted = usual if names is None else names
        if self._go() is None:
            return [name for name in self._programs if name in wanted]
        return [name for name in self._programs if name in wanted and not self.path(name).exists()]

    def ensure(self, names: tuple[str, ...] | None = None) -> None:
        """Builds what is missing of ``names`` (default: all).

        Raises BuildError with the compiler's last words; what was built before stays.
        """
        if not self.missing(names):
            return
        self.root.mkdir(parents=True, exist_ok=True)
        with self._lock():
            missing = self.missing(names)
            started = time.monotonic()
            for index, name in enumerate(missing, start=1):
                self._build(self._programs[name], f"[{index}/{len(missing)}]")
            self._say(f"built {len(missing)} programs in {time.monotonic() - started:.0f} s")

    @contextmanager
    def _lock(self) -> Iterator[None]:
        with (self.root / "build.lock").open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._say("another build is running; waiting for it")
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def _folder(self, module: str) -> Path:
        if module not in self._folders:
            programs = tuple(p for p in self._programs.values() if p.module == module)
            name = module_hash(read_sources(self._sources / module), programs, self._go_version())
            self._folders[module] = self.root / f"{module}-{name}"
        return self._folders[module]

    def _go(self) -> str | None:
        return find_go(self._environ)

    def _go_version(self) -> str:
        # What `go version` prints is fixed by the installed compiler; asking it costs 10 ms, so it is asked once.
        if self._version is None:
            go = self._go()
            if go is None:
                raise PreflightError(
                    f"Go is not on PATH; install Go {MINIMUM_GO[0]}.{MINIMUM_GO[1]} or newer (https://go.dev/dl)"
                )
            text = subprocess.run([go, "version"], capture_output=True, text=True, check=True).stdout
            if parse_go_version(text) < MINIMUM_GO:
                raise PreflightError(
                    f"{text.strip()} is too old: Kubernetes {KUBERNETES_VERSION} needs Go "
                    f"{MINIMUM_GO[0]}.{MINIMUM_GO[1]} or newer (https://go.dev/dl)"
                )
            self._version = text.strip()
        return self._version

    def _build(self, program: Program, progress: str) -> None:
        target = self.path(program.name)
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{program.name}.partial")
        self._say(f"{progress} building {program.name} …")
        started = time.monotonic()
        command = [
            self._go() or "go",
            "build",
            "-mod=readonly",
            "-trimpath",
            "-buildvcs=false",
            "-ldflags",
            program.ldflags,
        ]
        command += ["-tags", program.tags, "-o", str(partial), program.package]
        environ = self._environ | {"CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": ""}
        result = subprocess.run(
            command,
            cwd=self._sources / program.module,
            env=environ,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if result.returncode != 0:
            partial.unlink(missing_ok=True)
            tail = "\n".join(result.stderr.strip().splitlines()[-20:])
            raise BuildError(f"building {program.name} failed (go build exited {result.returncode}):\n{tail}")
        partial.replace(target)
        megabytes = target.stat().st_size / 1e6
        self._say(f"{progress} {program.name}: {time.monotonic() - started:.0f} s, {megabytes:.0f} MB")
