"""A service whose engines are scraped, for tests of what is made of their pages."""

import math
from collections.abc import Callable

from llmservice_operator.autoscaling.observer import Context, ServiceObserver
from llmservice_operator.autoscaling.signals import Signal, Signals
from unit.autoscaling.engines import FakeEngine

START = 1_790_000_000.0
PERIOD = 5.0
CONTEXT = Context(ttft_p95_seconds=1.0, tpot_p95_seconds=0.05, peak_bytes_per_second=1e12)
Act = Callable[[dict[str, FakeEngine], float], None]


class Service:
    """Engines that are scraped every 5 s while a test's function tells what happens to them."""

    def __init__(self, replicas: int = 2) -> None:
        self.engines = {f"r{number}": FakeEngine() for number in range(replicas)}
        self.ready = dict.fromkeys(self.engines, START - 600.0)
        self.observer = ServiceObserver()
        self.now = START

    def run(
        self, seconds: float, act: Act | None = None, *, scraped: frozenset[str] | None = None
    ) -> Signals:
        """Let time pass; `scraped`: only these replicas answer."""
        end = self.now + seconds
        while self.now < end:
            self.now += PERIOD
            if act is not None:
                act(self.engines, PERIOD)
            for name, engine in self.engines.items():
                if scraped is None or name in scraped:
                    self.observer.record(name, engine.page(), at=self.now)
        return self.signals()

    def signals(self) -> Signals:
        return self.observer.signals(self.ready, self.now, CONTEXT)


def load(rate: float, **request: float) -> Act:
    """So many requests a second in all, evenly over the engines, each answered at once."""

    def act(engines: dict[str, FakeEngine], seconds: float) -> None:
        for engine in engines.values():
            engine.serve(rate * seconds / len(engines), **request)

    return act


def is_close(signal: Signal, value: float) -> bool:
    return signal.value is not None and math.isclose(signal.value, value, rel_tol=1e-9)
