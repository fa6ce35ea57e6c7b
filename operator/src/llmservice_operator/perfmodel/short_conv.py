"""Short convolutions in place of attention (LFM2): two projections and a few tokens of state.

vLLM model_executor/layers/mamba/short_conv.py and models/lfm2.py.
"""

from llmservice_operator.perfmodel.config_reader import ConfigReader
from llmservice_operator.perfmodel.shapes import Shard, StateCache, Weight

_PROJECTED = 3
"""The convolution's input, and the gates before and after it."""
_LARGEST_FACTOR = 16


def conv_weights(prefix: str, kernel: int, *, hidden_size: int) -> list[Weight]:
    """One convolution of all channels."""

    def weight(name: str, rows: int, columns: int, *, linear: bool = True) -> Weight:
        return Weight(
            module=f"{prefix}.{name}", rows=rows, columns=columns, shard=Shard.TENSOR, linear=linear
        )

    return [
        weight("in_proj", _PROJECTED * hidden_size, hidden_size),
        weight("conv1d", hidden_size, kernel, linear=False),
        weight("out_proj", hidden_size, hidden_size),
    ]


def conv_cache(kernel: int, *, hidden_size: int) -> StateCache:
    """The tokens before the current one that the kernel sees, in the model's dtype."""
    return StateCache(conv_elements=(kernel - 1) * hidden_size, state_elements=0, state_dtype="")


def adjusted_size(config: ConfigReader, size: int) -> int:
    """Two thirds of the size that is said, times a factor, in whole multiples (Lfm2MLP)."""
    if not config.boolean("block_auto_adjust_ff_dim", default=False):
        return size
    multiple = config.integer("block_multiple_of", default=256)
    factor = config.number("block_ffn_dim_multiplier", 1.0)
    if not 0.0 < factor <= _LARGEST_FACTOR:
        raise config.error("block_ffn_dim_multiplier", f"a factor of at most {_LARGEST_FACTOR} is expected")
    wanted = int(factor * (2 * size // 3))
    return max(1, -(-wanted // multiple)) * multiple
