"""What the operator asks of this supervisor: one JSON object in the environment, and the engine's command."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

CONFIG_VARIABLE = "LLMSERVICE_SUPERVISOR"
_LONGEST_SECONDS = 365 * 24 * 3600


class ConfigError(ValueError):
    """The supervisor's configuration cannot be used; the message names the key, its value and the mend."""


@dataclass(frozen=True)
class ExpectedDevice:
    """The accelerator that the plan was made for."""

    type: str
    name_contains: tuple[str, ...] = ()
    memory_bytes: int | None = None
    count: int = 1


@dataclass(frozen=True)
class Config:
    """Budgets and identities. Times in seconds, sizes in bytes."""

    service: str
    revision: str
    engine: str = "vllm"
    engine_version: str | None = None
    engine_port: int = 8000
    supervisor_port: int = 9410
    start_budget_seconds: float = 1800.0
    drain_timeout_seconds: float = 300.0
    drain_minimum_seconds: float = 5.0
    stop_grace_seconds: float = 10.0
    hang_seconds: float = 120.0
    memory_failure_hold_seconds: float = 120.0
    weights_bytes: int | None = None
    model_path: str | None = None
    expected_device: ExpectedDevice | None = None


def parse_config(raw: str | None) -> Config:
    """Read the JSON object of `LLMSERVICE_SUPERVISOR`.

    Unknown keys are ignored: a stored pod template may carry an older supervisor than its operator.

    Raises:
        ConfigError: when it is missing, is no JSON object, or a value has the wrong type or sign.

    """
    if raw is None or not raw.strip():
        raise ConfigError(
            f"{CONFIG_VARIABLE} is not set; set it to a JSON object with at least "
            '{"service": "<namespace>/<name>", "revision": "<revision>"}'
        )
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{CONFIG_VARIABLE} is not JSON ({error}); set it to one JSON object") from error
    if not isinstance(data, dict):
        raise ConfigError(
            f"{CONFIG_VARIABLE} is a JSON {type(data).__name__}; set it to one JSON object of settings"
        )
    return _build(data)


def _build(data: Mapping[str, Any]) -> Config:
    defaults = Config(service="", revision="")
    return Config(
        service=_text(data, "service", None) or "",
        revision=_text(data, "revision", None) or "",
        engine=_text(data, "engine", defaults.engine) or defaults.engine,
        engine_version=_text(data, "engineVersion", ""),
        engine_port=_port(data, "enginePort", defaults.engine_port),
        supervisor_port=_port(data, "supervisorPort", defaults.supervisor_port),
        start_budget_seconds=_seconds(data, "startBudgetSeconds", defaults.start_budget_seconds),
        drain_timeout_seconds=_seconds(data, "drainTimeoutSeconds", defaults.drain_timeout_seconds),
        drain_minimum_seconds=_seconds(data, "drainMinimumSeconds", defaults.drain_minimum_seconds),
        stop_grace_seconds=_seconds(data, "stopGraceSeconds", defaults.stop_grace_seconds),
        hang_seconds=_seconds(data, "hangSeconds", defaults.hang_seconds),
        memory_failure_hold_seconds=_seconds(
            data, "memoryFailureHoldSeconds", defaults.memory_failure_hold_seconds
        ),
        weights_bytes=_bytes(data, "weightsBytes"),
        model_path=_text(data, "modelPath", ""),
        expected_device=_device(data.get("expectedDevice")),
    )


def _wrong(key: str, value: Any, wanted: str) -> ConfigError:
    return ConfigError(f"{CONFIG_VARIABLE}.{key} is {json.dumps(value)[:200]}; it must be {wanted}")


def _text(data: Mapping[str, Any], key: str, default: str | None) -> str | None:
    """A string; `default` None makes the key required, an empty default makes an absent key None."""
    value = data.get(key)
    if value is None:
        if default is None:
            raise _wrong(key, value, "a non-empty string")
        return default or None
    if not isinstance(value, str) or (default is None and not value):
        raise _wrong(key, value, "a non-empty string" if default is None else "a string")
    return value or None


def _seconds(data: Mapping[str, Any], key: str, default: float) -> float:
    value = data.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _LONGEST_SECONDS:
        raise _wrong(key, value, f"a number of seconds from 0 to {_LONGEST_SECONDS}")
    return float(value)


def _port(data: Mapping[str, Any], key: str, default: int) -> int:
    value = data.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 65535:
        raise _wrong(key, value, "a port number from 1 to 65535 (0: any free one)")
    return value


def _bytes(data: Mapping[str, Any], key: str) -> int | None:
    value = data.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _wrong(key, value, "a whole number of bytes, 0 or more")
    return value


def _device(value: Any) -> ExpectedDevice | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise _wrong("expectedDevice", value, "an object with type, nameContains, memoryBytes, count")
    names = value.get("nameContains", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise _wrong("expectedDevice.nameContains", names, "a list of strings")
    count = value.get("count", 1)
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise _wrong("expectedDevice.count", count, "a whole number, 0 or more")
    return ExpectedDevice(
        type=_text(value, "type", "") or "",
        name_contains=tuple(names),
        memory_bytes=_bytes(value, "memoryBytes"),
        count=count,
    )


def split_command(arguments: Sequence[str]) -> list[str]:
    """The engine's command: what follows `--`.

    Raises:
        ConfigError: when there is no `--`, or nothing after it.

    """
    if "--" not in arguments or not list(arguments[arguments.index("--") + 1 :]):
        raise ConfigError(
            "no engine command; run as: python3 supervisor.pyz -- "
            "python3 -m vllm.entrypoints.openai.api_server --model <path>"
        )
    return list(arguments[arguments.index("--") + 1 :])
