"""The environment of the engine's container."""

from typing import Any

from llmservice_operator.api.spec import EnvVar, LLMServiceSpec, SecretKey
from llmservice_operator.errors import InvalidInputError
from llmservice_operator.planning.types import Plan
from llmservice_operator.resources.model_source import ModelSource
from llmservice_operator.resources.supervisor import REVISION_VARIABLE, SUPERVISOR_VARIABLE, literal
from llmservice_operator.resources.types import Manifest, RenderSettings
from llmservice_operator.resources.volumes import CACHE_MOUNT_PATH

HOME = f"{CACHE_MOUNT_PATH}/home"

WRITABLE_PATHS = {
    "HOME": HOME,
    "XDG_CACHE_HOME": f"{HOME}/.cache",
    "HF_HOME": f"{CACHE_MOUNT_PATH}/huggingface",
    "VLLM_CACHE_ROOT": f"{CACHE_MOUNT_PATH}/vllm",
    "TORCHINDUCTOR_CACHE_DIR": f"{CACHE_MOUNT_PATH}/torchinductor",
    "TRITON_CACHE_DIR": f"{CACHE_MOUNT_PATH}/triton",
}
"""Everything an engine writes goes to the cache volume: the root file system is read-only, and the user id
has no home of its own. Weights and compiled kernels are kept where the cache is."""


def engine_environment(
    spec: LLMServiceSpec, plan: Plan, settings: RenderSettings, source: ModelSource, supervisor_config: str
) -> list[Manifest]:
    """The variables of the engine's container, each name once.

    Later ones win: defaults, then the user's, then what the plan, the secrets and the supervisor need. Raises
    InvalidInputError for a user's variable that would take one of the latter's names.
    """
    fixed = _fixed(spec, plan, supervisor_config)
    merged: dict[str, Manifest] = {}
    for name, value in _defaults(settings, source).items():
        merged[name] = {"name": name, "value": value}
    for index, variable in enumerate(spec.engine.env):
        if any(variable.name == entry["name"] for entry in fixed):
            raise InvalidInputError(
                f"spec.engine.env[{index}].name is {variable.name!r}, which the operator sets itself: "
                "remove it"
            )
        merged[variable.name] = _user_variable(variable)
    # The supervisor's JSON refers to the revision's variable, and Kubernetes expands only what stands before
    # it.
    return [*merged.values(), *fixed]


def _defaults(settings: RenderSettings, source: ModelSource) -> dict[str, str]:
    # An id without an entry in /etc/passwd makes getpass.getuser() fail in torch unless USER is set.
    values = {"USER": "llmservice", **WRITABLE_PATHS, "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    if source.local:
        values["HF_HUB_OFFLINE"] = "1"
    elif settings.hub_endpoint:
        values["HF_ENDPOINT"] = settings.hub_endpoint
    return values


def _fixed(spec: LLMServiceSpec, plan: Plan, supervisor_config: str) -> list[Manifest]:
    variables: list[Manifest] = [{"name": name, "value": value} for name, value in sorted(plan.env.items())]
    if (secret := spec.model.token_secret) is not None and secret.name:
        variables.append({"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": _key(secret, "token")}})
    if (secret := spec.engine.api_key_secret) is not None and secret.name:
        variables.append({"name": "VLLM_API_KEY", "valueFrom": {"secretKeyRef": _key(secret, "api-key")}})
    variables.append(
        {
            "name": REVISION_VARIABLE,
            "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['llmservice.dev/revision']"}},
        }
    )
    variables.append({"name": SUPERVISOR_VARIABLE, "value": supervisor_config})
    return variables


def _key(reference: SecretKey, default_key: str) -> dict[str, Any]:
    return {"name": reference.name, "key": reference.key or default_key}


def _user_variable(variable: EnvVar) -> Manifest:
    source = variable.value_from
    if source is None:
        return {"name": variable.name, "value": literal(variable.value or "")}
    if source.secret_key_ref is not None:
        value_from: Manifest = {"secretKeyRef": _key(source.secret_key_ref, "")}
    elif source.config_map_key_ref is not None:
        value_from = {"configMapKeyRef": _key(source.config_map_key_ref, "")}
    else:
        value_from = {"fieldRef": {"fieldPath": source.field_ref}}
    return {"name": variable.name, "valueFrom": value_from}
