"""Which revision is wanted, and which one runs. Pure.

Wanted is the newest revision: what the user's newest words led to. It runs, unless it turned out not to start: then
the last good one runs in its place, until the user says something else.
"""

from dataclasses import dataclass, replace

from llmservice_operator.api.labels import REFRESH_ANNOTATION, RESTART_ANNOTATION, REVISION_LABEL
from llmservice_operator.api.spec import LLMServiceSpec
from llmservice_operator.api.status import RevisionStarts
from llmservice_operator.controller.candidates import Candidates, Question
from llmservice_operator.controller.observed import Observed, StoredRevision
from llmservice_operator.controller.proving import Proof, examine, exhaust, keep, record_of
from llmservice_operator.planning.types import MemoryCorrection, Refusal
from llmservice_operator.resources.inputs import inputs_hash, user_inputs
from llmservice_operator.resources.revision import Choice, Revision, choose

RESTART_MEND = "change the service, or set the annotation llmservice.dev/restart to try again"


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The outcome, with what it rests on."""

    wanted: Revision | None = None
    active: Revision | None = None
    """What the Deployment is to run; None: there is nothing to run, or it must not be touched."""
    correction: MemoryCorrection | None = None
    """The failed start that `wanted` was corrected from."""
    proof: Proof | None = None
    """Of `wanted`."""
    records: tuple[RevisionStarts, ...] = ()
    verdict: str = "keep"
    """`first`, `roll`, `refreshed`, `corrected` or `keep`."""
    differences: tuple[str, ...] = ()
    refusal: Refusal | None = None
    """Why the user's newest words led to no plan; an older revision may run on."""
    unknown_candidate: Refusal | None = None
    """Why it cannot be told whether what runs is up to date, while it is what the user says."""
    blocked: str = ""
    """Why nothing may be rolled out: what runs cannot be read."""

    @property
    def exhausted(self) -> bool:
        """The wanted revision does not start, and nothing is left to try."""
        return self.proof is not None and self.proof.exhausted

    @property
    def no_replicas(self) -> bool:
        """No replica may run: the wanted revision is exhausted and there is none to go back to."""
        return self.exhausted and self.active is self.wanted

    @property
    def proven(self) -> bool:
        """Whether an engine of the active revision became ready once."""
        return self.active is not None and record_of(self.active.name, self.records).proven


def select(observed: Observed, spec: LLMServiceSpec, candidates: Candidates) -> Selection:
    """What is wanted and what runs, by the revisions stored, the user's words and the pods."""
    if (blocked := _unreadable(observed)) is not None:
        return Selection(blocked=blocked, records=_records(observed))
    question = Question(
        identity=observed.identity,
        spec=spec,
        restart=observed.annotations.get(RESTART_ANNOTATION, ""),
        model=observed.model,
        nodes=observed.nodes,
    )
    stored = observed.stored
    if stored is None:
        return _first(observed, candidates.candidate(question))
    record = record_of(stored.revision.name, _records(observed))
    if stored.correction is not None:
        # The revision itself says so, also where the status was lost between its making and now.
        record = record.model_copy(update={"corrected": True})
    proof = examine(record, observed.pods, observed.status.last_failure, stored.revision.plan)
    return _next(observed, stored, proof, question, candidates)


def _first(observed: Observed, answer: Revision | Refusal) -> Selection:
    if isinstance(answer, Refusal):
        return Selection(refusal=answer, records=_records(observed))
    refresh = observed.annotations.get(REFRESH_ANNOTATION, "")
    choice = choose(None, None, answer, refresh)
    record = RevisionStarts(revision=choice.revision.name)
    return _settled(observed, choice.revision, None, Proof(record=record), verdict="first")


def _next(
    observed: Observed, stored: StoredRevision, proof: Proof, question: Question, candidates: Candidates
) -> Selection:
    refresh = observed.annotations.get(REFRESH_ANNOTATION, "")
    annotations = {RESTART_ANNOTATION: question.restart} if question.restart else {}
    inputs = user_inputs(question.spec, annotations, question.model.config_digest)
    hashed = inputs_hash(inputs)
    refreshed = refresh not in ("", stored.revision.refresh)
    same_words = hashed == stored.revision.inputs_hash and not refreshed
    if not refreshed and inputs.get("accelerator") == stored.revision.inputs.get("accelerator"):
        # What turns up among the nodes is no reason to move; that the user says something else of them is.
        plan = stored.revision.plan
        question = replace(question, accelerator=plan.accelerator.name, resource=plan.resource_name)
    if same_words and stored.correction is not None:
        question = replace(question, correction=stored.correction)
    answer = candidates.candidate(question)
    if isinstance(answer, Refusal):
        kept = _corrected_or_kept(
            observed,
            stored,
            proof=proof,
            question=question,
            candidates=candidates,
            choice=Choice(revision=stored.revision, verdict="keep"),
        )
        return replace(kept, unknown_candidate=answer) if same_words else replace(kept, refusal=answer)
    if same_words and answer.name == stored.revision.name:
        # The name stands for knobs and template: nothing differs, and nothing is to be recorded anew.
        choice = Choice(revision=stored.revision, verdict="keep")
    else:
        baseline = None if same_words else candidates.baseline(question, stored.revision)
        choice = choose(stored.revision, baseline, answer, refresh)
    if choice.verdict in ("roll", "refreshed"):
        old = record_of(choice.revision.name, _records(observed))
        # A revision that is asked for anew may start anew, whatever became of it before.
        record = old if old.proven else RevisionStarts(revision=choice.revision.name)
        return _settled(
            observed,
            choice.revision,
            None,
            Proof(record=record),
            verdict=choice.verdict,
            differences=choice.differences,
            also=(proof.record,),
        )
    return _corrected_or_kept(
        observed, stored, proof=proof, question=question, candidates=candidates, choice=choice
    )


def _corrected_or_kept(
    observed: Observed,
    stored: StoredRevision,
    *,
    proof: Proof,
    question: Question,
    candidates: Candidates,
    choice: Choice,
) -> Selection:
    """The stored revision, or the one that its failed start leads to."""
    if proof.correction is None:
        return _settled(
            observed,
            choice.revision,
            stored.correction,
            proof,
            verdict="keep",
            differences=choice.differences,
        )
    answer = candidates.candidate(replace(question, correction=proof.correction))
    if isinstance(answer, Refusal):
        kept = _settled(observed, choice.revision, stored.correction, exhaust(proof), verdict="keep")
        return replace(kept, refusal=answer)
    if answer.name == stored.revision.name:
        return _settled(observed, choice.revision, stored.correction, proof, verdict="keep")
    corrected = replace(
        answer,
        number=stored.revision.number + 1,
        refresh=choice.revision.refresh,
        inputs=choice.revision.inputs,
        inputs_hash=choice.revision.inputs_hash,
    )
    record = RevisionStarts(revision=corrected.name, corrected=True)
    return _settled(
        observed,
        corrected,
        proof.correction,
        Proof(record=record, failed=proof.failed),
        verdict="corrected",
        also=(proof.record,),
    )


def _settled(
    observed: Observed,
    wanted: Revision,
    correction: MemoryCorrection | None,
    proof: Proof,
    *,
    verdict: str,
    differences: tuple[str, ...] = (),
    also: tuple[RevisionStarts, ...] = (),
) -> Selection:
    names = frozenset((wanted.name, *(each.revision.name for each in observed.revisions)))
    records = keep(_records(observed), (*also, proof.record), names)
    active = wanted
    if proof.exhausted:
        active = _last_good(observed, wanted, records) or wanted
    return Selection(
        wanted=wanted,
        active=active,
        correction=correction,
        proof=proof,
        records=records,
        verdict=verdict,
        differences=differences,
    )


def _last_good(observed: Observed, wanted: Revision, records: tuple[RevisionStarts, ...]) -> Revision | None:
    good = [
        each.revision
        for each in observed.revisions
        if each.revision.name != wanted.name and record_of(each.revision.name, records).proven
    ]
    return good[-1] if good else None


def _records(observed: Observed) -> tuple[RevisionStarts, ...]:
    return observed.status.start.revisions if observed.status.start is not None else ()


def _unreadable(observed: Observed) -> str | None:
    """What cannot be read, where it is the newest revision or the one that runs."""
    newest = observed.stored.revision.number if observed.stored is not None else 0
    deployment = observed.deployment or {}
    running = (deployment.get("metadata", {}).get("annotations") or {}).get(REVISION_LABEL, "")
    return next(
        (each.message for each in observed.unreadable if each.number > newest or each.name == running), None
    )
