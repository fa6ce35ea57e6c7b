"""`spec` of a ScalingPolicy: how the number of replicas follows the load.

The fields and defaults are those of `autoscaling.policy.ScalingPolicy`; a test holds the two together. The schema has
no defaults: the API server would write them into each object, which kept a release's numbers from then on, where only
what differs from `balanced` was meant. Descriptions tell them, and the rules on pairs of fields know them.
"""

from typing import Annotated, Self

from pydantic import GetJsonSchemaHandler, model_validator
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from llmservice_operator.api.base import SpecModel
from llmservice_operator.api.markers import VALIDATIONS, NumberBetween, Rule, says

Share = Annotated[float, NumberBetween(0.05, 1.0, "it is a share, such as 0.85 for 85 %")]
Growth = Annotated[
    float, NumberBetween(0.01, 10.0, "it is a share of what the load needs, such as 0.3 for 30 %")
]
Deviations = Annotated[float, NumberBetween(0.1, 10.0, "it is a number of standard deviations")]
Seconds = Annotated[float, NumberBetween(1.0, 86_400.0, "it is a number of seconds, such as 60")]

_ORDERED = (
    ("scaleInUtilization", "targetUtilization"),
    ("kvLimitAfter", "kvLimit"),
    ("leastStabilizationSeconds", "mostStabilizationSeconds"),
)
"""The first of each pair must not be above the second."""


class ScalingPolicySpec(SpecModel):
    """Head-room, windows, rates and guards. What is left out is as the built-in policy balanced has it."""

    target_utilization: Share = 0.95
    """Load that a replica of a large fleet is meant to have, as a share of what it takes within spec.slo. Above it
    there are more replicas."""
    scale_in_utilization: Share = 0.9
    """Load that the other replicas may have at most once there is one less. Not above targetUtilization: the gap keeps
    a scale-in from being undone at once."""
    small_fleet_reserve: Annotated[
        float, NumberBetween(0.01, 2.0, "times the square root of the replicas it is how many stay free")
    ] = 0.2
    """Replicas that stay free, over the square root of the replicas: chance is evened out among many, and not among
    few. With 0.2 a fleet of 1, 2, 4, 8 and 16 has 80, 86, 90, 93 and 95 % of its capacity used."""
    kv_limit: Share = 0.92
    """Share of the KV cache in use above which there must be more replicas, since preemption is near."""
    kv_limit_after: Share = 0.8
    """Share of the KV cache that the other replicas may use once there is one less. Not above kvLimit."""
    bandwidth_limit: Share = 0.9
    """Share of the memory's peak bandwidth, by the engine's own count of bytes, that the other replicas may use once
    there is one less."""
    dram_active_limit: Share = 0.8
    """DCGM's DRAM_ACTIVE that the other replicas may have once there is one less. In practice it hardly gets above
    0.8."""
    drain_seconds: Seconds = 60.0
    """How soon a queue should be gone once there are enough replicas."""
    most_backlog_growth: Growth = 0.5
    """What a queue may add to the replicas that the load needs."""
    burst_deviations: Deviations = 4.0
    """How far the rate of the last 30 s must be above that of the long window to count, in standard deviations of a
    Poisson stream."""
    scale_in_deviations: Deviations = 2.0
    """Room for noise of the load before there is one replica less, in standard deviations."""
    most_forecast_growth: Growth = 0.3
    """What a rising trend may add to the rate that replicas are reckoned for."""
    scale_out_factor: Annotated[float, NumberBetween(1.0, 100.0)] = 2.0
    """By so much the number of replicas may be multiplied in one scaleOutPeriodSeconds. The larger of this and
    scaleOutStep counts."""
    scale_out_step: Annotated[int, NumberBetween(1, 1_000)] = 4
    """So many replicas may be added in one scaleOutPeriodSeconds."""
    scale_out_period_seconds: Seconds = 60.0
    """The window of scaleOutFactor and scaleOutStep."""
    scale_in_share: Share = 0.5
    """Share of the replicas that may go at once; always one at least."""
    scale_in_period_seconds: Seconds = 60.0
    """Least time between two scale-ins, in which the first shows in the latency."""
    stabilization_starts: Annotated[float, NumberBetween(0.1, 100.0)] = 1.0
    """Time for which the load must have been low before a scale-in, in start times of a replica: what is given up
    takes one to come back."""
    least_stabilization_seconds: Seconds = 120.0
    """Time for which the load must have been low before a scale-in, however fast a replica starts."""
    most_stabilization_seconds: Seconds = 600.0
    """Longest time for which the load must have been low before a scale-in, however slowly a replica starts. Only
    mostCaution makes it longer."""
    most_caution: Annotated[float, NumberBetween(1.0, 100.0)] = 6.0
    """A scale-in that was undone doubles the time for which the load must have been low before the next, up to so many
    times of it."""
    caution_seconds: Annotated[
        float, NumberBetween(1.0, 604_800.0, "it is a number of seconds, such as 7200")
    ] = 7_200.0
    """Time in which the caution after a scale-in that was undone (mostCaution) goes away again."""
    least_samples: Annotated[int, NumberBetween(1, 10_000)] = 20
    """A p95 of fewer requests than this is not believed."""
    least_correction: Annotated[float, NumberBetween(0.1, 1.0)] = 0.5
    """Least factor between the capacity that is observed and that of the model."""
    most_correction: Annotated[float, NumberBetween(1.0, 10.0)] = 2.0
    """Largest factor between the capacity that is observed and that of the model."""
    gap_seconds: Annotated[float, NumberBetween(30.0, 3_600.0, "decisions are made each 15 s")] = 60.0
    """After a pause between decisions that is longer than this the watch for a scale-in begins anew."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        values = self.model_dump(by_alias=True)
        for low, high in _ORDERED:
            if values[low] > values[high]:
                raise ValueError(_fault(low, high) % (f"{values[low]:g}", f"{values[high]:g}"))
        return self

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /
    ) -> JsonSchemaValue:
        schema = super().__get_pydantic_json_schema__(core_schema, handler)
        whole = handler.resolve_ref_schema(schema)
        fields = {field.alias: field for field in cls.model_fields.values()}
        for name, each in whole["properties"].items():
            each["description"] += f" {_told_bounds(fields[name])} Default: {each.pop('default'):g}."
        whole[VALIDATIONS] = [_order_rule(low, high, fields).as_schema() for low, high in _ORDERED]
        return schema


def _told_bounds(field: FieldInfo) -> str:
    (bounds,) = (each for each in field.metadata if isinstance(each, NumberBetween))
    return f"From {bounds.minimum:g} to {bounds.maximum:g}."


def _fault(low: str, high: str) -> str:
    return f"{low} is %s and {high} is %s: {low} must not be above {high}"


def _order_rule(low: str, high: str, fields: dict[str | None, FieldInfo]) -> Rule:
    """A field that is left out has its default in the comparison, and the message shows that."""
    values = [f"(has(self.{name}) ? self.{name} : {fields[name].default!r})" for name in (low, high)]
    return Rule(rule=f"{values[0]} <= {values[1]}", message_expression=says(_fault(low, high), *values))
