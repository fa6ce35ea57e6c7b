"""kubectl on a cluster, with a discovery cache of its own: one of an earlier cluster on the port would mislead."""

import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import deploy
from devcluster import LightCluster
from devcluster.fixtures import AnyLightCluster

CRDS = sorted((Path(__file__).parents[3] / "crds").glob("*.yaml"))
EXPLAINED = ("llmsvc.spec.model", "llmscale.spec")
"""A field of each kind."""
SECONDS = 60


def program_for(cluster: AnyLightCluster) -> str:
    """The pinned kubectl for a cluster of ours, else the one on PATH."""
    if isinstance(cluster, LightCluster):
        return str(cluster.program("kubectl"))
    found = shutil.which("kubectl")
    if found is None:
        raise FileNotFoundError("kubectl is not on PATH")
    return found


@dataclass(frozen=True, kw_only=True)
class Kubectl:
    """Runs kubectl; the caller looks at the exit code."""

    program: str
    kubeconfig: Path
    cache: Path

    def __call__(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [self.program, f"--kubeconfig={self.kubeconfig}", f"--cache-dir={self.cache}", *arguments]
        return subprocess.run(
            command, input=stdin, text=True, capture_output=True, timeout=SECONDS, check=False
        )

    def output(self, *arguments: str, stdin: str | None = None) -> str:
        """What the command printed; CalledProcessError with its stderr if it fails."""
        result = self(*arguments, stdin=stdin)
        if result.returncode != 0:
            raise subprocess.CalledProcessError(result.returncode, arguments, result.stdout, result.stderr)
        return result.stdout

    def install_crds(self) -> None:
        """Our CRDs: established, discovered and published, so that they can be used by short name and explained."""
        files = [argument for path in CRDS for argument in ("-f", str(path))]
        self.output("apply", "--server-side", "--force-conflicts", *files)
        for path in CRDS:
            deploy.wait_for_crd(self, f"{path.stem}.llmservice.dev")
        deadline = time.monotonic() + SECONDS
        # Discovery and OpenAPI follow a moment after the condition, and nothing tells of them.
        for field in EXPLAINED:
            while self("explain", field).returncode != 0 and time.monotonic() < deadline:
                shutil.rmtree(self.cache, ignore_errors=True)
                time.sleep(0.2)
