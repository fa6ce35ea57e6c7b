"""Objects made from good ones by a change or two at random: some still good, most not."""

import copy
import random
from collections.abc import Iterator, Sequence
from typing import Any

Path = tuple[str | int, ...]

VALUES: tuple[Any, ...] = (
    *(
        "",
        "auto",
        "main",
        "latest",
        "v1.2",
        "1.0",
        "cpu",
        "a b",
        "a/b",
        "ä",
        "é" * 30,
        "x" * 64,
        "X" * 300,
        "a\nb",
        "a\n",
    ),
    *("5m", "-5s", "10s", "1h", "2h", "0.5", "1Gi", "0Gi", "128Ti", "-1", ".5Gi", "1e3", "5Gi ", "1K"),
    *(
        "hf://a/b",
        "hf://",
        "pvc://a",
        "file:///a",
        "file://",
        "s3://x",
        "../..",
        "/a/../b",
        "/data",
        "/cache/",
        "/dev/x",
    ),
    *(
        "llmservice.dev/x",
        "nvidia.com/gpu",
        "metadata.name",
        "--x",
        "-tp",
        "ClusterIP",
        "Always",
        "In",
        "Exists",
    ),
    *(0, -1, 1, 2, 16, 17, 100, 1_000, 1_001, 65_536, 10**9, 0.5, 1.5, True, False),
    *([], ["a"], ["a", "a"], ["cpu", "a"], [{}], [{"name": "a"}], [{"name": "HF_HOME", "value": "a"}]),
    *(
        {},
        {"a": "b"},
        {"a_b": "1", "a-b": "2"},
        {"tp": "1"},
        {"no-x": "1"},
        {"a b": "c"},
        {"a.b": "c"},
        {"name": "a"},
    ),
    *(
        {"claim": "a"},
        {"max": 5},
        {"min": 5},
        {"max": 5, "min": 6},
        {"maxReplicas": 0},
        {"maxReplicas": 3},
        {"p95": 9},
    ),
)
NEW_KEYS = ("foo", "args", "env", "key", "value", "labels", "min", "p95")


def mutated(source: random.Random, goods: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One of the objects with one or two changes in its spec."""
    manifest = copy.deepcopy(source.choice(goods))
    for _ in range(source.choice((1, 1, 2))):
        _change(source, manifest.setdefault("spec", {}))
    return manifest


def _change(source: random.Random, spec: dict[str, Any]) -> None:
    paths = [path for path in _paths(spec) if path]
    if not paths:
        return
    path = source.choice(paths)
    parent = _at(spec, path[:-1])
    kind = source.random()
    if kind < 0.2:
        del parent[path[-1]]
    elif kind < 0.3 and isinstance(parent, dict):
        parent[source.choice(NEW_KEYS)] = copy.deepcopy(source.choice(VALUES))
    else:
        alike = [value for value in VALUES if type(value) is type(parent[path[-1]])]
        parent[path[-1]] = copy.deepcopy(source.choice(alike if alike and source.random() < 0.8 else VALUES))


def _paths(value: Any, path: Path = ()) -> Iterator[Path]:
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from _paths(value[key], (*path, key))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _paths(each, (*path, index))


def _at(value: Any, path: Path) -> Any:
    for step in path:
        value = value[step]
    return value
