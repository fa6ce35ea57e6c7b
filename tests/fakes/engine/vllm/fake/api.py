"""The OpenAI-compatible pages of the fake, in vLLM's shapes."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncGenerator
from http import HTTPStatus
from typing import Any

from vllm.fake import faults as fault_texts
from vllm.fake.arguments import Arguments
from vllm.fake.engine import Engine, EngineDeadError, Request
from vllm.fake.http_server import HttpRequest, HttpResponse, StreamCutError, json_response
from vllm.fake.metrics import Metrics
from vllm.fake.model import Model
from vllm.fake.parameters import Parameters

_GUARDED = ("/v1", "/v2", "/inference")
_METRICS_TYPE = "text/plain; version=1.0.0; charset=utf-8"
_COMPLETION_DEFAULT_TOKENS = 16

# The labels of vllm:cache_config_info in 0.32 whose values the fake does not work out.
_CACHE_CONFIG = {
    "_block_size_resolved": "True",
    "cache_dtype": "auto",
    "cache_hit_alignment_tokens": "None",
    "enable_mamba_shared_prefix_checkpoint": "False",
    "hash_block_size": "None",
    "is_attention_free": "False",
    "kv_cache_dtype_skip_layers": "[]",
    "kv_cache_layout": "None",
    "kv_offloading_backend": "native",
    "kv_offloading_size": "None",
    "kv_sharing_fast_prefill": "False",
    "mamba_block_size": "None",
    "mamba_cache_dtype": "auto",
    "mamba_cache_mode": "none",
    "mamba_page_size_padded": "None",
    "mamba_ssm_cache_dtype": "float32",
    "num_cpu_blocks": "None",
    "num_gpu_blocks_override": "None",
    "prefix_cache_retention_interval": "0",
    "prefix_caching_hash_algo": "sha256",
    "prefix_match_unit": "None",
    "replayssm_buffer_len": "16",
    "skip_page_size_padded": "None",
    "sliding_window": "None",
    "swa_bounded_replay": "True",
    "use_kda_recoverssm": "False",
    "use_replayssm": "False",
}


class Api:
    """Routes requests to the engine."""

    def __init__(
        self, arguments: Arguments, parameters: Parameters, model: Model, engine: Engine, metrics: Metrics
    ) -> None:
        self._arguments, self._parameters, self._model = arguments, parameters, model
        self._engine, self._metrics = engine, metrics
        self._started = int(time.time())
        self._frozen: bytes | None = None
        self._faults_changed = asyncio.Event()

    async def handle(self, request: HttpRequest) -> HttpResponse:
        if request.path.startswith(_GUARDED) and not self._authorized(request):
            return json_response({"error": "Unauthorized"}, HTTPStatus.UNAUTHORIZED)
        key = (request.method, request.path)
        if key == ("POST", "/v1/completions"):
            return await self._generate(request, chat=False)
        if key == ("POST", "/v1/chat/completions"):
            return await self._generate(request, chat=True)
        if key == ("POST", "/fake/fault"):
            return self._set_faults(request)
        if request.method != "GET":
            return json_response({"detail": "Method Not Allowed"}, HTTPStatus.METHOD_NOT_ALLOWED)
        if request.path == "/metrics":
            return await self._metrics_page()
        return self._page(request.path)

    def _page(self, path: str) -> HttpResponse:
        if path in {"/health", "/ping"}:
            unwell = self._engine.dead or "unhealthy" in self._engine.faults
            return HttpResponse(HTTPStatus.SERVICE_UNAVAILABLE if unwell else HTTPStatus.OK)
        if path == "/version":
            return json_response({"version": self._parameters.version})
        if path == "/load":
            tracked = self._arguments.enable_server_load_tracking
            load = len(self._engine.running) + self._engine.waiting
            return json_response({"server_load": load if tracked else 0})
        if path == "/v1/models":
            return json_response(
                {"object": "list", "data": [self._card(name) for name in self._arguments.served_names]}
            )
        return json_response({"detail": "Not Found"}, HTTPStatus.NOT_FOUND)

    def _card(self, name: str) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": self._started,
            "owned_by": "vllm",
            "root": self._arguments.model,
            "parent": None,
            "max_model_len": self._model.max_model_len,
            "permission": [],
        }

    def _authorized(self, request: HttpRequest) -> bool:
        keys = self._arguments.api_keys
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        return not keys or (scheme.lower() == "bearer" and token in keys)

    def _set_faults(self, request: HttpRequest) -> HttpResponse:
        try:
            self._engine.faults = fault_texts.parse(request.body.decode())
        except fault_texts.FaultError as error:
            return _error(str(error), HTTPStatus.BAD_REQUEST)
        faults = self._engine.faults
        if "metrics-reset" in faults:
            self._metrics.reset()
        if "metrics-frozen" not in faults:
            self._frozen = None
        self._faults_changed.set()
        self._faults_changed = asyncio.Event()
        self._engine.on_progress()
        return json_response({"faults": faults.by_name})

    async def _metrics_page(self) -> HttpResponse:
        while "metrics-hang" in self._engine.faults:
            await self._faults_changed.wait()
        faults = self._engine.faults
        if "metrics-cut" in faults:
            raise StreamCutError
        if "metrics-off" in faults:
            return json_response({"detail": "Not Found"}, HTTPStatus.NOT_FOUND)
        body = self._frozen or self._metrics_text(faults).encode()
        if "metrics-frozen" in faults:
            self._frozen = body
        return HttpResponse(body=body, content_type=_METRICS_TYPE)

    def _metrics_text(self, faults: fault_texts.Faults) -> str:
        gauges = {
            "num_requests_running": float(self._engine.told_running),
            "num_requests_waiting": float(self._engine.told_waiting),
            "kv_cache_usage_perc": self._engine.kv_usage,
        }
        return self._metrics.page(
            gauges,
            self._cache_config(),
            engine_series=not self._arguments.disable_log_stats and "metrics-empty" not in faults,
            missing=faults.text("metrics-missing", "series", ""),
            not_a_number="metrics-nan" in faults,
            no_numbers=faults.has("metrics-nan", "counters"),
        )

    def _cache_config(self) -> dict[str, object]:
        model, arguments = self._model, self._arguments
        return {
            **_CACHE_CONFIG,
            "block_size": model.block_size,
            "effective_attention_block_size": model.block_size,
            "enable_prefix_caching": arguments.enable_prefix_caching,
            "gpu_memory_utilization": arguments.gpu_memory_utilization,
            "kv_cache_max_concurrency": model.kv_cache_tokens / model.max_model_len,
            "kv_cache_memory_bytes": model.kv_cache_bytes if self._parameters.device == "cpu" else None,
            "kv_cache_size_tokens": model.kv_cache_tokens,
            "num_gpu_blocks": model.kv_cache_tokens // model.block_size,
            "user_specified_block_size": arguments.block_size is not None,
        }

    # --- generation

    async def _generate(self, http: HttpRequest, *, chat: bool) -> HttpResponse:
        try:
            body = json.loads(http.body)
        except ValueError:
            return _error("Request body is not valid JSON", HTTPStatus.BAD_REQUEST)
        name = body.get("model") or self._arguments.served_names[0]
        if name not in self._arguments.served_names:
            return _error(f"The model `{name}` does not exist.", HTTPStatus.NOT_FOUND, "NotFoundError")
        prompt_tokens = _prompt_tokens(body, chat=chat)
        room = self._model.max_model_len - prompt_tokens
        asked = (
            body.get("max_completion_tokens")
            or body.get("max_tokens")
            or (room if chat else _COMPLETION_DEFAULT_TOKENS)
        )
        if room < 1 or asked > room:
            return _error(
                f"This model's maximum context length is {self._model.max_model_len} tokens. However, you "
                "requested "
                f"{asked} output tokens and your prompt contains {prompt_tokens} input tokens. Please "
                "reduce the length "
                "of the input prompt or the number of requested output tokens.",
                HTTPStatus.BAD_REQUEST,
            )
        limit = self._arguments.max_num_queued_reqs
        if limit is not None and self._engine.waiting >= limit:
            self._metrics.rejections["max_num_queued_reqs"] += 1
            return _error(
                "The server's queue is full.", HTTPStatus.SERVICE_UNAVAILABLE, "ServiceUnavailableError"
            )
        words = self._words()
        stop_after = None if body.get("ignore_eos") or body.get("min_tokens", 0) > len(words) else len(words)
        try:
            request = self._engine.submit(
                prompt_tokens=prompt_tokens, max_tokens=asked, stop_after=stop_after
            )
        except EngineDeadError:
            return _error(
                "EngineCore encountered an issue.", HTTPStatus.INTERNAL_SERVER_ERROR, "InternalServerError"
            )
        shape = _Shape(name, chat=chat)
        if body.get("stream"):
            usage = bool((body.get("stream_options") or {}).get("include_usage"))
            stream = self._stream(http, request, shape, words, include_usage=usage)
            return HttpResponse(content_type="text/event-stream; charset=utf-8", stream=stream)
        return await self._whole(http, request, shape, words)

    def _words(self) -> list[str]:
        first, *rest = self._parameters.answer.split()
        return [first, *(f" {word}" for word in rest)]

    async def _whole(
        self, http: HttpRequest, request: Request, shape: _Shape, words: list[str]
    ) -> HttpResponse:
        text = []
        async for index in self._engine.tokens(request):
            text.append(words[index % len(words)])
            if http.gone():
                self._engine.abort(request)
        if request.finish_reason == "error":
            return _error(
                "EngineCore encountered an issue.", HTTPStatus.INTERNAL_SERVER_ERROR, "InternalServerError"
            )
        return json_response(shape.whole("".join(text), request))

    async def _stream(
        self, http: HttpRequest, request: Request, shape: _Shape, words: list[str], *, include_usage: bool
    ) -> AsyncGenerator[bytes, None]:
        faults = self._engine.faults
        if shape.chat:
            yield _event(shape.chunk({"role": "assistant", "content": ""}, None))
        try:
            async for index in self._engine.tokens(request):
                if "cut-streams" in faults and index >= faults.number("cut-streams", "tokens", 1):
                    raise StreamCutError
                if http.gone():
                    return
                last = request.finish_reason if index + 1 == request.generated else None
                yield _event(shape.chunk({"content": words[index % len(words)]}, last))
            if request.finish_reason == "error":
                yield _event({"error": {"message": "EngineCore encountered an issue.", "type": "InternalServerError",
                                        "param": None, "code": 500}})  # fmt: skip
            if include_usage:
                yield _event({**shape.frame("chunk"), "choices": [], "usage": _usage(request)})
            yield b"data: [DONE]\n\n"
        finally:
            self._engine.abort(request)


class _Shape:
    """JSON of one answer, for chat or for completions."""

    def __init__(self, model: str, *, chat: bool) -> None:
        self.chat = chat
        self._model = model
        self._id = f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}"
        self._created = int(time.time())

    def frame(self, kind: str) -> dict[str, Any]:
        objects = {"whole": "chat.completion", "chunk": "chat.completion.chunk"}
        name = objects[kind] if self.chat else "text_completion"
        return {"id": self._id, "object": name, "created": self._created, "model": self._model}

    def whole(self, text: str, request: Request) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": request.finish_reason}
        choice |= {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        return {**self.frame("whole"), "choices": [choice], "usage": _usage(request)}

    def chunk(self, delta: dict[str, str], finish_reason: str | None) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": finish_reason}
        choice |= {"delta": delta} if self.chat else {"text": delta.get("content", "")}
        return {**self.frame("chunk"), "choices": [choice]}


def _usage(request: Request) -> dict[str, Any]:
    return {
        "prompt_tokens": request.prompt_tokens,
        "completion_tokens": request.generated,
        "total_tokens": request.prompt_tokens + request.generated,
        "prompt_tokens_details": None,
    }


def _event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _error(message: str, status: int, kind: str = "BadRequestError") -> HttpResponse:
    return json_response(
        {"error": {"message": message, "type": kind, "param": None, "code": int(status)}}, status
    )


def _prompt_tokens(body: dict[str, Any], *, chat: bool) -> int:
    """A word is a token; a list of numbers is its length. Real tokenizers differ, the arithmetic does not."""
    if chat:
        return sum(4 + len(str(message.get("content", "")).split()) for message in body.get("messages", []))
    prompt = body.get("prompt", "")
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], int):
        return len(prompt)
    return max(1, len(str(prompt).split()))
