"""`python3 -m llmservice_runtime.build OUT.pyz`: this package as one file that any Python ≥ 3.9 runs.

The same sources give the same bytes: fixed order, times and modes, and no compression, whose output depends
on the library's version.
"""

from __future__ import annotations

import os
import sys
import tempfile
import zipfile
from pathlib import Path

_SHEBANG = b"#!/usr/bin/env python3\n"
_MAIN = b"import sys\nfrom llmservice_runtime.__main__ import main\nsys.exit(main())\n"
_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip file can say
_LEFT_OUT = frozenset({"build.py", "py.typed"})


def build(out: Path) -> None:
    """Write the archive to `out`, whole or not at all."""
    package = Path(__file__).parent
    members = {"__main__.py": _MAIN}
    for source in package.rglob("*.py"):
        if source.name not in _LEFT_OUT:
            members[f"{package.name}/{source.relative_to(package).as_posix()}"] = source.read_bytes()
    out.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=out.parent)
    with os.fdopen(descriptor, "wb") as file:
        file.write(_SHEBANG)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for member in sorted(members):
                info = zipfile.ZipInfo(member, _TIME)
                info.create_system = 3  # Unix, wherever it is built
                info.external_attr = 0o644 << 16
                archive.writestr(info, members[member])
    written = Path(name)
    written.chmod(0o755)  # a program for everybody
    written.replace(out)


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: python3 -m llmservice_runtime.build OUT.pyz", file=sys.stderr)
        return 2
    build(Path(sys.argv[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
