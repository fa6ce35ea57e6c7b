"""Every scaling rule by name, made for a service: the operator's and its peers'."""

from dataclasses import dataclass
from functools import cached_property

from llmservice_operator.autoscaling.capacity import CapacityModel, LengthMix, speed_capacity
from llmservice_operator.autoscaling.decision import Objectives
from llmservice_operator.perfmodel.arrivals import mean_length
from llmservice_operator.perfmodel.open_loop import Lengths
from llmservice_operator.perfmodel.speed import SpeedModel
from llmservice_operator.simulation.observation import Policy
from llmservice_operator.simulation.operator import OperatorPolicy
from llmservice_operator.simulation.peers.registry import PEERS, Profile, profile
from llmservice_operator.simulation.score import Objective

OPERATOR = "operator"
POLICIES = (OPERATOR, *PEERS)


@dataclass(frozen=True, kw_only=True)
class Service:
    """An engine, what its clients are promised, and the lengths that its user expects."""

    speed: SpeedModel
    objective: Objective
    lengths: Lengths
    static_replicas: int
    """Of the rule `static`."""
    start_seconds: float
    """As planned."""

    @cached_property
    def profile(self) -> Profile:
        """What peers are told. Raises ValueError where no replica attains the objective."""
        return profile(
            self.speed,
            ttft_seconds=self.objective.ttft_seconds,
            tpot_seconds=self.objective.tpot_seconds,
            lengths=self.lengths,
            static_replicas=self.static_replicas,
        )

    @cached_property
    def capacity(self) -> CapacityModel:
        """The operator's model of a replica: a table that fills as lengths are asked for."""
        return speed_capacity(
            self.speed,
            ttft_p95_seconds=self.objective.ttft_seconds,
            tpot_p95_seconds=self.objective.tpot_seconds,
            like=self.lengths,
        )

    def policy(self, name: str) -> Policy:
        """One without memory. Raises ValueError for a name that isn't in POLICIES."""
        if name == OPERATOR:
            return self._operator()
        if name not in PEERS:
            raise ValueError(f"{name} is no policy: {', '.join(POLICIES)}")
        return PEERS[name](self.profile)

    def _operator(self) -> OperatorPolicy:
        ttft, tpot, lengths = self.objective.ttft_seconds, self.objective.tpot_seconds, self.lengths
        work = self.speed.timer.work
        return OperatorPolicy(
            capacity=self.capacity,
            expected_mix=LengthMix(
                input_tokens=mean_length(lengths.input_p50, lengths.input_p95),
                output_tokens=mean_length(lengths.output_p50, lengths.output_p95),
            ),
            objectives=Objectives(ttft_p95_seconds=ttft, tpot_p95_seconds=tpot),
            peak_bytes_per_second=self.speed.case.accelerator.memory_bandwidth_bytes_per_second,
            planned_start_seconds=self.start_seconds,
            concurrency_limit=float(self.speed.case.max_num_seqs),
            weights_bytes_per_step=work.dense.bytes_read + work.head.bytes_read,
        )
