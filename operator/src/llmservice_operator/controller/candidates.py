"""What this release makes of a user's words: plan and pod template, as a revision. Pure, and remembered.

The same question is asked at every reconcile (is what runs still what would be planned?), and its answer
depends on values alone; so answers are kept by their inputs, at most `MAX_ANSWERS` of them.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from llmservice_operator.api.conditions import Reason
from llmservice_operator.api.labels import RESTART_ANNOTATION
from llmservice_operator.api.spec import LLMServiceSpec
from llmservice_operator.controller.observed import ModelLookup, ReconcileSettings, SeenNodes
from llmservice_operator.engines.base import EngineAdapter
from llmservice_operator.errors import InvalidInputError
from llmservice_operator.perfmodel.calibration import NOTHING_KNOWN, Calibration, Entry
from llmservice_operator.planning.plan import plan_for_image
from llmservice_operator.planning.types import MemoryCorrection, Plan, PlanInputs, Refusal
from llmservice_operator.resources.inputs import inputs_hash, spec_from_inputs, user_inputs
from llmservice_operator.resources.pod import engine_image, render_pod_template
from llmservice_operator.resources.revision import Revision, revision_name
from llmservice_operator.resources.types import DEFAULT_ENGINE_IMAGE, Identity

MAX_ANSWERS = 4096
MAX_PLANS = 512
"""Plans say nothing of the service's name: services that say the same share one."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a candidate depends on, beside the settings."""

    identity: Identity
    spec: LLMServiceSpec
    restart: str
    model: ModelLookup
    nodes: SeenNodes | None
    correction: MemoryCorrection | None = None
    accelerator: str = ""
    """The row that the service stays on if it can; empty: the choice is free."""
    resource: str = ""
    """The resource that its pods ask for, such as slices of one profile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked(Calibration):
    """The calibration, with note of what was asked of it: of 500 situations a plan depends on a few."""

    asked: dict[str, Entry | None] = field(default_factory=dict)

    def entry(self, key: str) -> Entry | None:
        found = self.entries.get(key)
        self.asked[key] = found
        return found

    def still_so(self, calibration: Calibration) -> bool:
        """Whether this calibration would answer the same."""
        return all(calibration.entry(key) == entry for key, entry in self.asked.items())


class Candidates:
    """Plans and renders, and remembers."""

    def __init__(
        self,
        settings: ReconcileSettings,
        engine: EngineAdapter,
        calibration: Callable[[], Calibration] = lambda: NOTHING_KNOWN,
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._calibration = calibration
        self._answers: OrderedDict[object, tuple[Revision | Refusal, _Asked]] = OrderedDict()
        self._plans: OrderedDict[object, tuple[Plan | Refusal, _Asked]] = OrderedDict()

    def candidate(self, question: Question) -> Revision | Refusal:
        """The revision for these words, numbered 1; or why there is none."""
        annotations = {RESTART_ANNOTATION: question.restart} if question.restart else {}
        inputs = user_inputs(question.spec, annotations, question.model.config_digest)
        hashed = inputs_hash(inputs)
        facts = question.model.facts
        planned_from = (
            hashed,
            question.model.problem
            if facts is None
            else (facts.revision, facts.weights_bytes, facts.weights_problem, facts.source),
            None if question.nodes is None else question.nodes.digest,
            question.correction,
            question.accelerator,
            question.resource,
        )
        key = (question.identity, planned_from)
        calibration = self._calibration()
        known = self._answers.get(key)
        if known is None or not known[1].still_so(calibration):
            planned = self._plans.get(planned_from)
            if planned is None or not planned[1].still_so(calibration):
                asked = _Asked(entries=calibration.entries)
                planned = (self._plan(question, asked), asked)
                _remember(self._plans, planned_from, planned, MAX_PLANS)
            known = (self._make(question, planned[0], inputs, hashed), planned[1])
        _remember(self._answers, key, known, MAX_ANSWERS)
        return known[0]

    def baseline(self, question: Question, stored: Revision) -> Revision | None:
        """What this release makes of the words that `stored` was made from; None where it cannot tell."""
        if stored.inputs.get("configDigest", "") != question.model.config_digest:
            return None
        spec = spec_from_inputs(stored.inputs, question.spec)
        if spec is None:
            return None
        answer = self.candidate(
            Question(
                identity=question.identity,
                spec=spec,
                restart=str(stored.inputs.get("restart", "")),
                model=question.model,
                nodes=question.nodes,
                accelerator=stored.plan.accelerator.name,
                resource=stored.plan.resource_name,
            )
        )
        return answer if isinstance(answer, Revision) else None

    def _make(
        self, question: Question, plan: Plan | Refusal, inputs: Mapping[str, Any], hashed: str
    ) -> Revision | Refusal:
        if isinstance(plan, Refusal):
            return plan
        render, spec, facts = self._settings.render, question.spec, question.model.facts
        try:
            template = render_pod_template(
                question.identity, spec, plan, render, facts, engine=self._engine, restart=question.restart
            )
            image = engine_image(spec, plan, render)
        except InvalidInputError as error:
            return Refusal(reason=Reason.INVALID_SPEC, message=str(error), certain=True)
        return Revision(
            name=revision_name(question.identity.name, template, plan),
            template=template,
            plan=plan,
            inputs=inputs,
            inputs_hash=hashed,
            engine_image=image,
            supervisor_image=render.supervisor_image,
            model_revision=None if facts is None else facts.revision,
        )

    def _plan(self, question: Question, calibration: Calibration) -> Plan | Refusal:
        """The plan, for the engine version that the chosen accelerator's own image has."""
        if question.model.facts is None and question.model.problem is not None:
            return question.model.problem
        inputs = PlanInputs(
            service_name=question.identity.name,
            spec=question.spec,
            model=question.model.facts,
            catalogue=self._settings.catalogue,
            nodes=None if question.nodes is None else question.nodes.nodes,
            engine_version="",
            correction=question.correction,
            current_accelerator=question.accelerator,
            current_resource=question.resource,
            calibration=calibration,
        )
        return plan_for_image(inputs, lambda row: self._engine_version(question.spec, row))

    def _engine_version(self, spec: LLMServiceSpec, row: str) -> str:
        if spec.engine.version:
            return spec.engine.version
        images = self._settings.render.engine_images
        image = spec.engine.image or images.get(row) or images.get(DEFAULT_ENGINE_IMAGE, "")
        return self._engine.version_from_image(image)


def _remember(memory: OrderedDict[object, Any], key: object, answer: Any, limit: int) -> None:
    """Keep the answer as the newest; beyond the limit the one that was asked for longest ago goes."""
    memory[key] = answer
    memory.move_to_end(key)
    if len(memory) > limit:
        memory.popitem(last=False)
