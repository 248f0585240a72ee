"""Machine code or numpy: which of the two does the work in this process."""

import os
from functools import cache
from importlib import import_module

NUMBA = "numba"
NUMPY = "numpy"
ENGINE_VARIABLE = "TIDELOG_ENGINE"
"""Set to numpy: do without numba even where it is installed."""


@cache
def best_engine() -> str:
    """numba where it can be imported; with a numpy that it does not know it refuses."""
    try:
        import_module(NUMBA)
    except ImportError:
        return NUMPY
    return NUMBA


def chosen_engine(asked: str | None = None) -> str:
    """What the caller asks for, or the environment, or the best. Raises ValueError."""
    name = asked or os.environ.get(ENGINE_VARIABLE) or best_engine()
    if name not in (NUMBA, NUMPY):
        raise ValueError(f"{name!r} is no engine; {NUMBA} and {NUMPY} are")
    return name
