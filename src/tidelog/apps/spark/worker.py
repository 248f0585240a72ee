"""Settings of a Python worker: the engine that converts records, and garbage collection."""

import gc
import os
from functools import cache
from importlib import import_module

NUMBA = "numba"
PYTHON = "python"
ENGINE_VARIABLE = "TIDELOG_ENGINE"
"""Set it to `python` to disable numba where it is installed."""


@cache
def best_engine() -> str:
    """Return numba if it can be imported. Importing fails with an unsupported version of numpy."""
    try:
        import_module(NUMBA)
    except ImportError:
        return PYTHON
    return NUMBA


def chosen_engine(name: str | None = None) -> str:
    """Return `name`, or else the engine of the environment, or else the best. Raises ValueError."""
    name = name or os.environ.get(ENGINE_VARIABLE) or best_engine()
    if name not in (NUMBA, PYTHON):
        raise ValueError(f"unknown engine {name!r}; set {ENGINE_VARIABLE} to {NUMBA} or {PYTHON}")
    return name


@cache
def settle_worker() -> None:
    """Exclude imported modules from garbage collection, once for each worker process.

    Spark runs a collection after each task.
    """
    gc.collect()
    gc.freeze()
