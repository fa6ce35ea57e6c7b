"""The estimate against the starts that people reported (tests/truth/field).

    python -m accuracy field [--write]     from tests/: one line a record, and the score beneath

A record counts where its page tells card, model and outcome. Where the very config isn't known a stand-in of the same
architecture is used, in the record's own weight format: good enough for whether it fits, not for GiB.
"""

import json
import re
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from llmservice_operator.errors import InvalidInputError
from llmservice_operator.perfmodel.accelerators import (
    AcceleratorRow,
    builtin_catalogue_text,
    find_row,
    load_catalogue,
)
from llmservice_operator.perfmodel.config_reader import ConfigError
from llmservice_operator.planning.estimate import EstimateInputs, estimate

TESTS = Path(__file__).resolve().parents[1]
RECORDS = TESTS / "truth" / "field" / "records.jsonl"
MODELS = TESTS / "data" / "models"
WRITTEN = TESTS.parent / "operator" / "docs" / "reference" / "field-errors.txt"
GIB = 1 << 30

REFUSED_TARGET, ACCEPTED_TARGET = 0.90, 0.97
KV_MEDIAN_TARGET_GIB, KV_WITHIN_GIB, KV_WITHIN_TARGET = 0.3, 1.0, 0.90

CARDS = (
    ("H100 NVL", "nvidia-h100-nvl"), ("GH200", "nvidia-gh200"), ("H100", "nvidia-h100-80gb"), ("H200", "nvidia-h200"),
    ("H20", "nvidia-h20"), ("A100 40", "nvidia-a100-40gb"), ("A100-SXM4-40", "nvidia-a100-40gb"),
    ("A100", "nvidia-a100-80gb"), ("A800", "nvidia-a100-80gb"), ("B200", "nvidia-b200"), ("L40S", "nvidia-l40s"),
    ("L4", "nvidia-l4"), ("T4", "nvidia-t4"), ("A30", "nvidia-a30"), ("A10G", "nvidia-a10g"),
    ("3090", "nvidia-rtx-3090"), ("4090", "nvidia-rtx-4090"), ("5090", "nvidia-rtx-5090"),
    ("PRO 6000", "nvidia-rtx-pro-6000"), ("GB10", "nvidia-gb10"),
)  # fmt: skip
"""Parts of a card's name as people write it → the catalogue's row; the first that is in the name counts."""
FLAGS_WITHOUT_EFFECT = frozenset(
    {"trust_remote_code", "kv_connector", "load_format", "optimization_level", "attention_backend", "runner"}
)
"""Flags of the records that the account doesn't depend on, or that name what isn't upstream."""
STAND_IN_FORMATS: Mapping[str, Mapping[str, Any] | None] = {
    "16-bit": None,
    "FP8": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    "FP8 (native)": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    "AWQ": {"quant_method": "awq", "bits": 4, "group_size": 128},
    "bitsandbytes": {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True},
}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What is said of one record before the start, and what came."""

    record: Mapping[str, Any]
    fits: bool
    warned: bool
    """By a warning about memory, where it fits."""
    words: str
    """The first refusal or warning."""
    kv_gib: float | None = None
    weights_gib: float | None = None

    @property
    def worked(self) -> bool:
        return bool(self.record["ok"])

    @property
    def right(self) -> bool:
        """Accepted what worked; refused or warned of what failed."""
        return self.fits if self.worked else not self.fits or self.warned

    @property
    def kv_error_gib(self) -> float | None:
        """Predicted less actual; None where either is unknown."""
        actual = self.record["outcome"]["available_kv_gib"]
        return None if actual is None or self.kv_gib is None else self.kv_gib - actual

    @property
    def counts_for_gib(self) -> bool:
        """Complete, with the very config."""
        return self.record["grade"] == "complete" and self.record["config"] is not None


@dataclass(frozen=True, kw_only=True)
class Score:
    """The shares that the targets are about."""

    refused: float
    accepted: float
    warned_though_it_worked: float
    kv_median_gib: float
    kv_within: float
    counts: tuple[int, int, int]
    """Failed, worked, and those that count for GiB."""

    @property
    def misses(self) -> list[str]:
        """The targets that are missed, in words."""
        held = {
            f"refused or warned {self.refused:.1%}, {REFUSED_TARGET:.0%} wanted": self.refused
            >= REFUSED_TARGET,
            f"accepted {self.accepted:.1%}, {ACCEPTED_TARGET:.0%} wanted": self.accepted >= ACCEPTED_TARGET,
            f"KV median {self.kv_median_gib:.2f} GiB, {KV_MEDIAN_TARGET_GIB} wanted": self.kv_median_gib
            <= KV_MEDIAN_TARGET_GIB,
            f"KV within 1 GiB {self.kv_within:.0%}, {KV_WITHIN_TARGET:.0%} wanted": self.kv_within
            >= KV_WITHIN_TARGET,
        }
        return [words for words, held_to in held.items() if not held_to]


def read_records() -> list[dict[str, Any]]:
    """Every record that isn't of a custom or patched engine."""
    records = [json.loads(line) for line in RECORDS.read_text(encoding="utf-8").splitlines()]
    return [
        each for each in records if not re.search(r"[Cc]ustom image|[Pp]atched image", each["note"] or "")
    ]


def verdicts(records: Sequence[Mapping[str, Any]]) -> Iterator[Verdict]:
    """One for each record that tells enough."""
    for record in records:
        name = record["config"] or record["config_standin"]
        described = card_of(record)
        if name is not None and described is not None:
            yield verdict(record, config_of(record, name), *described)


def verdict(
    record: Mapping[str, Any], config: Mapping[str, Any], card: AcceleratorRow | None, total_gib: float | None
) -> Verdict:
    """What the estimate says of this record."""
    flags, env = flags_of(record)
    if total_gib is not None:
        flags.append(("total_gib", str(total_gib)))
    inputs = EstimateInputs(
        config=config, card=card, engine_version=version_of(record), flags=tuple(flags), env=env
    )
    try:
        found = estimate(inputs)
    except (ConfigError, InvalidInputError) as refusal:
        return Verdict(record=record, fits=False, warned=True, words=str(refusal))
    memory_words = [each for each in found.warnings if "GiB" in each]
    return Verdict(
        record=record,
        fits=found.fits,
        warned=bool(memory_words),
        words=(memory_words or [""])[0],
        kv_gib=found.memory.kv_cache_bytes / GIB,
        weights_gib=found.memory.weights_bytes / GIB,
    )


def score(found: Sequence[Verdict]) -> Score:
    """The shares over these verdicts."""
    failed = [each for each in found if not each.worked]
    worked = [each for each in found if each.worked]
    errors = [
        abs(each.kv_error_gib) for each in found if each.counts_for_gib and each.kv_error_gib is not None
    ]
    return Score(
        refused=_share(each.right for each in failed),
        accepted=_share(each.right for each in worked),
        warned_though_it_worked=_share(each.fits and each.warned for each in worked),
        kv_median_gib=statistics.median(errors),
        kv_within=_share(error <= KV_WITHIN_GIB for error in errors),
        counts=(len(failed), len(worked), len(errors)),
    )


def _share(held: Iterator[bool] | Any) -> float:
    values = list(held)
    return sum(values) / len(values)


@cache
def _catalogue() -> tuple[AcceleratorRow, ...]:
    return load_catalogue(builtin_catalogue_text())


def card_of(record: Mapping[str, Any]) -> tuple[AcceleratorRow | None, float | None] | None:
    """The row of the record's card and the memory that it printed; None where neither is known."""
    named = record["gpu"] or record["assumed"].get("gpu") or ""
    total = record["gpu_total_gib"]
    row = next((find_row(_catalogue(), name) for part, name in CARDS if part in named), None)
    return None if row is None and total is None else (row, total)


def config_of(record: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The record's config.json; a stand-in's in the record's weight format and length."""
    config: dict[str, Any] = json.loads((MODELS / name / "config.json").read_text(encoding="utf-8"))
    apart = MODELS / name / "hf_quant_config.json"
    if apart.is_file():
        config.setdefault("quantization_config", json.loads(apart.read_text(encoding="utf-8")))
    if record["config"] is None and record["weight_format"] in STAND_IN_FORMATS:
        config.pop("quantization_config", None)
        if (scheme := STAND_IN_FORMATS[record["weight_format"]]) is not None:
            config["quantization_config"] = dict(scheme)
    return config


def version_of(record: Mapping[str, Any]) -> str:
    """The version as told or assumed: of `0.16-0.19` the last."""
    said = record["vllm_version"] or record["assumed"].get("vllm_version") or ""
    found = re.findall(r"\d+\.\d+(?:\.\d+)?", said)
    return found[-1] if found else "0.11.0"


def flags_of(record: Mapping[str, Any]) -> tuple[list[tuple[str, str | None]], dict[str, str]]:
    """The record's flags and environment. A length that it doesn't give is what the engine printed."""
    flags: list[tuple[str, str | None]] = []
    env = {}
    args = dict(record["args"])
    if record["tp"] and "tensor_parallel_size" not in args:
        args["tensor_parallel_size"] = record["tp"]
    if "max_model_len" not in args and (length := length_of(record)) is not None:
        args["max_model_len"] = length
    for name, value in args.items():
        if name.startswith("env_"):
            env[name.removeprefix("env_")] = str(value)
        elif name not in FLAGS_WITHOUT_EFFECT and not _given_by_the_loader(name, value):
            flags.append((name, str(value).lower() if isinstance(value, bool) else str(value)))
    return flags, env


def length_of(record: Mapping[str, Any]) -> int | None:
    """The length that the engine printed or that had to be assumed; a stand-in's own is another model's.

    None: the config's own; -1: the longest that fits.
    """
    printed: int | None = record["outcome"]["max_model_len"]
    assumed = re.match(r"\d+", record["assumed"].get("max_model_len", ""))
    if printed is not None or assumed is not None:
        return printed if assumed is None else int(assumed[0])
    return None if record["config"] is not None else -1


def _given_by_the_loader(name: str, value: Any) -> bool:
    """`--quantization compressed` and the like repeat what the checkpoint says."""
    return name == "quantization" and value in {"compressed", "bitsandbytes", "fp8"}


def line(found: Verdict) -> str:
    """One record in one line."""
    record, outcome = found.record, found.record["outcome"]
    error = "" if found.kv_error_gib is None else f"{found.kv_error_gib:+6.2f}"
    mark = "" if found.right else "  MISSED"
    grade = (
        ("very config" if record["config"] else "stand-in") if record["grade"] == "complete" else "partial"
    )
    return (
        f"{record['id']:24} {grade:11} {'worked' if found.worked else 'failed'} "
        f"{'fits' if found.fits else 'refused':7} kv {_gib(found.kv_gib)} actual {_gib(outcome['available_kv_gib'])} "
        f"{error:6} weights {_gib(found.weights_gib)} actual {_gib(outcome['weights_gib'])}{mark}"
        + (f"  | {found.words[:150]}" if found.words else "")
    )


def _gib(value: float | None) -> str:
    return f"{value:7.2f}" if value is not None else "      -"


def report() -> tuple[str, Score]:
    """Every record and the score, as text; and the score."""
    found = list(verdicts(read_records()))
    total = score(found)
    failed, worked, counted = total.counts
    lines = [
        "What is said before the start of each record that people reported, and what came. KV cache and weights in GiB",
        "of one rank: predicted, actual, the difference.",
        "",
        *map(line, found),
        "",
        f"failed for memory: {total.refused:.1%} of {failed} refused or warned of",
        f"worked: {total.accepted:.1%} of {worked} accepted, {total.warned_though_it_worked:.1%} with a warning",
        f"KV cache of {counted} complete records with the very config: median error {total.kv_median_gib:.2f} GiB,",
        f"{total.kv_within:.0%} within {KV_WITHIN_GIB:g} GiB",
    ]
    return "\n".join([*lines, *(f"MISSED: {miss}" for miss in total.misses)]) + "\n", total


def main() -> int:
    """Prints every record and the score; 1 if a target is missed."""
    text, total = report()
    print(text, end="")
    if "--write" in sys.argv[1:]:
        WRITTEN.write_text(text, encoding="utf-8")
    return 1 if total.misses else 0


if __name__ == "__main__":
    raise SystemExit(main())
