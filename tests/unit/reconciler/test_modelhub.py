"""What is read from the hub, what it is asked with, and what is said when it says no."""

import asyncio
import contextlib
import gc
import gzip
import tracemalloc
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from llmservice_operator.clients.modelhub import HttpModelHub, ModelHubError

COMMIT = "0123456789abcdef0123456789abcdef01234567"
HUB = "https://hub.test"
CONFIG = {"model_type": "llama", "hidden_size": 576}


class Pages:
    """A hub with one model, and what it was asked."""

    def __init__(self, **files: Any) -> None:
        self.files: dict[str, Any] = {"config.json": CONFIG, **files}
        self.sizes: dict[str, int | None] = {"model.safetensors": 269_060_552}
        self.requests: list[httpx.Request] = []
        self.answers: dict[str, httpx.Response] = {}

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        await asyncio.sleep(0)  # as on a network, others have their turn before the answer comes
        if request.url.path in self.answers:
            return self.answers[request.url.path]
        if request.url.path == "/api/models/org/tiny/revision/main":
            names = [*self.files, *self.sizes]
            siblings = [{"rfilename": name, "size": self.sizes.get(name)} for name in names]
            return httpx.Response(200, json={"sha": COMMIT, "siblings": siblings})
        name = request.url.path.removeprefix(f"/org/tiny/resolve/{COMMIT}/")
        return httpx.Response(200, json=self.files[name]) if name in self.files else httpx.Response(404)


def hub(pages: Callable[[httpx.Request], Any], *, token: str | None = None) -> HttpModelHub:
    return HttpModelHub(
        endpoint=HUB, token=token, monotonic=lambda: 0.0, transport=httpx.MockTransport(pages)
    )


async def test_branch_is_resolved_to_its_commit() -> None:
    async with hub(Pages()) as client:
        model = await client.model("org/tiny", "main")

    assert (model.commit, model.config) == (COMMIT, CONFIG)


async def test_weights_are_the_sum_of_the_safetensors_files() -> None:
    pages = Pages()
    pages.sizes = {
        "model-00001-of-00002.safetensors": 5_000,
        "model-00002-of-00002.safetensors": 3_000,
        "consolidated.safetensors": 8_000,
        "original/model.safetensors": 8_000,
        "pytorch_model.bin": 8_000,
    }
    async with hub(pages) as client:
        model = await client.model("org/tiny", "main")

    assert model.weights_bytes == 8_000


async def test_index_tells_the_weights_more_exactly() -> None:
    pages = Pages(**{"model.safetensors.index.json": {"metadata": {"total_size": 16_381_470_720}}})
    async with hub(pages) as client:
        model = await client.model("org/tiny", "main")

    assert model.weights_bytes == 16_381_470_720


async def test_checkpoint_without_safetensors_has_no_known_size() -> None:
    pages = Pages()
    pages.sizes = {"pytorch_model.bin": 8_000}
    async with hub(pages) as client:
        model = await client.model("org/tiny", "main")

    assert model.weights_bytes is None


async def test_quantization_of_its_own_file_is_part_of_the_config() -> None:
    quantization = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    async with hub(Pages(**{"hf_quant_config.json": quantization})) as client:
        model = await client.model("org/tiny", "main")

    assert model.config["quantization_config"] == quantization


async def test_second_question_is_answered_from_memory() -> None:
    pages = Pages()
    async with hub(pages) as client:
        await client.model("org/tiny", "main")
        asked = len(pages.requests)
        await client.model("org/tiny", "main")

    assert len(pages.requests) == asked


async def test_many_at_once_ask_once() -> None:
    pages = Pages()
    async with hub(pages) as client:
        await asyncio.gather(*(client.model("org/tiny", "main") for _ in range(20)))

    assert len([each for each in pages.requests if each.url.path.startswith("/api/")]) == 1


async def test_commit_that_a_branch_led_to_is_known_by_itself() -> None:
    pages = Pages()
    async with hub(pages) as client:
        found = await client.model("org/tiny", "main")
        asked = len(pages.requests)
        again = await client.model("org/tiny", COMMIT)

    assert (len(pages.requests), again) == (asked, found)


async def test_branch_that_did_not_move_is_not_read_anew() -> None:
    pages, now = Pages(), [0.0]
    client = HttpModelHub(
        endpoint=HUB, token=None, monotonic=lambda: now[0], transport=httpx.MockTransport(pages)
    )
    pages.sizes = {}
    async with client:
        await client.model("org/tiny", "main")
        asked = len(pages.requests)
        now[0] = 301.0
        await client.model("org/tiny", "main")

    assert [each.url.path for each in pages.requests[asked:]] == ["/api/models/org/tiny/revision/main"]


@pytest.mark.parametrize(("seconds", "asked_again"), [(1000.0, False), (3601.0, True)])
async def test_headers_that_could_not_be_read_are_tried_again_after_an_hour(
    seconds: float, *, asked_again: bool
) -> None:
    """Asked for at each look, a storage that a network does not let through would hold every look up."""
    pages, now = Pages(), [0.0]
    client = HttpModelHub(
        endpoint=HUB, token=None, monotonic=lambda: now[0], transport=httpx.MockTransport(pages)
    )
    pages.answers[f"/org/tiny/resolve/{COMMIT}/model.safetensors"] = httpx.Response(503)
    async with client:
        await client.model("org/tiny", "main")
        asked = len(pages.requests)
        now[0] = seconds
        with contextlib.suppress(ModelHubError):  # these pages know the branch only
            await client.model("org/tiny", COMMIT)

    assert (len(pages.requests) > asked) == asked_again


async def test_refusal_is_remembered_for_a_moment() -> None:
    pages = Pages()
    pages.answers["/api/models/org/tiny/revision/main"] = httpx.Response(404)
    async with hub(pages) as client:
        for _ in range(3):
            with pytest.raises(ModelHubError):
                await client.model("org/tiny", "main")

    assert len(pages.requests) == 1


async def test_token_is_shown_to_the_hub_and_to_no_storage_that_it_sends_us_to() -> None:
    pages = Pages()
    pages.answers[f"/org/tiny/resolve/{COMMIT}/config.json"] = httpx.Response(
        302, headers={"location": "https://storage.test/config.json"}
    )
    pages.answers["/config.json"] = httpx.Response(200, json=CONFIG)
    async with hub(pages, token="hf_secret") as client:
        await client.model("org/tiny", "main")

    shown = {each.url.host: each.headers.get("authorization") for each in pages.requests}
    assert shown == {"hub.test": "Bearer hf_secret", "storage.test": None}


@pytest.mark.parametrize(
    ("status", "reason", "permanent", "words"),
    [
        (404, "ModelNotFound", True, "correct spec.model.uri or spec.model.revision"),
        (401, "ModelAccessDenied", False, "the operator has no hub token"),
        (403, "ModelAccessDenied", False, "spec.model.configMap"),
        (429, "HubUnavailable", False, "answered 429"),
        (503, "HubUnavailable", False, "answered 503"),
    ],
)
async def test_no_of_the_hub_is_told_with_a_mend(
    status: int, reason: str, *, permanent: bool, words: str
) -> None:
    pages = Pages()
    pages.answers["/api/models/org/tiny/revision/main"] = httpx.Response(status)
    async with hub(pages) as client:
        with pytest.raises(ModelHubError) as caught:
            await client.model("org/tiny", "main")

    assert (caught.value.reason, caught.value.permanent) == (reason, permanent)
    assert words in caught.value.message


async def test_hub_that_cannot_be_reached_is_unavailable() -> None:
    def away(_request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("connection refused")

    async with hub(away) as client:
        with pytest.raises(ModelHubError) as caught:
            await client.model("org/tiny", "main")

    assert caught.value.reason == "HubUnavailable"
    assert "hub.test did not answer: connection refused" in caught.value.message


@pytest.mark.parametrize(
    ("repository", "revision"),
    [
        ("org/../admin", "main"),
        ("//evil.test/x", "main"),
        ("org/tiny?x=", "main"),
        ("org/tiny", "../../x"),
        ("", "main"),
        ("org/tiny/more", "main"),
    ],
)
async def test_name_that_could_lead_elsewhere_is_not_asked_for(repository: str, revision: str) -> None:
    pages = Pages()
    async with hub(pages) as client:
        with pytest.raises(ModelHubError) as caught:
            await client.model(repository, revision)

    assert caught.value.reason == "ModelNotFound"
    assert pages.requests == []


async def test_config_that_is_no_json_is_told() -> None:
    pages = Pages()
    pages.answers[f"/org/tiny/resolve/{COMMIT}/config.json"] = httpx.Response(200, text="<html>")
    async with hub(pages) as client:
        with pytest.raises(ModelHubError) as caught:
            await client.model("org/tiny", "main")

    assert caught.value.reason == "ModelInvalid"


async def test_page_without_end_is_cut_off() -> None:
    pages = Pages()
    pages.answers[f"/org/tiny/resolve/{COMMIT}/config.json"] = httpx.Response(200, content=b"x" * 5_000_000)
    async with hub(pages) as client:
        with pytest.raises(ModelHubError) as caught:
            await client.model("org/tiny", "main")

    assert "larger than" in caught.value.message


class Drops(httpx.AsyncByteStream):
    """A body that never ends and never stops."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            await asyncio.sleep(0.01)
            yield b" "


async def test_page_that_drips_is_given_up() -> None:
    pages = Pages()
    pages.answers["/api/models/org/tiny/revision/main"] = httpx.Response(200, stream=Drops())
    client = HttpModelHub(
        endpoint=HUB,
        token=None,
        monotonic=lambda: 0.0,
        file_timeout_seconds=0.1,
        transport=httpx.MockTransport(pages),
    )
    async with client:
        with pytest.raises(ModelHubError, match=r"did not send org/tiny@main within 0\.1 s"):
            await client.model("org/tiny", "main")


async def test_packed_page_is_asked_for_by_nobody_and_not_unpacked() -> None:
    """Two gigabytes of nothing are 3,400 bytes when packed twice."""
    pages = Pages()
    packed = gzip.compress(gzip.compress(b"{}"))
    pages.answers["/api/models/org/tiny/revision/main"] = httpx.Response(
        200, content=packed, headers={"content-encoding": "gzip, gzip"}
    )
    async with hub(pages) as client:
        with pytest.raises(ModelHubError, match="packed \\(gzip, gzip\\)"):
            await client.model("org/tiny", "main")

    assert pages.requests[0].headers["accept-encoding"] == "identity"


async def test_redirect_to_nowhere_is_told() -> None:
    pages = Pages()
    pages.answers["/api/models/org/tiny/revision/main"] = httpx.Response(
        302, headers={"location": "http://[::bad"}
    )
    async with hub(pages) as client:
        with pytest.raises(ModelHubError) as caught:
            await client.model("org/tiny", "main")

    assert caught.value.reason == "HubUnavailable"


async def test_token_is_not_shown_in_clear_to_the_same_host() -> None:
    pages = Pages()
    pages.answers["/api/models/org/tiny/revision/main"] = httpx.Response(
        302, headers={"location": "http://hub.test/elsewhere"}
    )
    async with hub(pages, token="secret") as client:
        with pytest.raises(ModelHubError):
            await client.model("org/tiny", "main")

    assert [request.headers.get("authorization") for request in pages.requests] == ["Bearer secret", None]


@pytest.mark.parametrize("size", [-1, 0, True, 10**30])
async def test_size_that_is_none_is_not_believed(size: int) -> None:
    pages = Pages(**{"model.safetensors.index.json": {"metadata": {"total_size": size}}})
    pages.sizes = {"model.safetensors": size}
    async with hub(pages) as client:
        model = await client.model("org/tiny", "main")

    assert model.weights_bytes is None


async def test_config_that_is_nested_without_end_is_told() -> None:
    pages = Pages()
    pages.answers[f"/org/tiny/resolve/{COMMIT}/config.json"] = httpx.Response(200, content=b"[" * 1_000_000)
    async with hub(pages) as client:
        with pytest.raises(ModelHubError, match="not a JSON object"):
            await client.model("org/tiny", "main")


async def test_a_refusal_that_is_kept_holds_nothing_of_what_was_read() -> None:
    """Else a hub's endless pages, each cut off at its limit, would stay in memory with their refusals."""
    pages = Pages()
    pages.answers["/api/models/org/tiny/revision/main"] = httpx.Response(200, content=b"x" * (17 << 20))
    tracemalloc.start()
    try:
        async with hub(pages) as client:
            with contextlib.suppress(ModelHubError):
                await client.model("org/tiny", "main")
            pages.answers.clear()
            gc.collect()
            kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept_bytes < 1 << 20
