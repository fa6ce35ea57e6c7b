"""The CustomResourceDefinitions, made from the API's types.

python -m llmservice_operator.api.crd llmservices       prints the one of that name
python -m llmservice_operator.api.crd scalingpolicies
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from llmservice_operator.api import labels
from llmservice_operator.api.markers import VALIDATIONS, Rule, cel_string, says
from llmservice_operator.api.names import NAME_MAX_LENGTH, NAME_MEND, NAME_PATTERN
from llmservice_operator.api.scaling_policy import ScalingPolicySpec
from llmservice_operator.api.spec import LLMServiceSpec
from llmservice_operator.api.status import LLMServiceStatus
from llmservice_operator.api.structural import Schema, structural_schema


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of `kubectl get`."""

    name: str
    kind: str
    path: str
    description: str = ""
    is_wide: bool = False
    """True: shown with -o wide only."""

    def as_schema(self) -> dict[str, Any]:
        """The column as an entry of additionalPrinterColumns."""
        column = {"name": self.name, "type": self.kind, "jsonPath": self.path, "priority": int(self.is_wide)}
        return column | ({"description": self.description} if self.description else {})


def _condition(condition_type: str, field: str) -> str:
    return f'.status.conditions[?(@.type=="{condition_type}")].{field}'


_AGE = Column(name="Age", kind="date", path=".metadata.creationTimestamp")

SERVICE_DESCRIPTION = (
    "LLMService serves one large language model: it is sized from first principles, run by an engine, held at its "
    "number of replicas or scaled by its load, and explained in its status. The smallest useful one is spec.model.uri "
    "alone."
)

SERVICE_COLUMNS = (
    Column(
        name="Ready",
        kind="string",
        path=_condition("Ready", "status"),
        description="Whether requests are answered.",
    ),
    Column(name="Status", kind="string", path=_condition("Ready", "reason"), description="What is going on."),
    Column(name="Replicas", kind="integer", path=".status.replicas", description="Pods that exist."),
    Column(
        name="Accelerator", kind="string", path=".status.plan.accelerator", description="What it runs on."
    ),
    Column(
        name="Context",
        kind="integer",
        path=".status.plan.knobs.maxModelLen",
        description="Tokens that one request may hold.",
    ),
    Column(
        name="KV Tokens",
        kind="integer",
        path=".status.plan.kvCacheTokens",
        description="Tokens that the KV cache of a replica holds.",
    ),
    Column(
        name="TTFT p95",
        kind="number",
        path='.status.scaling.signals[?(@.name=="ttft_p95_seconds")].value',
        description="Seconds until the first token of all but 5 of 100 requests, as measured.",
    ),
    _AGE,
    Column(
        name="Address",
        kind="string",
        path=".status.address",
        description="Base URL inside the cluster.",
        is_wide=True,
    ),
    Column(
        name="Message",
        kind="string",
        path=_condition("Ready", "message"),
        description="What is going on, in a sentence.",
        is_wide=True,
    ),
)

POLICY_DESCRIPTION = (
    "ScalingPolicy says how the number of replicas follows the load, for every LLMService that names it in "
    "spec.scaling.policy. One is built in: balanced, which is meant for every load and used unless an object of that "
    "name is there. Nothing needs to be created to use it."
)

POLICY_COLUMNS = (
    Column(
        name="Target",
        kind="number",
        path=".spec.targetUtilization",
        description="Load that a replica should have; empty: as in balanced.",
    ),
    Column(
        name="Scale-In",
        kind="number",
        path=".spec.scaleInUtilization",
        description="Load that the others may have once there is one less; empty: as in balanced.",
    ),
    _AGE,
)

_HEAD: Schema = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}

_NAME = Rule(
    rule=f"size(self.metadata.name) <= {NAME_MAX_LENGTH} && self.metadata.name.matches({cel_string(NAME_PATTERN)})",
    message_expression=says(f"%s: it {NAME_MEND}", "self.metadata.name"),
    field_path=".metadata.name",
)
_WHEN_SCALING_GOES = Rule(
    rule=(
        "!has(oldSelf.spec.scaling) || has(self.spec.scaling) || !has(self.status)"
        " || !has(self.status.desiredReplicas) || self.spec.replicas >= self.status.desiredReplicas"
    ),
    message_expression=says(
        "spec.replicas is used again once spec.scaling is removed, and is %d where %d are wanted now: "
        "set it to %d or more in the same change; it can be lowered afterwards",
        "self.spec.replicas",
        "self.status.desiredReplicas",
        "self.status.desiredReplicas",
    ),
    field_path=".spec.replicas",
)
"""Nothing is scaled in by our stepping back: spec.replicas has most often its default then, which is 1."""


def service_definition() -> Schema:
    """The CustomResourceDefinition of LLMService as JSON. The same for the same sources."""
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    schema = {
        "type": "object",
        "description": SERVICE_DESCRIPTION,
        # Where spec is absent, reading the scale subresource fails; a default of {} would lack spec.model.
        "required": ["spec"],
        VALIDATIONS: [_NAME.as_schema(), _WHEN_SCALING_GOES.as_schema()],
        "properties": {
            **_HEAD,
            "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
            "spec": structural_schema(LLMServiceSpec.model_json_schema(by_alias=True)),
            "status": structural_schema(LLMServiceStatus.model_json_schema(by_alias=True)),
        },
    }
    return _definition(
        kind=labels.KIND,
        plural=labels.PLURAL,
        short_name="llmsvc",
        scope="Namespaced",
        columns=SERVICE_COLUMNS,
        schema=schema,
        subresources={"status": {}, "scale": scale},
    )


def policy_definition() -> Schema:
    """The CustomResourceDefinition of ScalingPolicy as JSON. The same for the same sources."""
    return _definition(
        kind=labels.POLICY_KIND,
        plural=labels.POLICY_PLURAL,
        short_name="llmscale",
        scope="Cluster",
        columns=POLICY_COLUMNS,
        schema={
            "type": "object",
            "description": POLICY_DESCRIPTION,
            "properties": {
                **_HEAD,
                "metadata": {"type": "object"},
                "spec": structural_schema(ScalingPolicySpec.model_json_schema(by_alias=True)),
            },
        },
    )


def _definition(
    *,
    kind: str,
    plural: str,
    short_name: str,
    scope: str,
    columns: tuple[Column, ...],
    schema: Schema,
    subresources: Mapping[str, Any] | None = None,
) -> Schema:
    names = {
        "kind": kind,
        "listKind": f"{kind}List",
        "plural": plural,
        "singular": kind.lower(),
        "shortNames": [short_name],
    }
    version = {
        "name": labels.VERSION,
        "served": True,
        "storage": True,
        **({"subresources": subresources} if subresources else {}),
        "additionalPrinterColumns": [column.as_schema() for column in columns],
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{labels.GROUP}"},
        "spec": {"group": labels.GROUP, "names": names, "scope": scope, "versions": [version]},
    }


DEFINITIONS = {labels.PLURAL: service_definition, labels.POLICY_PLURAL: policy_definition}


def render(plural: str) -> str:
    """A CustomResourceDefinition as YAML."""
    command = f"python -m llmservice_operator.api.crd {plural}"
    head = f"# Made by `{command}` from the types of the API; not edited by hand.\n"
    return head + yaml.safe_dump(DEFINITIONS[plural](), sort_keys=False, allow_unicode=True, width=118)


if __name__ == "__main__":
    sys.stdout.write(render(sys.argv[1]))
