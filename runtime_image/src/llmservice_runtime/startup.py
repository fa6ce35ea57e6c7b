"""How long each step of a start took, and how far the weights are. Pure: the time is passed in."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_STEP = "import"
SERVING = "serving"
ORDER = (FIRST_STEP, "load", "compile", "profile", "capture", "warmup")


@dataclass(frozen=True)
class WeightsProgress:
    """Bytes of weights read so far, for one start. Rates in bytes per second; None: not known."""

    total_bytes: int | None
    loaded_bytes: int
    bytes_per_second: float | None
    seconds_left: float | None


class StartupTimer:
    """How long each step took; a step entered again goes on adding to its time. The sum is the time since `now`."""

    def __init__(self, now: float) -> None:
        self._seconds: dict[str, float] = {FIRST_STEP: 0.0}
        self._step = FIRST_STEP
        self._entered = now

    @property
    def step(self) -> str:
        return self._step

    def enter(self, step: str, now: float) -> None:
        """Begin `step`; what was under way ends. Entering the current step again changes nothing."""
        if self._step in (step, SERVING):
            return
        self._seconds[self._step] += now - self._entered
        self._seconds.setdefault(step, 0.0)
        self._step, self._entered = step, now

    def ended(self, step: str, seconds: float, now: float) -> None:
        """`step` is over and took `seconds`: that much of what was under way belongs to it."""
        self.enter(step, max(self._entered, now - seconds))

    def steps(self, now: float) -> list[tuple[str, float]]:
        """(name, seconds) of each step, in `ORDER`; the current one counts up to `now`. Serving is no step."""
        seconds = dict(self._seconds)
        if self._step != SERVING:
            seconds[self._step] += now - self._entered
        return [(name, seconds[name]) for name in ORDER if name in seconds]


def next_step(announced: str, *, kv_sized: bool) -> str:
    """The step that a line announces, given where the start is.

    Graphs captured before the KV cache is sized are vLLM's estimate of their memory, part of the profile
    (v1/worker/gpu/cudagraph_utils.py); afterwards a late compile belongs to the warm-up.
    """
    if not kv_sized:
        return "profile" if announced in {"capture", "warmup"} else announced
    return "warmup" if announced in {"compile", "profile"} else announced


class WeightsTracker:
    """Joins what the engine prints (shards done) with what its processes read from storage.

    A mapped file is read without a line of log, and a cached one without a read from storage: the larger of
    the two is nearer the truth.
    """

    def __init__(self, total_bytes: int | None, *, exact: bool = False) -> None:
        """`exact`: the total was counted from the files; else it is the plan's estimate."""
        self._total, self._exact = total_bytes, exact
        self._began: float | None = None
        self._read_at_begin = 0
        self._loaded = 0
        self._seconds: float | None = None
        self._done = False

    def total_known(self, total_bytes: int) -> None:
        """The engine said how large the checkpoint is; what was counted from the files stays."""
        if not self._exact:
            self._total = total_bytes

    def begin(self, now: float, read_bytes: int) -> None:
        """Loading begins; `read_bytes` is what the engine had read before. Only the first call counts."""
        if self._began is None:
            self._began, self._read_at_begin = now, read_bytes

    def sample(self, now: float, *, read_bytes: int, shard_fraction: float | None) -> None:
        """A reading while the weights load."""
        if self._began is None or self._done:
            return
        loaded = max(self._loaded, read_bytes - self._read_at_begin)
        if shard_fraction is not None and self._total is not None:
            loaded = max(loaded, int(shard_fraction * self._total))
        self._loaded = loaded if self._total is None else min(loaded, self._total)
        self._seconds = now - self._began

    def finish(self, now: float) -> None:
        """The engine said that the weights are in."""
        if self._done:
            return
        self._loaded = self._total if self._total is not None else self._loaded
        self._seconds = now - self._began if self._began is not None else None
        self._done = True

    def progress(self) -> WeightsProgress:
        rate = self._loaded / self._seconds if self._seconds and self._loaded else None
        left: float | None = None
        if self._done:
            left = 0.0
        elif rate and self._total is not None:
            left = max(0.0, (self._total - self._loaded) / rate)
        return WeightsProgress(self._total, self._loaded, rate, left)
