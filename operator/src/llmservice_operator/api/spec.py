"""`spec` of an LLMService: what the user says."""

from typing import Any, Literal

from pydantic import Field

from llmservice_operator.api.base import SpecModel


class SecretKey(SpecModel):
    """One key of a Secret in the service's namespace. The operator never reads it."""

    name: str = ""
    key: str = ""


class CacheCreate(SpecModel):
    """A PersistentVolumeClaim that is made for the model and deleted with the service."""

    size: str
    storage_class_name: str | None = None
    access_mode: Literal["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"] = "ReadWriteOnce"


class CacheEmptyDir(SpecModel):
    """A cache that lives as long as its pod."""

    size_limit: str


class Cache(SpecModel):
    """Where downloaded weights and compiled kernels are kept. One of the fields is set."""

    claim: str | None = None
    create: CacheCreate | None = None
    empty_dir: CacheEmptyDir | None = None
    host_path: str | None = None


class Model(SpecModel):
    """The model, where it comes from and how it is called."""

    uri: str
    revision: str = "main"
    served_name: str | None = None
    config_map: str | None = None
    token_secret: SecretKey | None = None
    cache: Cache | None = None


class EnvVarSource(SpecModel):
    """Where the value of an environment variable comes from. One of the fields is set."""

    secret_key_ref: SecretKey | None = None
    config_map_key_ref: SecretKey | None = None
    field_ref: str | None = None


class EnvVar(SpecModel):
    """An environment variable of the engine."""

    name: str
    value: str | None = None
    value_from: EnvVarSource | None = None


class Pin(SpecModel):
    """Knobs held at a value; the plan works around them and says what they cost."""

    max_model_len: int | None = None
    gpu_memory_utilization: str | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    block_size: int | None = None


class Engine(SpecModel):
    """The engine that serves the model."""

    name: Literal["vllm"] = "vllm"
    image: str = ""
    version: str = ""
    command: tuple[str, ...] = ()
    quantization: str = "auto"
    kv_cache_dtype: str = "auto"
    prefix_caching: bool = True
    api_key_secret: SecretKey | None = None
    pin: Pin = Field(default_factory=Pin)
    args: dict[str, str] = Field(default_factory=dict)
    env: tuple[EnvVar, ...] = ()


class Parallelism(SpecModel):
    """How one replica is spread over accelerators."""

    tensor: int | Literal["auto"] = "auto"


class Accelerator(SpecModel):
    """What the service may run on."""

    types: tuple[str, ...] = ()
    resource_name: str = ""
    parallelism: Parallelism = Field(default_factory=Parallelism)


class ContextRange(SpecModel):
    """Tokens that one request may hold, prompt and answer together."""

    min: int | None = None
    max: int | None = None


class TokenQuantiles(SpecModel):
    """Quantiles of a length, in tokens."""

    p50: int | None = None
    p95: int | None = None


class Concurrency(SpecModel):
    """Requests at p95 length that one replica must hold in KV memory."""

    min: int | None = None


class Workload(SpecModel):
    """What the service will be asked for."""

    context: ContextRange = Field(default_factory=ContextRange)
    input_tokens: TokenQuantiles = Field(default_factory=TokenQuantiles)
    output_tokens: TokenQuantiles = Field(default_factory=TokenQuantiles)
    concurrency: Concurrency = Field(default_factory=Concurrency)


class Scaling(SpecModel):
    """Bounds of the number of replicas."""

    min_replicas: int = 1
    max_replicas: int


class Drain(SpecModel):
    """How a replica stops."""

    timeout: str = "5m"


class ServicePort(SpecModel):
    """The Service in front of the replicas."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    port: int = 8000
    annotations: dict[str, str] = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict)


class PodVolume(SpecModel):
    """A volume of the user's, with the path it is mounted at. One source is set."""

    name: str
    mount_path: str
    sub_path: str | None = None
    read_only: bool = True
    claim: str | None = None
    config_map: str | None = None
    secret: str | None = None
    empty_dir: CacheEmptyDir | None = None


class PodTemplate(SpecModel):
    """A closed subset of a pod's fields. Maps and lists marked so are the core API's own shapes."""

    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    node_selector: dict[str, str] = Field(default_factory=dict)
    affinity: dict[str, Any] | None = None
    tolerations: tuple[dict[str, Any], ...] = ()
    priority_class_name: str | None = None
    scheduler_name: str | None = None
    service_account_name: str | None = None
    image_pull_secrets: tuple[str, ...] = ()
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    runtime_class_name: str | None = None
    topology_spread_constraints: tuple[dict[str, Any], ...] = ()
    resources: dict[str, Any] | None = None
    volumes: tuple[PodVolume, ...] = ()
    security_context: dict[str, Any] | None = None


class LLMServiceSpec(SpecModel):
    """What the user says: a model, and what is wanted of it."""

    model: Model
    engine: Engine = Field(default_factory=Engine)
    accelerator: Accelerator = Field(default_factory=Accelerator)
    workload: Workload = Field(default_factory=Workload)
    replicas: int = 1
    scaling: Scaling | None = None
    drain: Drain = Field(default_factory=Drain)
    service: ServicePort = Field(default_factory=ServicePort)
    pod_template: PodTemplate = Field(default_factory=PodTemplate)
