"""The supervisor reads load from the page of every recorded release."""

from pathlib import Path

import pytest

from llmservice_runtime.engine_http import parse_load

PAGES = sorted((Path(__file__).resolve().parents[2] / "observability" / "pages").glob("vllm-*.txt"))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_four_requests_run_and_two_wait(page: Path) -> None:
    """As they did when the pages were recorded."""
    load = parse_load(page.read_text())

    assert (load.running, load.waiting, load.in_flight) == (4.0, 2.0, 6.0)
    assert load.tokens is not None
    assert load.tokens > 2744  # those of the prompts, besides what was generated
