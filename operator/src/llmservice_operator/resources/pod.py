"""The pod of one replica: spec and plan → pod template."""

from typing import Any

from llmservice_operator.api.labels import (
    ENGINE_CONTAINER,
    HTTP_PORT,
    HTTP_PORT_NAME,
    RESTART_ANNOTATION,
    SUPERVISOR_CONTAINER,
    SUPERVISOR_PORT,
    SUPERVISOR_PORT_NAME,
    child_labels,
)
from llmservice_operator.api.quantities import parse_quantity
from llmservice_operator.api.spec import LLMServiceSpec, PodTemplate
from llmservice_operator.errors import InvalidInputError
from llmservice_operator.planning.types import ModelFacts, Plan
from llmservice_operator.resources.environment import engine_environment
from llmservice_operator.resources.model_source import parse_model_uri
from llmservice_operator.resources.quantities import format_memory
from llmservice_operator.resources.scheduling import affinity, tolerations, topology_spread
from llmservice_operator.resources.supervisor import (
    STOP_SECONDS,
    literal,
    supervisor_config,
    termination_grace_period_seconds,
)
from llmservice_operator.resources.types import (
    DEFAULT_ENGINE_IMAGE,
    EngineCommands,
    Identity,
    Manifest,
    RenderSettings,
    Volumes,
)
from llmservice_operator.resources.volumes import SUPERVISOR_MOUNT_PATH, SUPERVISOR_VOLUME, pod_volumes

USER_ID = 2000
"""Of the user, its group and the group of its volumes, unless the pod template says otherwise."""

STARTUP_FAILURE_THRESHOLD = 86_400
"""A day of one-second probes: the supervisor holds the start budget, the kubelet must never be first."""


def render_pod_template(
    identity: Identity,
    spec: LLMServiceSpec,
    plan: Plan,
    settings: RenderSettings,
    model: ModelFacts | None,
    *,
    engine: EngineCommands,
    restart: str = "",
) -> Manifest:
    """The pod template: labels, annotations and spec, without the revision's label (`stamp` adds it).

    `restart` is the text of the restart annotation on the LLMService. Raises InvalidInputError where the spec
    asks for what cannot be rendered; the message names the field and the mend.
    """
    source = parse_model_uri(spec.model.uri)
    template = spec.pod_template
    volumes = pod_volumes(identity, spec, plan, settings, source)
    config = supervisor_config(identity, spec, plan, settings, source)
    container = {
        "name": ENGINE_CONTAINER,
        "image": engine_image(spec, plan, settings),
        "command": ["python3", f"{SUPERVISOR_MOUNT_PATH}/supervisor.pyz"],
        "args": ["--", *_engine_command(identity, spec, plan, model, engine)],
        "ports": [
            {"name": HTTP_PORT_NAME, "containerPort": HTTP_PORT, "protocol": "TCP"},
            {"name": SUPERVISOR_PORT_NAME, "containerPort": SUPERVISOR_PORT, "protocol": "TCP"},
        ],
        "env": engine_environment(spec, plan, settings, source, config),
        "resources": container_resources(plan, template),
        "volumeMounts": list(volumes.mounts),
        **_probes(),
        # The supervisor's own message is one JSON object; where it could not start, the log's end has to do.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": _restricted(),
    }
    if template.image_pull_policy:
        container["imagePullPolicy"] = template.image_pull_policy
    metadata: Manifest = {"labels": {**template.labels, **child_labels(identity.name)}}
    annotations = {**template.annotations, **({RESTART_ANNOTATION: restart} if restart else {})}
    if annotations:
        metadata["annotations"] = annotations
    return {
        "metadata": metadata,
        "spec": _pod_spec(identity, spec, plan, settings, volumes=volumes, container=container),
    }


def _pod_spec(
    identity: Identity,
    spec: LLMServiceSpec,
    plan: Plan,
    settings: RenderSettings,
    *,
    volumes: Volumes,
    container: Manifest,
) -> Manifest:
    template = spec.pod_template
    optional = {
        "affinity": affinity(plan, template.affinity),
        "nodeSelector": dict(template.node_selector),
        "tolerations": tolerations(plan, template),
        "priorityClassName": template.priority_class_name,
        "schedulerName": template.scheduler_name,
        "serviceAccountName": template.service_account_name,
        "imagePullSecrets": [{"name": name} for name in template.image_pull_secrets],
        "runtimeClassName": template.runtime_class_name,
    }
    return {
        "automountServiceAccountToken": False,
        # A Service called `vllm` would put VLLM_PORT=tcp://... into every pod of its namespace, and the
        # engine refuses it.
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": termination_grace_period_seconds(spec),
        "securityContext": _pod_security(template),
        "topologySpreadConstraints": topology_spread(identity, template),
        "initContainers": [_supervisor_container(settings)],
        "containers": [container],
        "volumes": list(volumes.volumes),
        **{name: value for name, value in optional.items() if value},
    }


def engine_image(spec: LLMServiceSpec, plan: Plan, settings: RenderSettings) -> str:
    """The engine's image: the user's, else the release's for the accelerator.

    Raises InvalidInputError where there is none.
    """
    row = plan.accelerator.name
    image = (
        spec.engine.image
        or settings.engine_images.get(row)
        or settings.engine_images.get(DEFAULT_ENGINE_IMAGE)
    )
    if not image:
        raise InvalidInputError(
            f"spec.engine.image is empty, and this release has no image for {row}: set it"
        )
    return image


def container_resources(plan: Plan, template: PodTemplate) -> Manifest:
    """Requests and limits of the engine's container: the plan's, with the user's host resources over them.

    Accelerators are always asked for in full and come from the plan alone. Memory has a limit only where the
    limit is the sizing (the CPU row): elsewhere the page cache of a large load would make the kernel kill a
    healthy engine. A request never stands above a limit that the user set.
    """
    memory = format_memory(plan.host_memory_bytes)
    user = template.resources or {}
    user_requests, user_limits = dict(user.get("requests") or {}), dict(user.get("limits") or {})
    requests: dict[str, Any] = {"cpu": str(plan.host_cpu_cores), "memory": memory, **user_requests}
    limits: dict[str, Any] = {"memory": memory} if plan.host_memory_limited else {}
    limits |= user_limits
    for name, limit in limits.items():
        field = f"spec.podTemplate.resources.limits.{name}"
        wanted = requests.get(name, limit)
        if parse_quantity(wanted) > parse_quantity(limit, field=field):
            if name in user_requests and name in user_limits:
                raise InvalidInputError(
                    f"spec.podTemplate.resources.requests.{name} is {wanted}, above its limit of {limit}: "
                    "raise the limit or lower the request"
                )
            if name in user_limits:
                requests[name] = limit
            else:
                limits[name] = wanted
    if plan.resource_name:
        count = str(plan.accelerators_per_replica)
        requests[plan.resource_name] = count
        limits[plan.resource_name] = count
    resources: Manifest = {"requests": requests}
    if limits:
        resources["limits"] = limits
    return resources


def _engine_command(
    identity: Identity, spec: LLMServiceSpec, plan: Plan, model: ModelFacts | None, engine: EngineCommands
) -> list[str]:
    pinned = spec
    if model is not None and model.revision:
        # A branch moves; what was planned for is the commit it pointed to.
        pinned = spec.model_copy(update={"model": spec.model.model_copy(update={"revision": model.revision})})
    command = spec.engine.command or engine.default_command()
    return [literal(word) for word in (*command, *engine.arguments(pinned, plan, identity))]


def _supervisor_container(settings: RenderSettings) -> Manifest:
    path = "supervisor.pyz"
    container: Manifest = {
        "name": SUPERVISOR_CONTAINER,
        "image": settings.supervisor_image,
        "command": ["cp", f"/opt/llmservice/{path}", f"{SUPERVISOR_MOUNT_PATH}/{path}"],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}},
        "volumeMounts": [{"name": SUPERVISOR_VOLUME, "mountPath": SUPERVISOR_MOUNT_PATH}],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": _restricted(),
    }
    if settings.supervisor_pull_policy:
        container["imagePullPolicy"] = settings.supervisor_pull_policy
    return container


def _probes() -> Manifest:
    """Probes with constant numbers, so that no budget is ever a reason to restart an engine.

    `/startup` holds its answer for up to four seconds until the state changes: with a period of one second
    the kubelet sees readiness within moments. A hung engine gets no drain: its requests would never end.
    """

    def probe(path: str, **numbers: int) -> Manifest:
        return {"httpGet": {"path": path, "port": SUPERVISOR_PORT_NAME}, **numbers}

    return {
        "startupProbe": probe(
            "/startup", periodSeconds=1, timeoutSeconds=5, failureThreshold=STARTUP_FAILURE_THRESHOLD
        ),
        "readinessProbe": probe("/ready", periodSeconds=1, timeoutSeconds=5, failureThreshold=2),
        "livenessProbe": probe(
            "/live",
            periodSeconds=10,
            timeoutSeconds=5,
            failureThreshold=3,
            terminationGracePeriodSeconds=STOP_SECONDS,
        ),
    }


def _restricted() -> Manifest:
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def _pod_security(template: PodTemplate) -> Manifest:
    defaults: Manifest = {
        "runAsNonRoot": True,
        "runAsUser": USER_ID,
        "runAsGroup": USER_ID,
        "fsGroup": USER_ID,
        # Walking a cache of a million files at each start would cost minutes.
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    return defaults | (template.security_context or {})
