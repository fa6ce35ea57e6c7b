"""Faults on command: `FAKE_ENGINE_FAULT="name:key=value,key=value;name2"`.

At the start (each ends the process with exit code 1 unless said otherwise):
  kv-too-small  no-kv  device-not-empty  oom-load  oom-profile  oom-warmup  oom-capture  model-not-found
  model-gated  model-invalid  disk-full  shm-too-small  slow-load:seconds=,shards=  never-ready
  die:step=load,code=3  (step: import load profile capture serving)    sigkill:step=load or after=seconds of serving
  ignore-sigterm
While serving:
  hang:tokens=N             after N tokens in all (default 1) no more come; /health stays 200. With 0 the core hangs
                            in its first step, of which the gauges never tell: as in vLLM, only /load knows
  exit-zero:after=S         after S seconds of serving, or :requests=N finished ones, the engine core dies, exit code 0
  unhealthy                 /health answers 503
  cut-streams:tokens=N      a stream is cut after N tokens, without an end
  metrics-nan               gauges are NaN; with :counters=yes so is every other value of the engine's
  metrics-missing:series=vllm:num_requests_running    without this one    metrics-empty  without all of the engine's
  metrics-off  404          metrics-hang  no answer until the fault is over    metrics-cut  closed without an answer
  metrics-frozen            the page as it was when it was first asked for under this fault
  metrics-reset             once, when it is set: counters and histograms begin anew, in the same process
  oom-serving:requests=N    out of memory at the Nth request, then as exit-zero

`POST /fake/fault` with such a text changes the faults of a running engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field

NAMES = frozenset(
    [
        "kv-too-small",
        "no-kv",
        "device-not-empty",
        "oom-load",
        "oom-profile",
        "oom-warmup",
        "oom-capture",
        "model-not-found",
        "model-gated",
        "model-invalid",
        "disk-full",
        "shm-too-small",
        "slow-load",
        "never-ready",
        "die",
        "sigkill",
        "ignore-sigterm",
        "hang",
        "exit-zero",
        "unhealthy",
        "cut-streams",
        "metrics-nan",
        "metrics-missing",
        "metrics-empty",
        "metrics-off",
        "metrics-hang",
        "metrics-cut",
        "metrics-frozen",
        "metrics-reset",
        "oom-serving",
    ]
)


class FaultError(ValueError):
    """A fault that does not exist."""


@dataclass(frozen=True)
class Faults:
    """Faults by name, each with its own settings."""

    by_name: dict[str, dict[str, str]] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        return name in self.by_name

    def number(self, name: str, key: str, default: float) -> float:
        return float(self.by_name.get(name, {}).get(key, default))

    def text(self, name: str, key: str, default: str) -> str:
        return self.by_name.get(name, {}).get(key, default)

    def has(self, name: str, key: str) -> bool:
        return key in self.by_name.get(name, {})


def parse(text: str) -> Faults:
    """Read the text of `FAKE_ENGINE_FAULT`; empty: no fault.

    Raises:
        FaultError: for a name that does not exist, so that no test passes because its fault never came.

    """
    found: dict[str, dict[str, str]] = {}
    for part in filter(None, (piece.strip() for piece in text.split(";"))):
        name, _, settings = part.partition(":")
        if name not in NAMES:
            raise FaultError(f"FAKE_ENGINE_FAULT names {name!r}; there are {', '.join(sorted(NAMES))}")
        found[name] = dict(pair.split("=", 1) for pair in settings.split(",") if "=" in pair)
    return Faults(found)
