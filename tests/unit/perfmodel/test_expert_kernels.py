"""MXFP4 experts as kernels lay them out. One layer of gpt-oss: 2,880 hidden and 2,880 inner features."""

import pytest

from llmservice_operator.perfmodel.expert_kernels import ExpertKernel, expert_tensors, mxfp4_kernel

HIDDEN = INNER = 2880


def gate_up(kernel: ExpertKernel) -> list[int]:
    return expert_tensors(kernel, experts=1, hidden=HIDDEN, intermediate=INNER, matrices=2, down=False)


@pytest.mark.parametrize(
    ("capability", "version", "name"),
    [
        ((8, 0), (0, 26, 0), "Marlin"),
        ((9, 0), (0, 11, 0), "Marlin"),  # before vLLM brings the Triton kernels along
        ((9, 0), (0, 14, 1), "Triton on Hopper"),
        ((10, 0), (0, 26, 0), "TensorRT-LLM"),
        ((12, 0), (0, 26, 0), "Marlin"),
        (None, (0, 26, 0), "Marlin"),
    ],
)
def test_the_kernel_goes_by_card_and_version(
    capability: tuple[int, int] | None, version: tuple[int, int, int], name: str
) -> None:
    assert mxfp4_kernel(capability, version).name == name


def test_marlin_rounds_hidden_to_256_and_inner_to_128() -> None:
    values = 2 * 2944 * 3072 // 2

    assert gate_up(mxfp4_kernel((8, 0), (0, 26, 0))) == [values, values // 16]


def test_triton_on_hopper_pads_scales_and_keeps_the_checkpoints() -> None:
    values, rows, scales = 2 * 2880 * 1440, 5888, 90

    assert gate_up(mxfp4_kernel((9, 0), (0, 14, 1))) == [values, rows * scales, 5760 * scales]


def test_since_0_26_the_checkpoints_scales_go() -> None:
    assert len(gate_up(mxfp4_kernel((9, 0), (0, 26, 0)))) == 2


def test_the_down_projection_is_cut_by_its_columns() -> None:
    kernel = mxfp4_kernel((8, 0), (0, 26, 0))

    (values, scales) = expert_tensors(
        kernel, experts=4, hidden=HIDDEN, intermediate=360, matrices=1, down=True
    )

    assert (values, scales) == (4 * 3072 * 384 // 2, 4 * 3072 * 384 // 32)
