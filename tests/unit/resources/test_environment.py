"""The engine's variables."""

from dataclasses import replace

import pytest

from llmservice_operator.errors import InvalidInputError
from llmservice_operator.resources.types import Manifest
from unit.resources.samples import CPU_PLAN, engine, environment, pod

PVC = {"uri": "pvc://models/qwen3"}


def test_user_id_without_an_entry_has_a_name() -> None:
    """An id that /etc/passwd does not know makes torch fail in getpass.getuser() unless USER is set."""
    assert environment(pod())["USER"]


@pytest.mark.parametrize(
    "name",
    ["HOME", "XDG_CACHE_HOME", "HF_HOME", "VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"],
)
def test_caches_are_on_the_writable_volume(name: str) -> None:
    assert environment(pod())[name].startswith("/cache/")


def test_no_usage_statistics() -> None:
    assert environment(pod())["VLLM_NO_USAGE_STATS"] == "1"


@pytest.mark.parametrize("uri", ["pvc://models/qwen3", "file:///models/qwen3"])
def test_local_models_ask_no_hub(uri: str) -> None:
    variables = environment(pod(model={"uri": uri}))

    assert variables["HF_HUB_OFFLINE"] == "1"
    assert "HF_ENDPOINT" not in variables


def test_hub_comes_from_the_operators_settings() -> None:
    variables = environment(pod())

    assert variables["HF_ENDPOINT"] == "https://huggingface.co"
    assert "HF_HUB_OFFLINE" not in variables


def test_hub_token_reaches_the_engine_alone() -> None:
    template = pod(model={"uri": "hf://a/b", "tokenSecret": {"name": "hf", "key": "token"}})
    (init,) = template["spec"]["initContainers"]

    assert environment(template)["HF_TOKEN"] == {"secretKeyRef": {"name": "hf", "key": "token"}}
    assert "env" not in init


def test_api_key() -> None:
    template = pod(engine={"apiKeySecret": {"name": "keys", "key": "main"}})

    assert environment(template)["VLLM_API_KEY"] == {"secretKeyRef": {"name": "keys", "key": "main"}}


def test_the_plans_variables() -> None:
    assert environment(pod(plan=CPU_PLAN))["VLLM_CPU_KVCACHE_SPACE"] == "1"


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        ({"value": "debug"}, "debug"),
        (
            {"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {"secretKeyRef": {"name": "s", "key": "k"}},
        ),
        (
            {"valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}},
            {"configMapKeyRef": {"name": "m", "key": "k"}},
        ),
        ({"valueFrom": {"fieldRef": "status.podIP"}}, {"fieldRef": {"fieldPath": "status.podIP"}}),
    ],
)
def test_own_variables(variable: Manifest, expected: object) -> None:
    assert environment(pod(engine={"env": [{"name": "OWN", **variable}]}))["OWN"] == expected


def test_own_variable_outranks_a_default() -> None:
    template = pod(engine={"env": [{"name": "DO_NOT_TRACK", "value": "0"}]})

    assert environment(template)["DO_NOT_TRACK"] == "0"
    assert [item["name"] for item in engine(template)["env"]].count("DO_NOT_TRACK") == 1


def test_own_variable_in_place_of_the_plans_is_refused() -> None:
    plan = replace(CPU_PLAN, env={"VLLM_CPU_OMP_THREADS_BIND": "nobind"})

    with pytest.raises(InvalidInputError, match=r"spec.engine.env\[0\].name is 'VLLM_CPU_OMP.*remove it"):
        pod(plan=plan, engine={"env": [{"name": "VLLM_CPU_OMP_THREADS_BIND", "value": "x"}]})


def test_own_value_arrives_as_written() -> None:
    """Kubernetes expands `$(NAME)` in values; `$$(` stands for a plain `$(`."""
    template = pod(engine={"env": [{"name": "OWN", "value": "$(HOME)"}]})

    assert environment(template)["OWN"] == "$$(HOME)"
