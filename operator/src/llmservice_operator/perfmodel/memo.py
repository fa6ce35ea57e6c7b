"""Results that are kept with the shapes they were derived from, for as long as those live.

A plan asks for the same few sums over thousands of weights again and again, for each candidate and each batch. The
functions are pure and the shapes frozen, so an answer stays right. It is found by the identity of shapes and scheme:
to compare them by value would take as long as the sum.
"""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from llmservice_operator.perfmodel.quantization import Quantization
from llmservice_operator.perfmodel.shapes import Architecture

P = ParamSpec("P")
R = TypeVar("R")

MOST_ANSWERS = 256
"""Of one model. Where a caller makes its schemes anew each time, older answers go."""
_HELD = "_answers"

_Derived = Callable[Concatenate[Architecture, Quantization, P], R]


def remembered(function: _Derived[P, R]) -> _Derived[P, R]:
    """Keep what a pure function of shapes, scheme and hashable arguments answered."""

    @wraps(function)
    def answer(model: Architecture, quantization: Quantization, /, *args: P.args, **kwargs: P.kwargs) -> R:
        answers: dict[object, tuple[Quantization, R]] = vars(model).setdefault(_HELD, {})
        key = (function.__qualname__, id(quantization), args, tuple(sorted(kwargs.items())))
        found = answers.get(key)
        if found is None or found[0] is not quantization:
            if len(answers) >= MOST_ANSWERS:
                answers.clear()
            # The scheme is held too: as long as it is, no other has its id.
            found = answers[key] = (quantization, function(model, quantization, *args, **kwargs))
        return found[1]

    return answer
