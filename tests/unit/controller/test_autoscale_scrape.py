"""Which addresses are asked for metrics."""

import pytest

from llmservice_operator.controller.autoscale_scrape import is_pod_address


@pytest.mark.parametrize("host", ["10.0.0.7", "fd00::7", "::ffff:10.0.0.7"])
def test_a_pod_s_address_is_asked(host: str) -> None:
    assert is_pod_address(host)


@pytest.mark.parametrize(
    "host",
    ["", "metadata.internal", "169.254.169.254", "fe80::1", "::ffff:169.254.169.254", "0.0.0.0", "ff02::1"],
)
def test_what_can_not_be_a_pod_s_is_not(host: str) -> None:
    assert not is_pod_address(host)
