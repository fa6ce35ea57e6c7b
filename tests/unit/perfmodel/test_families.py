"""Families of models by their shapes alone: parameters as published, and what isn't known refused by its field."""

import json
from typing import Any

import pytest

from llmservice_operator.perfmodel.architecture import read_architecture
from llmservice_operator.perfmodel.config_reader import ConfigError
from llmservice_operator.perfmodel.weights import parameter_count
from unit.perfmodel.samples import DATA

FAMILIES: dict[str, dict[str, Any]] = json.loads((DATA / "families.json").read_text())


@pytest.mark.parametrize("family", FAMILIES["known"].values(), ids=FAMILIES["known"].keys())
def test_parameters_are_those_that_are_published(family: dict[str, Any]) -> None:
    count = parameter_count(read_architecture(family["config"]))

    assert count / 1e9 == pytest.approx(family["billions"], rel=0.002)


@pytest.mark.parametrize("family", FAMILIES["refused"].values(), ids=FAMILIES["refused"].keys())
def test_a_family_that_is_not_known_is_refused_by_its_field(family: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=family["field"]):
        read_architecture(family["config"])
