"""`llmservice plan`: what it prints, and how it ends."""

import json
from pathlib import Path

import pytest
import yaml

from llmservice_operator.cli import main
from unit.perfmodel.samples import DATA, SMOLLM2

SAMPLES = Path(__file__).resolve().parents[3] / "crds" / "samples"

SERVICE = """
apiVersion: llmservice.dev/v1alpha1
kind: LLMService
metadata: {name: demo}
spec:
  model: {uri: "hf://org/model"}
  accelerator: {types: [nvidia-l4]}
"""


def ends(*arguments: str) -> int:
    return main(["plan", *arguments])


@pytest.fixture
def service(tmp_path: Path) -> Path:
    file = tmp_path / "service.yaml"
    file.write_text(SERVICE)
    return file


@pytest.fixture
def config(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(SMOLLM2))
    return folder


@pytest.mark.parametrize("sample", sorted(path.name for path in SAMPLES.glob("*.yaml")))
def test_every_sample_is_planned(sample: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ends("-f", str(SAMPLES / sample)) == 0
    assert "KV cache:" in capsys.readouterr().out


def test_the_arithmetic_of_each_term_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    ends("-f", str(SAMPLES / "smollm2.yaml"))

    assert (
        "kv_cache            1.00 GiB  182 blocks, 5,898,240 B a block of 128 tokens"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_documents_for_machines(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    ends("-f", str(SAMPLES / "smollm2.yaml"), "-o", output)

    parsed = yaml.safe_load(capsys.readouterr().out)
    assert parsed["plan"]["kv_cache_tokens"] == 23_296


def test_a_config_of_a_folder(service: Path, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ends("-f", str(service), "--config", str(config)) == 0
    assert "demo: a replica on 1 x nvidia-l4" in capsys.readouterr().out


def test_a_config_file(service: Path, config: Path) -> None:
    assert ends("-f", str(service), "--config", str(config / "config.json")) == 0


def test_a_models_own_folder(service: Path, config: Path) -> None:
    service.write_text(SERVICE.replace("hf://org/model", f"file://{config}"))

    assert ends("-f", str(service)) == 0


@pytest.mark.parametrize(
    ("engine", "option", "version"),
    [
        ("{}", "", "0.33.0"),
        ("{}", "0.26.0", "0.26.0"),
        ("{image: vllm/vllm-openai:v0.19.0}", "0.26.0", "0.19.0"),
        ("{image: acme/llm:7}", "0.26.0", "0.26.0"),
        ("{version: 0.20.2}", "", "0.20.2"),
    ],
)
def test_the_engines_version_is_the_one_that_would_run(
    service: Path, engine: str, option: str, version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without an image the release's own for the accelerator runs: vllm-openai 0.33.0."""
    service.write_text(f"{SERVICE}  engine: {engine}\n")
    config = DATA / "models" / "Qwen--Qwen3-0.6B"

    ends("-f", str(service), "--config", str(config), "--engine-version", option)

    assert f"vLLM {version}\n" in capsys.readouterr().out


def test_the_cpu_rows_own_image_tells_its_version(
    service: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The release's image for the cpu row has vLLM 0.32.0, whatever the others have."""
    service.write_text(SERVICE.replace("nvidia-l4", "cpu"))

    ends("-f", str(service), "--config", str(config))

    assert "vLLM 0.32.0\n" in capsys.readouterr().out


def test_a_long_setting_is_set_apart_from_its_value(capsys: pytest.CaptureFixture[str]) -> None:
    ends("-f", str(SAMPLES / "smollm2.yaml"))

    assert "VLLM_CPU_OMP_THREADS_BIND  nobind\n" in capsys.readouterr().out


def test_without_a_config_it_is_refused(service: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ends("-f", str(service)) == 1
    assert "ModelConfigUnavailable" in capsys.readouterr().err


def test_a_refusal_tells_the_shortfall(service: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service.write_text(SERVICE.replace("[nvidia-l4]", "[nvidia-l4], parallelism: {tensor: 1}"))
    config = DATA / "models" / "meta-llama--Meta-Llama-3.1-70B"

    assert ends("-f", str(service), "--config", str(config)) == 1
    assert "GiB short" in capsys.readouterr().err.replace("\n  ", " ")


def test_a_refusal_for_machines(service: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ends("-f", str(service), "-o", "json") == 1
    assert json.loads(capsys.readouterr().out)["refusal"]["reason"] == "ModelConfigUnavailable"


def test_several_services_in_one_file(
    config: Path, service: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service.write_text(f"{SERVICE}---{SERVICE.replace('demo', 'other')}")

    assert ends("-f", str(service), "--config", str(config)) == 0
    out = capsys.readouterr().out
    assert "demo: " in out
    assert "other: " in out


def test_a_users_row(service: Path, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.yaml"
    rows.write_text(
        "rows: [{name: acme-x1, memoryGiB: 30, memoryBandwidthBytesPerSecond: 1.0e+12, "
        "bf16FlopsPerSecond: 2.0e+14, resourceName: acme.com/x, costPerHour: 1}]"
    )
    service.write_text(SERVICE.replace("nvidia-l4", "acme-x1"))

    assert ends("-f", str(service), "--config", str(config), "--catalogue", str(rows)) == 0
    assert "1 x acme-x1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "no YAML"),
        ("[1]", "a document of the file is list"),
        ("kind: ConfigMap", "no object of kind LLMService"),
        (SERVICE.replace("v1alpha1", "v1"), "apiVersion"),
        (SERVICE.replace("hf://", "s3://"), "spec.model.uri"),
        (SERVICE.replace("uri:", "url:"), "spec.model.url"),
    ],
)
def test_a_file_that_cannot_be_used(
    service: Path, text: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    service.write_text(text)

    assert ends("-f", str(service)) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "words"),
    [("{", "config.json is no JSON"), ("[]", "config.json is a list; an object is expected")],
)
def test_a_config_that_is_none(
    service: Path, config: Path, text: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (config / "config.json").write_text(text)

    assert ends("-f", str(service), "--config", str(config)) == 2
    assert words in capsys.readouterr().err


def test_a_huge_config_is_refused_unread(
    service: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (config / "config.json").open("wb") as file:
        file.truncate(100 << 20)

    assert ends("-f", str(service), "--config", str(config)) == 2
    assert "104,857,600 bytes" in capsys.readouterr().err


def test_a_missing_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert ends("-f", "/nowhere.yaml") == 2
    assert "/nowhere.yaml" in capsys.readouterr().err


def test_the_plans_command_imports_no_kopf() -> None:
    import subprocess
    import sys

    code = (
        "import sys; from llmservice_operator.cli import main; "
        f"main(['plan', '-f', {str(SAMPLES / 'smollm2.yaml')!r}]); "
        "sys.exit(int(any(name.split('.')[0] in {'kopf', 'kubernetes', 'httpx'} for name in sys.modules)))"
    )

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
