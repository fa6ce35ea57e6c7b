"""Layers that keep a state per request: gated delta networks and Mamba-2."""

from dataclasses import dataclass

from llmservice_operator.perfmodel.config_reader import ConfigReader
from llmservice_operator.perfmodel.shapes import Shard, StateCache, Weight


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaNetwork:
    """A gated delta network (linear attention)."""

    key_heads: int
    value_heads: int
    key_size: int
    value_size: int
    kernel: int
    state_dtype: str

    @property
    def key_width(self) -> int:
        return self.key_heads * self.key_size

    @property
    def value_width(self) -> int:
        return self.value_heads * self.value_size


def read_delta_network(config: ConfigReader) -> DeltaNetwork:
    """The sizes of linear-attention layers."""
    return DeltaNetwork(
        key_heads=config.integer("linear_num_key_heads"),
        value_heads=config.integer("linear_num_value_heads"),
        key_size=config.integer("linear_key_head_dim"),
        value_size=config.integer("linear_value_head_dim"),
        kernel=config.integer("linear_conv_kernel_dim", default=4),
        state_dtype=config.text("mamba_ssm_dtype", "mamba_ssm_cache_dtype"),
    )


def delta_weights(prefix: str, delta: DeltaNetwork, *, hidden_size: int) -> list[Weight]:
    """Projections, convolution and output of one linear-attention layer."""
    qkv = 2 * delta.key_width + delta.value_width
    rows = (
        ("in_proj_qkv", qkv),
        ("in_proj_z", delta.value_width),
        ("in_proj_b", delta.value_heads),
        ("in_proj_a", delta.value_heads),
    )
    weights = [
        Weight(module=f"{prefix}.{name}", rows=each, columns=hidden_size, shard=Shard.TENSOR)
        for name, each in rows
    ]
    weights.append(
        Weight(module=f"{prefix}.conv1d", rows=qkv, columns=delta.kernel, shard=Shard.TENSOR, linear=False)
    )
    weights.append(
        Weight(module=f"{prefix}.out_proj", rows=hidden_size, columns=delta.value_width, shard=Shard.TENSOR)
    )
    return weights


def delta_cache(delta: DeltaNetwork) -> StateCache:
    """Convolution and recurrent state (mamba_utils.py: conv (2*hk*nk + hv*nv) x (k-1), state nv x hv x hk)."""
    return StateCache(
        conv_elements=(2 * delta.key_width + delta.value_width) * (delta.kernel - 1),
        state_elements=delta.value_heads * delta.value_size * delta.key_size,
        state_dtype=delta.state_dtype,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba:
    """A Mamba-2 mixer."""

    heads: int
    head_size: int
    groups: int
    state_size: int
    kernel: int
    state_dtype: str

    @property
    def inner(self) -> int:
        return self.heads * self.head_size

    @property
    def conv_width(self) -> int:
        return self.inner + 2 * self.groups * self.state_size


def read_mamba(config: ConfigReader) -> Mamba:
    """The sizes of Mamba-2 layers, by either of the two sets of names in use."""
    return Mamba(
        heads=config.integer("mamba_num_heads", "mamba_n_heads"),
        head_size=config.integer("mamba_head_dim", "mamba_d_head"),
        groups=config.integer("n_groups", "mamba_n_groups", default=1),
        state_size=config.integer("ssm_state_size", "mamba_d_state"),
        kernel=config.integer("conv_kernel", "mamba_d_conv", default=4),
        # vLLM keeps Mamba-2's state in float32 where the config names no dtype for it (config/models).
        state_dtype=config.text("mamba_ssm_cache_dtype", "mamba_ssm_dtype", default="float32"),
    )


def mamba_weights(prefix: str, mamba: Mamba, *, hidden_size: int) -> list[Weight]:
    """Projections and convolution of one Mamba-2 layer."""
    return [
        Weight(
            module=f"{prefix}.in_proj",
            rows=mamba.inner + mamba.conv_width + mamba.heads,
            columns=hidden_size,
            shard=Shard.TENSOR,
        ),
        Weight(
            module=f"{prefix}.conv1d",
            rows=mamba.conv_width,
            columns=mamba.kernel,
            shard=Shard.TENSOR,
            linear=False,
        ),
        Weight(module=f"{prefix}.out_proj", rows=hidden_size, columns=mamba.inner, shard=Shard.TENSOR),
    ]


def mamba_cache(mamba: Mamba) -> StateCache:
    """Convolution and recurrent state (mamba_utils.py: conv (d_inner + 2*g*N) x (k-1), state heads x head x N)."""
    return StateCache(
        conv_elements=mamba.conv_width * (mamba.kernel - 1),
        state_elements=mamba.inner * mamba.state_size,
        state_dtype=mamba.state_dtype,
    )
