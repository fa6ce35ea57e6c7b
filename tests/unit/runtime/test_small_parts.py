"""Settings, lines, secrets, devices, files, the load page, the message of the end."""

import json
import sys
from pathlib import Path

import pytest

from llmservice_runtime.classifier import Failure
from llmservice_runtime.config import Config, ConfigError, ExpectedDevice, parse_config, split_command
from llmservice_runtime.devices import Device, parse_devices, wrong_accelerator
from llmservice_runtime.engine_http import Load, parse_load
from llmservice_runtime.interpreters import EngineNotFoundError, resolve
from llmservice_runtime.log_lines import MAX_LINE_BYTES, LineSplitter
from llmservice_runtime.process import kernel_oom_kills
from llmservice_runtime.redact import redact, secret_values
from llmservice_runtime.report import termination_message
from llmservice_runtime.weights_files import weights_bytes

MIB = 1024**2

# --- settings


def test_the_smallest_settings_have_defaults() -> None:
    assert parse_config('{"service": "a/b", "revision": "r"}') == Config(service="a/b", revision="r")


def test_all_settings_are_read() -> None:
    config = parse_config(
        json.dumps(
            {
                "schema": 1, "service": "ns/name", "revision": "name-abc123", "engine": "vllm",
                "engineVersion": "0.32.0",
                "enginePort": 8001, "supervisorPort": 9411, "startBudgetSeconds": 10, "drainTimeoutSeconds": 20,
                "drainMinimumSeconds": 3, "hangSeconds": 40, "memoryFailureHoldSeconds": 50, "weightsBytes": 269000000,
                "modelPath": "/models/m", "aNewKey": True,
                "expectedDevice": {"type": "t", "nameContains": ["H200"], "memoryBytes": 5, "count": 2},
            }
        )
    )  # fmt: skip

    assert config == Config(
        service="ns/name", revision="name-abc123", engine_version="0.32.0", engine_port=8001, supervisor_port=9411,
        start_budget_seconds=10, drain_timeout_seconds=20, drain_minimum_seconds=3, hang_seconds=40,
        memory_failure_hold_seconds=50, weights_bytes=269000000, model_path="/models/m",
        expected_device=ExpectedDevice("t", ("H200",), 5, 2),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (None, "LLMSERVICE_SUPERVISOR is not set"),
        ("{", "LLMSERVICE_SUPERVISOR is not JSON"),
        ("[" * 100_000, "LLMSERVICE_SUPERVISOR is not JSON"),
        (
            '{"service": "a", "revision": "r", "hangSeconds": 1' + "0" * 400 + "}",
            "it must be a number of seconds from 0 to 31536000",
        ),
        ("[1]", "LLMSERVICE_SUPERVISOR is a JSON list"),
        ('{"revision": "r"}', "LLMSERVICE_SUPERVISOR.service is null; it must be a non-empty string"),
        ('{"service": "a", "revision": 3}', "LLMSERVICE_SUPERVISOR.revision is 3; it must be"),
        (
            '{"service": "a", "revision": "r", "enginePort": 70000}',
            "enginePort is 70000; it must be a port number",
        ),
        (
            '{"service": "a", "revision": "r", "hangSeconds": -1}',
            "hangSeconds is -1; it must be a number of seconds",
        ),
        (
            '{"service": "a", "revision": "r", "hangSeconds": true}',
            "hangSeconds is true; it must be a number",
        ),
        (
            '{"service": "a", "revision": "r", "weightsBytes": 1.5}',
            "weightsBytes is 1.5; it must be a whole number",
        ),
        (
            '{"service": "a", "revision": "r", "expectedDevice": "H200"}',
            'expectedDevice is "H200"; it must be an object',
        ),
    ],
)
def test_bad_settings_are_named_with_value_and_mend(raw: str | None, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(raw)

    assert message in str(caught.value)


def test_the_command_follows_the_dashes() -> None:
    assert split_command(["--", "python3", "-m", "x", "--", "y"]) == ["python3", "-m", "x", "--", "y"]


@pytest.mark.parametrize("arguments", [[], ["python3"], ["--"]])
def test_no_command_is_refused(arguments: list[str]) -> None:
    with pytest.raises(ConfigError, match="no engine command"):
        split_command(arguments)


# --- lines


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([b"a\nb\n"], ["a", "b"]),
        ([b"a", b"b\nc"], ["ab", "c"]),
        ([b"\n\n a \n"], [" a "]),
        ([b"bar 1%\rbar 2%\r"], ["bar 1%", "bar 2%"]),
        ([b"\xff\n"], ["\ufffd"]),
        ([b"\xe2\x96", b"\x88\n"], ["█"]),
        ([], []),
    ],
)
def test_lines_are_cut_out_of_chunks(chunks: list[bytes], lines: list[str]) -> None:
    splitter = LineSplitter()

    assert [line for chunk in chunks for line in splitter.feed(chunk)] + splitter.close() == lines


def test_a_progress_bar_is_seen_before_it_ends() -> None:
    assert LineSplitter().feed(b"\rCapturing CUDA graphs: 0%") == ["Capturing CUDA graphs: 0%"]


def test_an_endless_line_is_cut_once_and_the_next_line_is_whole() -> None:
    splitter = LineSplitter()
    lines = [line for _ in range(100) for line in splitter.feed(b"x" * 4096)] + splitter.feed(b"end\nnext\n")

    assert lines == ["x" * MAX_LINE_BYTES, "next"]


# --- secrets


def test_secrets_of_flags_and_variables_are_masked() -> None:
    command = ["vllm", "--api-key", "sk-aaaaaa", "sk-bbbbbb", "--model", "m", "--hf-token=hf_cccccc"]
    secrets = secret_values(
        command, {"AWS_SECRET_ACCESS_KEY": "dddddd", "HF_TOKEN": "eeeeee", "PATH": "/usr/bin"}
    )

    masked = redact("sk-aaaaaa sk-bbbbbb hf_cccccc dddddd eeeeee /usr/bin m", secrets)

    assert masked == "*** *** *** *** *** /usr/bin m"


# --- devices


def test_nvidia_smi_is_read() -> None:
    table = "NVIDIA H200, 143771\nNVIDIA A100-SXM4-80GB MIG 1g.10gb, [N/A]\n\n"

    assert parse_devices(table) == [
        Device("NVIDIA H200", 143771 * MIB),
        Device("NVIDIA A100-SXM4-80GB MIG 1g.10gb", None),
    ]


H200 = ExpectedDevice("nvidia-h200", ("H200",), 150_110_000_000, 1)
A100 = ExpectedDevice("nvidia-a100-80gb", ("A100", "80GB"), 84_987_740_160, 1)


@pytest.mark.parametrize(
    ("devices", "expected", "part"),
    [
        ([Device("NVIDIA H200", 143771 * MIB)], H200, None),
        ([Device("NVIDIA A10G", 23028 * MIB)], H200, 'the device is "NVIDIA A10G"'),
        ([Device("NVIDIA GH200 480GB", 146831 * MIB)], H200, 'the device is "NVIDIA GH200 480GB"'),
        ([Device("NVIDIA A100-SXM4-80GB", 81920 * MIB)], A100, None),
        ([Device("NVIDIA A100 80GB PCIe", 81920 * MIB)], A100, None),
        ([Device("NVIDIA H100 80GB HBM3", 81559 * MIB)], A100, 'whose name contains "A100" and "80GB"'),
        ([Device("NVIDIA H200 MIG 1g.18gb", 16384 * MIB)], H200, "has 16.00 GiB"),
        ([Device("NVIDIA H200", None)], H200, None),
        (
            [Device("NVIDIA H200", 143771 * MIB)],
            ExpectedDevice("nvidia-h200", ("H200",), None, 2),
            "1 devices are visible",
        ),
        ([], H200, None),
        ([Device("NVIDIA A10G", 1)], ExpectedDevice("cpu"), None),
        ([Device("NVIDIA A10G", 1)], None, None),
    ],
)
def test_devices_against_the_plan(
    devices: list[Device], expected: ExpectedDevice | None, part: str | None
) -> None:
    found = wrong_accelerator(devices, expected)

    assert (found is None) if part is None else (found is not None and part in found)


# --- files


def test_weights_are_what_the_index_names(tmp_path: Path) -> None:
    for name, size in (("a.safetensors", 10), ("b.safetensors", 20), ("consolidated.safetensors", 30)):
        (tmp_path / name).write_bytes(b"0" * size)
    (tmp_path / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"x": "a.safetensors", "y": "b.safetensors", "z": "a.safetensors"}})
    )

    assert weights_bytes(tmp_path) == 30


def test_safetensors_come_before_other_kinds(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"0" * 10)
    (tmp_path / "pytorch_model.bin").write_bytes(b"0" * 99)

    assert weights_bytes(tmp_path) == 10


@pytest.mark.parametrize("index", ["{", "[]", '{"weight_map": 3}'])
def test_a_broken_index_counts_as_none(tmp_path: Path, index: str) -> None:
    (tmp_path / "a.safetensors").write_bytes(b"0" * 10)
    (tmp_path / "model.safetensors.index.json").write_text(index)

    assert weights_bytes(tmp_path) == 10


def test_no_weights_are_unknown(tmp_path: Path) -> None:
    assert weights_bytes(tmp_path) is None
    assert weights_bytes(tmp_path / "none") is None


@pytest.mark.parametrize(
    ("text", "kills"),
    [
        ("low 0\nhigh 0\noom 3\noom_kill 2\n", 2),
        ("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n", 1),
        ("low 0\n", None),
    ],
)
def test_kernel_kills_are_counted_by_cgroup_v2_and_v1(tmp_path: Path, text: str, kills: int | None) -> None:
    (tmp_path / "events").write_text(text)

    assert kernel_oom_kills([str(tmp_path / "none"), str(tmp_path / "events")]) == kills


# --- the engine's pages


def test_load_is_summed_over_the_engines_of_the_page() -> None:
    page = """
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a b}"} 2.0
vllm:num_requests_running{engine="1",model_name="a b}"} 1.0
vllm:num_requests_waiting{engine="0",model_name="m"} 4.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 4.0
vllm:generation_tokens_total{engine="0",model_name="m"} 1e+03
vllm:prompt_tokens_total{engine="0",model_name="m"} 500.0
vllm:iteration_tokens_total_sum{engine="0",model_name="m"} 1500.0
vllm:iteration_tokens_total_count{engine="0",model_name="m"} 9.0
"""

    assert parse_load(page) == Load(running=3.0, waiting=4.0, tokens=3000.0)


@pytest.mark.parametrize(
    "page",
    [
        "",
        'vllm:num_requests_running{engine="0"} NaN\nvllm:num_requests_waiting{engine="0"} 0.0',
        'vllm:num_requests_waiting{engine="0"} 0.0',
        'vllm:num_requests_running{engine="0"} many\nvllm:num_requests_waiting{engine="0"} 0.0',
    ],
)
def test_what_is_missing_or_no_number_is_unknown(page: str) -> None:
    assert parse_load(page).in_flight is None


@pytest.mark.parametrize(
    ("load", "in_flight"),
    [
        (Load(running=2.0, waiting=3.0), 5.0),
        (Load(running=0.0, waiting=0.0, accepted=1.0), 1.0),
        (Load(running=1.0, waiting=0.0, accepted=-1.0), 1.0),
        (Load(running=None, waiting=0.0, accepted=1.0), None),
    ],
)
def test_what_the_server_accepted_counts_as_load(load: Load, in_flight: float | None) -> None:
    assert load.in_flight == in_flight


# --- which Python


def test_another_program_is_left_alone() -> None:
    assert resolve(["sh", "-c", "true"], "vllm", {"PATH": "/bin:/usr/bin"}) == ["sh", "-c", "true"]


def test_the_first_python_that_imports_the_engine_is_taken() -> None:
    resolved = resolve(["python3", "-m", "json.tool"], "json", {"PATH": str(Path(sys.executable).parent)})

    assert resolved[1:] == ["-m", "json.tool"]
    assert Path(resolved[0]).is_absolute()


def test_no_python_that_imports_the_engine_is_an_error_with_a_mend() -> None:
    with pytest.raises(EngineNotFoundError, match=r"can import 'no_such_engine'.*set spec\.engine\.image"):
        resolve(["python3"], "no_such_engine", {"PATH": "/usr/bin"})


# --- the message of the end


def failure(message: str) -> Failure:
    return Failure("KvCacheTooSmall", message, "profile", 1, None, 1234, 10, 5)


def test_the_termination_message_is_the_failure() -> None:
    assert json.loads(termination_message("a/b", "r", failure("words"))) == {
        "schema": 1, "service": "a/b", "revision": "r", "class": "KvCacheTooSmall", "message": "words",
        "stage": "profile", "exitCode": 1, "signal": None, "estimatedMaxModelLen": 1234, "kvCacheNeededBytes": 10,
        "kvCacheAvailableBytes": 5,
    }  # fmt: skip


@pytest.mark.parametrize("text", ["x" * 10_000, "█" * 10_000, '"\\\n' * 10_000, "\ud800" * 5000])
def test_the_termination_message_fits_and_is_used_up(text: str) -> None:
    encoded = termination_message("a/b", "r", failure(text))

    assert 3500 < len(encoded) <= 4096
    assert json.loads(encoded)["message"].endswith(" …")
