"""What planning may know of a model: config.json from the user's ConfigMap, else from the hub."""

import json
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Protocol

from llmservice_operator.api.conditions import Reason
from llmservice_operator.api.labels import REFRESH_ANNOTATION
from llmservice_operator.api.spec import LLMServiceSpec
from llmservice_operator.clients.kube import ForbiddenError
from llmservice_operator.clients.modelhub import ModelHub, ModelHubError
from llmservice_operator.clock import Clock
from llmservice_operator.controller.observed import ModelLookup
from llmservice_operator.errors import InvalidInputError
from llmservice_operator.perfmodel.checkpoint import INDEX_NAME, index_total
from llmservice_operator.planning.types import ModelFacts, Refusal
from llmservice_operator.resources.inputs import digest
from llmservice_operator.resources.model_source import parse_model_uri
from llmservice_operator.resources.revision import Revision
from llmservice_operator.resources.types import Identity

CONFIG_KEY = "config.json"
QUANTIZATION_KEY = "hf_quant_config.json"
CONFIG_MAP_TTL_SECONDS = 20.0
"""A ConfigMap is not watched: services that share one ask for it once in so long."""
MAX_CONFIG_MAPS = 1024


class ConfigMapReader(Protocol):
    """Reads one object."""

    async def get(self, kind: str, namespace: str | None, name: str) -> dict[str, Any] | None:
        """The object, or None."""


class ModelConfigs:
    """Looks models up, and remembers ConfigMaps for a moment."""

    def __init__(self, *, kube: ConfigMapReader, hub: ModelHub | None, clock: Clock) -> None:
        self._kube = kube
        self._hub = hub
        self._clock = clock
        self._config_maps: OrderedDict[tuple[str, str], tuple[float, ModelLookup]] = OrderedDict()

    async def look_up(
        self,
        identity: Identity,
        spec: LLMServiceSpec | None,
        annotations: Mapping[str, str],
        stored: Revision | None,
    ) -> ModelLookup:
        """The model of this spec, as far as it can be known.

        A branch of the hub is resolved when the words on the model are new or a refresh is asked for; later it
        is the commit that `stored` pinned. Raises KubeUnavailableError where a ConfigMap cannot be read now.
        """
        if spec is None:
            return ModelLookup()
        if spec.model.config_map:
            return await self._from_config_map(identity.namespace, spec.model.config_map)
        try:
            source = parse_model_uri(spec.model.uri)
        except InvalidInputError as error:
            return ModelLookup(problem=Refusal(reason=Reason.INVALID_SPEC, message=str(error), certain=True))
        pinned = stored if stored is not None and _same_model(spec, annotations, stored) else None
        kept_digest = "" if pinned is None else str(pinned.inputs.get("configDigest", ""))
        if source.local or self._hub is None:
            return ModelLookup(config_digest=kept_digest, problem=_unreadable(spec, hub=not source.local))
        revision = (
            pinned.model_revision if pinned is not None and pinned.model_revision else spec.model.revision
        )
        try:
            found = await self._hub.model(source.location, revision)
        except ModelHubError as error:
            return ModelLookup(config_digest=kept_digest, problem=_hub_refusal(error))
        facts = ModelFacts(
            config=found.config,
            weights_bytes=found.weights_bytes,
            checkpoint=found.checkpoint,
            weights_problem=found.weights_problem,
            source=f"hub {found.repository}@{found.commit}",
            revision=found.commit,
        )
        return ModelLookup(facts=facts, config_digest=digest(found.config))

    async def _from_config_map(self, namespace: str, name: str) -> ModelLookup:
        key, now = (namespace, name), self._clock.monotonic()
        kept = self._config_maps.get(key)
        if kept is not None and now - kept[0] < CONFIG_MAP_TTL_SECONDS:
            return kept[1]
        try:
            found = await self._kube.get("ConfigMap", namespace, name)
        except ForbiddenError as error:
            return _lookup_problem(
                Reason.MODEL_CONFIG_UNAVAILABLE,
                f"the operator may not read ConfigMap {namespace}/{name}: {error.message}",
            )
        lookup = read_config_map(namespace, name, found)
        if lookup.problem is not None:
            # Not kept: whoever mends it now does not want to wait for it.
            self._config_maps.pop(key, None)
            return lookup
        self._config_maps[key] = (now, lookup)
        if len(self._config_maps) > MAX_CONFIG_MAPS:
            self._config_maps.popitem(last=False)
        return lookup


def read_config_map(namespace: str, name: str, found: Mapping[str, Any] | None) -> ModelLookup:
    """The model that this ConfigMap tells of, or what is wrong with it, with the command that makes a good one."""
    where = f"ConfigMap {namespace}/{name}"
    create = f"kubectl -n {namespace} create configmap {name} --from-file={CONFIG_KEY}"
    if found is None:
        message = f"{where} (spec.model.configMap) is not there: {create}"
        return _lookup_problem(Reason.MODEL_CONFIG_UNAVAILABLE, message)
    data = found.get("data") or {}
    if CONFIG_KEY not in data:
        message = f"{where} has no key {CONFIG_KEY}: make it with {create}"
        return _lookup_problem(Reason.MODEL_CONFIG_UNAVAILABLE, message)
    try:
        config = _json_object(data[CONFIG_KEY], f"{where}, {CONFIG_KEY}")
        if "quantization_config" not in config and QUANTIZATION_KEY in data:
            quantization = _json_object(data[QUANTIZATION_KEY], f"{where}, {QUANTIZATION_KEY}")
            config = {**config, "quantization_config": quantization}
        index = _json_object(data[INDEX_NAME], f"{where}, {INDEX_NAME}") if INDEX_NAME in data else {}
    except InvalidInputError as error:
        return _lookup_problem(Reason.INVALID_MODEL_CONFIG, str(error), certain=True)
    facts = ModelFacts(config=config, weights_bytes=index_total(index), source=where)
    return ModelLookup(facts=facts, config_digest=digest(config))


def _same_model(spec: LLMServiceSpec, annotations: Mapping[str, str], stored: Revision) -> bool:
    said = spec.model.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude_none=True)
    kept = stored.inputs.get("model") or {}
    words = ("uri", "revision", "configMap")
    refresh = annotations.get(REFRESH_ANNOTATION, "")
    return all(said.get(word) == kept.get(word) for word in words) and refresh in ("", stored.refresh)


def _unreadable(spec: LLMServiceSpec, *, hub: bool) -> Refusal:
    why = "this operator has no hub to ask" if hub else "the operator does not mount volumes or images"
    return Refusal(
        reason=Reason.MODEL_CONFIG_UNAVAILABLE,
        message=f"config.json of {spec.model.uri} cannot be read, since {why}: put it in a ConfigMap "
        f"(kubectl create configmap NAME --from-file={CONFIG_KEY}) and name it in spec.model.configMap, or "
        "use an hf:// model that the operator's hub token can read",
        certain=False,
    )


def _hub_refusal(error: ModelHubError) -> Refusal:
    # The hub's own words for a missing model, or a closed one; in both cases a ConfigMap is a way out.
    unavailable = error.reason in ("HubUnavailable", Reason.MODEL_ACCESS_DENIED)
    reason = Reason.MODEL_CONFIG_UNAVAILABLE if unavailable else error.reason
    message = error.message
    if "spec.model.configMap" not in message and error.reason == "HubUnavailable":
        message += (
            "; it is asked again, or put config.json in a ConfigMap and name it in spec.model.configMap"
        )
    return Refusal(reason=reason, message=message, certain=error.permanent)


def _lookup_problem(reason: str, message: str, *, certain: bool = False) -> ModelLookup:
    return ModelLookup(problem=Refusal(reason=reason, message=message, certain=certain))


def _json_object(text: str, where: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise InvalidInputError(f"{where} is not JSON: {error}") from error
    except RecursionError as error:
        raise InvalidInputError(f"{where} is nested too deeply to be read") from error
    if not isinstance(data, dict):
        raise InvalidInputError(f"{where} is not a JSON object")
    return data
