"""Revisions: what was rendered and why, kept so that no upgrade of ours restarts an engine."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from llmservice_operator.api.labels import GROUP, INPUTS_HASH_ANNOTATION, REFRESH_ANNOTATION
from llmservice_operator.errors import InvalidInputError
from llmservice_operator.planning.serialize import plan_from_json, plan_to_json
from llmservice_operator.planning.types import Plan
from llmservice_operator.resources.diff import changes
from llmservice_operator.resources.inputs import digest
from llmservice_operator.resources.metadata import child_metadata
from llmservice_operator.resources.types import Identity, Manifest

HISTORY_LIMIT = 3
"""Revisions kept: the current one and two to go back to."""

INPUTS_ANNOTATION = f"{GROUP}/inputs"
"""On a ControllerRevision: the newest words of the user's that this revision was found to satisfy. The data
of a ControllerRevision cannot be changed, and an edit that changes no knob must be remembered without a new
one."""

_NAME_MAX_LENGTH = 63
"""The name is a label's value too."""
_HASH_LENGTH = 10

Verdict = Literal["keep", "first", "roll", "refreshed"]


@dataclass(frozen=True, kw_only=True)
class Revision:
    """One rendered pod template with the plan behind it."""

    name: str
    template: Manifest
    """Without the revision's own label; `children.stamp` adds it."""
    plan: Plan
    inputs: Mapping[str, Any]
    inputs_hash: str
    engine_image: str
    supervisor_image: str
    model_revision: str | None
    """The commit that the model's revision resolved to, where the source has commits."""
    refresh: str = ""
    """The text of the refresh annotation that was obeyed last."""
    number: int = 1
    """Grows with each roll; the newest revision has the highest."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which revision runs, why, and what this release would do otherwise."""

    revision: Revision
    verdict: Verdict
    differences: tuple[str, ...] = field(default=())
    """On `keep`: from the kept revision to the candidate (then UpToDate is False). On `roll` and `refreshed`:
    what changes."""


def revision_name(service_name: str, template: Mapping[str, Any], plan: Plan) -> str:
    """`<service>-<hash>`: the same for the same template and knobs, and never longer than a label's value."""
    text = digest({"template": template, "knobs": asdict(plan.knobs)})[:_HASH_LENGTH]
    return f"{service_name[: _NAME_MAX_LENGTH - _HASH_LENGTH - 1].rstrip('-.')}-{text}"


def choose(stored: Revision | None, baseline: Revision | None, candidate: Revision, refresh: str) -> Choice:
    """Which revision is to run.

    `stored` runs now. `candidate` is what this release makes of what the user says now. `baseline` is what
    this release makes of what the user said when `stored` was made: whatever differs between these two is the
    user's doing, and only that may roll pods; neither an upgrade nor a catalogue's change rides on an edit
    that changes nothing. Without a baseline (the model's config changed, or old words cannot be read any
    more) `stored` stands in for it. `refresh` is the text of the annotation: a new one takes the candidate, a
    removed one changes nothing.
    """
    if stored is None:
        return Choice(revision=replace(candidate, refresh=refresh), verdict="first")
    possible = revision_differences(stored, candidate)
    taken = replace(candidate, refresh=refresh, number=stored.number + 1)
    kept = replace(stored, refresh=refresh)
    if refresh and refresh != stored.refresh:
        if not possible:
            kept = replace(kept, inputs=candidate.inputs, inputs_hash=candidate.inputs_hash)
            return Choice(revision=kept, verdict="keep")
        return Choice(revision=taken, verdict="refreshed", differences=possible)
    if stored.inputs_hash == candidate.inputs_hash:
        return Choice(revision=kept, verdict="keep", differences=possible)
    # Nothing to roll to where the user now asks for just what runs.
    if possible and revision_differences(baseline or stored, candidate):
        return Choice(revision=taken, verdict="roll", differences=possible)
    kept = replace(kept, inputs=candidate.inputs, inputs_hash=candidate.inputs_hash)
    return Choice(revision=kept, verdict="keep", differences=possible)


def revision_differences(old: Revision, new: Revision) -> tuple[str, ...]:
    """What differs between two revisions in knobs and rendered fields, as `path: old → new`."""
    return (
        *changes(asdict(old.plan.knobs), asdict(new.plan.knobs), at="knobs"),
        *changes(old.template, new.template, at="template"),
    )


def pack(identity: Identity, revision: Revision) -> Manifest:
    """The ControllerRevision that keeps the revision."""
    annotations = {
        INPUTS_HASH_ANNOTATION: revision.inputs_hash,
        INPUTS_ANNOTATION: json.dumps(revision.inputs, sort_keys=True, separators=(",", ":")),
    }
    if revision.refresh:
        annotations[REFRESH_ANNOTATION] = revision.refresh
    data: Manifest = {
        "schema": 1,
        "template": revision.template,
        "plan": plan_to_json(revision.plan),
        "engineImage": revision.engine_image,
        "supervisorImage": revision.supervisor_image,
    }
    if revision.model_revision:
        data["modelRevision"] = revision.model_revision
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": child_metadata(identity, revision.name, annotations=annotations),
        "revision": revision.number,
        "data": data,
    }


def unpack(manifest: Mapping[str, Any]) -> Revision:
    """The revision that a ControllerRevision keeps. Raises InvalidInputError for one that cannot be read."""
    name = manifest["metadata"]["name"]
    annotations = manifest["metadata"].get("annotations") or {}
    data = manifest.get("data") or {}
    try:
        return Revision(
            name=name,
            template=data["template"],
            plan=plan_from_json(data["plan"]),
            # Taken off by hand, they are as good as changed: the candidate is compared with this revision.
            inputs=json.loads(annotations.get(INPUTS_ANNOTATION, "{}")),
            inputs_hash=annotations.get(INPUTS_HASH_ANNOTATION, ""),
            engine_image=data["engineImage"],
            supervisor_image=data["supervisorImage"],
            model_revision=data.get("modelRevision"),
            refresh=annotations.get(REFRESH_ANNOTATION, ""),
            number=manifest["revision"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"ControllerRevision {name} cannot be read ({error!r}): delete it, and the service is planned "
            "anew, which restarts its pods"
        ) from error


def newest(manifests: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The ControllerRevision with the highest number: what runs, or is being rolled to."""
    return max(manifests, key=_age_key, default=None)


def superfluous(manifests: Iterable[Mapping[str, Any]], in_use: Iterable[str]) -> tuple[str, ...]:
    """Names of the ControllerRevisions to delete: the oldest beyond the limit, but none that is in use."""
    used = frozenset(in_use)
    old = sorted(manifests, key=_age_key, reverse=True)[HISTORY_LIMIT:]
    return tuple(manifest["metadata"]["name"] for manifest in old if manifest["metadata"]["name"] not in used)


def _age_key(manifest: Mapping[str, Any]) -> tuple[int, str]:
    return manifest["revision"], manifest["metadata"]["name"]
