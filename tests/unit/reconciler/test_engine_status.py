"""The engine's account beside the plan's."""

from llmservice_operator.clients.engine import EngineReport
from llmservice_operator.controller.statusfields import engine_status
from unit.perfmodel.samples import on, planned

GIB = 1 << 30


def test_graphs_that_are_not_charged_are_no_error_of_the_plan() -> None:
    """Of vLLM 0.26, whose budget has no graphs in it: the plan has 0 for them, and they are there all the same."""
    plan = planned("meta-llama--Meta-Llama-3.1-8B", on("nvidia-h200"), engine_version="0.26.0")
    report = EngineReport(
        service="default/chat", revision="chat-1", phase="Ready", memory={"cudaGraphBytes": 0.9 * GIB}
    )

    (graphs,) = (term for term in engine_status(report, plan, 0.0).memory if term.name == "cuda_graphs")

    assert (graphs.planned_bytes, graphs.actual_bytes) == (0, int(0.9 * GIB))
    assert graphs.error_percent is None
