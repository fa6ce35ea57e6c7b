"""What the images are made of, and the hash that says whether an archive is still right."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

REGISTRY = "ghcr.io/llmservice"
ENGINE_VERSION = "0.32.0"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One image: the Dockerfile, and the files and folders (relative to the root) that end up in it."""

    name: str
    tag: str
    dockerfile: str
    inputs: tuple[str, ...]
    disk_bytes: int  # what a build takes at its peak, the archive included
    on_request: bool = False  # not part of `build all`

    @property
    def reference(self) -> str:
        """The full name under which clusters know the image."""
        return f"{REGISTRY}/{self.name}:{self.tag}"


def operator_version(root: Path) -> str:
    """The release's version, read from the operator's source."""
    source = (root / "operator/src/llmservice_operator/version.py").read_text()
    match = re.search(r'^__version__(?:: \w+)? = "([^"]+)"', source, flags=re.MULTILINE)
    if match is None:
        raise ValueError('operator/src/llmservice_operator/version.py has no line `__version__ = "..."`')
    return match.group(1)


def recipes(root: Path) -> Mapping[str, Recipe]:
    """The images by name, in the order in which `build all` makes them."""
    version = operator_version(root)
    gib = 1024**3
    found = (
        Recipe(
            name="operator",
            tag=version,
            dockerfile="operator/Dockerfile",
            inputs=(
                "operator/pyproject.toml",
                "operator/README.md",
                "operator/src",
                "runtime_image/src",
                "requirements/operator.lock",
                "requirements/image-build.lock",
            ),
            disk_bytes=3 * gib,
        ),
        Recipe(
            name="fake-engine",
            tag=ENGINE_VERSION,
            dockerfile="tests/images/fake-engine.Dockerfile",
            inputs=("tests/fakes/engine",),
            disk_bytes=2 * gib,
        ),
        Recipe(
            name="vllm-cpu",
            tag=ENGINE_VERSION,
            dockerfile="runtime_image/Dockerfile.cpu",
            inputs=("runtime_image/cpu", "requirements/engine-cpu.lock", "requirements/image-build.lock"),
            disk_bytes=12 * gib,
        ),
        Recipe(
            name="vllm-cuda",
            tag=ENGINE_VERSION,
            dockerfile="runtime_image/Dockerfile.cuda",
            inputs=(),
            disk_bytes=2 * gib,
            on_request=True,  # with buildah it stands on the stand-in base: it proves the Dockerfile, and runs nothing
        ),
    )
    return {recipe.name: recipe for recipe in found}


def content_hash(root: Path, recipe: Recipe, *, salt: str) -> str:
    """16 hex digits over the Dockerfile, every input's path and bytes, the image's name, and `salt` (the base)."""
    digest = hashlib.sha256(f"{recipe.reference}\0{salt}\0".encode())
    for path in files(root, (recipe.dockerfile, *recipe.inputs)):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def files(root: Path, inputs: Iterable[str]) -> Iterator[Path]:
    """The files that inputs name, in a fixed order, without what builds leave behind."""
    for name in inputs:
        path = root / name
        if path.is_file():
            yield path
        elif path.is_dir():
            for inner in sorted(path.rglob("*")):
                parts = inner.relative_to(path).parts
                if inner.is_file() and not any(_is_left_out(part) for part in parts):
                    yield inner
        else:
            raise FileNotFoundError(f"{name}: an image is made from it, but it is not in the source tree")


def _is_left_out(part: str) -> bool:
    """What tools leave beside sources; .dockerignore names the same."""
    return part == "__pycache__" or part.startswith(".") or part.endswith(".egg-info")
