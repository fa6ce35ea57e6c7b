"""One run of one rule on one load, kept on disk by the code that it ran: the same code gives the same figures."""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

import llmservice_operator
from bench.scaling_setup import Case, Service, first_replicas, speed_of, tables_of
from llmservice_operator.simulation.fleet import FleetSettings, simulate
from llmservice_operator.simulation.loads import Load
from llmservice_operator.simulation.observation import Policy
from llmservice_operator.simulation.policies import OPERATOR
from llmservice_operator.simulation.policies import Service as Served
from llmservice_operator.simulation.score import Score, score

PACKAGE = Path(llmservice_operator.__file__).parent
HERE = Path(__file__).parent
_SIMULATION = (
    "fleet",
    "kernel",
    "loads",
    "lookups",
    "observation",
    "records",
    "router",
    "score",
    "scraper",
    "tables",
)


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What a case is played under. `slowdown` of engines and `start_factor` of starts: no rule is told."""

    start_seconds: float = 120.0
    peak: int = 8
    seed: int = 0
    slowdown: float = 1.0
    start_factor: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Played:
    """What came of it."""

    score: Score
    gpu_hours: float
    cpu_seconds: float
    """Of the run, whenever that was."""


@cache
def served(service: Service, static_replicas: int, start_seconds: float) -> Served:
    """What rules are made for; what they share is worked out once."""
    return Served(
        speed=speed_of(service),
        objective=service.objective,
        lengths=service.lengths,
        static_replicas=static_replicas,
        start_seconds=start_seconds,
    )


def make_policy(name: str, service: Service, *, static_replicas: int, start_seconds: float) -> Policy:
    """One without memory."""
    return served(service, static_replicas, start_seconds).policy(name)


def fleet_settings(case: Case, load: Load, under: Conditions, *, is_static: bool) -> FleetSettings:
    """What every rule begins with; a fixed fleet is there from the begin."""
    return FleetSettings(
        min_replicas=case.min_replicas,
        max_replicas=case.max_replicas,
        initial_replicas=under.peak if is_static else first_replicas(case, load),
        start_seconds=(("start", under.start_seconds * under.start_factor),),
        seed=under.seed,
    )


def play(
    case: Case,
    policy: str,
    under: Conditions,
    *,
    setting: str = "",
    make: Callable[[], Policy] | None = None,
) -> Played:
    """Play it, or read what is kept of it. `make`: a rule with a setting of its own, which `setting` names."""
    place = _place(case, policy, under, setting)
    if place.exists():
        kept = json.loads(place.read_text())
        return Played(**{**kept, "score": Score(**kept["score"])})
    rule = (
        make_policy(policy, case.service, static_replicas=under.peak, start_seconds=under.start_seconds)
        if make is None
        else make()
    )
    load = case.load(under.seed)
    tables = tables_of(case.service, under.slowdown)
    begin = time.process_time()
    run = simulate(tables, load, rule, fleet_settings(case, load, under, is_static=policy == "static"))
    found = score(run, case.service.objective)
    played = Played(
        score=found,
        gpu_hours=found.replica_hours * case.service.ranks,
        cpu_seconds=time.process_time() - begin,
    )
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_suffix(f".{os.getpid()}")
    part.write_text(json.dumps(asdict(played)))
    part.replace(place)
    return played


def is_kept(case: Case, policy: str, under: Conditions, setting: str = "") -> bool:
    """Whether `play` would only read it."""
    return _place(case, policy, under, setting).exists()


def _place(case: Case, policy: str, under: Conditions, setting: str) -> Path:
    if policy == "static" and under.start_factor != 1.0:
        under = replace(under, start_factor=1.0)  # nothing starts
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    engine = speed_of(case.service).case
    named = json.dumps(
        [case.name, policy, setting, asdict(under), engine.kv_cache_tokens, engine.max_num_seqs]
    )
    name = hashlib.sha256(named.encode()).hexdigest()[:24]
    return base / "llmservice" / "bench-scaling" / _code(ours=policy == OPERATOR) / f"{name}.json"


@cache
def _code(*, ours: bool) -> str:
    """A digest of what a run's figures come from; the operator's rule counts for its own runs only."""
    digest = hashlib.sha256()
    for path in _sources(ours=ours):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _sources(*, ours: bool) -> Iterable[Path]:
    folders = [PACKAGE / "perfmodel", PACKAGE / "simulation" / "peers", PACKAGE / "simulation" / "traces"]
    folders.append(HERE.parent / "data" / "traces")
    if ours:
        folders.append(PACKAGE / "autoscaling")
        yield from (PACKAGE / "simulation" / name for name in ("operator.py", "policies.py"))
    for folder in folders:
        yield from sorted(path for path in folder.iterdir() if path.suffix in {".py", ".csv", ".txt"})
    for name in _SIMULATION:
        yield PACKAGE / "simulation" / f"{name}.py"
    yield from (HERE / "scaling_setup.py", HERE / "scaling_servegen.py")
