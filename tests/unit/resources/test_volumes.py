"""Volumes: models, caches, scratch space, and the user's own."""

from dataclasses import replace

import pytest

from llmservice_operator.errors import InvalidInputError
from llmservice_operator.resources.model_source import parse_model_uri
from llmservice_operator.resources.types import Manifest
from unit.resources.samples import SETTINGS, engine, mounts, pod

HUB = "hf://Qwen/Qwen3-8B"


def test_model_claim_is_read_only() -> None:
    template = pod(model={"uri": "pvc://models/qwen/8b"})

    assert mounts(template)["/models/models"] == {
        "name": "llmservice-model",
        "persistentVolumeClaim": {"claimName": "models", "readOnly": True},
        "readOnly": True,
    }


@pytest.mark.parametrize(
    ("cache", "source"),
    [
        ({"claim": "shared"}, {"persistentVolumeClaim": {"claimName": "shared"}}),
        ({"create": {"size": "50Gi"}}, {"persistentVolumeClaim": {"claimName": "qwen3-8b-cache"}}),
        ({"emptyDir": {"sizeLimit": "40Gi"}}, {"emptyDir": {"sizeLimit": "40Gi"}}),
        ({"hostPath": "/mnt/nvme/models"}, {"hostPath": {"path": "/mnt/nvme/models", "type": "Directory"}}),
        (None, {"emptyDir": {}}),
    ],
)
def test_cache_volume(cache: Manifest | None, source: Manifest) -> None:
    settings = replace(SETTINGS, allowed_host_paths=("/mnt/nvme",))
    template = pod(settings=settings, model={"uri": HUB, "cache": cache})

    assert mounts(template)["/cache"] == {"name": "llmservice-cache", **source}


@pytest.mark.parametrize("path", ["/etc", "/mnt/nvme2", "/mnt"])
def test_host_path_outside_the_allowed_ones_is_refused(path: str) -> None:
    settings = replace(SETTINGS, allowed_host_paths=("/mnt/nvme/",))

    with pytest.raises(InvalidInputError, match=r"spec.model.cache.hostPath is"):
        pod(settings=settings, model={"uri": HUB, "cache": {"hostPath": path}})


def test_no_host_path_is_allowed_by_default() -> None:
    with pytest.raises(InvalidInputError, match=r"allows these paths: none; use spec.model.cache.claim"):
        pod(model={"uri": HUB, "cache": {"hostPath": "/data"}})


def test_scratch_space_is_writable() -> None:
    """The root file system is read-only."""
    assert mounts(pod())["/tmp"] == {"name": "llmservice-tmp", "emptyDir": {}}


@pytest.mark.parametrize(
    ("volume", "source"),
    [
        ({"claim": "c"}, {"persistentVolumeClaim": {"claimName": "c", "readOnly": True}, "readOnly": True}),
        ({"claim": "c", "readOnly": False}, {"persistentVolumeClaim": {"claimName": "c"}}),
        ({"configMap": "m"}, {"configMap": {"name": "m"}, "readOnly": True}),
        ({"secret": "s"}, {"secret": {"secretName": "s"}, "readOnly": True}),
        ({"emptyDir": {"sizeLimit": "1Gi"}}, {"emptyDir": {"sizeLimit": "1Gi"}}),
    ],
)
def test_own_volume(volume: Manifest, source: Manifest) -> None:
    template = pod(podTemplate={"volumes": [{"name": "own", "mountPath": "/own", **volume}]})

    assert mounts(template)["/own"] == {"name": "own", **source}


def test_own_volume_by_sub_path() -> None:
    volume = {"name": "own", "mountPath": "/own/a.json", "subPath": "a.json", "configMap": "m"}

    assert engine(pod(podTemplate={"volumes": [volume]}))["volumeMounts"][-1]["subPath"] == "a.json"


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        ({"name": "a", "mountPath": "/x"}, r"volumes\[1\].name is 'a'.*rename it"),
        ({"name": "b", "mountPath": "/a/"}, r"volumes\[1\].mountPath is '/a/'.*another path"),
        ({"name": "b", "mountPath": "/models/store"}, r"volumes\[1\].mountPath is '/models/store'"),
    ],
)
def test_own_volume_in_a_taken_place_is_refused(volume: Manifest, message: str) -> None:
    first = {"name": "a", "mountPath": "/a", "secret": "s"}

    with pytest.raises(InvalidInputError, match=message):
        pod(model={"uri": "pvc://store/m"}, podTemplate={"volumes": [first, {**volume, "secret": "s"}]})


@pytest.mark.parametrize("uri", ["s3://bucket/model", "Qwen/Qwen3-8B", "hf://", "pvc://"])
def test_other_schemes_are_refused(uri: str) -> None:
    with pytest.raises(InvalidInputError, match=r"spec.model.uri is .*: write hf://org/name, pvc://claim"):
        parse_model_uri(uri)


@pytest.mark.parametrize(
    ("uri", "location", "claim"),
    [
        ("hf://Qwen/Qwen3-8B", "Qwen/Qwen3-8B", None),
        ("pvc://models/qwen/8b/", "/models/models/qwen/8b", "models"),
        ("pvc://models", "/models/models", "models"),
        ("file:///opt/models/qwen", "/opt/models/qwen", None),
    ],
)
def test_where_the_engine_finds_the_model(uri: str, location: str, claim: str | None) -> None:
    source = parse_model_uri(uri)

    assert (source.location, source.claim) == (location, claim)
