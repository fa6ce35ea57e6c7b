"""What the operator is told from outside: the only reader of the environment.

Each variable is named once, with its default, its bounds and its meaning. app.py reads them once and hands
each part the values that it needs. A wrong one ends the start, with all wrong ones named at once.
"""

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from llmservice_operator.errors import InvalidInputError
from llmservice_operator.perfmodel.accelerators import (
    AcceleratorRow,
    builtin_catalogue_text,
    load_catalogue,
    with_users_rows,
)
from llmservice_operator.version import __version__

NAMESPACE_PATTERN = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
IMAGE_PATTERN = re.compile(r"[a-z0-9][a-zA-Z0-9._:/@-]{0,511}")
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
PULL_POLICIES = ("Always", "IfNotPresent", "Never")

DEFAULT_ENGINE_IMAGES: Mapping[str, str] = {
    "default": "vllm/vllm-openai:v0.33.0",
    "amd-mi300x": "vllm/vllm-openai-rocm:v0.33.0",
    "cpu": "ghcr.io/llmservice/vllm-cpu:0.32.0",
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The operator's settings. Times in seconds, sizes in bytes."""

    watch_namespaces: tuple[str, ...] = ()
    """LLMSERVICE_WATCH_NAMESPACES, separated by commas. Empty: all, and nodes are watched too."""
    namespace: str = "llmservice-system"
    """LLMSERVICE_NAMESPACE: where the operator runs and its Lease is."""
    lease_name: str = "llmservice-operator"
    """LLMSERVICE_LEASE_NAME: one for each operator that is to work at the same time (namespaced mode)."""
    identity: str = ""
    """LLMSERVICE_IDENTITY, the pod's uid: who holds the Lease. A process takes a Lease of its own identity over at
    once, so no two may have the same; empty: the host's name and a random number."""
    supervisor_image: str = f"ghcr.io/llmservice/operator:{__version__}"
    """LLMSERVICE_SUPERVISOR_IMAGE: the operator's own image, which brings the supervisor into pods."""
    supervisor_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """LLMSERVICE_SUPERVISOR_PULL_POLICY."""
    engine_images: Mapping[str, str] = field(default_factory=lambda: dict(DEFAULT_ENGINE_IMAGES))
    """LLMSERVICE_ENGINE_IMAGES, a JSON object from accelerator row, or `default`, to image."""
    hub_endpoint: str = "https://huggingface.co"
    """LLMSERVICE_HUB_ENDPOINT: the only hub that is asked for models' config.json."""
    hub_token_file: str = ""
    """LLMSERVICE_HUB_TOKEN_FILE: the operator's own hub token; empty: none."""
    allowed_host_paths: tuple[str, ...] = ()
    """LLMSERVICE_ALLOWED_HOST_PATHS, separated by commas: what spec.model.cache.hostPath may lie under."""
    catalogue_files: tuple[str, ...] = ()
    """LLMSERVICE_CATALOGUE_FILES, separated by commas: YAML rows, merged over the built-in accelerators."""
    prometheus_url: str = ""
    """LLMSERVICE_PROMETHEUS_URL, without /api/v1: where DCGM's figures of cards are asked for; empty: they are not."""
    prometheus_timeout_seconds: float = 5.0
    """LLMSERVICE_PROMETHEUS_TIMEOUT_SECONDS, of one query, 0.1 to 60."""
    prometheus_token_file: str = ""
    """LLMSERVICE_PROMETHEUS_TOKEN_FILE: a bearer token for it; empty: none."""
    workers: int = 16
    """LLMSERVICE_WORKERS: reconciles at the same time, 1 to 256."""
    api_concurrency: int = 32
    """LLMSERVICE_API_CONCURRENCY: requests to the API server at the same time, 1 to 1000."""
    resync_seconds: float = 600.0
    """LLMSERVICE_RESYNC_SECONDS: each service is reconciled at least this often, 30 to 86400."""
    http_host: str = "0.0.0.0"  # noqa: S104  the kubelet's probes come from outside of the pod
    """LLMSERVICE_HTTP_HOST: where /healthz, /readyz and /metrics listen."""
    http_port: int = 8080
    """LLMSERVICE_HTTP_PORT, 0 to 65535; 0 takes a free one and logs it."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """LLMSERVICE_LOG_LEVEL."""
    kubeconfig: str = ""
    """KUBECONFIG: outside of a cluster. In a pod it is not set."""
    in_cluster: bool = False
    """KUBERNETES_SERVICE_HOST is set and KUBECONFIG is not."""

    @property
    def calibration_name(self) -> str:
        """The ConfigMap that keeps what starts have measured: one for each Lease, so that no two write the same."""
        return f"{self.lease_name}-calibration"

    @property
    def namespaced(self) -> bool:
        """True where only some namespaces are looked after, and nodes not at all."""
        return bool(self.watch_namespaces)


def read_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """The settings of this process. InvalidInputError names each wrong variable, its value and limits."""
    reader = _Reader(os.environ if environ is None else environ)
    kubeconfig = reader.text("KUBECONFIG", "")
    settings = Settings(
        watch_namespaces=reader.each("LLMSERVICE_WATCH_NAMESPACES", _namespace),
        namespace=reader.checked("LLMSERVICE_NAMESPACE", Settings.namespace, _namespace),
        lease_name=reader.checked("LLMSERVICE_LEASE_NAME", Settings.lease_name, _namespace),
        identity=reader.text("LLMSERVICE_IDENTITY", ""),
        supervisor_image=reader.checked("LLMSERVICE_SUPERVISOR_IMAGE", Settings.supervisor_image, _image),
        supervisor_pull_policy=reader.choice(  # type: ignore[arg-type]
            "LLMSERVICE_SUPERVISOR_PULL_POLICY", Settings.supervisor_pull_policy, PULL_POLICIES
        ),
        engine_images=reader.images("LLMSERVICE_ENGINE_IMAGES"),
        hub_endpoint=reader.checked("LLMSERVICE_HUB_ENDPOINT", Settings.hub_endpoint, _endpoint).rstrip("/"),
        hub_token_file=reader.text("LLMSERVICE_HUB_TOKEN_FILE", ""),
        allowed_host_paths=reader.each("LLMSERVICE_ALLOWED_HOST_PATHS", _absolute_path),
        catalogue_files=reader.each("LLMSERVICE_CATALOGUE_FILES", _absolute_path),
        prometheus_url=reader.checked("LLMSERVICE_PROMETHEUS_URL", "", _optional_endpoint).rstrip("/"),
        prometheus_timeout_seconds=reader.number(
            "LLMSERVICE_PROMETHEUS_TIMEOUT_SECONDS", Settings.prometheus_timeout_seconds, 0.1, 60
        ),
        prometheus_token_file=reader.text("LLMSERVICE_PROMETHEUS_TOKEN_FILE", ""),
        workers=int(reader.number("LLMSERVICE_WORKERS", Settings.workers, 1, 256, whole=True)),
        api_concurrency=int(
            reader.number("LLMSERVICE_API_CONCURRENCY", Settings.api_concurrency, 1, 1000, whole=True)
        ),
        resync_seconds=reader.number("LLMSERVICE_RESYNC_SECONDS", Settings.resync_seconds, 30, 86400),
        http_host=reader.text("LLMSERVICE_HTTP_HOST", Settings.http_host),
        http_port=int(reader.number("LLMSERVICE_HTTP_PORT", Settings.http_port, 0, 65535, whole=True)),
        log_level=reader.choice("LLMSERVICE_LOG_LEVEL", Settings.log_level, LOG_LEVELS),  # type: ignore[arg-type]
        kubeconfig=kubeconfig,
        in_cluster=bool(reader.text("KUBERNETES_SERVICE_HOST", "")) and not kubeconfig,
    )
    reader.raise_if_wrong()
    return settings


def read_catalogue(settings: Settings) -> tuple[AcceleratorRow, ...]:
    """The built-in accelerators with the users' rows merged over them."""
    catalogue = load_catalogue(builtin_catalogue_text())
    for path in settings.catalogue_files:
        text = _read_file("LLMSERVICE_CATALOGUE_FILES", path)
        catalogue = with_users_rows(catalogue, text)
    return catalogue


def read_hub_token(settings: Settings) -> str | None:
    """The operator's own token for the model hub, if it has one."""
    if not settings.hub_token_file:
        return None
    return _read_file("LLMSERVICE_HUB_TOKEN_FILE", settings.hub_token_file).strip() or None


def read_prometheus_token(settings: Settings) -> str:
    """The bearer token for Prometheus; empty where there is none."""
    if not settings.prometheus_token_file:
        return ""
    return _read_file("LLMSERVICE_PROMETHEUS_TOKEN_FILE", settings.prometheus_token_file).strip()


def _read_file(variable: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as e:
        raise InvalidInputError(
            f"{variable} names {path}, which cannot be read: {e.strerror}; mount it, or unset the variable"
        ) from e


def _namespace(text: str) -> str | None:
    good = NAMESPACE_PATTERN.fullmatch(text)
    return None if good else "a DNS label: at most 63 of a-z, 0-9 and -, not at either end"


def _image(text: str) -> str | None:
    return None if IMAGE_PATTERN.fullmatch(text) else "an image reference such as registry/name:tag"


def _endpoint(text: str) -> str | None:
    parts = urlsplit(text)
    good = parts.scheme in ("http", "https") and parts.hostname and not parts.username and not parts.query
    return None if good else "an http(s) URL without credentials or query"


def _optional_endpoint(text: str) -> str | None:
    return _endpoint(text) if text else None


def _absolute_path(text: str) -> str | None:
    good = text.startswith("/") and ".." not in text.split("/")
    return None if good else "absolute paths without `..`"


class _Reader:
    """Reads one variable at a time and collects what is wrong; a wrong one reads as its default."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._wrong: list[str] = []

    def text(self, name: str, default: str) -> str:
        return self._environ.get(name, "").strip() or default

    def checked(self, name: str, default: str, check: Callable[[str], str | None]) -> str:
        text = self.text(name, default)
        return default if self._refuse(name, text, check(text)) else text

    def each(self, name: str, check: Callable[[str], str | None]) -> tuple[str, ...]:
        items = tuple(item.strip() for item in self.text(name, "").split(",") if item.strip())
        refused = [self._refuse(name, item, check(item)) for item in items]
        return () if any(refused) else tuple(dict.fromkeys(items))

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        text = self.text(name, default)
        wanted = None if text in choices else "one of " + ", ".join(choices)
        return default if self._refuse(name, text, wanted) else text

    def number(self, name: str, default: float, low: float, high: float, *, whole: bool = False) -> float:
        text = self.text(name, str(default))
        wanted = f"{'a whole number' if whole else 'a number'} from {low:g} to {high:g}"
        try:
            value = float(int(text) if whole else text)
        except ValueError:
            value = float("nan")
        return default if self._refuse(name, text, None if low <= value <= high else wanted) else value

    def images(self, name: str) -> Mapping[str, str]:
        text = self.text(name, "{}")
        wanted = 'a JSON object from accelerator (or "default") to image'
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        good = isinstance(value, dict) and all(isinstance(v, str) and not _image(v) for v in value.values())
        return (
            DEFAULT_ENGINE_IMAGES
            if self._refuse(name, text, None if good else wanted)
            else {
                **DEFAULT_ENGINE_IMAGES,
                **value,
            }
        )

    def _refuse(self, name: str, text: str, wanted: str | None) -> bool:
        if wanted:
            self._wrong.append(f"{name} is {text!r}; it takes {wanted}")
        return wanted is not None

    def raise_if_wrong(self) -> None:
        if self._wrong:
            raise InvalidInputError("settings: " + "; ".join(self._wrong))
