"""Engine flags and environment variables that are the operator's to set, and what to use instead.

The flags and their spellings are those of vLLM 0.33.0 (`vllm/engine/arg_utils.py` and
`vllm/entrypoints/common/cli_args.py`) with a few of earlier releases. vLLM's parser takes `_` for `-`, and
any unique beginning of a flag for the whole of it (`vllm/utils/argparse_utils.py`). So a name is compared
after `_` became `-`, and what begins a reserved flag counts as that flag.

The schema's CEL rules are generated from these tables; `validation.py` checks the same offline.
"""

from collections.abc import Mapping
from types import MappingProxyType

_ONE_POD = (
    "a replica is one pod, spread over accelerators by spec.accelerator.parallelism.tensor only; leave it out"
)
_CONTEXT = "set spec.workload.context.max, or hold it at a value with spec.engine.pin.maxModelLen"
_UTILIZATION = "it is planned; hold it at a value with spec.engine.pin.gpuMemoryUtilization"
_HTTP = "probes, metrics and clients reach the engine over plain HTTP on its own port; leave it out"
_TLS = "probes and metrics use plain HTTP inside the pod; end TLS in front of the Service"
_GENERATE = "only models that generate text are served; leave it out"
_PRINTS = "the engine would print a text and end; leave it out"

_RESERVED_ARGS: dict[str, str] = {
    # The model
    "model": "set spec.model.uri",
    "revision": "set spec.model.revision",
    "served-model-name": "set spec.model.servedName",
    "hf-token": "name the Secret in spec.model.tokenSecret",
    "download-dir": "set spec.model.cache",
    "runner": _GENERATE,
    "convert": _GENERATE,
    "task": _GENERATE,
    # What the plan chooses
    "max-model-len": _CONTEXT,
    "gpu-memory-utilization": _UTILIZATION,
    "kv-cache-memory-bytes": _UTILIZATION,
    "num-gpu-blocks-override": _UTILIZATION,
    "max-num-seqs": "it is planned; hold it at a value with spec.engine.pin.maxNumSeqs",
    "max-num-batched-tokens": "it is planned; hold it at a value with spec.engine.pin.maxNumBatchedTokens",
    "block-size": "it is planned; hold it at a value with spec.engine.pin.blockSize",
    "kv-cache-dtype": "set spec.engine.kvCacheDtype",
    "quantization": "set spec.engine.quantization",
    "enable-prefix-caching": "set spec.engine.prefixCaching",
    "device": "set spec.accelerator.types",
    "device-ids": "the node's device plugin gives the devices; set spec.accelerator.types",
    # How a replica is spread
    "tensor-parallel-size": "set spec.accelerator.parallelism.tensor",
    "pipeline-parallel-size": _ONE_POD,
    "decode-context-parallel-size": _ONE_POD,
    "prefill-context-parallel-size": _ONE_POD,
    "data-parallel-size": _ONE_POD,
    "data-parallel-size-local": _ONE_POD,
    "data-parallel-rank": _ONE_POD,
    "data-parallel-start-rank": _ONE_POD,
    "data-parallel-address": _ONE_POD,
    "data-parallel-rpc-port": _ONE_POD,
    "data-parallel-backend": _ONE_POD,
    "data-parallel-hybrid-lb": _ONE_POD,
    "data-parallel-external-lb": _ONE_POD,
    "data-parallel-multi-port-external-lb": _ONE_POD,
    "data-parallel-supervisor-port": _ONE_POD,
    "distributed-executor-backend": _ONE_POD,
    "nnodes": _ONE_POD,
    "node-rank": _ONE_POD,
    "master-addr": _ONE_POD,
    "master-port": _ONE_POD,
    "headless": _ONE_POD,
    # What the supervisor and the Service rely on
    "host": "the engine listens on every address of its pod; leave it out",
    "port": "the engine's port is fixed; clients use spec.service.port",
    "uds": _HTTP,
    "grpc": _HTTP,
    "grpc-port": _HTTP,
    "ssl-keyfile": _TLS,
    "ssl-certfile": _TLS,
    "ssl-ca-certs": _TLS,
    "api-key": "name the Secret in spec.engine.apiKeySecret",
    "shutdown-timeout": "set spec.drain.timeout",
    "disable-log-stats": "it takes the engine's metrics away, which the operator reads; leave it out",
    "config": "write the file's flags into spec.engine.args",
    "help": _PRINTS,
    "version": _PRINTS,
}

RESERVED_ARGS: Mapping[str, str] = MappingProxyType(_RESERVED_ARGS)
"""Canonical flag, without its dashes → what to do instead."""

_FLAG_ALIASES: dict[str, str] = {
    "device-memory-utilization": "gpu-memory-utilization",
    "tp": "tensor-parallel-size",
    "pp": "pipeline-parallel-size",
    "dcp": "decode-context-parallel-size",
    "pcp": "prefill-context-parallel-size",
    "dp": "data-parallel-size",
    "dpl": "data-parallel-size-local",
    "dpn": "data-parallel-rank",
    "dpr": "data-parallel-start-rank",
    "dpa": "data-parallel-address",
    "dpp": "data-parallel-rpc-port",
    "dpb": "data-parallel-backend",
    "dph": "data-parallel-hybrid-lb",
    "dpe": "data-parallel-external-lb",
    "dpm": "data-parallel-multi-port-external-lb",
    "ep": "enable-expert-parallel",
    "q": "quantization",
    "n": "nnodes",
    "r": "node-rank",
    "h": "help",
    "asc": "api-server-count",
    "sc": "speculative-config",
    "dc": "diffusion-config",
    "cc": "compilation-config",
    "ac": "attention-config",
    "O": "optimization-level",
}

FLAG_ALIASES: Mapping[str, str] = MappingProxyType(_FLAG_ALIASES)
"""Every second spelling that vLLM has for a flag → the canonical one. None is taken: a flag has one name."""

FLAG_PATTERN = "^[a-zA-Z][a-zA-Z0-9_-]{0,63}([.][a-zA-Z0-9_.+-]{1,64})?$"
"""A key of spec.engine.args: a flag without its dashes, and a dotted path into a JSON flag."""
FLAG_MEND = "write the flag's name without leading dashes, such as tool-call-parser"

_POD_NETWORK = "the operator sets the engine's addresses; leave it out"
_CACHES = "it is on the service's own volume; set spec.model.cache"
_IDENTITY = "the operator sets it, so that any user id can run the engine; leave it out"
_TOKEN = "name the Secret in spec.model.tokenSecret"  # noqa: S105 - words, not a secret
_DEVICES = "the node's device plugin gives the devices; set spec.accelerator"

_RESERVED_ENV: dict[str, str] = {
    "VLLM_PORT": "it is the engine's internal port, not the one it serves on; clients use spec.service.port",
    "VLLM_HOST_IP": _POD_NETWORK,
    "VLLM_LOOPBACK_IP": _POD_NETWORK,
    "VLLM_API_KEY": "name the Secret in spec.engine.apiKeySecret",
    "VLLM_ENABLE_STARTUP_PLAN": "memory would be sized by an earlier start, not by the plan; leave it out",
    "VLLM_CPU_KVCACHE_SPACE": "it is planned; set spec.podTemplate.resources.limits.memory",
    "VLLM_PP_LAYER_PARTITION": _ONE_POD,
    "VLLM_DP_RANK": _ONE_POD,
    "VLLM_DP_RANK_LOCAL": _ONE_POD,
    "VLLM_DP_SIZE": _ONE_POD,
    "VLLM_DP_MASTER_IP": _ONE_POD,
    "VLLM_DP_MASTER_PORT": _ONE_POD,
    "VLLM_KEEP_ALIVE_ON_ENGINE_DEATH": "the supervisor must see the engine end; leave it out",
    "VLLM_USE_MODELSCOPE": "models come from where spec.model.uri says; leave it out",
    "VLLM_MODEL_REDIRECT_PATH": "models come from where spec.model.uri says; leave it out",
    "HF_TOKEN": _TOKEN,
    "HF_TOKEN_PATH": _TOKEN,
    "HUGGING_FACE_HUB_TOKEN": _TOKEN,
    "HF_ENDPOINT": "the operator's own settings name the hub; leave it out",
    "HF_HOME": _CACHES,
    "HF_HUB_CACHE": _CACHES,
    "HUGGINGFACE_HUB_CACHE": _CACHES,
    "TRANSFORMERS_CACHE": _CACHES,
    "VLLM_CACHE_ROOT": _CACHES,
    "XDG_CACHE_HOME": _CACHES,
    "TORCHINDUCTOR_CACHE_DIR": _CACHES,
    "TRITON_CACHE_DIR": _CACHES,
    "HOME": _IDENTITY,
    "USER": _IDENTITY,
    "CUDA_VISIBLE_DEVICES": _DEVICES,
    "NVIDIA_VISIBLE_DEVICES": _DEVICES,
    "HIP_VISIBLE_DEVICES": _DEVICES,
    "ROCR_VISIBLE_DEVICES": _DEVICES,
}

RESERVED_ENV: Mapping[str, str] = MappingProxyType(_RESERVED_ENV)
"""Environment variable → what to do instead."""

RESERVED_ENV_PREFIX = "LLMSERVICE_"
"""The operator's own variables in the engine's container."""
RESERVED_ENV_PREFIX_MEND = f"names that begin with {RESERVED_ENV_PREFIX} are the operator's; use another name"

NEGATION_PREFIX = "no-"
"""vLLM's form of a switch turned off. Here it is the flag with the value `false`."""


def flag_of_key(key: str) -> str:
    """The flag's name in a key of spec.engine.args: before the first dot, with dashes."""
    return key.split(".", maxsplit=1)[0].replace("_", "-")


def argument_mends() -> tuple[tuple[str, str], ...]:
    """(spelling, what to do instead) of every reserved flag and every alias, in the order of their lengths.

    So the first spelling that a name begins is the name itself where the name is one.
    """
    spellings = {flag: f"--{flag} is not yours to set: {mend}" for flag, mend in RESERVED_ARGS.items()}
    for alias, flag in FLAG_ALIASES.items():
        spellings[alias] = spellings.get(flag, f"write the flag's whole name, {flag}")
    return tuple(sorted(spellings.items(), key=lambda pair: (len(pair[0]), pair[0])))


def argument_mend(key: str) -> str | None:
    """What to do instead of this key of spec.engine.args; None where the key is the user's to use."""
    flag = flag_of_key(key)
    if flag.startswith(NEGATION_PREFIX):
        return f'write {flag.removeprefix(NEGATION_PREFIX)}: "false"'
    return next((mend for spelling, mend in argument_mends() if spelling.startswith(flag)), None)


def environment_mend(name: str) -> str | None:
    """What to do instead of this environment variable; None where the name is the user's to use."""
    if name.startswith(RESERVED_ENV_PREFIX):
        return RESERVED_ENV_PREFIX_MEND
    return RESERVED_ENV.get(name)
