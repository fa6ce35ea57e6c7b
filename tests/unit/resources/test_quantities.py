"""Memory as Kubernetes writes it."""

import pytest

from llmservice_operator.resources.quantities import format_memory


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(1_073_741_824, "1Gi"), (1_073_741_825, "1025Mi"), (1, "1Mi"), (0, "0Mi"), (1_610_612_736, "1536Mi")],
)
def test_memory_is_rounded_up(size_bytes: int, text: str) -> None:
    assert format_memory(size_bytes) == text
