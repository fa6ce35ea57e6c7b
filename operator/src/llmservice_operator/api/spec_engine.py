"""`spec.engine`: what serves the model, and how."""

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from llmservice_operator.api.base import SpecModel
from llmservice_operator.api.markers import Matches, Rule, Satisfies, cel_string, rules, says
from llmservice_operator.api.reserved import (
    FLAG_ALIASES,
    FLAG_MEND,
    FLAG_PATTERN,
    NEGATION_PREFIX,
    RESERVED_ENV,
    RESERVED_ENV_PREFIX,
    RESERVED_ENV_PREFIX_MEND,
    argument_mend,
    argument_mends,
    environment_mend,
)
from llmservice_operator.api.spec_model import SecretKey

_FLAG = Matches(FLAG_PATTERN, FLAG_MEND)


def _arguments_fault(arguments: dict[str, str]) -> str | None:
    for key in arguments:
        try:
            _FLAG.check(key)
        except ValueError as error:
            return str(error)
        if (mend := argument_mend(key)) is not None:
            return f"{key}: {mend}"
        if "_" in key and key.replace("_", "-") in arguments:
            return f"{key} and {key.replace('_', '-')} are one flag; {_TWICE_MEND}"
    return None


_TWICE_MEND = "keep one of the spellings"
_FLAG_CEL = "k.split('.')[0].replace('_', '-')"
_NEGATED_CEL = f"k.startsWith('{NEGATION_PREFIX}')"
_TWICE_CEL = "k.contains('_') && k.replace('_', '-') in self"


def _argument_rules() -> tuple[Rule, ...]:
    """The tables of reserved flags as CEL: names are short, so that the cost of a rule stays far below its limit."""
    form = f"k.matches({cel_string(FLAG_PATTERN)})"
    spellings = ", ".join(cel_string(spelling) for spelling, _ in argument_mends())
    pairs = ", ".join(f"[{cel_string(spelling)}, {cel_string(mend)}]" for spelling, mend in argument_mends())
    begins = f"{form} && [{spellings}].exists(r, r.startsWith({_FLAG_CEL}))"
    return (
        Rule(
            rule=f"self.all(k, {form})",
            message_expression=says(f"%s: {FLAG_MEND}", f"self.filter(k, !{form})"),
        ),
        Rule(
            rule=f"self.all(k, !{_NEGATED_CEL})",
            message_expression=says(
                '%s: leave out "no-", and give the flag the value "false"', f"self.filter(k, {_NEGATED_CEL})"
            ),
        ),
        Rule(
            rule=f"self.all(k, !({begins}))",
            message_expression=says(
                "%s",
                f"[[{pairs}]].map(table, self.filter(k, table.exists(r, r[0].startsWith({_FLAG_CEL}))).map(k, "
                f"'%s: %s'.format([k, table.filter(r, r[0].startsWith({_FLAG_CEL}))[0][1]])))[0]",
            ),
        ),
        Rule(
            rule=f"self.all(k, !({_TWICE_CEL}))",
            message_expression=says(
                f"%s: the flag is there with '-' too; {_TWICE_MEND}", f"self.filter(k, {_TWICE_CEL})"
            ),
        ),
    )


Arguments = Annotated[
    dict[str, Annotated[str, Field(max_length=4_096)]],
    Field(max_length=64),
    Satisfies(_arguments_fault, _argument_rules()),
]

_KEY_REQUIRED = "has no key; name the key whose value is wanted"


class EnvVarSource(SpecModel):
    """Where the value of an environment variable comes from. Exactly one of the fields is set."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                rule="[has(self.secretKeyRef), has(self.configMapKeyRef), has(self.fieldRef)]"
                ".filter(each, each).size() == 1",
                message="set exactly one of secretKeyRef, configMapKeyRef and fieldRef",
            ),
            Rule(
                rule="!has(self.secretKeyRef) || (has(self.secretKeyRef.key) && self.secretKeyRef.key != '')",
                message=_KEY_REQUIRED,
                field_path=".secretKeyRef",
            ),
            Rule(
                rule="!has(self.configMapKeyRef) || (has(self.configMapKeyRef.key) && self.configMapKeyRef.key != '')",
                message=_KEY_REQUIRED,
                field_path=".configMapKeyRef",
            ),
        )
    )

    secret_key_ref: SecretKey | None = None
    """A key of a Secret in the service's namespace."""
    config_map_key_ref: SecretKey | None = None
    """A key of a ConfigMap in the service's namespace."""
    field_ref: (
        Literal[
            "metadata.name",
            "metadata.namespace",
            "metadata.uid",
            "spec.nodeName",
            "spec.serviceAccountName",
            "status.hostIP",
            "status.podIP",
        ]
        | None
    ) = None
    """A field of the pod."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (
            sum(each is not None for each in (self.secret_key_ref, self.config_map_key_ref, self.field_ref))
            != 1
        ):
            raise ValueError("set exactly one of secretKeyRef, configMapKeyRef and fieldRef")
        for each in (self.secret_key_ref, self.config_map_key_ref):
            if each is not None and not each.key:
                raise ValueError(_KEY_REQUIRED)
        return self


def _variable_rules() -> tuple[Rule, ...]:
    pairs = ", ".join(f"[{cel_string(name)}, {cel_string(mend)}]" for name, mend in RESERVED_ENV.items())
    names = ", ".join(cel_string(name) for name in RESERVED_ENV)
    return (
        Rule(rule=f"!self.startsWith('{RESERVED_ENV_PREFIX}')", message=RESERVED_ENV_PREFIX_MEND),
        Rule(
            rule=f"!(self in [{names}])",
            message_expression=says("%s", f"[{pairs}].filter(r, r[0] == self)[0][1]"),
        ),
    )


class EnvVar(SpecModel):
    """An environment variable of the engine: a name with a value, or with where the value comes from."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                rule="!(has(self.value) && has(self.valueFrom))",
                message="set value or valueFrom, not both",
            )
        )
    )

    name: Annotated[
        str,
        Field(min_length=1, max_length=128),
        Matches("^[A-Za-z_][A-Za-z0-9_]*$", "must be letters, digits and '_', not beginning with a digit"),
        Satisfies(environment_mend, _variable_rules()),
    ]
    """The variable's name. Names that fight the plan or the supervisor are refused, with what to use instead."""
    value: str | None = Field(default=None, max_length=8_192)
    """The value as it is."""
    value_from: EnvVarSource | None = None
    """Where the value comes from."""

    @model_validator(mode="after")
    def _one_value(self) -> Self:
        if self.value is not None and self.value_from is not None:
            raise ValueError("set value or valueFrom, not both")
        return self


class Pin(SpecModel):
    """Settings held at a value. The plan works around them, says what they cost, and refuses what cannot run."""

    max_model_len: int | None = Field(default=None, ge=1, le=16_777_216)
    """Tokens that one request may hold, prompt and answer together (--max-model-len)."""
    gpu_memory_utilization: float | None = Field(default=None, ge=0.05, le=1)
    """Fraction of the accelerator's memory that the engine may use (--gpu-memory-utilization). Example: 0.9."""
    max_num_seqs: int | None = Field(default=None, ge=1, le=65_536)
    """Requests that run at once, at most (--max-num-seqs)."""
    max_num_batched_tokens: int | None = Field(default=None, ge=1, le=16_777_216)
    """Tokens of one step, at most (--max-num-batched-tokens)."""
    block_size: int | None = Field(default=None, ge=1, le=4_096)
    """Tokens in a block of the KV cache (--block-size). Example: 16."""


_COMMAND_MEND = "is a flag of the engine; write it into spec.engine.args"
_SHORT_FLAGS = tuple(f"-{alias}" for alias in FLAG_ALIASES if 1 < len(alias) <= 3)
"""vLLM's short flags of several letters. Those of one letter are Python's too: `-q`, `-O`."""


def _is_flag(word: str) -> bool:
    return word.startswith("--") or word.split("=", maxsplit=1)[0] in _SHORT_FLAGS


CommandWord = Annotated[
    str,
    Field(min_length=1, max_length=1_024),
    Satisfies(
        lambda word: f"{word[:64]!r} {_COMMAND_MEND}" if _is_flag(word) else None,
        (
            Rule(
                rule=(
                    "!self.startsWith('--') && "
                    f"!(self.split('=')[0] in [{', '.join(map(cel_string, _SHORT_FLAGS))}])"
                ),
                message=_COMMAND_MEND,
            ),
        ),
    ),
]

_FORMAT = Matches("^[a-z0-9][a-z0-9_-]*$", "must be auto or one of the engine's own words, such as fp8")


class Engine(SpecModel):
    """The engine that serves the model."""

    name: Literal["vllm"] = "vllm"
    """The engine; vllm is the only one."""
    image: Annotated[
        str, Field(max_length=512), Matches("^[^\\s]*$", "must be an image reference without spaces")
    ] = ""
    """The engine's image; a vLLM image needs no change. Default: the image that the operator's settings have for the
    accelerator. Example: vllm/vllm-openai:v0.33.0."""
    version: Annotated[
        str,
        Field(max_length=64),
        Matches(
            "^(v?[0-9]+[.][0-9]+([.][A-Za-z0-9]+)*([+-][A-Za-z0-9.-]+)?)?$", "write a version such as 0.33.0"
        ),
    ] = ""
    """The engine's version, where the image's tag does not tell it: flags and memory rules depend on it.
    Default: from the tag; if that tells none, the newest known rules. Example: 0.33.0."""
    command: Annotated[tuple[CommandWord, ...], Field(max_length=16)] = ()
    """The command that starts the engine; the arguments follow it. Default: python3 -m
    vllm.entrypoints.openai.api_server. Example: [vllm, serve]."""
    quantization: Annotated[str, Field(min_length=1, max_length=64), _FORMAT] = "auto"
    """Number format of the weights (--quantization). auto: what the checkpoint says."""
    kv_cache_dtype: Annotated[str, Field(min_length=1, max_length=64), _FORMAT] = "auto"
    """Number format of the KV cache (--kv-cache-dtype). fp8 holds twice the tokens. fp8-if-needed: the model's own
    where that fits, else fp8. auto: the model's own."""
    prefix_caching: bool = True
    """Whether the KV of prompts that begin alike is shared (--enable-prefix-caching)."""
    api_key_secret: SecretKey | None = None
    """The key that clients must send as a bearer token. It reaches the engine's pod; the operator never reads it."""
    pin: Pin = Field(default_factory=Pin)
    """Settings held at a value; the plan works around them."""
    args: Arguments = Field(default_factory=dict)
    """Further flags of the engine, without leading dashes: the flag and its value, "true" for a bare switch, "false"
    for its --no- form; JSON and dotted names as they are. A flag that fights the plan or the supervisor is refused,
    in any spelling, with the field to use instead. Example: {tool-call-parser: hermes, enforce-eager: "true"}."""
    env: Annotated[
        tuple[EnvVar, ...],
        Field(
            max_length=64,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = ()
    """Environment variables of the engine."""
