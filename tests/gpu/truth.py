"""Records of starts.py as truth that the accuracy harness scores against.

    python -m gpu.truth OUT.json FOLDER...

Each folder has the records.jsonl and the logs of one call of starts.py. A start counts if it became ready; figures
are the engine's own lines, GiB of 2^30 bytes.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

GIB = 1 << 30
SKIPPED = {
    "model",
    "load_format",
    "tokenizer",
    "enable_server_load_tracking",
    "disable_access_log_for_endpoints",
}
TERMS = {
    "total_gib": "totalBytes",
    "free_at_start_gib": "freeBytes",
    "requested_gib": "requestedBytes",
    "weights_gib": "weightsBytes",
    "peak_activation_gib": "activationBytes",
    "non_torch_gib": "nonTorchBytes",
    "cudagraph_gib": "cudaGraphBytes",
    "cudagraph_estimate_gib": "cudaGraphEstimateBytes",
    "available_kv_gib": "kvCacheBytes",
}


def flags(arguments: list[str]) -> dict[str, Any]:
    """`--max-model-len 8192 --enforce-eager` → {"max_model_len": 8192, "enforce_eager": True}."""
    found: dict[str, Any] = {}
    for place, argument in enumerate(arguments):
        if not argument.startswith("--"):
            continue
        following = arguments[place + 1] if place + 1 < len(arguments) else "--"
        value: Any = True if following.startswith("--") else following
        if isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?", value):
            value = float(value) if "." in value else int(value)
        found[argument.removeprefix("--").replace("-", "_")] = value
    return found


def truth_of(record: Mapping[str, Any], log: str) -> dict[str, Any]:
    """One start in the harness's form."""
    said = flags(record["args"])
    memory = record["report"]["memory"]
    ranks = int(said.get("tensor_parallel_size", 1))
    block = re.search(r"attention block size to (\d+) tokens", log)
    rounded = {
        name: None if memory.get(key) is None else round(memory[key] / GIB, 2) for name, key in TERMS.items()
    }
    return {
        "name": record["name"],
        "entry_point": "server",
        "config": Path(said["model"]).name,
        "engine": "vllm",
        "engine_version": record["report"]["engine"]["version"],
        "gpu": "NVIDIA H200",
        "n_gpus": ranks,
        "tp": ranks,
        "args": {name: value for name, value in said.items() if name not in SKIPPED},
        "env": {"VLLM_USE_FLASHINFER_SAMPLER": "0"},
        "load_format": "dummy",
        "model_runner": "V2" if "Using V2 Model Runner" in log else "V1",
        "memory": {
            **rounded,
            "kv_tokens": memory.get("kvCacheTokens"),
            "max_concurrency": memory.get("maxConcurrency"),
            "block_size": int(block[1]) if block else None,
            "smi_used_mib": _smi_used(record["smi"]),
            "smi_used_after_generation_mib": _smi_used(record.get("smi_after", "")),
        },
        "speed": record.get("speed"),
        "startup": {
            "start_s": record["seconds"],
            **{f"{step['name']}_s": step["seconds"] for step in record["report"]["startup"]["steps"]},
        },
    }


def _smi_used(text: str) -> list[int]:
    return [int(each) for each in re.findall(r"(\d+) MiB, \d+ MiB", text)]


def records(folders: list[Path]) -> Iterator[dict[str, Any]]:
    for folder in folders:
        for line in (folder / "records.jsonl").read_text().splitlines():
            record = json.loads(line)
            if record["state"] == "ready":
                yield truth_of(record, (folder / f"{record['name']}.log").read_text(errors="replace"))


def main() -> int:
    out, *folders = map(Path, sys.argv[1:])
    found = list(records(folders))
    out.write_text(json.dumps({"records": found}, indent=1) + "\n")
    print(f"{len(found)} starts in {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
