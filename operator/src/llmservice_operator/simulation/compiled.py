"""The compiler of the fleet's inner loop."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

_F = TypeVar("_F", bound=Callable[..., Any])


def compiled(function: _F) -> _F:
    """Machine code of this function on its first call, kept on disk for the next process."""
    return cast("_F", numba.njit(cache=True, error_model="numpy")(function))
