"""Objects as the API server shows them, and reports as supervisors give them, each with overrides."""

import json
from datetime import UTC, datetime
from typing import Any

NOW = 1_790_000_000.0
"""The time of every test that is told one: 2026-09-21T14:13:20Z."""
REVISION = "chat-0123456789"
Object = dict[str, Any]
TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
"""The shapes of SmolLM2-135M-Instruct: what a plan needs of its config.json."""


def at(seconds: float) -> str:
    """Kubernetes' text of a time, in seconds from NOW."""
    return datetime.fromtimestamp(NOW + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(kind: str, status: str, *, since: float = -5, **fields: Any) -> Object:
    """A pod's condition, which became so `since` seconds from NOW."""
    return {"type": kind, "status": status, "lastTransitionTime": at(since), **fields}


def container_status(name: str, *, restarts: int = 0, last: Object | None = None, **fields: Any) -> Object:
    """A container's status: `state` is given as fields, such as `waiting={...}`."""
    state = {key: fields.pop(key) for key in ("waiting", "running", "terminated") if key in fields}
    return {
        "name": name,
        "restartCount": restarts,
        "state": state,
        "lastState": {"terminated": last} if last is not None else {},
        "ready": False,
        "started": False,
        **fields,
    }


def terminated(*, exit_code: int = 1, finished: float = -3, **fields: Any) -> Object:
    """A container's end."""
    return {"exitCode": exit_code, "reason": "Error", "finishedAt": at(finished), **fields}


def pod(
    *,
    name: str = "chat-7d9c-abcde",
    revision: str = REVISION,
    scheduled: bool = True,
    init: Object | None = None,
    engine: Object | None = None,
    ready: bool = False,
    phase: str = "Running",
    conditions: tuple[Object, ...] = (),
    service: str = "chat",
    created: float = -60,
    deleted: float | None = None,
    **status: Any,
) -> Object:
    """A pod of the service; without `engine`, its engine's container waits to be made."""
    metadata: Object = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-{name}",
        "labels": {"llmservice.dev/service": service, "llmservice.dev/revision": revision},
        "creationTimestamp": at(created),
    }
    if deleted is not None:
        metadata["deletionTimestamp"] = at(deleted)
    given = {each["type"] for each in conditions}
    usual = (
        condition("PodScheduled", "True"),
        condition("Ready", "True" if ready else "False"),
    )
    waiting = {"reason": "PodInitializing"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"nodeName": "node-1"} if scheduled else {},
        "status": {
            "phase": phase,
            "podIP": "10.0.0.7",
            "conditions": [*conditions, *(each for each in usual if each["type"] not in given)],
            "initContainerStatuses": [init or container_status("supervisor", waiting=waiting)],
            "containerStatuses": [engine or container_status("engine", waiting=waiting)],
            **status,
        },
    }


INIT_DONE = container_status("supervisor", terminated=terminated(exit_code=0))


def running_pod(*, ready: bool = False, started: bool = False, **fields: Any) -> Object:
    """A pod whose engine's container runs."""
    engine = container_status(
        "engine",
        running={"startedAt": at(-30)},
        started=started or ready,
        ready=ready,
        restarts=fields.pop("restarts", 0),
        last=fields.pop("last", None),
    )
    return pod(init=INIT_DONE, engine=engine, ready=ready, **fields)


def crashed_pod(message: str, *, restarts: int = 0, exit_code: int = 1, **fields: Any) -> Object:
    """A pod whose engine's container has ended and waits for its next start."""
    engine = container_status(
        "engine",
        waiting={"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"},
        last=terminated(exit_code=exit_code, message=message, **fields.pop("last", {})),
        restarts=restarts,
    )
    return pod(init=INIT_DONE, engine=engine, **fields)


def failure(failure_class: str = "KvCacheTooSmall", **fields: Any) -> Object:
    """The supervisor's `failure`."""
    return {
        "class": failure_class,
        "message": "To serve at least one request with the model's max seq len (32768), 4.0 GiB KV cache is needed",
        "stage": "profile",
        "exitCode": 1,
        "signal": None,
        "estimatedMaxModelLen": None,
        "kvCacheNeededBytes": None,
        "kvCacheAvailableBytes": None,
        **fields,
    }


def termination_message(failure_class: str, **fields: Any) -> str:
    """What the supervisor leaves behind."""
    identity = {"schema": 1, "service": "default/chat", "revision": REVISION}
    return json.dumps({**identity, **failure(failure_class, **fields)})


def report(**fields: Any) -> Object:
    """The supervisor's /report, of an engine that is loading unless told otherwise."""
    return {
        "schema": 1,
        "service": "default/chat",
        "revision": REVISION,
        "supervisorVersion": "0.1.0",
        "engine": {"name": "vllm", "version": "0.32.0", "versionKnown": True},
        "phase": "Starting",
        "startedAt": NOW - 30,
        "readyAt": None,
        "startup": {
            "step": "load",
            "steps": [{"name": "import", "seconds": 12.1}],
            "weights": {
                "totalBytes": 16 * 2**30,
                "loadedBytes": 4 * 2**30,
                "bytesPerSecond": 256.0 * 2**20,
                "secondsLeft": 48.0,
            },
        },
        "memory": {"totalBytes": None, "weightsBytes": None},
        "devices": [{"name": "NVIDIA H200", "memoryBytes": 150_109_159_424}],
        "failure": None,
        **fields,
    }
