"""All peers by name, with what a user of each would have to give it for this service."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from llmservice_operator.perfmodel.open_loop import Lengths, max_rate_within
from llmservice_operator.perfmodel.speed import SpeedModel
from llmservice_operator.simulation.observation import Policy
from llmservice_operator.simulation.peers.aibrix import Aibrix
from llmservice_operator.simulation.peers.dynamo import Dynamo
from llmservice_operator.simulation.peers.hpa import HpaPods, Static, production_stack
from llmservice_operator.simulation.peers.in_flight import KubeAi, RayServe
from llmservice_operator.simulation.peers.knative import Knative
from llmservice_operator.simulation.peers.llmd import EppQueue, SloAware, TokenAware
from llmservice_operator.simulation.peers.wva import WvaV1, WvaV2

QUEUE_TARGET = 5.0
"""Waiting requests a pod: production-stack's threshold, since an HPA has no default of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A service as peers want it described: objectives, and what a replica was measured to do."""

    ttft_seconds: float
    tpot_seconds: float
    static_replicas: int
    idle_ttft_seconds: float
    """Of a prompt of the usual length on an idle replica."""
    prefill_tokens_per_second: float
    engine_requests_per_second: float
    """Of one replica within the objectives."""
    pool_tokens: float
    token_budget: int
    max_num_seqs: int


def profile(
    model: SpeedModel, *, ttft_seconds: float, tpot_seconds: float, lengths: Lengths, static_replicas: int
) -> Profile:
    """What profiling a replica on an idle machine would say; raises ValueError for a cache without a size."""
    pool = model.case.kv_cache_tokens
    if pool is None:
        raise ValueError("kv_cache_tokens is needed")
    rate = max_rate_within(
        model, ttft_p95_seconds=ttft_seconds, tpot_p95_seconds=tpot_seconds, lengths=lengths
    )
    if rate <= 0:
        raise ValueError(f"no replica attains {ttft_seconds} s and {tpot_seconds} s")
    prompt = max(lengths.input_p50, 1024)
    return Profile(
        ttft_seconds=ttft_seconds,
        tpot_seconds=tpot_seconds,
        static_replicas=static_replicas,
        idle_ttft_seconds=model.prefill_seconds(lengths.input_p50),
        prefill_tokens_per_second=prompt / model.prefill_seconds(prompt),
        engine_requests_per_second=rate,
        pool_tokens=float(pool),
        token_budget=model.case.max_num_batched_tokens,
        max_num_seqs=model.case.max_num_seqs,
    )


PEERS: Mapping[str, Callable[[Profile], Policy]] = {
    "static": lambda of: Static(of.static_replicas),
    "hpa-queue": lambda _: HpaPods(target=QUEUE_TARGET),
    "keda-production-stack": lambda _: production_stack(),
    "llm-d-queue": lambda _: EppQueue(),
    "llm-d-token": lambda of: TokenAware(of.prefill_tokens_per_second),
    "llm-d-slo": lambda of: SloAware(of.ttft_seconds, of.tpot_seconds),
    "llm-d-slo-predicted": lambda of: SloAware(
        of.ttft_seconds,
        of.tpot_seconds,
        idle_ttft_seconds=of.idle_ttft_seconds,
        name="llm-d-slo-predicted",
    ),
    "wva-v1": lambda _: WvaV1(),
    "wva-v2": lambda of: WvaV2(
        pool_tokens=of.pool_tokens, token_budget=of.token_budget, max_num_seqs=of.max_num_seqs
    ),
    "knative-kpa": lambda _: Knative(),
    "aibrix-kpa": lambda _: Aibrix(multiplies=False, name="aibrix-kpa"),
    "aibrix-apa": lambda _: Aibrix(multiplies=True, name="aibrix-apa"),
    "dynamo": lambda of: Dynamo(
        engine_requests_per_second=of.engine_requests_per_second,
        prefill_tokens_per_second=of.prefill_tokens_per_second,
        ttft_seconds=of.ttft_seconds,
        tpot_seconds=of.tpot_seconds,
    ),
    "kubeai": lambda _: KubeAi(),
    "ray-serve": lambda _: RayServe(),
}
"""Each call makes a rule without memory."""
