"""`llmservice estimate`: the engine with exactly these arguments, before a GPU is taken."""

import argparse
import json
import math
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from llmservice_operator.cli_documents import config_texts, print_while_read, read_catalogue, read_config
from llmservice_operator.clients.safetensors_files import FolderWeights, read_weights
from llmservice_operator.errors import InvalidInputError
from llmservice_operator.perfmodel.accelerators import CPU, AcceleratorRow, find_row, similar_names
from llmservice_operator.planning.estimate import Arrival, Estimate, EstimateInputs, estimate

DOES_NOT_FIT, UNUSABLE = 1, 2
WIDTH = 110
LONGEST_PROMPT, LARGEST_BATCH, HIGHEST_RATE = 1 << 24, 1 << 17, 1e6

_EPILOG = """\
Flags of --set are vLLM's own, by name, short name or any unique beginning, with _ or -; a switch needs no value
(--set enforce_eager, --set no_enable_prefix_caching). What isn't set is what this version of vLLM takes by itself.
--set total_gib=GIB describes a card (on `cpu`: the container's limit), --set free_gib=GIB what of it is free.
Exit code 1: the engine would not start, the reasons are in `warnings`; 2: something given can't be used."""


def add_parser(subparsers: Any) -> None:
    """Add `estimate` to the command's subcommands."""
    parser = subparsers.add_parser(
        "estimate",
        help="memory and speed of the engine with given arguments, offline",
        description="What vLLM will say of its memory with exactly these arguments, term by term and without a "
        "margin; whether it starts; and how fast it is.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--config", type=Path, required=True, help="the model's config.json, or the folder it is in"
    )
    parser.add_argument("--accelerator", default="", metavar="NAME", help="a row of the catalogue")
    parser.add_argument("--engine-version", default="", metavar="X.Y.Z", help="vLLM's version")
    parser.add_argument(
        "--set", action="append", default=[], metavar="FLAG=VALUE", dest="flags", help="one of vLLM's flags"
    )
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an environment variable of the engine",
    )
    parser.add_argument(
        "--entry-point",
        choices=("server", "llm"),
        default="server",
        help="whose defaults count: `vllm serve`, or the class LLM",
    )
    parser.add_argument(
        "--catalogue", type=Path, help="rows of accelerators in addition to the built-in ones"
    )
    _add_points(parser)
    parser.add_argument("-o", "--output", choices=("table", "json", "yaml"), default="table")
    parser.set_defaults(run=run)


def _add_points(parser: argparse.ArgumentParser) -> None:
    """What is to be timed."""
    parser.add_argument(
        "--prefill",
        action="append",
        default=[],
        metavar="TOKENS",
        help="time to first token of such a prompt",
    )
    parser.add_argument(
        "--decode",
        action="append",
        default=[],
        metavar="BATCHxCONTEXT",
        help="time of a step of such a batch",
    )
    parser.add_argument(
        "--arrival",
        default="",
        metavar="RATE:IN_P50:OUT_P50",
        help="requests a second, and their lengths in tokens",
    )


def run(arguments: argparse.Namespace) -> int:
    """Estimate and print."""
    try:
        result = estimate(_inputs(arguments))
        print_while_read(lambda: _print(result, arguments.output))
    except (InvalidInputError, OSError) as error:
        print(f"llmservice estimate: {error}", file=sys.stderr)
        return UNUSABLE
    return 0 if result.fits else DOES_NOT_FIT


def _inputs(arguments: argparse.Namespace) -> EstimateInputs:
    texts, source = config_texts(arguments.config)
    config = read_config(texts, source=source)
    weights = read_weights(arguments.config, config) if arguments.config.is_dir() else FolderWeights()
    return EstimateInputs(
        config=config,
        card=_row(arguments.accelerator, read_catalogue(arguments.catalogue)),
        engine_version=arguments.engine_version,
        flags=tuple(_pair(each) for each in arguments.flags),
        env=dict(_variable(each) for each in arguments.env),
        entry_point=arguments.entry_point,
        prefill=tuple(_count("--prefill", each, each, LONGEST_PROMPT) for each in arguments.prefill),
        decode=tuple(_decode(each) for each in arguments.decode),
        arrival=_arrival(arguments.arrival) if arguments.arrival else None,
        checkpoint=weights.checkpoint,
        checkpoint_bytes=weights.weights_bytes,
        checkpoint_problem=weights.problem,
    )


def _row(name: str, catalogue: tuple[AcceleratorRow, ...]) -> AcceleratorRow | None:
    row = find_row(catalogue, name)
    if row is None and name:
        close = similar_names(catalogue, name)
        hint = (
            f"did you mean {' or '.join(close)}?"
            if close
            else "it has " + ", ".join(r.name for r in catalogue)
        )
        raise InvalidInputError(
            f"--accelerator {name}: no row of the catalogue; {hint} (other cards: --set total_gib=GIB, or a row by "
            "--catalogue)"
        )
    return row


def _pair(text: str) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    return name, value if equals else None


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise InvalidInputError(
            f"--env {text}: NAME=VALUE is expected, such as VLLM_USE_FLASHINFER_SAMPLER=0"
        )
    return name, value


def _count(flag: str, whole: str, text: str, limit: int) -> int:
    if not re.fullmatch(r"\d{1,12}", text.strip()) or not 1 <= int(text) <= limit:
        raise InvalidInputError(
            f"{flag} {whole}: whole numbers of 1 to {limit:,} are expected, not {text[:40]!r}"
        )
    return int(text)


def _decode(text: str) -> tuple[int, int]:
    batch, times, context = text.lower().partition("x")
    if not times:
        raise InvalidInputError(f"--decode {text}: BATCHxCONTEXT is expected, such as 16x2048")
    return _count("--decode", text, batch, LARGEST_BATCH), _count("--decode", text, context, LONGEST_PROMPT)


def _arrival(text: str) -> Arrival:
    parts = text.split(":")
    if len(parts) != 3:
        raise InvalidInputError(f"--arrival {text}: RATE:IN_P50:OUT_P50 is expected, such as 2.5:1000:200")
    try:
        rate = float(parts[0])
    except ValueError:
        rate = math.nan
    if not 0 < rate <= HIGHEST_RATE:
        raise InvalidInputError(
            f"--arrival {text}: a rate of more than 0 and at most {HIGHEST_RATE:,.0f} requests a second is expected"
        )
    lengths = [_count("--arrival", text, each, LONGEST_PROMPT) for each in parts[1:]]
    return Arrival(rate_per_second=rate, input_p50=lengths[0], output_p50=lengths[1])


def _print(result: Estimate, output: str) -> None:
    if output == "json":
        print(json.dumps(result.to_json(), indent=2))
    elif output == "yaml":
        import yaml  # noqa: PLC0415 - json needs none of it

        print(yaml.safe_dump(result.to_json(), sort_keys=False, width=110), end="")
    else:
        print("\n".join(line.rstrip() for line in _table(result)))


def _table(result: Estimate) -> Iterator[str]:
    document = result.to_json()
    settings = document["settings"]
    short = f", {result.shortfall_bytes / (1 << 30):.2f} GiB short" if result.shortfall_bytes else ""
    verdict = "it starts" if result.fits else f"it does not start{short}"
    yield f"vLLM {settings['engine_version']} on {settings['accelerator']}: {verdict}"
    yield ""
    yield from (f"  {name:<26}{_shown(value)}" for name, value in settings.items() if value not in {"", None})
    yield ""
    yield "memory of the container" if settings["accelerator"] == CPU else "memory of one accelerator"
    for name, value in document["memory"].items():
        figure = f"  {name.removesuffix('_bytes'):<20}{value / (1 << 30):>9.2f} GiB  "
        yield from _beside(figure, result.explain["memory"][name])
    yield ""
    yield "KV cache"
    for name, value in document["kv_cache"].items():
        yield from _beside(f"  {name:<20}{_shown(value):>13}  ", result.explain["kv_cache"][name])
    if result.speed is not None:
        yield from _speed_table(document["speed"])
    if result.warnings:
        yield ""
        yield "mind"
        for each in result.warnings:
            yield from _beside("  - ", each)


def _beside(figure: str, text: str) -> Iterator[str]:
    """A text beside its figure, wrapped."""
    first, *rest = textwrap.wrap(text, WIDTH - len(figure)) or [""]
    yield figure + first
    yield from (" " * len(figure) + each for each in rest)


def _speed_table(speed: dict[str, Any]) -> Iterator[str]:
    yield ""
    yield f"speed (ridge point {speed['ridge_point_flops_per_byte']:,.0f} FLOP a byte)"
    for each in speed["prefill"]:
        yield f"  TTFT of {each['tokens']:,} tokens: {each['ttft_seconds'] * 1e3:.1f} ms, {each['regime']}"
    for each in speed["decode"]:
        yield (
            f"  ITL of {each['batch']:,} x {each['context']:,} tokens: {each['itl_seconds'] * 1e3:.2f} ms, "
            f"{each['regime']}"
        )
    for name, value in (speed.get("open_loop") or {}).items():
        yield f"  {name:<22}{_shown(value)}"


def _shown(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value).lower() if isinstance(value, bool) else str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
