"""An environment that an engine runs from is not removed."""

from pathlib import Path

import pytest

from images.engine import is_running


@pytest.mark.parametrize(
    ("cmdline", "expected"),
    [
        (b"/cache/abc/bin/python\0-m\0vllm\0", True),
        (b"/cache/abcdef/bin/python\0-m\0vllm\0", False),
        (b"ls\0/cache/abc/bin\0", False),
        (b"", False),
    ],
)
def test_a_process_counts_by_its_program(tmp_path: Path, cmdline: bytes, expected: bool) -> None:
    (tmp_path / "42").mkdir()
    (tmp_path / "42" / "cmdline").write_bytes(cmdline)

    assert is_running(Path("/cache/abc"), tmp_path) is expected


def test_a_process_that_ends_while_looked_at_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "42" / "cmdline").mkdir(parents=True)  # unreadable, as the file of an ended process is

    assert not is_running(Path("/cache/abc"), tmp_path)
