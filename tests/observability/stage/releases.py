"""Engines of all releases whose pages are recorded, each a service of its own."""

from collections.abc import Iterator
from itertools import count

from observability.stage.cluster import Target
from observability.stage.engine_page import PAGES, grown, template

NAMESPACE = "releases"
SERVICES = {path.stem.split("_")[0].replace(".", "-"): path for path in sorted(PAGES.glob("vllm-*.txt"))}
"""`vllm-0-8-5` and so on, with its page."""


def frames() -> Iterator[tuple[Target, ...]]:
    """Every target at one moment after the other: counters grow by a tenth of the record each time."""
    for moment in count(10):
        yield tuple(
            Target(
                tuple(
                    sorted(
                        {
                            "job": "llmservice-engine",
                            "instance": f"{service}:8000",
                            "namespace": NAMESPACE,
                            "pod": f"{service}-0",
                            "llmservice": service,
                        }.items()
                    )
                ),
                tuple(grown(template(path), moment / 10.0, {})),
            )
            for service, path in SERVICES.items()
        )
