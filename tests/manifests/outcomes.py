"""What the planner makes of a real deployment."""

from llmservice_operator.api.spec import LLMServiceSpec
from llmservice_operator.engines.versions import version_from_image
from llmservice_operator.perfmodel.accelerators import load_catalogue, merge_catalogues
from llmservice_operator.planning.plan import make_plan
from llmservice_operator.planning.types import ModelFacts, Plan, PlanInputs, Refusal
from manifests.cases import ROWS, Case
from unit.perfmodel.samples import catalogue, load_config


def outcome(case: Case) -> Plan | Refusal:
    """The plan, or the refusal."""
    spec = LLMServiceSpec.model_validate(case.spec)
    rows = load_catalogue((ROWS / case.rows).read_text()) if case.rows else ()
    return make_plan(
        PlanInputs(
            service_name=case.path.stem,
            spec=spec,
            model=ModelFacts(config=load_config(case.config)),
            catalogue=merge_catalogues(catalogue(), rows),
            nodes=None,
            engine_version=spec.engine.version or version_from_image(spec.engine.image),
        )
    )
