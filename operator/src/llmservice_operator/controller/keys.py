"""What the workqueue holds: the name of one LLMService."""

from typing import NamedTuple


class Key(NamedTuple):
    """Namespace and name of an LLMService."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"
