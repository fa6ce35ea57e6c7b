"""Feed-forward layers: gated or plain, dense or a mixture of experts with shared ones."""

import re
from dataclasses import dataclass

from llmservice_operator.perfmodel.config_reader import ConfigReader
from llmservice_operator.perfmodel.shapes import Mixture, Shard, Weight
from llmservice_operator.perfmodel.short_conv import adjusted_size

_UNGATED_ACTIVATIONS = frozenset({"relu2", "relu", "gelu_new", "gelu_fast", "quick_gelu"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedForward:
    """What follows attention in each layer."""

    gated: bool
    dense_size: int
    """Of the layers without experts, and of dense blocks beside experts."""
    mixture: Mixture | None
    shared_size: int
    """Of the shared experts of a layer together."""
    shared_gate: bool
    """The shared expert's output is gated by a vector."""
    dense_beside_experts: bool
    """Every layer has a dense block as well as experts."""
    expert_bias: bool = False
    """Experts' projections have biases (the family whose experts clamp SwiGLU and whose attention has biases)."""
    latent_size: int = 0
    """Experts work on a projection of this size rather than on the hidden state; 0: on the hidden state."""


def read_gated(config: ConfigReader) -> bool:
    """Whether the feed-forward is gated: all RMS-norm models with silu or gelu are, LayerNorm's are not."""
    activation = config.text(
        "mlp_hidden_act", "hidden_act", "hidden_activation", "activation_function", "activation"
    )
    if activation in _UNGATED_ACTIVATIONS:
        return False
    return activation in {"silu", "swish", "swiglu"} or normalises_by_root(config)


def normalises_by_root(config: ConfigReader) -> bool:
    """Whether norms are RMS norms: LayerNorm's families name its epsilon differently, or (the oldest) not at all."""
    if config.has("rms_norm_eps", "norm_eps", "rmsnorm"):
        return True
    older = ("layer_norm_epsilon", "norm_epsilon", "layer_norm_eps", "d_model", "do_layer_norm_before")
    return not config.has(*older)


def read_feed_forward(config: ConfigReader, *, hidden_size: int) -> FeedForward:
    """The sizes of dense, routed and shared feed-forwards."""
    experts = config.integer(*_EXPERTS, default=0, minimum=0)
    dense_size = config.integer(
        "block_ff_dim",
        "intermediate_size",
        "n_inner",
        "ffn_dim",
        "ffn_hidden_size",
        default=0 if experts else 4 * hidden_size,
        minimum=0,
    )
    dense_size = adjusted_size(config, dense_size)
    gated = read_gated(config)
    if experts <= 1:
        _refuse_unread_experts(config)
        return FeedForward(
            gated=gated,
            dense_size=dense_size,
            mixture=None,
            shared_size=0,
            shared_gate=False,
            dense_beside_experts=False,
        )
    if config.has("intermediate_size_mlp"):
        expert_size, dense_size = dense_size, config.integer("intermediate_size_mlp")
        shared_size = expert_size
    else:
        expert_size = config.integer("moe_intermediate_size", "expert_intermediate_size", default=dense_size)
        shared_size = _shared_size(config, expert_size)
    per_token = config.integer(
        "num_experts_per_tok",
        "experts_per_token",
        "top_k_experts",
        "num_experts_per_token",
        "moe_topk",
        "moe_k",
        "moe_top_k",
    )
    if per_token > experts:
        raise config.error("num_experts_per_tok", f"at most the {experts} experts is expected")
    return FeedForward(
        gated=gated,
        dense_size=dense_size,
        mixture=Mixture(experts=experts, experts_per_token=per_token, intermediate_size=expert_size),
        shared_size=shared_size,
        shared_gate=config.has("shared_expert_intermediate_size"),
        dense_beside_experts=config.boolean("enable_moe_block", default=False),
        latent_size=config.integer("moe_latent_size", default=0, minimum=0),
        expert_bias=config.has("swiglu_limit") and config.boolean("attention_bias", default=False),
    )


_EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
_SOMETHING_OF_EXPERTS = re.compile(r"(?:^|_)(?:moe|experts?)(?:_|$)")
_NOT_SHAPES = re.compile(
    r"loss|router|routing|norm_topk|scal|group|dropout|method|layer|_per_tok|top_?k|shared|freq|gate"
)


def _refuse_unread_experts(config: ConfigReader) -> None:
    """A field that counts experts by a name that isn't known: dense shapes would be nonsense."""
    for key, value in config.values.items():
        known = key in _EXPERTS or _NOT_SHAPES.search(key) or not _SOMETHING_OF_EXPERTS.search(key)
        if (
            not known
            and isinstance(value, int | list)
            and not isinstance(value, bool)
            and value not in (0, 1, [])
        ):
            raise config.error(key, "experts counted by this name are not known to the sizing model")


def _shared_size(config: ConfigReader, expert_size: int) -> int:
    """Shared experts of a layer together; four ways to say it."""
    given = config.integer(
        "moe_shared_expert_intermediate_size",
        "shared_expert_intermediate_size",
        "shared_intermediate_size",
        "share_expert_dim",
        default=0,
        minimum=0,
    )
    if given:
        return given
    shared = config.integer(
        "n_shared_experts",
        "num_shared_experts",
        "moe_num_shared_experts",
        "num_shared_expert",
        default=0,
        minimum=0,
    )
    return shared * expert_size


_COUNTED_FROM_ONE = ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval")


def sparse_layers(config: ConfigReader, num_layers: int) -> list[bool]:
    """Which layers have experts, where a config has experts at all."""
    if isinstance(config.values.get("moe_layer_freq"), list):
        flags = config.sequence("moe_layer_freq")
        return [bool(flags[index]) if index < len(flags) else True for index in range(num_layers)]
    kinds = config.sequence("mlp_layer_types")
    if len(kinds) == num_layers:
        return [each != "dense" for each in kinds]
    if config.has("moe_layers_enum"):
        named = {each.strip() for each in config.text("moe_layers_enum").split(",")}
        return [str(index) in named for index in range(num_layers)]
    dense = {int(each) for each in config.sequence("mlp_only_layers") if isinstance(each, int)}
    first = config.integer(
        "first_k_dense_replace", "moe_layer_start_index", "num_dense_layers", default=0, minimum=0
    )
    last = config.integer("moe_layer_end_index", default=num_layers - 1, minimum=0)
    step = config.integer(*_COUNTED_FROM_ONE, "moe_layer_freq", default=1)
    offset = 1 if config.has(*_COUNTED_FROM_ONE) else 0
    return [
        index not in dense and first <= index <= last and (index + offset) % step == 0
        for index in range(num_layers)
    ]


def dense_weights(
    prefix: str, size: int, *, gated: bool, hidden_size: int, shard: Shard = Shard.TENSOR
) -> list[Weight]:
    """One dense feed-forward."""
    names = ("gate_proj", "up_proj") if gated else ("up_proj",)
    weights = [
        Weight(module=f"{prefix}.{name}", rows=size, columns=hidden_size, shard=shard) for name in names
    ]
    weights.append(Weight(module=f"{prefix}.down_proj", rows=hidden_size, columns=size, shard=shard))
    return weights


def expert_weights(prefix: str, block: FeedForward, *, hidden_size: int) -> list[Weight]:
    """Router, routed experts and shared experts of one layer."""
    mixture = block.mixture
    if mixture is None:
        return []
    weights = [
        Weight(
            module=f"{prefix}.gate",
            rows=mixture.experts,
            columns=hidden_size,
            shard=Shard.REPLICATED,
            linear=False,
        )
    ]
    size = block.latent_size or hidden_size
    if block.latent_size:
        weights += [
            Weight(module=f"{prefix}.{name}", rows=size, columns=hidden_size, shard=Shard.REPLICATED)
            for name in ("fc1_latent_proj", "fc2_latent_proj")
        ]
    names = ("gate_proj", "up_proj") if block.gated else ("up_proj",)
    for name in (*names, "down_proj"):
        down = name == "down_proj"
        weights.append(
            Weight(
                module=f"{prefix}.experts.{name}",
                rows=size if down else mixture.intermediate_size,
                columns=mixture.intermediate_size if down else size,
                shard=Shard.TENSOR,
                copies=mixture.experts,
                expert=True,
            )
        )
    if block.expert_bias:
        weights += [
            Weight(
                module=f"{prefix}.experts.{name}",
                rows=rows,
                columns=1,
                shard=shard,
                copies=mixture.experts,
                linear=False,
            )
            for name, rows, shard in (
                ("gate_up_bias", len(names) * mixture.intermediate_size, Shard.TENSOR),
                ("down_bias", hidden_size, Shard.REPLICATED),
            )
        ]
    if block.shared_size:
        weights += dense_weights(
            f"{prefix}.shared_expert", block.shared_size, gated=block.gated, hidden_size=hidden_size
        )
    return weights
