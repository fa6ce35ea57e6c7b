"""Further layers that keep a state per request: Kimi's delta attention and lightning attention."""

from dataclasses import dataclass

from llmservice_operator.perfmodel.attention import read_heads
from llmservice_operator.perfmodel.config_reader import ConfigReader
from llmservice_operator.perfmodel.shapes import Shard, StateCache, Weight


@dataclass(frozen=True, slots=True, kw_only=True)
class KimiDelta:
    """Kimi delta attention (vLLM layers/kda.py)."""

    heads: int
    size: int
    kernel: int

    @property
    def width(self) -> int:
        return self.heads * self.size


def read_kimi_delta(text: ConfigReader) -> KimiDelta:
    """The sizes under `linear_attn_config`."""
    section = text.nested("linear_attn_config")
    if section is None:
        raise text.error("linear_attn_config", "an object is expected")
    return KimiDelta(
        heads=section.integer("num_heads"),
        size=section.integer("head_dim"),
        kernel=section.integer("short_conv_kernel_size", default=4),
    )


def kimi_weights(prefix: str, delta: KimiDelta, *, hidden_size: int) -> list[Weight]:
    """Query, key and value with a convolution each, two low-rank gates, and the output."""

    def projection(name: str, rows: int, columns: int, shard: Shard = Shard.TENSOR) -> Weight:
        return Weight(module=f"{prefix}.{name}", rows=rows, columns=columns, shard=shard)

    return [
        *(projection(name, delta.width, hidden_size) for name in ("q_proj", "k_proj", "v_proj")),
        projection("f_a_proj", delta.size, hidden_size, Shard.REPLICATED),
        projection("f_b_proj", delta.width, delta.size),
        projection("b_proj", delta.heads, hidden_size),
        projection("g_a_proj", delta.size, hidden_size, Shard.REPLICATED),
        projection("g_b_proj", delta.width, delta.size),
        projection("o_proj", hidden_size, delta.width),
        Weight(
            module=f"{prefix}.conv1d",
            rows=3 * delta.width,
            columns=delta.kernel,
            shard=Shard.TENSOR,
            linear=False,
            element_bytes=4,
        ),
    ]


def kimi_cache(delta: KimiDelta) -> StateCache:
    """Convolutions over query, key and value, and a matrix a head in float32 (mamba_utils.py, kda_state_shape)."""
    return StateCache(
        conv_elements=3 * delta.width * (delta.kernel - 1),
        state_elements=delta.width * delta.size,
        state_dtype="float32",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Lightning:
    """Lightning attention (vLLM layers/mamba/linear_attn.py)."""

    heads: int
    size: int

    @property
    def width(self) -> int:
        return self.heads * self.size


def read_lightning(text: ConfigReader, *, hidden_size: int) -> Lightning:
    """The sizes of its heads, which are those of full attention."""
    heads = read_heads(text, hidden_size=hidden_size)
    return Lightning(heads=heads.query, size=heads.size)


def lightning_weights(prefix: str, lightning: Lightning, *, hidden_size: int) -> list[Weight]:
    """Query, key and value in one, the output's gate, and the output."""
    return [
        Weight(
            module=f"{prefix}.qkv_proj", rows=3 * lightning.width, columns=hidden_size, shard=Shard.TENSOR
        ),
        Weight(module=f"{prefix}.output_gate", rows=lightning.width, columns=hidden_size, shard=Shard.TENSOR),
        Weight(module=f"{prefix}.out_proj", rows=hidden_size, columns=lightning.width, shard=Shard.TENSOR),
    ]


def lightning_cache(lightning: Lightning) -> StateCache:
    """A matrix a head (mamba_utils.py, linear_attention_state_shape); float32 where no flag says otherwise."""
    return StateCache(conv_elements=0, state_elements=lightning.width * lightning.size, state_dtype="float32")
