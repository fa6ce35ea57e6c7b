"""`spec.scaling` of an LLMService, and who writes `spec.replicas` beside it."""

from typing import Annotated, Self

from pydantic import ConfigDict, model_validator

from llmservice_operator.api.base import SpecModel
from llmservice_operator.api.labels import BALANCED_POLICY
from llmservice_operator.api.markers import NumberBetween, Rule, rules, says
from llmservice_operator.api.names import ObjectName

MAX_REPLICAS = 1_000

REPLICAS_ON_CHANGE = (
    "spec.replicas is not used while spec.scaling is set; change scaling.minReplicas or maxReplicas"
)
REPLICAS_ON_CREATE = (
    "spec.replicas is not used while spec.scaling is set; leave it out, and set scaling.minReplicas"
)

_NO_ZERO = (
    "a scaled service runs one replica at least; "
    "for one that runs none, remove spec.scaling and set spec.replicas to 0"
)


class Scaling(SpecModel):
    """The operator sets the number of replicas: as few as keep spec.slo under the load that there is."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                rule="self.minReplicas <= self.maxReplicas",
                message_expression=says(
                    "minReplicas is %d and maxReplicas is %d: minReplicas must not be above maxReplicas",
                    "self.minReplicas",
                    "self.maxReplicas",
                ),
            )
        )
    )

    policy: ObjectName = BALANCED_POLICY
    """The ScalingPolicy that says how. Default: balanced, which is built in and meant for every load."""
    min_replicas: Annotated[int, NumberBetween(1, MAX_REPLICAS, _NO_ZERO)] = 1
    """Fewest replicas, from 1. Default: 1."""
    max_replicas: Annotated[int, NumberBetween(1, MAX_REPLICAS)]
    """Most replicas, up to 1000. What they cost is the most that the service can cost."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_replicas > self.max_replicas:
            raise ValueError(
                f"minReplicas is {self.min_replicas} and maxReplicas is {self.max_replicas}: "
                "minReplicas must not be above maxReplicas"
            )
        return self
