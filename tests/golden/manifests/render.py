"""The objects that some services are turned into, as files to be looked at.

    python -m golden.manifests.render            # write them anew
    python -m golden.manifests.render --check    # exit 1 and name what differs

Plans are fixed here: these files change when rendering changes, and only then.
"""

import sys
from pathlib import Path
from typing import Any

import yaml

from llmservice_operator.api.spec import LLMServiceSpec
from llmservice_operator.engines.vllm import VllmEngine
from llmservice_operator.planning.types import ModelFacts, Plan
from llmservice_operator.resources.children import (
    render_cache_claim,
    render_deployment,
    render_pdb,
    render_service,
)
from llmservice_operator.resources.inputs import inputs_hash, user_inputs
from llmservice_operator.resources.pod import engine_image, render_pod_template
from llmservice_operator.resources.replicas import replicas_to_apply
from llmservice_operator.resources.revision import Revision, pack, revision_name
from llmservice_operator.resources.types import Identity
from unit.resources.samples import CPU_PLAN, H200_PLAN, RICH, SETTINGS, spec

FOLDER = Path(__file__).resolve().parent
SAMPLES = FOLDER.parents[2] / "crds" / "samples"
COMMIT = ModelFacts(config={}, revision="b968826d9c46dd6066d109eabc6255188de91218")


def sample(name: str) -> tuple[str, LLMServiceSpec]:
    """Name and spec of a sample that ships."""
    manifest = next(yaml.safe_load_all((SAMPLES / f"{name}.yaml").read_text()))
    return manifest["metadata"]["name"], LLMServiceSpec.model_validate(manifest["spec"])


def rendered(name: str, said: LLMServiceSpec, plan: Plan, model: ModelFacts | None) -> list[dict[str, Any]]:
    """All objects of a new service."""
    identity = Identity(name=name, namespace="default", uid="00000000-0000-4000-8000-000000000000")
    template = render_pod_template(identity, said, plan, SETTINGS, model, engine=VllmEngine())
    inputs = user_inputs(said, {}, "")
    revision = Revision(
        name=revision_name(name, template, plan),
        template=template,
        plan=plan,
        inputs=inputs,
        inputs_hash=inputs_hash(inputs),
        engine_image=engine_image(said, plan, SETTINGS),
        supervisor_image=SETTINGS.supervisor_image,
        model_revision=model.revision if model else None,
    )
    objects = [
        render_deployment(identity, revision, replicas_to_apply(said, None).replicas),
        render_service(identity, said),
        render_pdb(identity),
        render_cache_claim(identity, said),
        pack(identity, revision),
    ]
    return [each for each in objects if each is not None]


def files() -> dict[Path, str]:
    """Path → content of every golden file."""
    cases = {
        "smollm2-cpu": (*sample("smollm2"), CPU_PLAN, None),
        "minimal-h200": ("qwen3-8b", spec(), H200_PLAN, COMMIT),
        "every-field": ("every-field", spec(**RICH), H200_PLAN, COMMIT),
    }
    return {
        FOLDER / f"{case}.yaml": yaml.safe_dump_all(
            rendered(name, said, plan, model), sort_keys=False, width=1000, allow_unicode=True
        )
        for case, (name, said, plan, model) in cases.items()
    }


def main(arguments: list[str]) -> int:
    stale = [path for path, text in files().items() if not path.exists() or path.read_text() != text]
    if "--check" in arguments:
        for path in stale:
            print(f"{path.name} is not what is rendered now: run python -m golden.manifests.render")
        return 1 if stale else 0
    for path in stale:
        path.write_text(files()[path])
        print(f"wrote {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
