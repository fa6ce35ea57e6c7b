"""Ten settings of each peer, of the one or two numbers that its users turn. The default is not always among them."""

from collections.abc import Callable, Mapping, Sequence

from llmservice_operator.simulation.observation import Policy
from llmservice_operator.simulation.peers.aibrix import Aibrix
from llmservice_operator.simulation.peers.dynamo import Dynamo
from llmservice_operator.simulation.peers.hpa import HpaPods, Keda, Static
from llmservice_operator.simulation.peers.in_flight import KubeAi, RayServe
from llmservice_operator.simulation.peers.knative import Knative
from llmservice_operator.simulation.peers.llmd import EppQueue, SloAware, TokenAware
from llmservice_operator.simulation.peers.registry import Profile
from llmservice_operator.simulation.peers.wva import WvaV1, WvaV2

Setting = tuple[float, ...]
REQUESTS = (2, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""In flight on a replica."""
WAITING = (0.25, 0.5, 1, 2, 3, 5, 8, 12, 20, 40)
BANDS = tuple((up / 20, up / 20 - 0.15) for up in (4, 5, 6, 7, 8, 9, 11, 13, 15, 18))
"""Shares of the objective: above the one more, below the other fewer."""
KV_SHARES = (0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8)

GRIDS: Mapping[str, tuple[Sequence[float | Setting], Callable[..., Policy]]] = {
    "static": (tuple(range(3, 13)), lambda _, n: Static(int(n))),
    "hpa-queue": (WAITING, lambda _, target: HpaPods(target=target)),
    "keda-production-stack": (
        WAITING,
        lambda _, target: Keda(
            query=lambda seen: seen.total("waiting"), threshold=target, name="keda-production-stack"
        ),
    ),
    "llm-d-queue": (REQUESTS, lambda _, target: EppQueue(running_target=target)),
    "llm-d-token": (
        (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.8, 1.5, 3.0),
        lambda of, seconds: TokenAware(of.prefill_tokens_per_second, budget_seconds=seconds),
    ),
    "llm-d-slo": (
        BANDS,
        lambda of, up, down: SloAware(of.ttft_seconds, of.tpot_seconds, up=up, down=down),
    ),
    "llm-d-slo-predicted": (
        BANDS,
        lambda of, up, down: SloAware(
            of.ttft_seconds,
            of.tpot_seconds,
            up=up,
            down=down,
            idle_ttft_seconds=of.idle_ttft_seconds,
            name="llm-d-slo-predicted",
        ),
    ),
    "wva-v1": ((0.11, 0.12, 0.13, 0.15, 0.17, 0.2, 0.3, 0.4, 0.6, 0.8), lambda _, kv: WvaV1(kv_threshold=kv)),
    "wva-v2": (
        tuple((up, up - 0.15) for up in (0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.85, 0.95)),
        lambda of, up, down: WvaV2(
            pool_tokens=of.pool_tokens,
            token_budget=of.token_budget,
            max_num_seqs=of.max_num_seqs,
            up_share=up,
            down_share=down,
        ),
    ),
    "knative-kpa": (REQUESTS, lambda _, target: Knative(concurrency=target)),
    "aibrix-kpa": (KV_SHARES, lambda _, kv: Aibrix(multiplies=False, name="aibrix-kpa", target=kv)),
    "aibrix-apa": (KV_SHARES, lambda _, kv: Aibrix(multiplies=True, name="aibrix-apa", target=kv)),
    "dynamo": (
        (0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.9, 1.1),
        lambda of, share: Dynamo(
            engine_requests_per_second=share * of.engine_requests_per_second,
            prefill_tokens_per_second=of.prefill_tokens_per_second,
            ttft_seconds=of.ttft_seconds,
            tpot_seconds=of.tpot_seconds,
        ),
    ),
    "kubeai": (REQUESTS, lambda _, target: KubeAi(target_requests=target)),
    "ray-serve": (REQUESTS, lambda _, target: RayServe(target_ongoing_requests=target)),
}
"""Peer: its settings, and the rule of a profile with one."""


def tuned_rule(peer: str, setting: float | Setting, profile: Profile) -> Policy:
    """One without memory."""
    numbers = setting if isinstance(setting, tuple) else (setting,)
    return GRIDS[peer][1](profile, *numbers)
