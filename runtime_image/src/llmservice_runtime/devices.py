"""The accelerators that this container really got, and whether they are what the plan was made for."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from typing import Sequence

from llmservice_runtime.config import ExpectedDevice
from llmservice_runtime.memory_facts import gib

_MIB = 1024**2
_QUERY = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
_PROBE_TIMEOUT_SECONDS = 30.0
# Drivers keep memory for themselves, and data sheets count in GB; 8 % covers every card of the catalogue.
_MEMORY_TOLERANCE = 0.08


@dataclass(frozen=True)
class Device:
    """One accelerator. `memory_bytes` is None where the driver does not say (a MIG parent)."""

    name: str
    memory_bytes: int | None


def probe_devices() -> list[Device]:
    """What nvidia-smi lists; empty when there is none or it fails (the engine then says why itself)."""
    try:
        done = subprocess.run(
            _QUERY,
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_SECONDS,
            check=False,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return parse_devices(done.stdout) if done.returncode == 0 else []


def parse_devices(table: str) -> list[Device]:
    """Lines of `name, memory in MiB`."""
    devices = []
    for line in table.splitlines():
        name, comma, memory = line.rpartition(",")
        if comma and name.strip():
            text = memory.strip()
            devices.append(Device(name.strip(), int(text) * _MIB if text.isdigit() else None))
    return devices


def wrong_accelerator(devices: Sequence[Device], expected: ExpectedDevice | None) -> str | None:
    """Why these devices cannot run the plan, or None. With nothing seen nothing is judged."""
    if expected is None or expected.type == "cpu" or not devices:
        return None
    for device in devices:
        if not all(_named(part, device.name) for part in expected.name_contains):
            wanted = " and ".join(f'"{part}"' for part in expected.name_contains)
            return (
                f'the device is "{device.name}"; the plan is for {expected.type}, whose name contains '
                f"{wanted}; correct the node's labels, or name this accelerator in spec.accelerator.types"
            )
        if _too_small(device, expected):
            return (
                f'the device "{device.name}" has {gib(device.memory_bytes or 0)}; the plan for '
                f"{expected.type} needs {gib(expected.memory_bytes or 0)}; "
                "name this accelerator in spec.accelerator.types"
            )
    if len(devices) < expected.count:
        return f"{len(devices)} devices are visible; the plan for {expected.type} needs {expected.count}"
    return None


def _named(part: str, name: str) -> bool:
    """Whether the part stands in the name as a word: an L40S is no L4."""
    return re.search(rf"(?<![a-z0-9]){re.escape(part.lower())}(?![a-z0-9])", name.lower()) is not None


def _too_small(device: Device, expected: ExpectedDevice) -> bool:
    if device.memory_bytes is None or expected.memory_bytes is None:
        return False
    return device.memory_bytes < expected.memory_bytes * (1 - _MEMORY_TOLERANCE)
