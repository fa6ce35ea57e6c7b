"""What every pod of a service is like."""

import json
from dataclasses import replace

import pytest

from llmservice_operator.errors import InvalidInputError
from llmservice_operator.planning.types import ModelFacts, Plan
from llmservice_operator.resources.supervisor import start_budget_seconds
from llmservice_operator.resources.types import Manifest
from unit.resources.samples import CPU_PLAN, GIB, H200_PLAN, SETTINGS, engine, environment, mounts, pod


def supervisor(template: Manifest) -> Manifest:
    """The supervisor's JSON as the kubelet hands it over: `$$(` undone, the revision's variable expanded."""
    text = environment(template)["LLMSERVICE_SUPERVISOR"]
    config: Manifest = json.loads(
        text.replace("$(LLMSERVICE_REVISION)", "qwen3-8b-0123456789").replace("$$(", "$(")
    )
    return config


def test_supervisor_is_first_process() -> None:
    container = engine(pod())

    assert container["command"] == ["python3", "/llmservice/supervisor.pyz"]
    assert container["args"][:4] == ["--", "python3", "-m", "engine.server"]


def test_supervisor_comes_from_the_operators_image() -> None:
    template = pod()
    (init,) = template["spec"]["initContainers"]

    assert init["image"] == "ghcr.io/llmservice/operator:0.1.0"
    assert init["command"] == ["cp", "/opt/llmservice/supervisor.pyz", "/llmservice/supervisor.pyz"]
    assert init["volumeMounts"] == [{"name": "llmservice", "mountPath": "/llmservice"}]
    assert mounts(template)["/llmservice"] == {"name": "llmservice", "emptyDir": {}, "readOnly": True}


def test_own_command_replaces_the_adapters() -> None:
    assert engine(pod(engine={"command": ["vllm", "serve"]}))["args"][:3] == ["--", "vllm", "serve"]


def test_engine_gets_the_resolved_commit() -> None:
    facts = ModelFacts(config={}, revision="b968826d9c46dd6066d109eabc6255188de91218")

    assert "b968826d9c46dd6066d109eabc6255188de91218" in engine(pod(facts=facts))["args"]


def test_arguments_arrive_as_written() -> None:
    """Kubernetes expands `$(NAME)` in args; `$$(` stands for a plain `$(`."""
    args = engine(pod(engine={"args": {"override": '{"a": "$(HOME)"}'}}))["args"]

    assert args[-1] == '{"a": "$$(HOME)"}'


@pytest.mark.parametrize(
    ("fields", "plan", "image"),
    [
        ({}, H200_PLAN, "vllm/vllm-openai:v0.33.0"),
        ({}, CPU_PLAN, "ghcr.io/llmservice/vllm-cpu:0.32.0"),
        ({"engine": {"image": "registry.local/vllm:1"}}, CPU_PLAN, "registry.local/vllm:1"),
    ],
)
def test_engine_image(fields: Manifest, plan: Plan, image: str) -> None:
    assert engine(pod(plan=plan, **fields))["image"] == image


def test_no_engine_image_is_refused_by_name() -> None:
    with pytest.raises(InvalidInputError, match=r"spec.engine.image is empty.*nvidia-h200"):
        pod(settings=replace(SETTINGS, engine_images={"cpu": "x"}))


def test_ports_are_named() -> None:
    ports = {port["name"]: port["containerPort"] for port in engine(pod())["ports"]}

    assert ports == {"http": 8000, "supervisor": 9410}


@pytest.mark.parametrize(
    ("probe", "path"),
    [("startupProbe", "/startup"), ("readinessProbe", "/ready"), ("livenessProbe", "/live")],
)
def test_probes_ask_the_supervisor(probe: str, path: str) -> None:
    assert engine(pod())[probe]["httpGet"] == {"path": path, "port": "supervisor"}


@pytest.mark.parametrize("weights", [1, 1_400_000_000_000])
def test_probe_numbers_are_constants(weights: int) -> None:
    """A budget in a probe would restart engines whenever it is computed anew."""
    small, large = engine(pod()), engine(pod(plan=replace(H200_PLAN, weights_bytes=weights)))

    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert small[probe] == large[probe]


def test_kubelet_is_never_first_to_give_up_a_start() -> None:
    """A day of probes: longer than the budget of 1.4 TB from a hub."""
    startup = engine(pod())["startupProbe"]

    assert startup["periodSeconds"] == 1
    assert startup["timeoutSeconds"] == 5
    assert startup["failureThreshold"] > start_budget_seconds(1_400_000_000_000, local=False)


def test_start_budget_grows_with_the_weights() -> None:
    """15 min, plus 16.4 GB at 50 MB/s from the hub (328 s) and at 100 MB/s from the cache (164 s)."""
    assert supervisor(pod())["startBudgetSeconds"] == 900 + 328 + 164


def test_start_budget_of_local_files_has_no_download() -> None:
    assert supervisor(pod(model={"uri": "pvc://models/qwen3"}))["startBudgetSeconds"] == 900 + 164


def test_supervisor_knows_its_service_and_budgets() -> None:
    config = supervisor(pod(drain={"timeout": "2m"}))

    assert config["schema"] == 1
    assert config["service"] == "team-a/qwen3-8b"
    assert (config["engine"], config["engineVersion"]) == ("vllm", "0.33.0")
    assert (config["enginePort"], config["supervisorPort"]) == (8000, 9410)
    assert (config["drainTimeoutSeconds"], config["drainMinimumSeconds"]) == (120, 5)
    assert (config["hangSeconds"], config["memoryFailureHoldSeconds"]) == (120, 120)
    assert config["weightsBytes"] == 16_400_000_000


def test_supervisor_reads_the_revision_from_the_pods_label() -> None:
    template = pod()
    names = [item["name"] for item in engine(template)["env"]]

    assert supervisor(template)["revision"] == "qwen3-8b-0123456789"
    assert environment(template)["LLMSERVICE_REVISION"] == {
        "fieldRef": {"fieldPath": "metadata.labels['llmservice.dev/revision']"}
    }
    assert names.index("LLMSERVICE_REVISION") < names.index("LLMSERVICE_SUPERVISOR")


def test_supervisor_expects_the_planned_device() -> None:
    assert supervisor(pod())["expectedDevice"] == {
        "type": "nvidia-h200",
        "nameContains": ["H200"],
        "memoryBytes": 150_109_159_424,
        "count": 2,
    }


def test_supervisor_expects_no_device_on_the_cpu_row() -> None:
    assert "expectedDevice" not in supervisor(pod(plan=CPU_PLAN))


@pytest.mark.parametrize(("timeout", "seconds"), [("5m", 330), ("90s", 120), ("5500ms", 36), ("1h", 3630)])
def test_grace_period_is_the_drain_and_half_a_minute(timeout: str, seconds: int) -> None:
    assert pod(drain={"timeout": timeout})["spec"]["terminationGracePeriodSeconds"] == seconds


def test_a_hung_engine_is_not_drained() -> None:
    assert engine(pod())["livenessProbe"]["terminationGracePeriodSeconds"] == 30


def test_pod_security_is_restricted() -> None:
    """The Pod Security Standards' `restricted` profile."""
    template = pod()
    security = template["spec"]["securityContext"]

    assert security["runAsNonRoot"] is True
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in (*template["spec"]["initContainers"], engine(template)):
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_user_and_group_are_2000() -> None:
    security = pod()["spec"]["securityContext"]

    assert (security["runAsUser"], security["runAsGroup"], security["fsGroup"]) == (2000, 2000, 2000)


def test_root_file_system_is_read_only() -> None:
    template = pod()

    for container in (*template["spec"]["initContainers"], engine(template)):
        assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_own_security_context_is_laid_over() -> None:
    security = pod(podTemplate={"securityContext": {"runAsUser": 1000}})["spec"]["securityContext"]

    assert (security["runAsUser"], security["fsGroup"]) == (1000, 2000)


def test_no_service_account_token() -> None:
    assert pod()["spec"]["automountServiceAccountToken"] is False


def test_no_service_account_of_our_own() -> None:
    assert "serviceAccountName" not in pod()["spec"]


def test_no_service_links() -> None:
    """A Service called `vllm` would set VLLM_PORT, which the engine refuses."""
    assert pod()["spec"]["enableServiceLinks"] is False


def test_last_words_of_a_supervisor_that_never_ran_are_kept() -> None:
    assert engine(pod())["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_pods_carry_the_service_label() -> None:
    assert pod()["metadata"]["labels"]["llmservice.dev/service"] == "qwen3-8b"


def test_own_labels_are_passed_on() -> None:
    assert pod(podTemplate={"labels": {"team": "a"}})["metadata"]["labels"]["team"] == "a"


def test_restart_annotation_reaches_the_pod() -> None:
    annotations = pod(restart="2026-11-30", podTemplate={"annotations": {"a": "b"}})["metadata"][
        "annotations"
    ]

    assert annotations == {"a": "b", "llmservice.dev/restart": "2026-11-30"}


def test_pod_fields_are_passed_on() -> None:
    template = {
        "priorityClassName": "high",
        "schedulerName": "volcano",
        "serviceAccountName": "models",
        "imagePullSecrets": ["registry"],
        "imagePullPolicy": "Always",
        "runtimeClassName": "nvidia",
        "nodeSelector": {"pool": "gpu"},
    }
    rendered = pod(podTemplate=template)

    assert rendered["spec"]["priorityClassName"] == "high"
    assert rendered["spec"]["schedulerName"] == "volcano"
    assert rendered["spec"]["serviceAccountName"] == "models"
    assert rendered["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    assert rendered["spec"]["runtimeClassName"] == "nvidia"
    assert rendered["spec"]["nodeSelector"] == {"pool": "gpu"}
    assert engine(rendered)["imagePullPolicy"] == "Always"


def test_accelerators_are_requested_and_limited_alike() -> None:
    resources = engine(pod())["resources"]

    assert resources["requests"]["nvidia.com/gpu"] == resources["limits"]["nvidia.com/gpu"] == "2"


def test_host_resources_come_from_the_plan() -> None:
    requests = engine(pod())["resources"]["requests"]

    assert (requests["cpu"], requests["memory"]) == ("4", "24Gi")


def test_memory_has_no_limit_beside_an_accelerator() -> None:
    assert set(engine(pod())["resources"]["limits"]) == {"nvidia.com/gpu"}


def test_memory_limit_is_the_sizing_on_the_cpu_row() -> None:
    assert engine(pod(plan=CPU_PLAN))["resources"] == {
        "requests": {"cpu": "2", "memory": "4Gi"},
        "limits": {"memory": "4Gi"},
    }


def test_own_host_resources_are_laid_over() -> None:
    own = {"requests": {"cpu": "8", "ephemeral-storage": "50Gi"}, "limits": {"cpu": "16"}}
    resources = engine(pod(podTemplate={"resources": own}))["resources"]

    assert resources["requests"] == {
        "cpu": "8",
        "memory": "24Gi",
        "ephemeral-storage": "50Gi",
        "nvidia.com/gpu": "2",
    }
    assert resources["limits"] == {"cpu": "16", "nvidia.com/gpu": "2"}


def test_a_request_of_ours_stays_below_the_users_limit() -> None:
    resources = engine(pod(podTemplate={"resources": {"limits": {"cpu": "2"}}}))["resources"]

    assert (resources["requests"]["cpu"], resources["limits"]["cpu"]) == ("2", "2")


def test_the_users_request_above_their_limit_is_refused() -> None:
    own = {"requests": {"cpu": "3"}, "limits": {"cpu": "2"}}

    with pytest.raises(InvalidInputError, match=r"resources\.requests\.cpu is 3, above its limit of 2"):
        pod(podTemplate={"resources": own})


def test_shared_memory_has_the_planned_size() -> None:
    plan = replace(H200_PLAN, shm_bytes=3 * GIB)

    assert mounts(pod(plan=plan))["/dev/shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "3Gi"}


def test_rendering_is_repeatable() -> None:
    assert json.dumps(pod(), sort_keys=True) == json.dumps(pod(), sort_keys=True)
