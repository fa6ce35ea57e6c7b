"""The reference pages that `kubectl explain` makes of the CRD.

    python -m integration.api.explain          writes operator/docs/reference/
    python -m integration.api.explain --check  fails on a difference

It needs an API server: the one that KUBECONFIG names, or else a light one of its own for as long as it takes.
"""

import sys
import tempfile
from pathlib import Path

from devcluster import LightCluster
from devcluster.fixtures import outer_cluster
from integration.api.kubectl import Kubectl, program_for

FOLDER = Path(__file__).parents[3] / "operator" / "docs" / "reference"

MANUAL = (
    "llmsvc",
    "llmsvc.spec",
    "llmsvc.spec.model",
    "llmsvc.spec.model.cache",
    "llmsvc.spec.engine",
    "llmsvc.spec.engine.pin",
    "llmsvc.spec.engine.env",
    "llmsvc.spec.accelerator",
    "llmsvc.spec.accelerator.parallelism",
    "llmsvc.spec.workload",
    "llmsvc.spec.workload.context",
    "llmsvc.spec.workload.inputTokens",
    "llmsvc.spec.workload.outputTokens",
    "llmsvc.spec.workload.concurrency",
    "llmsvc.spec.slo",
    "llmsvc.spec.slo.ttft",
    "llmsvc.spec.slo.tpot",
    "llmsvc.spec.scaling",
    "llmsvc.spec.drain",
    "llmsvc.spec.service",
    "llmsvc.spec.podTemplate",
    "llmsvc.spec.podTemplate.resources",
    "llmsvc.spec.podTemplate.volumes",
    "llmsvc.status",
    "llmsvc.status.plan",
    "llmsvc.status.engine",
    "llmsvc.status.start",
    "llmsvc.status.lastFailure",
    "llmsvc.status.scaling",
    "llmsvc.status.scaling.signals",
    "llmsvc.status.scaling.decisions",
    "llmscale",
    "llmscale.spec",
)


def pages(kubectl: Kubectl) -> dict[str, str]:
    """File name → text of every page, on a cluster that has our CRD."""
    manual = [f"$ kubectl explain {path}\n{kubectl.output('explain', path)}" for path in MANUAL]
    return {
        "explain.txt": tidy(kubectl.output("explain", "llmsvc", "--recursive")),
        "explain-scalingpolicy.txt": tidy(kubectl.output("explain", "llmscale", "--recursive")),
        "manual.txt": tidy("\n".join(manual)),
    }


def tidy(text: str) -> str:
    """The text without blanks at the ends of its lines and without empty lines in a row."""
    lines = [line.rstrip() for line in text.expandtabs(4).splitlines()]
    kept = [line for line, before in zip(lines, ["", *lines], strict=False) if line or before]
    return "\n".join(kept).rstrip("\n") + "\n"


def main(arguments: list[str]) -> int:
    found = outer_cluster()
    cluster = LightCluster("explain", owned=True) if found is None else found
    cluster.up()
    try:
        with tempfile.TemporaryDirectory() as cache:
            kubectl = Kubectl(program=program_for(cluster), kubeconfig=cluster.kubeconfig, cache=Path(cache))
            kubectl.install_crds()
            made = pages(kubectl)
    finally:
        if found is None:
            cluster.down()
    if "--check" in arguments:
        return check(made)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in made.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


def check(made: dict[str, str]) -> int:
    """1 and a line on stderr for each page that is not what the tree has."""
    stale = [name for name, text in made.items() if (FOLDER / name).read_text(encoding="utf-8") != text]
    for name in stale:
        print(f"{FOLDER / name} is stale: run `make generate`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
