"""`spec` of an LLMService: what the user says. The smallest is `model.uri` alone.

Descriptions, bounds, defaults and rules are all here: `crd.py` makes the schema from them, so that the API server
holds them while the operator is down.
"""

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from llmservice_operator.api.base import SpecModel
from llmservice_operator.api.durations import DURATION_MAX_LENGTH
from llmservice_operator.api.markers import (
    DurationBetween,
    Matches,
    Rule,
    Satisfies,
    rules,
    says,
)
from llmservice_operator.api.names import Annotations, Labels
from llmservice_operator.api.spec_engine import Engine, EnvVar, EnvVarSource, Pin
from llmservice_operator.api.spec_model import Cache, CacheCreate, CacheEmptyDir, Model, SecretKey
from llmservice_operator.api.spec_pod import PodTemplate, PodVolume
from llmservice_operator.api.spec_scaling import (
    MAX_REPLICAS,
    REPLICAS_ON_CHANGE,
    REPLICAS_ON_CREATE,
    Scaling,
)

MAX_TENSOR = 16
MAX_TOKENS = 16_777_216

Tokens = Annotated[int, Field(ge=1, le=MAX_TOKENS)]

_TENSOR_MEND = f"must be auto or a whole number from 1 to {MAX_TENSOR}, written without quotes"


class Parallelism(SpecModel):
    """How one replica is spread over accelerators."""

    tensor: Annotated[
        Annotated[int, Field(ge=1, le=MAX_TENSOR)] | Literal["auto"],
        Field(
            json_schema_extra={
                "x-kubernetes-int-or-string": True,
                "maxLength": 8,
                **rules(
                    Rule(
                        rule=f"type(self) == int ? self >= 1 && self <= {MAX_TENSOR} : self == 'auto'",
                        message=_TENSOR_MEND,
                    )
                ),
            }
        ),
    ] = "auto"
    """Accelerators of one node that share the model's layers (--tensor-parallel-size): auto or 1 to 16.
    auto: the fewest that fit."""


_CPU_MEND = "mixes cpu with accelerators; name cpu alone, or leave it out"


class Accelerator(SpecModel):
    """What the service may run on."""

    types: Annotated[
        tuple[
            Annotated[
                str,
                Field(min_length=1, max_length=63),
                Matches(
                    "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
                    "must be a row of the catalogue, such as nvidia-h200 or cpu",
                ),
            ],
            ...,
        ],
        Field(max_length=16, json_schema_extra={"x-kubernetes-list-type": "set"}),
        Satisfies(
            lambda types: _CPU_MEND if "cpu" in types and len(types) > 1 else None,
            (Rule(rule="!('cpu' in self) || self.size() == 1", message=_CPU_MEND),),
        ),
    ] = ()
    """Rows of the operator's catalogue, such as nvidia-h200; the cheapest that fits is used. cpu needs no GPU.
    Default: what the nodes have."""
    resource_name: Annotated[
        str,
        Field(max_length=317),
        Matches(
            "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$",
            "must be a countable resource such as nvidia.com/gpu",
        ),
    ] = ""
    """The countable resource that pods ask for. Default: the row's own. Example: nvidia.com/mig-3g.40gb."""
    parallelism: Parallelism = Field(default_factory=Parallelism)
    """How one replica is spread over accelerators."""


class ContextRange(SpecModel):
    """Tokens that one request may hold, prompt and answer together."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                rule="!has(self.min) || !has(self.max) || self.min <= self.max",
                message_expression=says(
                    "min is %d and max is %d: min must not be above max", "self.min", "self.max"
                ),
            )
        )
    )

    min: Tokens | None = None
    """Least length in tokens; the service is refused where it cannot be served. Default: 2048, or max if less."""
    max: Tokens | None = None
    """Largest length in tokens; less is planned where memory is short, down to min. Default: the model's own limit."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min is {self.min} and max is {self.max}: min must not be above max")
        return self


class TokenQuantiles(SpecModel):
    """Quantiles of a length, in tokens."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                rule="!has(self.p50) || !has(self.p95) || self.p50 <= self.p95",
                message_expression=says(
                    "p50 is %d and p95 is %d: p50 must not be above p95", "self.p50", "self.p95"
                ),
            )
        )
    )

    p50: Tokens | None = None
    """Half of the requests have at most so many tokens."""
    p95: Tokens | None = None
    """95 of 100 requests have at most so many tokens."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.p50 is not None and self.p95 is not None and self.p50 > self.p95:
            raise ValueError(f"p50 is {self.p50} and p95 is {self.p95}: p50 must not be above p95")
        return self


class Concurrency(SpecModel):
    """Requests that one replica holds at once."""

    min: int | None = Field(default=None, ge=1, le=65_536)
    """Requests of p95 length that one replica must hold in KV memory at once. Default: 1."""


class Workload(SpecModel):
    """What the service will be asked for. All of it is optional, and each figure makes the plan more exact."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                rule=(
                    "!has(self.context) || !has(self.context.max) || !has(self.inputTokens) || !has(self.outputTokens)"
                    " || !has(self.inputTokens.p95) || !has(self.outputTokens.p95)"
                    " || self.inputTokens.p95 + self.outputTokens.p95 <= self.context.max"
                ),
                message_expression=says(
                    "inputTokens.p95 + outputTokens.p95 is %d, above context.max, %d: "
                    "raise context.max, or lower the quantiles",
                    "self.inputTokens.p95 + self.outputTokens.p95",
                    "self.context.max",
                ),
            )
        )
    )

    context: ContextRange = Field(default_factory=ContextRange)
    """Tokens that one request may hold. Example: {min: 8192, max: 32768}."""
    input_tokens: TokenQuantiles = Field(default_factory=TokenQuantiles)
    """Length of prompts. Example: {p50: 1000, p95: 4000}."""
    output_tokens: TokenQuantiles = Field(default_factory=TokenQuantiles)
    """Length of answers. Example: {p50: 200, p95: 600}."""
    concurrency: Concurrency = Field(default_factory=Concurrency)
    """Requests that one replica holds at once. Example: {min: 16}."""

    @model_validator(mode="after")
    def _quantiles_fit(self) -> Self:
        longest, prompt, answer = self.context.max, self.input_tokens.p95, self.output_tokens.p95
        if longest is not None and prompt is not None and answer is not None and prompt + answer > longest:
            raise ValueError(
                f"inputTokens.p95 + outputTokens.p95 is {prompt + answer}, above context.max, {longest}: "
                "raise context.max, or lower the quantiles"
            )
        return self


class TimeToFirstToken(SpecModel):
    """How long a client waits for the first token."""

    p95: Annotated[str, Field(max_length=DURATION_MAX_LENGTH), DurationBetween("1ms", "10m")] | None = None
    """95 of 100 requests have their first token within this time, from 1ms to 10m. Example: 1s."""


class TimePerOutputToken(SpecModel):
    """How long a client waits for each further token, on average over one answer."""

    p95: Annotated[str, Field(max_length=DURATION_MAX_LENGTH), DurationBetween("1ms", "10s")] | None = None
    """95 of 100 requests get their tokens at this pace or faster, from 1ms to 10s. Example: 50ms.

    An answer of fewer than 32 tokens may take as long as one of 32: of a few tokens one that is late would decide.
    """


class Slo(SpecModel):
    """What clients are promised. The batch knobs and the accelerator are chosen so that the prediction keeps it.

    An objective that nothing allowed can keep doesn't stop the service: the plan says by how much it is missed.
    """

    ttft: TimeToFirstToken = Field(default_factory=TimeToFirstToken)
    """Time to the first token. Example: {p95: 1s}."""
    tpot: TimePerOutputToken = Field(default_factory=TimePerOutputToken)
    """Time per output token. Example: {p95: 50ms}."""


class Drain(SpecModel):
    """How a replica stops: it takes no new requests, finishes those it has, and ends."""

    timeout: Annotated[str, Field(max_length=DURATION_MAX_LENGTH), DurationBetween("5s", "1h")] = "5m"
    """How long running requests may take to finish, from 5s to 1h. Example: 90s."""


class ServicePort(SpecModel):
    """The Service in front of the replicas; it has the name of the LLMService."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    """ClusterIP, NodePort or LoadBalancer."""
    port: int = Field(default=8000, ge=1, le=65_535)
    """Port that clients use."""
    annotations: Annotations = Field(default_factory=dict)
    """Further annotations of the Service, such as those that a cloud's load balancer reads."""
    labels: Labels = Field(default_factory=dict)
    """Further labels of the Service."""


class LLMServiceSpec(SpecModel):
    """What the user says: a model, and what is wanted of it."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                rule="oldSelf.hasValue() || !has(self.scaling) || self.replicas == 1",
                optional_old_self=True,
                message=REPLICAS_ON_CREATE,
                field_path=".replicas",
            ),
            Rule(
                rule="!has(oldSelf.scaling) || !has(self.scaling) || self.replicas == oldSelf.replicas",
                message=REPLICAS_ON_CHANGE,
                field_path=".replicas",
            ),
            Rule(
                rule=(
                    "!has(self.engine.pin) || !has(self.engine.pin.maxModelLen) || !has(self.workload)"
                    " || !has(self.workload.context) || !has(self.workload.context.min)"
                    " || self.engine.pin.maxModelLen >= self.workload.context.min"
                ),
                message_expression=says(
                    "maxModelLen is %d, below spec.workload.context.min, %d: raise the first, or lower the second",
                    "self.engine.pin.maxModelLen",
                    "self.workload.context.min",
                ),
                field_path=".engine.pin.maxModelLen",
            ),
            Rule(
                rule=(
                    "!has(self.engine.pin) || !has(self.engine.pin.maxNumSeqs) || !has(self.workload)"
                    " || !has(self.workload.concurrency) || !has(self.workload.concurrency.min)"
                    " || self.engine.pin.maxNumSeqs >= self.workload.concurrency.min"
                ),
                message_expression=says(
                    "maxNumSeqs is %d, below spec.workload.concurrency.min, %d: raise the first, or lower the second",
                    "self.engine.pin.maxNumSeqs",
                    "self.workload.concurrency.min",
                ),
                field_path=".engine.pin.maxNumSeqs",
            ),
        )
    )

    model: Model
    """The model: where it comes from, and the name it answers to. Only model.uri is required."""
    engine: Engine = Field(default_factory=Engine)
    """The engine that serves the model."""
    accelerator: Accelerator = Field(default_factory=Accelerator)
    """What the service may run on."""
    workload: Workload = Field(default_factory=Workload)
    """What the service will be asked for; the plan is made for it."""
    slo: Slo = Field(default_factory=Slo)
    """What clients are promised. Example: {ttft: {p95: 1s}, tpot: {p95: 50ms}}."""
    replicas: int = Field(default=1, ge=0, le=MAX_REPLICAS)
    """How many replicas run, from 0; `kubectl scale` sets it. Not used while scaling is set, and used again once
    scaling is removed: then it must be set to what runs, or more, in the same change."""
    scaling: Scaling | None = None
    """The operator sets the number of replicas, within these bounds. While it is set, replicas may not be changed.
    Example: {maxReplicas: 8}."""
    drain: Drain = Field(default_factory=Drain)
    """How a replica stops."""
    service: ServicePort = Field(default_factory=ServicePort)
    """The Service in front of the replicas."""
    pod_template: PodTemplate = Field(default_factory=PodTemplate)
    """A closed subset of a pod's fields: no containers, no host namespaces, no privilege."""

    @model_validator(mode="after")
    def _pins_allow_workload(self) -> Self:
        pin, workload = self.engine.pin, self.workload
        if pin.max_model_len is not None and workload.context.min is not None:
            _at_least("engine.pin.maxModelLen", pin.max_model_len, "context.min", workload.context.min)
        if pin.max_num_seqs is not None and workload.concurrency.min is not None:
            _at_least("engine.pin.maxNumSeqs", pin.max_num_seqs, "concurrency.min", workload.concurrency.min)
        return self


def _at_least(field: str, value: int, floor_field: str, floor: int) -> None:
    if value < floor:
        raise ValueError(
            f"{field} is {value}, below spec.workload.{floor_field}, {floor}: raise the first, or lower the second"
        )


__all__ = [
    "Accelerator",
    "Cache",
    "CacheCreate",
    "CacheEmptyDir",
    "Concurrency",
    "ContextRange",
    "Drain",
    "Engine",
    "EnvVar",
    "EnvVarSource",
    "LLMServiceSpec",
    "Model",
    "Parallelism",
    "Pin",
    "PodTemplate",
    "PodVolume",
    "Scaling",
    "SecretKey",
    "ServicePort",
    "Slo",
    "TimePerOutputToken",
    "TimeToFirstToken",
    "TokenQuantiles",
    "Workload",
]
