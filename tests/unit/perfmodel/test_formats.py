"""Formats against compute capabilities, as vLLM's own checks have them."""

import pytest

from llmservice_operator.perfmodel.accelerators import AcceleratorRow, find_row
from llmservice_operator.perfmodel.formats import auto_dtype, why_it_cannot_run
from llmservice_operator.perfmodel.quantization import UNQUANTIZED, Quantization
from unit.perfmodel.samples import catalogue

NEW, OLD = (0, 26, 0), (0, 10, 2)


def row(name: str) -> AcceleratorRow:
    found = find_row(catalogue(), name)
    assert found is not None
    return found


def why(
    name: str,
    *,
    dtype: str = "float16",
    kv: str = "auto",
    method: str = "",
    version: tuple[int, int, int] = NEW,
) -> str | None:
    quantization = Quantization(method=method, default=None) if method else UNQUANTIZED
    return why_it_cannot_run(
        row(name), dtype=dtype, kv_cache_dtype=kv, quantization=quantization, engine_version=version
    )


def test_turing_has_no_bfloat16() -> None:
    assert "can't compute in bfloat16" in (why("nvidia-t4", dtype="bfloat16") or "")


def test_turing_has_no_backend_for_an_fp8_cache() -> None:
    assert "KV cache of fp8_e4m3, which needs 8.0" in (why("nvidia-t4", kv="fp8_e4m3") or "")


def test_an_nvfp4_cache_needs_blackwell() -> None:
    assert "needs 10.0" in (why("nvidia-h200", kv="nvfp4") or "")


def test_mxfp4_weights_need_ampere() -> None:
    assert "no kernel for mxfp4 weights" in (why("nvidia-t4", method="mxfp4") or "")


@pytest.mark.parametrize(("version", "runs"), [(OLD, False), (NEW, True)])
def test_fp8_weights_run_on_turing_since_marlin_does(version: tuple[int, int, int], *, runs: bool) -> None:
    assert (why("nvidia-t4", method="fp8", version=version) is None) is runs


@pytest.mark.parametrize(
    ("name", "kv", "method"),
    [
        ("nvidia-a100-80gb", "fp8", "fp8"),
        ("nvidia-rtx-5090", "nvfp4", "modelopt"),
        ("nvidia-t4", "auto", "awq"),
        ("amd-mi300x", "fp8", "fp8"),
    ],
)
def test_what_is_known_to_run_is_let_through(name: str, kv: str, method: str) -> None:
    assert why(name, kv=kv, method=method) is None


@pytest.mark.parametrize(
    ("name", "checkpoint", "version", "taken"),
    [
        ("nvidia-t4", "bfloat16", NEW, "float16"),
        ("nvidia-t4", "bfloat16", (0, 8, 5), "bfloat16"),
        ("nvidia-l4", "float32", NEW, "bfloat16"),
        ("nvidia-l4", "float32", (0, 8, 5), "float16"),
        ("nvidia-l4", "bfloat16", NEW, "bfloat16"),
    ],
)
def test_what_auto_becomes(name: str, checkpoint: str, version: tuple[int, int, int], taken: str) -> None:
    assert auto_dtype(row(name), checkpoint, version) == taken
