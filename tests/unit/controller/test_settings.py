"""Settings: read from a mapping, refused by name, value and limit."""

import json
from pathlib import Path

import pytest

from llmservice_operator.errors import InvalidInputError
from llmservice_operator.settings import Settings, read_catalogue, read_hub_token, read_settings


def test_without_variables_the_defaults_hold() -> None:
    settings = read_settings({})

    assert settings == Settings()


def test_lists_are_separated_by_commas() -> None:
    settings = read_settings({"LLMSERVICE_WATCH_NAMESPACES": "team-a, team-b,,team-a"})

    assert settings.watch_namespaces == ("team-a", "team-b")
    assert settings.namespaced


def test_an_image_of_one_row_leaves_the_others_at_their_defaults() -> None:
    settings = read_settings({"LLMSERVICE_ENGINE_IMAGES": json.dumps({"cpu": "registry/vllm-cpu:1"})})

    assert settings.engine_images["cpu"] == "registry/vllm-cpu:1"
    assert settings.engine_images["default"] == Settings().engine_images["default"]


@pytest.mark.parametrize(
    ("variable", "value", "wanted"),
    [
        ("LLMSERVICE_WORKERS", "0", "a whole number from 1 to 256"),
        ("LLMSERVICE_WORKERS", "many", "a whole number from 1 to 256"),
        ("LLMSERVICE_WORKERS", "1.5", "a whole number from 1 to 256"),
        ("LLMSERVICE_RESYNC_SECONDS", "nan", "a number from 30 to 86400"),
        ("LLMSERVICE_HTTP_PORT", "65536", "a whole number from 0 to 65535"),
        ("LLMSERVICE_WATCH_NAMESPACES", "Team_A", "a DNS label"),
        ("LLMSERVICE_LEASE_NAME", "-x", "a DNS label"),
        ("LLMSERVICE_LOG_LEVEL", "LOUD", "one of DEBUG, INFO, WARNING, ERROR"),
        ("LLMSERVICE_SUPERVISOR_PULL_POLICY", "Sometimes", "one of Always, IfNotPresent, Never"),
        ("LLMSERVICE_SUPERVISOR_IMAGE", "an image", "an image reference"),
        ("LLMSERVICE_ENGINE_IMAGES", "{", "a JSON object"),
        ("LLMSERVICE_ENGINE_IMAGES", '{"cpu": 1}', "a JSON object"),
        ("LLMSERVICE_HUB_ENDPOINT", "ftp://hub", "an http"),
        ("LLMSERVICE_HUB_ENDPOINT", "https://user:secret@hub", "without credentials"),
        ("LLMSERVICE_ALLOWED_HOST_PATHS", "models", "absolute paths"),
        ("LLMSERVICE_ALLOWED_HOST_PATHS", "/models/../etc", "without `..`"),
    ],
)
def test_a_wrong_value_is_refused_by_name_value_and_limit(variable: str, value: str, wanted: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_settings({variable: value})

    message = str(caught.value)
    assert variable in message
    assert repr(value) in message
    assert wanted in message


def test_all_wrong_values_are_named_at_once() -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_settings({"LLMSERVICE_WORKERS": "0", "LLMSERVICE_HTTP_PORT": "x"})

    assert "LLMSERVICE_WORKERS" in str(caught.value)
    assert "LLMSERVICE_HTTP_PORT" in str(caught.value)


def test_a_kubeconfig_counts_more_than_being_in_a_pod() -> None:
    in_pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}

    assert read_settings(in_pod).in_cluster
    assert not read_settings({**in_pod, "KUBECONFIG": "/tmp/config"}).in_cluster


def test_users_rows_are_merged_over_the_built_in_ones(tmp_path: Path) -> None:
    builtin = read_catalogue(Settings())
    rows = tmp_path / "rows.yaml"
    rows.write_text("rows: []\n")

    merged = read_catalogue(Settings(catalogue_files=(str(rows),)))

    assert merged == builtin
    assert "cpu" in {row.name for row in merged}


def test_a_catalogue_that_is_not_there_is_named_with_its_variable() -> None:
    with pytest.raises(InvalidInputError, match=r"LLMSERVICE_CATALOGUE_FILES names /none\.yaml"):
        read_catalogue(Settings(catalogue_files=("/none.yaml",)))


def test_the_hubs_token_is_read_from_its_file(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("hf_something\n")

    assert read_hub_token(Settings(hub_token_file=str(token))) == "hf_something"
    assert read_hub_token(Settings()) is None
