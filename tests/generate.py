"""`make generate` and `make verify`: everything that is made by a tool, made anew.

python -m generate           writes it
python -m generate --check   writes it, and fails with the names of the files that were not as they are now
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CRDS = ROOT / "crds"
CHART_CRDS = ROOT / "charts" / "llmservice-operator" / "files"
BALANCED = ROOT / "policies" / "scaling" / "balanced.yaml"
REFERENCE = ROOT / "operator" / "docs" / "reference"
LLMSERVICE = str(Path(sys.executable).with_name("llmservice"))

DASHBOARDS = ROOT / "charts" / "llmservice-operator" / "dashboards"
METRICS = ROOT / "operator" / "docs" / "metrics.md"

GENERATED = (CRDS, CHART_CRDS, BALANCED.parent, DASHBOARDS, METRICS, REFERENCE, ROOT / "tests" / "golden")
"""Files, and folders whose files are compared before and after; hand-written neighbours do not change by themselves."""


def output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def crds() -> None:
    for plural in ("llmservices", "scalingpolicies"):
        text = output(sys.executable, "-m", "llmservice_operator.api.crd", plural)
        for folder in (CRDS, CHART_CRDS):
            (folder / f"{plural}.yaml").write_text(text)


def profiles() -> None:
    BALANCED.write_text(output(sys.executable, "-m", "llmservice_operator.api.profiles"))


def observability() -> None:
    output(sys.executable, "-m", "observability")


def golden_manifests() -> None:
    output(sys.executable, "-m", "golden.manifests.render")
    output(sys.executable, "-m", "golden.chart.render")


def reference() -> None:
    output(sys.executable, "-m", "integration.api.explain")


def plans() -> None:
    for sample in ("qwen3-8b", "smollm2"):
        text = output(LLMSERVICE, "plan", "-f", f"crds/samples/{sample}.yaml")
        (REFERENCE / f"plan-{sample}.txt").write_text(
            f"$ llmservice plan -f crds/samples/{sample}.yaml\n{text}"
        )
    output(sys.executable, "-m", "golden.plans.render")


def answers() -> None:
    """One answer of each other command that works offline."""
    model = "tests/data/models/meta-llama--Meta-Llama-3.1-8B"
    asked = {
        "estimate-llama-8b": (
            *("estimate", "--config", model, "--accelerator", "nvidia-h200", "--engine-version", "0.26.0"),
            *("--set", "max_model_len=8192", "--set", "tensor_parallel_size=2"),
            *("--prefill", "1024", "--decode", "16x2048", "--arrival", "4:1000:200"),
        ),
        "explain-qwen3-8b": ("explain", "-f", "crds/samples/qwen3-8b.yaml", "--width", "100"),
    }
    for name, arguments in asked.items():
        text = output(LLMSERVICE, *arguments)
        (REFERENCE / f"{name}.txt").write_text(f"$ llmservice {' '.join(arguments)}\n{text}")


GENERATORS: tuple[Callable[[], None], ...] = (
    crds,
    profiles,
    observability,
    golden_manifests,
    plans,
    answers,
    reference,
)


def contents() -> dict[Path, bytes]:
    def files() -> Iterator[Path]:
        for place in GENERATED:
            found = [place] if place.is_file() else place.rglob("*")
            yield from (path for path in found if path.is_file() and "__pycache__" not in path.parts)

    return {path: path.read_bytes() for path in files()}


def main() -> int:
    before = contents()
    for generator in GENERATORS:
        generator()
    after = contents()
    changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    for path in changed:
        print(f"written anew: {path.relative_to(ROOT)}")
    if changed and "--check" in sys.argv[1:]:
        print("These were not what their sources say. They are now: look at the difference and commit it.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
