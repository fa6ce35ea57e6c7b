"""vLLM: its command line."""

from collections.abc import Iterator, Mapping

from llmservice_operator.api.reserved import FLAG_ALIASES, RESERVED_ARGS, RESERVED_ENV
from llmservice_operator.api.spec import LLMServiceSpec
from llmservice_operator.engines import versions
from llmservice_operator.engines.base import Named, Planned, PlannedKnobs
from llmservice_operator.errors import InvalidInputError

__all__ = ["FLAG_ALIASES", "RESERVED_ARGS", "RESERVED_ENV", "VllmEngine", "resolve_model_path"]

PORT = 8000
MODELS_MOUNT_PATH = "/models"
PROBED_ENDPOINTS = "/health,/metrics,/load"
"""What the supervisor reads, again and again: a line of log for each reading would bury the others."""
STOP_DRAIN_SECONDS = 5
"""What the engine itself may still finish after SIGTERM: the supervisor has drained it by then."""


def resolve_model_path(uri: str) -> str:
    """What the engine is told to load.

    `hf://org/name` → `org/name`, `pvc://claim/path` → `/models/claim/path`, `file:///path` → `/path`. Raises
    InvalidInputError for other schemes.
    """
    scheme, separator, rest = uri.partition("://")
    path = rest.rstrip("/")
    if separator and path:
        match scheme:
            case "hf":
                return path
            case "pvc":
                return f"{MODELS_MOUNT_PATH}/{path}"
            case "file":
                return "/" + path.lstrip("/")
            case _:
                pass
    raise InvalidInputError(
        f"spec.model.uri is {uri[:128]!r}: write hf://org/name, pvc://claim/path or file:///path"
    )


class VllmEngine:
    """vLLM's OpenAI-compatible server."""

    def default_command(self) -> tuple[str, ...]:
        """The module, not the console script: the latter fails in the CPU package of vLLM 0.32.0."""
        return ("python3", "-m", "vllm.entrypoints.openai.api_server")

    def arguments(self, spec: LLMServiceSpec, plan: Planned, identity: Named) -> tuple[str, ...]:
        """The whole argument list after the command: the plan's flags, then the user's own in order of name.

        The API key isn't among them: it reaches the engine as VLLM_API_KEY from its Secret.
        """
        return tuple(_flags(spec, plan, identity))

    def version_from_image(self, image: str) -> str:
        """See `versions.version_from_image`."""
        return versions.version_from_image(image)


def _flags(spec: LLMServiceSpec, plan: Planned, identity: Named) -> Iterator[str]:
    yield from ("--model", resolve_model_path(spec.model.uri))
    yield from ("--served-model-name", spec.model.served_name or identity.name)
    yield from ("--host", "0.0.0.0", "--port", str(PORT))  # noqa: S104 - a pod's own network
    if spec.model.uri.startswith("hf://") and spec.model.revision:
        yield from ("--revision", spec.model.revision)
    yield from _knob_flags(plan.knobs)
    if not spec.engine.prefix_caching:
        yield "--no-enable-prefix-caching"
    if spec.engine.quantization != "auto":
        yield from ("--quantization", spec.engine.quantization)
    if versions.has_shutdown_timeout(versions.known_version(plan.engine_version).version):
        yield from ("--shutdown-timeout", str(STOP_DRAIN_SECONDS))
    said = canonical_args(spec.engine.args)
    offered = supervised_args(plan.engine_version).items()
    defaults = [(name, value) for name, value in offered if name not in said]
    for name, value in (*plan.engine_args, *defaults, *sorted(said.items())):
        yield from render_flag(name, value)


def supervised_args(engine_version: str) -> dict[str, str]:
    """Flags by which the supervisor sees more, where this version is known to have them; the user's own go first.

    With the load of the API server it knows of a request before the engine's first step tells of it.
    """
    version = versions.parse_version(engine_version)
    found = {}
    if version is not None and versions.tracks_server_load(version):
        found["enable-server-load-tracking"] = "true"
    if version is not None and versions.leaves_endpoints_out_of_its_log(version):
        found["disable-access-log-for-endpoints"] = PROBED_ENDPOINTS
    return found


def _knob_flags(knobs: PlannedKnobs) -> Iterator[str]:
    yield from ("--max-model-len", str(knobs.max_model_len))
    if knobs.gpu_memory_utilization is not None:
        yield from ("--gpu-memory-utilization", f"{knobs.gpu_memory_utilization:g}")
    yield from ("--max-num-seqs", str(knobs.max_num_seqs))
    yield from ("--max-num-batched-tokens", str(knobs.max_num_batched_tokens))
    if knobs.tensor_parallel_size > 1:
        yield from ("--tensor-parallel-size", str(knobs.tensor_parallel_size))
    if knobs.kv_cache_dtype != "auto":
        yield from ("--kv-cache-dtype", knobs.kv_cache_dtype)
    if knobs.block_size is not None:
        yield from ("--block-size", str(knobs.block_size))


def canonical_args(args: Mapping[str, str]) -> dict[str, str]:
    """The user's flags with dashes for underscores; what follows a dot is a JSON key and stays as it is."""
    canonical = {}
    for name, value in args.items():
        flag, dot, path = name.partition(".")
        canonical[flag.replace("_", "-") + dot + path] = value
    return canonical


def render_flag(name: str, value: str) -> tuple[str, ...]:
    """`true` is a bare switch and `false` its `--no-` form, but not for a key of a JSON flag."""
    if "." not in name and value in {"true", "false"}:
        return (f"--{name}",) if value == "true" else (f"--no-{name}",)
    if value.startswith("-"):
        return (f"--{name}={value}",)
    return (f"--{name}", value)
