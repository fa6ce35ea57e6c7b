"""Texts of the status: each is cut to its bound, so that a wordy one never stops a status from being written."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

SENTENCE_MAX_LENGTH = 400
WORDS_MAX_LENGTH = 1024
SENTENCES_MAX_ITEMS = 24


def shortened(text: Any, length: int) -> Any:
    """The text cut to a length, with `…` at its end to show it; anything but a text as it is."""
    return text[: length - 1] + "…" if isinstance(text, str) and len(text) > length else text


Sentence = Annotated[
    str,
    Field(max_length=SENTENCE_MAX_LENGTH),
    BeforeValidator(lambda text: shortened(text, SENTENCE_MAX_LENGTH)),
]
"""A text of ours. What is too long is cut, so that a wordy reason never stops a status from being written."""
Words = Annotated[
    str, Field(max_length=WORDS_MAX_LENGTH), BeforeValidator(lambda text: shortened(text, WORDS_MAX_LENGTH))
]
"""A text of the engine's."""
Sentences = Annotated[
    tuple[Sentence, ...],
    Field(max_length=SENTENCES_MAX_ITEMS),
    BeforeValidator(lambda texts: tuple(texts)[:SENTENCES_MAX_ITEMS]),
]
