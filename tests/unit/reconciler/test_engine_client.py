"""Reports as supervisors send them: read, or told to be none, within a deadline."""

import json

import pytest

import factories as make
from fakes.raw_server import Answer, saying, serving, silence
from llmservice_operator.clients.engine import (
    EngineUnreachableError,
    HttpEngineClient,
    parse_report,
    parse_termination_message,
)


async def test_report_is_read() -> None:
    async with serving(saying(json.dumps(make.report()).encode())) as port, HttpEngineClient() as client:
        report = await client.report("127.0.0.1", port)

    assert (report.phase, report.step, report.revision) == ("Starting", "load", make.REVISION)
    assert report.load.loaded_bytes == 4 * 2**30
    assert report.step_seconds == (("import", 12.1),)
    assert report.devices[0].name == "NVIDIA H200"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (saying(b"{}", "503 Service Unavailable"), "answered 503"),
        (saying(b"<html>"), "not a JSON object"),
        (saying(b"x" * 70_000), "longer than 65536 bytes"),
    ],
    ids=["503", "no JSON", "too long"],
)
async def test_what_is_no_report_is_told(answer: Answer, words: str) -> None:
    async with serving(answer) as port, HttpEngineClient() as client:
        with pytest.raises(EngineUnreachableError, match=words):
            await client.report("127.0.0.1", port)


async def test_supervisor_that_says_nothing_is_given_up_at_the_deadline() -> None:
    async with serving(silence) as port, HttpEngineClient(timeout_seconds=0.05) as client:
        with pytest.raises(EngineUnreachableError):
            await client.report("127.0.0.1", port)


async def test_port_that_nobody_listens_on_is_unreachable() -> None:
    async with serving(saying(b"")) as port:
        pass
    async with HttpEngineClient() as client:
        with pytest.raises(EngineUnreachableError):
            await client.report("127.0.0.1", port)


def test_fields_of_another_release_are_taken_as_not_said() -> None:
    odd = make.report(
        startup={"step": 7, "steps": "none", "weights": []},
        memory={"weightsBytes": "many", "kvCacheTokens": 5, "new": float("nan")},
        devices={"a": 1},
        failure={"class": None},
        more={"x": 1},
    )

    report = parse_report(json.dumps(odd))

    assert report.step == ""
    assert dict(report.memory) == {"kvCacheTokens": 5}
    assert report.devices == ()
    assert report.failure is None


@pytest.mark.parametrize(
    ("requests", "known"),
    [
        ({"requests": {"running": 3, "waiting": 4}}, 7),
        ({"requests": {"running": 0, "waiting": 0}}, 0),
        ({"requests": {"running": 3, "waiting": None}}, None),
        ({"requests": {"running": None, "waiting": None}}, None),
        ({}, None),
    ],
    ids=["busy", "idle", "half known", "unknown", "an older supervisor"],
)
def test_requests_are_those_running_and_waiting(requests: make.Object, known: int | None) -> None:
    assert parse_report(json.dumps(make.report(**requests))).requests == known


def test_termination_message_has_revision_and_failure() -> None:
    parsed = parse_termination_message(
        make.termination_message("DiskFull", message="No space left", signal=None)
    )

    assert parsed is not None
    revision, failure = parsed
    assert revision == make.REVISION
    assert (failure.failure_class, failure.message) == ("DiskFull", "No space left")


@pytest.mark.parametrize("text", ["", "Traceback (most recent call last):", "[]", '{"reason": "none"}'])
def test_words_that_are_not_the_supervisors_are_no_failure(text: str) -> None:
    assert parse_termination_message(text) is None


@pytest.mark.parametrize(
    "value", ["1e300", "9007199254740993", "1" * 400, "-1e17", "NaN", "Infinity", '"7"', "true"]
)
def test_number_that_no_status_could_hold_is_not_said(value: str) -> None:
    report = parse_report(f'{{"memory": {{"weightsBytes": {value}}}}}')

    assert report.memory == {}
