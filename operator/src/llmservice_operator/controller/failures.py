"""How an engine's end is told: the reason, the words with the mend, and whether waiting may help. Pure."""

from llmservice_operator.api.conditions import Reason
from llmservice_operator.clients.engine import EngineFailure

PLANNED_MEMORY_CLASSES: frozenset[str] = frozenset({Reason.KV_CACHE_TOO_SMALL, Reason.OUT_OF_MEMORY})
"""Those that are the plan's own: the same start would end the same way."""
MEMORY_CLASSES: frozenset[str] = PLANNED_MEMORY_CLASSES | {Reason.DEVICE_NOT_EMPTY}
"""A start that ended in one of these is counted, and the plan may be corrected from it."""


def memory_classes(*, limited: bool) -> frozenset[str]:
    """The same for a plan that limits the container's memory too: then the kernel's kill is the plan's own."""
    return MEMORY_CLASSES | {Reason.HOST_OUT_OF_MEMORY} if limited else MEMORY_CLASSES


def planned_memory_classes(*, limited: bool) -> frozenset[str]:
    """Those that are the plan's own."""
    return memory_classes(limited=limited) - {Reason.DEVICE_NOT_EMPTY}


LOOP_RESTARTS = 3
"""After so many restarts without a ready engine it is a loop, and a person is asked for."""

# The supervisor's own words for WrongAccelerator and EngineNotFound end with the mend.
_MENDS: dict[str, str] = {
    Reason.KV_CACHE_TOO_SMALL: "lower spec.workload.context.max or spec.workload.concurrency.min, "
    "or allow an accelerator with more memory",
    Reason.OUT_OF_MEMORY: "lower spec.workload.context.max, or allow an accelerator with more memory",
    Reason.DEVICE_NOT_EMPTY: "stop what else uses the accelerator on that node",
    Reason.MODEL_NOT_FOUND: "correct spec.model.uri or spec.model.revision, or put the model there",
    Reason.MODEL_ACCESS_DENIED: "name a Secret with a token that has access in spec.model.tokenSecret",
    Reason.MODEL_INVALID: "check the model's files and spec.engine.version",
    Reason.DISK_FULL: "give spec.model.cache a larger volume",
    Reason.BAD_FLAG: "correct spec.engine.args",
    Reason.PORT_IN_USE: "remove what listens on the engine's port, such as an extra flag or host networking",
    Reason.SHARED_MEMORY_TOO_SMALL: "raise the pod's memory in spec.podTemplate.resources",
    Reason.HOST_OUT_OF_MEMORY: "raise the memory in spec.podTemplate.resources",
    Reason.START_TIMEOUT: "check how fast the weights can be read; a cache in spec.model.cache helps",
}

_UNMENDED_BY_RESTART: frozenset[str] = frozenset(
    {
        Reason.MODEL_NOT_FOUND,
        Reason.MODEL_ACCESS_DENIED,
        Reason.MODEL_INVALID,
        Reason.DISK_FULL,
        Reason.BAD_FLAG,
        Reason.PORT_IN_USE,
        Reason.SHARED_MEMORY_TOO_SMALL,
        Reason.WRONG_ACCELERATOR,
        Reason.ENGINE_NOT_FOUND,
    }
)
"""The same start ends the same way: a person is asked for at once."""

_VAGUE: frozenset[str] = frozenset({Reason.ENGINE_DIED, Reason.SIGNAL, Reason.UNKNOWN})
"""Classes that say little: again and again, `CrashLooping` says more."""


def reason_of(failure: EngineFailure, restarts: int) -> str:
    """The condition's reason after so many restarts."""
    vague = failure.failure_class in _VAGUE
    return Reason.CRASH_LOOPING if vague and restarts >= LOOP_RESTARTS else failure.failure_class


def needs_person(failure: EngineFailure, restarts: int) -> bool:
    """Whether restarting alone will not help. Memory failures of unproven plans are decided elsewhere."""
    return failure.failure_class in _UNMENDED_BY_RESTART or restarts >= LOOP_RESTARTS


def message_of(failure: EngineFailure, restarts: int) -> str:
    """The engine's own words, where it ended, and the mend.

    The restart count is left to its field in the status, or the message would change with every restart.
    """
    where = f" in {failure.stage}" if failure.stage else ""
    looping = " again and again" if restarts >= LOOP_RESTARTS else ""
    exit_words = "" if failure.exit_code is None else f", exit code {failure.exit_code}"
    words = failure.message.strip() or "no words"
    mend = _MENDS.get(failure.failure_class)
    head = f"the engine ended{looping}{where} ({failure.failure_class}{exit_words}): {words}"
    return f"{head}; {mend}" if mend else head
