"""Bytes of a weight in a quantised checkpoint, and which weights stay as they were."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from llmservice_operator.perfmodel.config_reader import ConfigError, ConfigReader
from llmservice_operator.perfmodel.module_patterns import ModulePatterns, PatternError, bare_name
from llmservice_operator.perfmodel.shapes import DTYPE_BYTES, Weight

_BLOCK_SCALE_BYTES = 4
FP8_WITH_FP4_EXPERTS = "deepseek_v4_fp8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """How one weight is stored."""

    name: str
    bits: float
    """Bits of one element, scales and zero points included."""
    scale_bits: float = 0.0
    """The part of them that lies in tensors of its own."""


FP8 = Format(name="FP8", bits=8.0)
INT8 = Format(name="INT8", bits=8.0)
BNB4 = Format(name="INT4", bits=4.0 + 32.0 / 64)
"""bitsandbytes: a float32 for each 64 elements."""
BNB4_NESTED = Format(name="INT4", bits=4.0 + 8.0 / 64 + 32.0 / (64 * 256))
"""The same with scales that are quantised again, as vLLM does while it loads (two public starts)."""
NVFP4 = Format(name="NVFP4", bits=4.0 + 8.0 / 16, scale_bits=8.0 / 16)
MXFP4 = Format(name="MXFP4", bits=4.0 + 8.0 / 32, scale_bits=8.0 / 32)
MXFP8 = Format(name="MXFP8", bits=8.0 + 8.0 / 32, scale_bits=8.0 / 32)


@dataclass(frozen=True, kw_only=True)
class Quantization:
    """What a checkpoint's `quantization_config` says. `default` None: nothing is quantised."""

    method: str
    default: Format | None
    ignored: tuple[str, ...] = ()
    """Module names, wildcards or `re:` patterns that stay as they were."""
    by_module: Mapping[str, Format] | None = None
    """Mixed precision: formats by module; what isn't listed stays as it was."""
    by_target: tuple[tuple[tuple[str, ...], Format], ...] = ()
    """Formats of modules that these names and patterns match; the default holds for the others."""
    experts_only: bool = False
    online: bool = False
    """The engine quantises a 16-bit checkpoint while it loads it."""
    block_size: int = 0
    """Side of the blocks that share a scale; a rank's share of a matrix must be whole blocks. 0: none."""
    kv_cache_dtype: str = ""
    """The KV cache's dtype that the checkpoint asks for, as vLLM resolves `auto`; empty: the model's."""

    def format_of(self, weight: Weight) -> Format | None:
        """The format of this weight; None: the model's dtype."""
        key = (weight.module, weight.linear, weight.expert)
        if key not in self._formats:
            self._formats[key] = self._format_of(weight)
        return self._formats[key]

    @cached_property
    def _formats(self) -> dict[tuple[str, bool, bool], Format | None]:
        """What was found out already: lists are long, and each weight is asked for again and again."""
        return {}

    def _format_of(self, weight: Weight) -> Format | None:
        if not weight.linear or (self.experts_only and not weight.expert):
            return None
        # Checkpoints leave an encoder in 16 bits, and name it in their lists as their own model class does.
        if weight.module.startswith("visual.") and not self.online:
            return None
        if self.by_module is not None:
            return _lookup(weight.module, self.by_module)
        if self.patterns.matches(weight.module):
            return None
        for patterns, fmt in self.targets:
            if patterns.matches(weight.module):
                return fmt
        # vLLM gives the head its own class, which only a checkpoint that lists it by name quantises.
        return None if weight.module == "lm_head" else self.default

    @cached_property
    def targets(self) -> tuple[tuple[ModulePatterns, Format], ...]:
        """What `by_target` names, made ready."""
        return tuple((ModulePatterns(names), fmt) for names, fmt in self.by_target)

    @cached_property
    def patterns(self) -> ModulePatterns:
        """The modules that stay as they were."""
        return ModulePatterns(self.ignored)


UNQUANTIZED = Quantization(method="", default=None)


def _lookup(module: str, formats: Mapping[str, Format]) -> Format | None:
    """A module's format in a mixed checkpoint; experts are listed as one module."""
    name = module
    while name:
        if name in formats:
            return formats[name]
        name = name.rpartition(".")[0]
    return None


def read_quantization(config: Mapping[str, Any]) -> Quantization:
    """The scheme of a config.json, by its `quant_method` (transformers_utils/model_arch_config_convertor.py).

    Raises ConfigError for a method that isn't known: its bytes would be a guess.
    """
    root = ConfigReader(config)
    text = root.nested("text_config")
    section = root.nested("quantization_config") or root.nested("compression_config")
    section = section or (text.nested("quantization_config") if text else None)
    if section is None:
        return UNQUANTIZED
    method = section.text("quant_method").lower()
    if not method and section.has("quantization", "quant_algo"):
        method = "modelopt"
    readers = {
        "fp8": _read_fp8, "fbgemm_fp8": _read_fp8, "mxfp4": _read_mxfp4, "gpt_oss_mxfp4": _read_mxfp4,
        "compressed-tensors": _read_compressed_tensors, "modelopt": _read_modelopt, "modelopt_fp4": _read_modelopt,
        "modelopt_mixed": _read_modelopt, "awq": _read_grouped_int, "gptq": _read_grouped_int,
        "auto-round": _read_grouped_int, "inc": _read_grouped_int, "awq_marlin": _read_grouped_int,
        "gptq_marlin": _read_grouped_int, "bitsandbytes": _read_bitsandbytes, "gguf": _read_gguf,
    }  # fmt: skip
    if method not in readers:
        raise section.error("quant_method", "one of " + ", ".join(sorted(readers)) + " is expected")
    quantization = readers[method](section)
    if root.text("expert_dtype") == "fp4" and method == "fp8":
        quantization = _with_fp4_experts(quantization, section)
    try:
        _ = quantization.patterns, quantization.targets
    except PatternError as error:
        raise ConfigError(section.name("ignore"), quantization.ignored, f"it has {error}") from error
    return quantization


def online_quantization(name: str) -> Quantization | None:
    """A 16-bit checkpoint that the engine quantises while it loads (`--quantization fp8`, ...); None: not one."""
    formats = {
        "fp8": FP8, "fp8_per_tensor": FP8, "fp8_per_block": FP8, "fp8_per_channel": FP8,
        "int8_per_channel_weight_only": INT8, "mxfp8": MXFP8, "nvfp4_per_token": NVFP4,
    }  # fmt: skip
    if name == "bitsandbytes":  # tensor by tensor: the 16-bit model is never on the card as a whole
        return Quantization(method=name, default=BNB4_NESTED)
    if name not in formats:
        return None
    return Quantization(method=f"online {name}", default=formats[name], online=True)


def _names(section: ConfigReader, *keys: str) -> tuple[str, ...]:
    return tuple(str(each) for key in keys for each in section.sequence(key))


def _read_fp8(section: ConfigReader) -> Quantization:
    block = [each for each in section.sequence("weight_block_size") if isinstance(each, int) and each > 0]
    scale_bits = 8.0 * _BLOCK_SCALE_BYTES / (block[0] * block[1]) if len(block) == 2 else 0.0
    ignored = _names(section, "modules_to_not_convert", "ignored_layers")
    side = block[0] if len(block) == 2 else 0
    fmt = Format(name="FP8", bits=8.0 + scale_bits, scale_bits=scale_bits)
    return Quantization(method="fp8", default=fmt, ignored=ignored, block_size=side)


def _with_fp4_experts(quantization: Quantization, section: ConfigReader) -> Quantization:
    """FP8 whose experts are in FP4 (models/deepseek_v4/quant_config.py)."""
    fmt = NVFP4 if section.text("moe_quant_algo").upper() == "NVFP4" else MXFP4
    return replace(quantization, method=FP8_WITH_FP4_EXPERTS, by_target=(((r"re:.*\.experts\..*",), fmt),))


def _read_mxfp4(section: ConfigReader) -> Quantization:
    ignored = _names(section, "modules_to_not_convert")
    return Quantization(method="mxfp4", default=MXFP4, ignored=ignored, experts_only=True)


def _read_grouped_int(section: ConfigReader) -> Quantization:
    """AWQ and GPTQ: a 16-bit scale and a zero point of the weight's own width per group."""
    bits = section.integer("bits", "w_bit", default=4)
    group = section.integer("group_size", "q_group_size", default=128, minimum=-1)
    extra = (16.0 + bits) / group if group > 0 else 0.0
    ignored = _names(section, "modules_to_not_convert", "modules_in_block_to_quantize_exclude")
    method = section.text("quant_method").lower()
    fmt = Format(name=f"INT{bits}", bits=bits + extra, scale_bits=extra)
    return Quantization(method=method, default=fmt, ignored=ignored)


def _read_bitsandbytes(section: ConfigReader) -> Quantization:
    four = section.boolean("load_in_4bit", default=section.boolean("_load_in_4bit", default=False))
    nested = section.boolean("bnb_4bit_use_double_quant", default=False)
    fmt = (BNB4_NESTED if nested else BNB4) if four else INT8
    ignored = _names(section, "llm_int8_skip_modules")
    return Quantization(method="bitsandbytes", default=fmt, ignored=ignored)


_GGUF_BITS = {
    "F16": 16.0, "BF16": 16.0, "Q8_0": 8.5, "Q6_K": 6.5625, "Q5_0": 5.5, "Q5_1": 6.0, "Q5_K": 5.5, "Q4_0": 4.5,
    "Q4_1": 5.0, "Q4_K": 4.5, "IQ4_XS": 4.25, "IQ4_NL": 4.5, "Q3_K": 3.4375, "IQ3_S": 3.4375, "IQ3_XXS": 3.0625,
    "Q2_K": 2.625, "IQ2_S": 2.5, "IQ2_XXS": 2.0625,
}  # fmt: skip
"""Bits of an element with its scales, by the type of a block (ggml-common.h)."""
_GGUF_MIXES = ("_S", "_M", "_L", "_XL")
"""Ends of file types: most tensors have the type before it, some more bits."""
_GGUF_MIX = 1.06
"""A `_M` file of an 8-billion model has 6 % more than its type (Q4_K_M: 4.85 bits where Q4_K has 4.5)."""


def _read_gguf(section: ConfigReader) -> Quantization:
    """GGUF, whose file knows its types; config.json must say the file's type as `quant_type`."""
    said = section.text("quant_type", "file_type").upper()
    kind = next((said.removesuffix(end) for end in _GGUF_MIXES if said.removesuffix(end) in _GGUF_BITS), said)
    if kind not in _GGUF_BITS:
        known = ", ".join(sorted(_GGUF_BITS))
        raise section.error(
            "quant_type", f"the type of the GGUF file is expected, of {known}, or such as Q4_K_M"
        )
    bits = _GGUF_BITS[kind] * (_GGUF_MIX if kind != said else 1.0)
    return Quantization(method="gguf", default=Format(name="GGUF", bits=bits))


def _read_compressed_tensors(section: ConfigReader) -> Quantization:
    """One format for each group of targets; the group of `Linear` holds for what no other one names."""
    groups = section.nested("config_groups")
    found = [
        (_names(group, "targets"), _group_format(group))
        for name in (groups.values if groups else ())
        if groups is not None and (group := groups.nested(name)) is not None
    ]
    if not found:
        raise section.error("config_groups", "at least one group is expected")
    default = next((each for targets, each in found if not targets or "Linear" in targets), None)
    named = tuple((targets, each[0]) for targets, each in found if targets and "Linear" not in targets)
    first = default or found[0][1]
    return Quantization(
        method="compressed-tensors",
        default=default[0] if default else None,
        by_target=named,
        block_size=first[1],
        ignored=_names(section, "ignore"),
        kv_cache_dtype="fp8" if section.has("kv_cache_scheme") else "",
    )


def _group_format(group: ConfigReader) -> tuple[Format, int]:
    """The format of a group's weights, and the side of the blocks that share a scale; 0: none."""
    weights = group.nested("weights")
    if weights is None:
        raise group.error("weights", "the scheme of the weights is expected")
    bits = float(weights.integer("num_bits"))
    size = weights.integer("group_size", default=0, minimum=-1)
    block = [each for each in weights.sequence("block_structure") if isinstance(each, int) and each > 0]
    floats = weights.text("type") == "float"
    extra = (8.0 if floats and bits == 4 else 16.0) / size if size > 0 else 0.0
    if len(block) == 2:
        extra = 8.0 * _BLOCK_SCALE_BYTES / (block[0] * block[1])
    name = f"{'FP' if floats else 'INT'}{int(bits)}"
    return Format(name=name, bits=bits + extra, scale_bits=extra), block[0] if len(block) == 2 else 0


_MODELOPT = {
    "FP8": FP8, "FP8_PER_CHANNEL_PER_TOKEN": FP8, "FP8_PB_WO": FP8, "NVFP4": NVFP4, "W4A16_NVFP4": NVFP4,
    "W4A8_NVFP4_FP8": NVFP4, "MXFP8": MXFP8,
}  # fmt: skip


def _read_modelopt(section: ConfigReader) -> Quantization:
    """ModelOpt, in both of its forms: flat, or under `quantization` as in hf_quant_config.json."""
    inner = section.nested("quantization") or section
    algorithm = inner.text("quant_algo")
    kv = {"FP8": "fp8_e4m3", "NVFP4": "nvfp4"}.get(inner.text("kv_cache_quant_algo").upper(), "")
    kv = kv or ("fp8_e4m3" if inner.has("kv_cache_scheme") else "")
    ignored = _names(inner, "exclude_modules", "ignore")
    if algorithm == "MIXED_PRECISION":
        return Quantization(
            method="modelopt_mixed", default=None, by_module=_mixed_formats(inner), kv_cache_dtype=kv
        )
    if algorithm not in _MODELOPT:
        raise inner.error(
            "quant_algo", "one of " + ", ".join(sorted(_MODELOPT)) + " or MIXED_PRECISION is expected"
        )
    return Quantization(method="modelopt", default=_MODELOPT[algorithm], ignored=ignored, kv_cache_dtype=kv)


def _mixed_formats(inner: ConfigReader) -> dict[str, Format]:
    layers = inner.nested("quantized_layers")
    if layers is None:
        raise inner.error("quantized_layers", "an object of module names is expected for MIXED_PRECISION")
    formats: dict[str, Format] = {}
    for module in layers.values:
        entry = layers.nested(module)
        algorithm = entry.text("quant_algo") if entry else ""
        if algorithm not in _MODELOPT:
            raise ConfigError(f"{layers.path}.{module}", algorithm, "a known quant_algo is expected")
        formats[bare_name(module)] = _MODELOPT[algorithm]
    return formats


def weight_bytes(weight: Weight, quantization: Quantization, *, dtype: str, tensor_parallel_size: int) -> int:
    """Bytes of this weight's values and scales on one rank, without any kernel's padding."""
    fmt = quantization.format_of(weight)
    elements = weight.elements(tensor_parallel_size)
    return elements * DTYPE_BYTES[dtype] if fmt is None else int(elements * fmt.bits / 8)
