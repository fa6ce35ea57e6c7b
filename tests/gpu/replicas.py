"""What a Deployment and a kubelet do for a service, on one machine: an engine under the supervisor on each GPU.

A replica is asked for readiness as a kubelet asks it, gets SIGTERM when it is to go, finishes what it has, and is gone
when its process is. The newest goes first, one that isn't ready before one that is.
"""

import asyncio
import json
import math
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from gpu import starts
from llmservice_operator.controller.autoscale_subject import EnginePod, Role

FIRST_SUPERVISOR_PORT, FIRST_ENGINE_PORT = 9410, 8000
LOOK_SECONDS = 2.0
MOST_FAILED = 2


@dataclass(slots=True)
class Replica:
    """One engine from its launch to its end. Times are seconds since the Unix epoch."""

    name: str
    gpu: int
    process: "subprocess.Popen[bytes]"
    created_at: float
    role: Role = Role.STARTING
    ready_since: float | None = None

    @property
    def host(self) -> str:
        """An address of its own, as a pod has: all of 127.0.0.0/8 is this machine."""
        return f"127.0.0.{self.gpu + 1}"

    @property
    def engine_port(self) -> int:
        return FIRST_ENGINE_PORT + self.gpu

    @property
    def supervisor_port(self) -> int:
        return FIRST_SUPERVISOR_PORT + self.gpu

    def pod(self) -> EnginePod:
        """As the autoscaler sees it; Kubernetes' times are whole seconds."""
        return EnginePod(
            name=self.name,
            role=self.role,
            host=self.host,
            incarnation=f"{self.name}/0",
            created_at=float(math.floor(self.created_at)),
            ready_since=None if self.ready_since is None else float(math.floor(self.ready_since)),
        )


@dataclass(slots=True)
class Replicas:
    """All engines of one service. `tell` is given each event: launched, ready, leaving, gone, failed."""

    case: Mapping[str, Any]
    supervisor: Path
    out: Path
    gpus: int
    tell: Callable[[dict[str, Any]], None]
    wanted: int = 0
    running: list[Replica] = field(default_factory=list)
    _made: int = 0
    _failed: int = 0

    def scale(self, wanted: int) -> None:
        """Have so many, by starting and stopping. One that finds no free GPU is tried again by the next call."""
        self.wanted = wanted
        staying = [each for each in self.running if each.role is not Role.LEAVING]
        for replica in sorted(staying, key=lambda each: (each.role is Role.READY, -each.created_at)):
            if len(staying) <= wanted:
                break
            staying.remove(replica)
            self._leave(replica)
        while len(staying) < wanted and (free := self._free_gpu()) is not None:
            staying.append(self._launch(free))

    def _free_gpu(self) -> int | None:
        taken = {each.gpu for each in self.running}
        return next((gpu for gpu in range(self.gpus) if gpu not in taken), None)

    def _launch(self, gpu: int) -> Replica:
        self._made += 1
        name = f"{self.case['name']}-{self._made}"
        ports = (FIRST_SUPERVISOR_PORT + gpu, FIRST_ENGINE_PORT + gpu)
        environ = {**self.case.get("env", {}), "CUDA_VISIBLE_DEVICES": str(gpu)}
        case = {**self.case, "name": name, "env": environ}
        replica = Replica(name, gpu, starts.start(case, self.supervisor, self.out, ports), time.time())
        self.running.append(replica)
        self._told(replica, "launched", gpu=gpu)
        return replica

    def _leave(self, replica: Replica) -> None:
        replica.role = Role.LEAVING
        replica.process.terminate()
        self._told(replica, "leaving")

    async def look(self, session: aiohttp.ClientSession) -> bool:
        """Take in how all are now; whether anything changed.

        Raises RuntimeError where starts fail: on a lent machine each costs minutes.
        """
        answers = await asyncio.gather(*(self._is_ready(session, each) for each in self.running))
        changed = False
        for replica, is_ready in zip(list(self.running), answers, strict=True):
            code = replica.process.poll()
            if code is not None:
                self.running.remove(replica)
                self._told(replica, "gone" if replica.role is Role.LEAVING else "failed", exit_code=code)
                changed = True
                if replica.ready_since is None and replica.role is not Role.LEAVING:
                    self._failed += 1
                    if self._failed == MOST_FAILED:
                        raise RuntimeError(f"{replica.name} ended with {code} before it was ready")
            elif is_ready and replica.role is Role.STARTING:
                replica.role, replica.ready_since = Role.READY, time.time()
                report = json.loads(await self._text(session, replica, "/report") or "null")
                self._told(
                    replica,
                    "ready",
                    seconds=round(replica.ready_since - replica.created_at, 1),
                    report=report,
                )
                changed = True
        return changed

    async def _is_ready(self, session: aiohttp.ClientSession, replica: Replica) -> bool:
        return replica.role is not Role.LEAVING and await self._text(session, replica, "/ready") is not None

    async def _text(self, session: aiohttp.ClientSession, replica: Replica, path: str) -> str | None:
        url = f"http://{replica.host}:{replica.supervisor_port}{path}"
        try:
            async with session.get(url, timeout=aiohttp.ClientTimeout(total=LOOK_SECONDS)) as answer:
                return await answer.text() if answer.status == 200 else None
        except (TimeoutError, aiohttp.ClientError):
            return None

    def _told(self, replica: Replica, event: str, **more: Any) -> None:
        self.tell({"at": round(time.time(), 2), "replica": replica.name, "event": event, **more})

    def addresses(self) -> dict[str, str]:
        """Name → URL of each that may be sent requests."""
        ready = [each for each in self.running if each.role is Role.READY]
        return {each.name: f"http://{each.host}:{each.engine_port}" for each in ready}

    def end(self) -> None:
        """Terminate all, then kill."""
        for replica in self.running:
            replica.process.terminate()
        for replica in self.running:
            self._told(replica, "ended", exit_code=starts.end(replica.process))
