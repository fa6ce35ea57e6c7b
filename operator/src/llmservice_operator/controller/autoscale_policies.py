"""Scaling policies by name: the objects in the cluster, and `balanced`, which is built in."""

from collections.abc import Mapping
from typing import Any, Protocol

from pydantic import ValidationError

from llmservice_operator.api.conditions import Reason
from llmservice_operator.api.labels import BALANCED_POLICY, POLICY_KIND
from llmservice_operator.api.problems import told
from llmservice_operator.api.scaling_policy import ScalingPolicySpec
from llmservice_operator.autoscaling.policy import BALANCED, ScalingPolicy
from llmservice_operator.controller.autoscale_service import PolicyAnswer
from llmservice_operator.controller.verdict import Verdict


class PolicyStore(Protocol):
    """The informer's view, as far as policies go."""

    def version(self, kind: str, namespace: str, name: str) -> tuple[str, int] | None:
        """The object's uid and resourceVersion, without unpacking it."""

    def get(self, kind: str, namespace: str, name: str) -> Mapping[str, Any] | None:
        """The object, or None."""


class StoredPolicies:
    """Reads each policy once for each of its versions."""

    def __init__(self, store: PolicyStore, *, sees_policies: bool = True) -> None:
        """`sees_policies`: False in namespaced mode, where no object outside of namespaces can be read."""
        self._store = store
        self._sees_policies = sees_policies
        self._known: dict[str, tuple[tuple[str, int], PolicyAnswer]] = {}

    def answer(self, name: str) -> PolicyAnswer:
        """The policy of this name, or why there is none to scale by."""
        version = self._store.version(POLICY_KIND, "", name)
        if version is None:
            self._known.pop(name, None)
            return _built_in(name, sees_policies=self._sees_policies)
        known = self._known.get(name)
        if known is None or known[0] != version:
            known = self._known[name] = (
                version,
                read_policy(name, self._store.get(POLICY_KIND, "", name) or {}),
            )
        return known[1]


def read_policy(name: str, found: Mapping[str, Any]) -> PolicyAnswer:
    """The policy of this object, or what in it can't be meant."""
    spec = found.get("spec") or {}
    try:
        policy = ScalingPolicy(**ScalingPolicySpec.model_validate(spec).model_dump())
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        return _invalid(name, told(first, spec))
    problems = policy.problems()
    return _invalid(name, "; ".join(problems)) if problems else PolicyAnswer(policy=policy)


def _built_in(name: str, *, sees_policies: bool) -> PolicyAnswer:
    if name == BALANCED_POLICY:
        return PolicyAnswer(policy=BALANCED)
    mend = (
        f"create it, or set spec.scaling.policy to {BALANCED_POLICY}, which is built in"
        if sees_policies
        else f"this operator looks after single namespaces and reads no policies; set it to {BALANCED_POLICY}"
    )
    words = f"spec.scaling.policy is {name}, and there is no ScalingPolicy of that name; the number of replicas is held"
    problem = Verdict(status="False", reason=Reason.POLICY_NOT_FOUND, message=f"{words}; {mend}")
    return PolicyAnswer(policy=BALANCED, problem=problem)


def _invalid(name: str, words: str) -> PolicyAnswer:
    message = f"ScalingPolicy {name}: spec.{words}; the number of replicas is held until it is mended"
    return PolicyAnswer(
        policy=BALANCED, problem=Verdict(status="False", reason=Reason.POLICY_INVALID, message=message)
    )
