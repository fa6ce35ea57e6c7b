"""A checkpoint on a hub, over real sockets: its headers are read by ranges, and no hub can make that dear."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from llmservice_operator.clients.hub_headers import FIRST_BYTES
from llmservice_operator.clients.modelhub import HttpModelHub, HubModel

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONFIG = {"model_type": "llama", "num_hidden_layers": 2}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def safetensors(**sizes: int) -> bytes:
    """A file of tensors of so many bytes each; the bytes themselves are nothing."""
    listed: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    begin = 0
    for name, size in sizes.items():
        listed[name] = {"dtype": "BF16", "shape": [size // 2], "data_offsets": [begin, begin + size]}
        begin += size
    text = json.dumps(listed).encode()
    return len(text).to_bytes(8, "little") + text + bytes(begin)


class Hub:
    """A hub on this machine, in the layout of the Hugging Face hub's API; files may be answered otherwise."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {"config.json": json.dumps(CONFIG).encode()}
        self.sizes: dict[str, int | None] = {}
        self.answers: dict[str, Handler] = {}
        self.sent: list[tuple[str, int]] = []
        self.headers: list[tuple[str, str | None, str | None]] = []
        self.url = ""

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        if request.path.startswith("/api/models/org/tiny/revision/"):
            rows = [
                {"rfilename": name, "size": self.sizes.get(name, len(body))}
                for name, body in self.files.items()
            ]
            return web.json_response({"sha": COMMIT, "siblings": rows})
        name = request.path.rpartition("/")[2]
        self.headers.append((name, request.headers.get("Range"), request.headers.get("Authorization")))
        if name in self.answers:
            return await self.answers[name](request)
        body = self.files[name]
        wanted = request.http_range.stop
        part = body if wanted is None else body[:wanted]
        self.sent.append((name, len(part)))
        return web.Response(status=200 if wanted is None else 206, body=part)


@pytest.fixture
async def hub() -> AsyncIterator[Hub]:
    """A hub without weights."""
    pages = Hub()
    runner = web.ServerRunner(web.Server(pages), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    pages.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield pages
    finally:
        await runner.cleanup()


async def ask(hub: Hub, *, token: str | None = None, headers_timeout_seconds: float = 5.0) -> HubModel:
    client = HttpModelHub(
        endpoint=hub.url,
        token=token,
        monotonic=time.monotonic,
        headers_timeout_seconds=headers_timeout_seconds,
    )
    async with client:
        return await client.model("org/tiny", "main")


async def test_weights_are_what_the_headers_list(hub: Hub) -> None:
    hub.files["model-00001-of-00002.safetensors"] = safetensors(**{"model.layers.0.w": 3_000_000})
    hub.files["model-00002-of-00002.safetensors"] = safetensors(**{"lm_head.weight": 2_000_000})

    model = await ask(hub)

    assert (model.weights_bytes, model.weights_problem) == (5_000_000, "")
    assert model.checkpoint is not None
    assert (model.checkpoint.files, model.checkpoint.tensors) == (2, 2)


async def test_weights_themselves_are_not_fetched(hub: Hub) -> None:
    hub.files["model.safetensors"] = safetensors(**{"model.layers.0.w": 30_000_000})

    await ask(hub)

    assert max(size for _, size in hub.sent) <= FIRST_BYTES


async def test_long_header_takes_one_more_request(hub: Hub) -> None:
    names = {f"model.layers.0.mlp.experts.{number}.gate_proj.weight": 2 for number in range(4000)}
    hub.files["model.safetensors"] = safetensors(**names)

    model = await ask(hub)

    assert model.checkpoint is not None
    assert model.checkpoint.tensors == 4000
    assert [name for name, _, _ in hub.headers].count("model.safetensors") == 2


async def test_prediction_layers_and_towers_are_told_apart(hub: Hub) -> None:
    hub.files["model.safetensors"] = safetensors(
        **{"model.layers.1.w": 100, "model.layers.2.w": 20, "visual.w": 8}
    )

    model = await ask(hub)

    assert model.checkpoint is not None
    assert [model.checkpoint.part(name) for name in ("model", "mtp", "vision")] == [100, 20, 8]


async def test_hub_that_knows_no_ranges_is_left_after_the_first_bytes(hub: Hub) -> None:
    body = safetensors(**{"model.layers.0.w": 1000})
    given = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal given
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(body)
        for _ in range(2000):
            await response.write(bytes(65536))
            given += 65536
        return response

    hub.files["model.safetensors"] = body
    hub.sizes["model.safetensors"] = None
    hub.answers["model.safetensors"] = endless

    model = await ask(hub)

    assert model.weights_bytes == 1000
    assert given < 64 << 20


async def test_storage_elsewhere_gets_the_range_and_no_token(hub: Hub) -> None:
    hub.files["blob"] = safetensors(**{"model.layers.0.w": 1000})
    hub.files["model.safetensors"] = hub.files["blob"]

    async def elsewhere(request: web.Request) -> web.StreamResponse:
        del request
        port = hub.url.rpartition(":")[2]
        raise web.HTTPFound(f"http://localhost:{port}/storage/blob")

    hub.answers["model.safetensors"] = elsewhere

    model = await ask(hub, token="hf_secret")

    assert model.weights_bytes == 1000
    assert [each for each in hub.headers if each[0] == "blob"] == [
        ("blob", f"bytes=0-{FIRST_BYTES - 1}", None)
    ]
    assert ("model.safetensors", f"bytes=0-{FIRST_BYTES - 1}", "Bearer hf_secret") in hub.headers


# ── hubs that lie, drip or stop ──────────────────────────────────────────────────────────────────────────────


async def _drip(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b"\x00")
        await asyncio.sleep(0.02)


async def _hang(request: web.Request) -> web.StreamResponse:
    del request
    await asyncio.sleep(60)
    raise AssertionError("nobody waits so long")


def _bytes(body: bytes, status: int = 206) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        del request
        return web.Response(status=status, body=body)

    return answer


FAULTS: dict[str, tuple[Handler, str]] = {
    "a length of 2^63": (_bytes((1 << 63).to_bytes(8, "little")), "claims 9,223,372,036,854,775,808 bytes"),
    "a page of HTML": (_bytes(b"<!DOCTYPE html><html></html>"), "model.safetensors: its header claims"),
    "no JSON": (_bytes((4).to_bytes(8, "little") + b"nope"), "its header is no JSON"),
    "an end in the header": (_bytes((100).to_bytes(8, "little") + b"{"), "it ended after 9 of the 108 bytes"),
    "nothing": (_bytes(b""), "it has 0 bytes"),
    "a no": (_bytes(b"", 403), "refuses model.safetensors (403)"),
    "not there": (_bytes(b"", 404), "in the hub's list and not there"),
    "trouble": (_bytes(b"", 503), "answered 503 for model.safetensors"),
    "drops": (_drip, "did not come within 0.3 s"),
    "silence": (_hang, "did not come within 0.3 s"),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_headers_that_cannot_be_read_are_named_and_the_index_counts(hub: Hub, fault: str) -> None:
    handler, words = FAULTS[fault]
    hub.files["model.safetensors"] = safetensors(**{"model.layers.0.w": 1000})
    hub.files["model.safetensors.index.json"] = json.dumps(
        {"metadata": {"total_size": 990}, "weight_map": {"w": "model.safetensors"}}
    ).encode()
    hub.answers["model.safetensors"] = handler
    began = time.monotonic()

    model = await ask(hub, headers_timeout_seconds=0.3)

    assert (model.weights_bytes, model.checkpoint) == (990, None)
    assert words in model.weights_problem
    assert time.monotonic() - began < 3


async def test_without_an_index_the_files_sizes_count(hub: Hub) -> None:
    hub.files["model.safetensors"] = safetensors(**{"model.layers.0.w": 1000})
    hub.answers["model.safetensors"] = _bytes(b"")

    model = await ask(hub)

    assert model.weights_bytes == len(hub.files["model.safetensors"])


async def test_index_that_is_no_json_is_done_without(hub: Hub) -> None:
    hub.files["model.safetensors"] = safetensors(**{"model.layers.0.w": 1000})
    hub.files["model.safetensors.index.json"] = b"<html>"

    assert (await ask(hub)).weights_bytes == 1000


async def test_index_that_tells_another_size_is_told(hub: Hub) -> None:
    hub.files["model.safetensors"] = safetensors(**{"model.layers.0.w": 1000})
    hub.files["model.safetensors.index.json"] = json.dumps({"metadata": {"total_size": 2000}}).encode()

    model = await ask(hub)

    assert model.weights_bytes == 1000
    assert "tells of 2,000 bytes, and the headers of the files of 1,000" in model.weights_problem


async def test_thousands_of_files_are_not_asked_for(hub: Hub) -> None:
    for number in range(1100):
        hub.files[f"model-{number}.safetensors"] = b"x" * 10

    model = await ask(hub)

    assert "there are 1100 safetensors files" in model.weights_problem
    assert [name for name, _, _ in hub.headers] == ["config.json"]
