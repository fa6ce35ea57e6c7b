"""The page on speed says what the code does."""

from pathlib import Path

import pytest

from llmservice_operator.perfmodel.roofline import attention_decode_part, product_part
from llmservice_operator.perfmodel.speed_constants import HOPPER, ROOFLINE_SOFTNESS
from unit.perfmodel.speed_samples import speed

PAGE = " ".join((Path(__file__).resolve().parents[3] / "operator" / "docs" / "speed.md").read_text().split())


@pytest.mark.parametrize(
    "constant",
    [
        f"p = {ROOFLINE_SOFTNESS}",
        f"(bandwidth x {HOPPER.weight_bandwidth_share})",
        f"(bandwidth x {HOPPER.cache_bandwidth_share})",
        f"(FLOP/s x {HOPPER.product_flops_share:.3f})",
        f"(FLOP/s x {HOPPER.attention_flops_share})",
        f"{HOPPER.kernel_seconds * 1e6:.2f} us for each kernel",
        f"{HOPPER.sequence_seconds * 1e6:.2f} us for each sampled sequence",
        f"{HOPPER.all_reduce_seconds * 1e6:.1f} us x (1 + 0.3 log2(n / 2))",
        f"over {HOPPER.interconnect_share} of the interconnect",
    ],
)
def test_the_page_has_the_cards_constants(constant: str) -> None:
    assert constant in PAGE


def test_the_page_has_the_hosts_constants() -> None:
    host = speed().constants.host
    said = (
        f"{host.step_seconds * 1e3:.1f} ms to prepare, {host.piece_seconds * 1e6:.0f} us for each piece",
        f"{host.kernel_seconds * 1e6:.0f} us for each kernel more",
        f"{host.token_seconds * 1e6:.0f} us x batch",
        f"TTFT = {host.request_seconds * 1e3:.1f} ms",
    )

    assert [each for each in said if each not in PAGE] == []


def test_the_worked_example_is_what_comes_out() -> None:
    model = speed()
    timer = model.timer
    layers = product_part(timer.work.dense, 1, timer.rate)
    head = product_part(timer.work.head, 1, timer.rate)
    cache = attention_decode_part(timer.work.attention[0], 1, 576, timer.rate, beside_prompts=False)
    kernels = timer.work.kernels * HOPPER.kernel_seconds
    said = (
        f"= {layers.memory_seconds * 1e3:.3f} ms of memory, {layers.compute_seconds * 1e3:.3f} ms of compute",
        f"1.05 GB, {head.seconds * 1e3:.3f} ms",
        f"= {cache.memory_seconds * 1e3:.3f} ms. Kernels: {timer.work.kernels} x",
        f"= {kernels * 1e3:.3f} ms. Together {model.decode_seconds(1, 576) * 1e3:.2f} ms",
    )

    assert [each for each in said if each not in PAGE] == []
