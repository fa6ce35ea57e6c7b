"""The golden manifests are what is rendered."""

from pathlib import Path

import pytest

from golden.manifests.render import FOLDER, files


@pytest.mark.parametrize("path", files(), ids=lambda path: path.name)
def test_golden(path: Path) -> None:
    assert path.read_text() == files()[path]


def test_no_golden_is_left_over() -> None:
    assert set(FOLDER.glob("*.yaml")) == set(files())
