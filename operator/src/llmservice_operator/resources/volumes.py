"""The volumes of a pod: supervisor, cache, model, scratch space, shared memory, and the user's own."""

from posixpath import normpath
from typing import Any

from llmservice_operator.api.spec import Cache, LLMServiceSpec, PodVolume
from llmservice_operator.errors import InvalidInputError
from llmservice_operator.planning.types import Plan
from llmservice_operator.resources.model_source import ModelSource
from llmservice_operator.resources.quantities import format_memory
from llmservice_operator.resources.types import Identity, Manifest, RenderSettings, Volumes

SUPERVISOR_VOLUME = "llmservice"
SUPERVISOR_MOUNT_PATH = "/llmservice"
CACHE_VOLUME = "llmservice-cache"
CACHE_MOUNT_PATH = "/cache"
MODEL_VOLUME = "llmservice-model"
TMP_VOLUME = "llmservice-tmp"
SHM_VOLUME = "llmservice-shm"


def pod_volumes(
    identity: Identity, spec: LLMServiceSpec, plan: Plan, settings: RenderSettings, source: ModelSource
) -> Volumes:
    """All volumes of the pod, and where the engine's container mounts them.

    Raises InvalidInputError for a hostPath outside the allowed paths, and for a volume of the user's whose
    name or mount path is taken.
    """
    volumes: list[Manifest] = [
        {"name": SUPERVISOR_VOLUME, "emptyDir": {}},
        {"name": CACHE_VOLUME, **_cache_source(identity, spec.model.cache, settings)},
        {"name": TMP_VOLUME, "emptyDir": {}},
    ]
    mounts: list[Manifest] = [
        {"name": SUPERVISOR_VOLUME, "mountPath": SUPERVISOR_MOUNT_PATH, "readOnly": True},
        {"name": CACHE_VOLUME, "mountPath": CACHE_MOUNT_PATH},
        {"name": TMP_VOLUME, "mountPath": "/tmp"},  # noqa: S108  # a path in the container, on a volume of its own
    ]
    if plan.shm_bytes:
        size = format_memory(plan.shm_bytes)
        volumes.append({"name": SHM_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": size}})
        mounts.append({"name": SHM_VOLUME, "mountPath": "/dev/shm"})  # noqa: S108
    if source.claim is not None:
        claim = {"claimName": source.claim, "readOnly": True}
        volumes.append({"name": MODEL_VOLUME, "persistentVolumeClaim": claim})
        mounts.append({"name": MODEL_VOLUME, "mountPath": source.claim_mount_path, "readOnly": True})
    for index, volume in enumerate(spec.pod_template.volumes):
        field = f"spec.podTemplate.volumes[{index}]"
        _check_free(field, volume, volumes, mounts)
        volumes.append({"name": volume.name, **_user_source(field, volume)})
        mounts.append(_user_mount(volume))
    return Volumes(volumes=tuple(volumes), mounts=tuple(mounts))


def cache_claim_name(identity: Identity) -> str:
    """The name of the claim that is made for `spec.model.cache.create`."""
    return f"{identity.name}-cache"


def _cache_source(identity: Identity, cache: Cache | None, settings: RenderSettings) -> Manifest:
    if cache is None:
        return {"emptyDir": {}}
    if cache.claim:
        return {"persistentVolumeClaim": {"claimName": cache.claim}}
    if cache.create is not None:
        return {"persistentVolumeClaim": {"claimName": cache_claim_name(identity)}}
    if cache.empty_dir is not None:
        return {"emptyDir": {"sizeLimit": cache.empty_dir.size_limit}}
    if cache.host_path:
        path = _allowed_host_path(cache.host_path, settings.allowed_host_paths)
        return {"hostPath": {"path": path, "type": "Directory"}}
    return {"emptyDir": {}}


def _allowed_host_path(path: str, allowed: tuple[str, ...]) -> str:
    """The path if it lies under an allowed one. `..` is refused, not resolved: links could mislead it."""
    field = "spec.model.cache.hostPath"
    if not path.startswith("/") or ".." in path.split("/"):
        raise InvalidInputError(f"{field} is {path[:128]!r}: write an absolute path without '..'")
    normal = normpath(path)
    if any(normal == normpath(root) or normal.startswith(normpath(root) + "/") for root in allowed):
        return normal
    may = ", ".join(allowed) if allowed else "none"
    raise InvalidInputError(
        f"{field} is {path[:128]!r}, and the operator allows these paths: {may}; use spec.model.cache.claim, "
        "or have the path added to the operator's allowed host paths"
    )


def _check_free(field: str, volume: PodVolume, volumes: list[Manifest], mounts: list[Manifest]) -> None:
    if any(volume.name == other["name"] for other in volumes):
        raise InvalidInputError(
            f"{field}.name is {volume.name!r}, and the pod has a volume of that name: rename it"
        )
    path = normpath(volume.mount_path)
    if any(path == normpath(other["mountPath"]) for other in mounts):
        raise InvalidInputError(
            f"{field}.mountPath is {volume.mount_path!r}, and something is mounted there: use another path"
        )


def _user_source(field: str, volume: PodVolume) -> Manifest:
    if volume.claim:
        claim: dict[str, Any] = {"claimName": volume.claim}
        return {"persistentVolumeClaim": {**claim, "readOnly": True} if volume.read_only else claim}
    if volume.config_map:
        return {"configMap": {"name": volume.config_map}}
    if volume.secret:
        return {"secret": {"secretName": volume.secret}}
    if volume.empty_dir is not None:
        return {"emptyDir": {"sizeLimit": volume.empty_dir.size_limit}}
    raise InvalidInputError(f"{field} has no source: set one of claim, configMap, secret and emptyDir")


def _user_mount(volume: PodVolume) -> Manifest:
    mount: Manifest = {"name": volume.name, "mountPath": volume.mount_path}
    if volume.sub_path:
        mount["subPath"] = volume.sub_path
    # An emptyDir that cannot be written is of no use to anybody, whatever the default says.
    if volume.read_only and volume.empty_dir is None:
        mount["readOnly"] = True
    return mount
