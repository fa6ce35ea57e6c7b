"""Whatever is given to `llmservice plan`, it ends with one plain sentence."""

import subprocess
import sys
from pathlib import Path

import pytest

from llmservice_operator.cli import main

SERVICE = """
apiVersion: llmservice.dev/v1alpha1
kind: LLMService
metadata: {name: demo}
spec:
  model: {uri: "hf://org/model", configMap: m}
  accelerator: {types: [nvidia-l4]}
"""
SAMPLE = Path(__file__).resolve().parents[3] / "crds" / "samples" / "smollm2.yaml"

LAUGHS = "a0: &a0 [ha, ha, ha, ha, ha, ha, ha, ha, ha]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)
)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\xff\xfe\x00", "is no UTF-8 text: byte 0xff at position 0"),
        (
            b"a: b\n\tc: d",
            "the file is no YAML: found a tab character that violates indentation, line 2, column 1",
        ),
        (b"[" * 100_000, "exceeded maximum nesting depth"),
        (b"a: " + b"9" * 5000, "the file is no YAML"),
        (LAUGHS.encode(), "more than 250,000 values with its aliases"),
        (b"&a\nkind: LLMService\nspec: *a", "more than 250,000 values with its aliases"),
        (b"&a {*a : 1}", "unhashable key"),
        (b"!!python/object/apply:os.system [id]", "could not determine a constructor"),
        (SERVICE.encode() + b"  accelerator: {}\n", "the key 'accelerator' is there twice, line 8"),
        (b"kind: List\nitems: 5", "items of the List is int; a list is expected"),
        (b"kind: LLMService\nmetadata: [1]", "metadata is list; an object is expected"),
        (b"kind: ConfigMap\nmetadata: [1]", "metadata is list; an object is expected"),
        (b"kind: ConfigMap\ndata: text", "data is str; an object is expected"),
        (SERVICE.replace("demo", "2020-13-41").encode(), "metadata.name: '2020-13-41'"),
        (SERVICE.replace("demo", "12").encode(), "metadata.name: '12'"),
    ],
)
def test_a_file_is_refused_in_words(
    tmp_path: Path, data: bytes, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "service.yaml"
    file.write_bytes(data)

    assert main(["plan", "-f", str(file)]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("{1: 2, a: b}", "has no key config.json; it has 1, a"),
        ("{config.json: 5}", "config.json is int; JSON as a text is expected"),
        ("{config.json: '" + "[" * 100_000 + "'}", "it is nested too deeply"),
        ('{config.json: \'{"hidden_size": ' + "9" * 5000 + "}'}", "has a number of thousands of digits"),
        (
            "{config.json: '" + " " * (4 << 20) + "{}'}",
            "has 4,194,306 characters; at most 4,194,304 are read",
        ),
    ],
)
def test_a_config_map_is_refused_in_words(
    tmp_path: Path, data: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "service.yaml"
    file.write_text(f"kind: ConfigMap\nmetadata: {{name: m}}\ndata: {data}\n---{SERVICE}")

    assert main(["plan", "-f", str(file)]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("option", ["-f", "--config", "--catalogue"])
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("/dev/zero", "at most 16,777,216 are read"),
        ("/nowhere", "No such file"),
        ("/proc", "can't be read: "),
    ],
)
def test_a_path_is_refused_in_words(
    option: str, given: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sample = [] if option == "-f" else ["-f", str(SAMPLE)]

    assert main(["plan", *sample, option, given]) == 2
    error = capsys.readouterr().err
    assert words in error or (option == "--config" and "/proc/config.json can't be read" in error)


def run_plan(**streams: object) -> "subprocess.Popen[bytes]":
    code = "import sys; from llmservice_operator.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "plan", "-f", str(SAMPLE)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, **streams)  # type: ignore[call-overload,no-any-return]


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    process = run_plan(stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()

    _, error = process.communicate(timeout=30)

    assert (process.returncode, error) == (0, b"")


def test_a_full_disk_is_told() -> None:
    with Path("/dev/full").open("wb") as full:
        _, error = run_plan(stdout=full).communicate(timeout=30)

    assert error == b"llmservice plan: [Errno 28] No space left on device\n"
