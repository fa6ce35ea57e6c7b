"""The series that releases of vLLM declare, read from the source in their wheels: tests/data/metrics/vllm-names.tsv.

python -m observability.source_names WHEEL...
(a wheel, or a folder named by the release with what a wheel holds: only the files of `SOURCES` are read.)
"""

import ast
import re
import sys
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

TABLE = Path(__file__).resolve().parents[1] / "data" / "metrics" / "vllm-names.tsv"
SOURCES = {
    "vllm/engine/metrics.py": "V0",
    "vllm/v1/metrics/loggers.py": "V1",
    "vllm/v1/metrics/perf.py": "V1",
}
"""Where series are declared, and whose they are: V0 is the engine that releases up to 0.10.2 can still run."""
LAST_WITH_V0 = (0, 10, 2)
"""0.11.0 still has V0's file of series; its LLMEngine is V1's."""
Release = tuple[int, ...]
Found = Mapping[str, frozenset[str]]
"""Names by engine."""


def declared(source: str) -> frozenset[str]:
    """The names of series among a module's strings."""
    strings = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    return frozenset(each for each in strings if isinstance(each, str) and re.fullmatch(r"vllm:\w+", each))


def release(path: Path) -> Release:
    """Of a wheel or a folder."""
    name = path.name.split("-")[1] if path.suffix == ".whl" else path.name
    return tuple(int(part) for part in re.findall(r"\d+", name))


def _files(path: Path) -> Iterator[tuple[str, str]]:
    if path.is_dir():
        yield from ((name, (path / name).read_text()) for name in SOURCES if (path / name).is_file())
        return
    with zipfile.ZipFile(path) as wheel:
        for name in SOURCES.keys() & set(wheel.namelist()):
            yield name, wheel.read(name).decode()


def names(path: Path) -> Found:
    """What one release declares."""
    found: dict[str, frozenset[str]] = defaultdict(frozenset)
    for name, source in _files(path):
        if SOURCES[name] == "V1" or release(path) <= LAST_WITH_V0:
            found[SOURCES[name]] |= declared(source)
    return found


def rows(read: Mapping[Release, Found]) -> Iterator[str]:
    """A line for each engine's name: the first and the last release with it.

    Raises ValueError for a name that was gone and came again: two releases can't tell that.
    """
    releases = sorted(read)
    for engine in ("V0", "V1"):
        for name in sorted(set().union(*(found[engine] for found in read.values()))):
            having = [place for place, each in enumerate(releases) if name in read[each][engine]]
            if any(after - before > 1 for before, after in pairwise(having)):
                raise ValueError(f"{name} is not in every release between its first and its last")
            yield "\t".join((engine, name, _text(releases[having[0]]), _text(releases[having[-1]])))


def _text(version: Release) -> str:
    return ".".join(map(str, version))


def main(paths: Sequence[str]) -> None:
    """Write the table."""
    read = {release(Path(path)): names(Path(path)) for path in paths}
    head = f"# read: {' '.join(map(_text, sorted(read)))}"
    TABLE.write_text("\n".join((head, "# engine, name, first, last", *rows(read))) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
