"""One run of the fake engine: parse, bind, start, serve, stop."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence

from vllm.fake import arguments as command_line
from vllm.fake import faults as fault_texts
from vllm.fake import model as models
from vllm.fake import parameters as settings
from vllm.fake import startup
from vllm.fake.api import Api
from vllm.fake.arguments import Arguments
from vllm.fake.engine import Engine
from vllm.fake.faults import Faults
from vllm.fake.http_server import HttpRequest, HttpResponse, serve_connection
from vllm.fake.logs import Log, traceback
from vllm.fake.metrics import Metrics
from vllm.fake.parameters import Parameters

_BACKLOG = 2048
_CPU_MAX_NUM_SEQS, _CUDA_MAX_NUM_SEQS = 128, 1024
_DEAD_SECONDS = 0.2  # the real one's watchdog looks every 5 s


def main(words: Sequence[str]) -> int:
    """The exit code that vLLM would give."""
    arguments = command_line.parse(words)
    parameters = settings.read(os.environ)
    faults = fault_texts.parse(os.environ.get("FAKE_ENGINE_FAULT", ""))
    api = Log("APIServer")
    api.info("entry.py:88", f"vLLM API server version {parameters.version}, serving model {arguments.model}")
    if "ignore-sigterm" in faults:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, _terminated)
    try:
        listener = _bind(arguments)
    except OSError as error:
        api.raw(traceback(f"OSError: [Errno {error.errno}] {error.strerror}"))
        return 1
    worker = _fork_worker() if parameters.worker_process else None
    core = Log("EngineCore", worker)
    try:
        space = os.environ.get("VLLM_CPU_KVCACHE_SPACE")
        model = models.resolve(arguments, parameters, int(space) if space else None)
        startup.run(startup.Start(arguments, parameters, model, faults, api, core))
    except models.ModelError as error:
        api.raw(traceback(f"ValueError: {error}"))
        return 1
    except startup.StartError as error:
        startup.report_failure(api, core, str(error))
        return 1
    except KeyboardInterrupt:
        api.raw(traceback("KeyboardInterrupt: terminated"))
        return 1
    if "never-ready" in faults:
        _sleep_for_ever()
    return asyncio.run(_Server(arguments, parameters, model, faults, listener=listener).serve())


def _terminated(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt("terminated")


def _sleep_for_ever() -> None:
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        sys.exit(1)


def _bind(arguments: Arguments) -> socket.socket:
    """Bound before anything is loaded, listening only at the end: until then connections are refused."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((arguments.host, arguments.port))
    return listener


def _fork_worker() -> int:
    """A process that lives until it is told to end, as EngineCore would if its parent is killed."""
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        while True:
            signal.pause()
    return pid


class _Server:
    """Serving: the engine's steps, the HTTP side, and the ends."""

    def __init__(
        self,
        arguments: Arguments,
        parameters: Parameters,
        model: models.Model,
        faults: Faults,
        *,
        listener: socket.socket,
    ) -> None:
        self._arguments, self._parameters, self._faults = arguments, parameters, faults
        self._log = Log("APIServer")
        self._listener = listener
        self._metrics = Metrics(arguments.served_names[0], model.max_model_len)
        default = _CPU_MAX_NUM_SEQS if parameters.device == "cpu" else _CUDA_MAX_NUM_SEQS
        self._engine = Engine(
            parameters,
            faults,
            self._metrics,
            max_num_seqs=arguments.max_num_seqs or default,
            kv_cache_tokens=model.kv_cache_tokens,
            token_budget=arguments.max_num_batched_tokens,
            counts_bytes=arguments.enable_mfu_metrics,
        )
        self._api = Api(arguments, parameters, model, self._engine, self._metrics)
        self._stop = asyncio.Event()
        self._code = 0

    async def serve(self) -> int:
        loop = asyncio.get_running_loop()
        if "ignore-sigterm" not in self._faults:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._stop.set)
        server = await asyncio.start_server(
            self._connection, sock=self._listener, backlog=_BACKLOG, limit=64 * 1024
        )
        self._engine.on_progress = self._progress
        steps = asyncio.create_task(self._engine.run())
        self._arm_timers(loop)
        self._log.info("on.py:62", "Application startup complete.")
        await self._stop.wait()
        if not self._engine.dead:
            await self._shut_down()
        steps.cancel()
        server.close()
        sys.stdout.flush()
        # The real process ends without waiting for its connections; open streams break off.
        os._exit(self._code)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await serve_connection(reader, writer, self._handle)

    async def _handle(self, request: HttpRequest) -> HttpResponse:
        return await self._api.handle(request)

    def _arm_timers(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._faults.has("exit-zero", "after"):
            loop.call_later(
                self._faults.number("exit-zero", "after", 0), self._die, "RuntimeError: fake fault"
            )
        if self._faults.has("sigkill", "after"):
            loop.call_later(self._faults.number("sigkill", "after", 0), os.kill, os.getpid(), signal.SIGKILL)
        if self._faults.text("die", "step", "") == "serving":
            loop.call_later(
                self._faults.number("die", "after", 0), os._exit, int(self._faults.number("die", "code", 1))
            )

    def _progress(self) -> None:
        """After each step: the faults that count requests."""
        faults, done = self._engine.faults, self._engine.finished_requests
        if (faults.has("exit-zero", "requests") and done >= faults.number("exit-zero", "requests", 1)) or (
            "exit-zero" in faults and not faults.by_name["exit-zero"]
        ):
            self._die("RuntimeError: fake fault")
        elif "oom-serving" in faults and done >= faults.number("oom-serving", "requests", 1):
            self._die("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.")
        elif "sigkill" in faults and not faults.by_name["sigkill"]:
            os.kill(os.getpid(), signal.SIGKILL)

    def _die(self, cause: str) -> None:
        """The core dies: /health 503, then the API server ends with exit code 0."""
        if self._engine.dead:
            return
        self._log.error("core.py:1590", "EngineCore encountered a fatal error.\n" + traceback(cause))
        self._log.error("async_llm.py:740", "AsyncLLM output_handler failed.\n" + traceback(
            "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace "
            "(above) for the root cause."
        ))  # fmt: skip
        self._engine.die()
        asyncio.get_running_loop().call_later(_DEAD_SECONDS, self._stop.set)

    async def _shut_down(self) -> None:
        """VLLM 0.32: with a timeout running work completes and new work gets 500; without one all stops "
        "at once.
        """
        timeout = self._arguments.shutdown_timeout
        self._log.info("launcher.py:262", "[shutdown] API server: shutdown triggered")
        mode = "drain" if timeout else "abort"
        self._log.info("core.py:1703", f"[shutdown] EngineCore: start mode={mode} timeout={timeout:g}s")
        self._engine.rejecting = True
        if not timeout:
            self._engine.abort_all()
            return
        deadline = time.monotonic() + timeout
        while (self._engine.running or self._engine.waiting) and time.monotonic() < deadline:
            await self._engine.next_step(deadline - time.monotonic())
        await asyncio.sleep(0.05)  # the last chunks on their way
