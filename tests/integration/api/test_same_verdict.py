"""The check without an API server and the API server agree, on objects that nobody thought of."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from integration.api.kubectl import Kubectl
from integration.api.mutations import mutated
from llmservice_operator.api.validation import check_object

pytestmark = pytest.mark.light

GOOD = [
    yaml.safe_load(path.read_text(encoding="utf-8"))
    for path in sorted((Path(__file__).parent / "good").glob("*.yaml"))
]
SEED = 20_266
COUNT = 400


def objects() -> list[dict[str, Any]]:
    source = random.Random(SEED)
    made = [mutated(source, GOOD) for _ in range(COUNT)]
    return [each | {"metadata": {"name": f"row-{number}"}} for number, each in enumerate(made)]


def test_both_refuse_the_same_objects(kubectl: Kubectl, crd: None, tmp_path: Path) -> None:
    del crd  # only that it is there
    made = objects()
    for each in made:
        (tmp_path / f"{each['metadata']['name']}.json").write_text(json.dumps(each), encoding="utf-8")
    result = kubectl("create", "--dry-run=server", "--validate=strict", "-o", "name", "-f", str(tmp_path))

    by_server = {line.rsplit("/", maxsplit=1)[-1] for line in result.stdout.splitlines()}
    offline = {each["metadata"]["name"] for each in made if not check_object(each)}
    assert len(by_server) > COUNT / 10, "too few good ones for the comparison to mean anything"
    differ = by_server ^ offline
    assert [each for each in made if each["metadata"]["name"] in differ] == []
