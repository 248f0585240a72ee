"""Advice in error messages: how to install the packages that a command needs.

Tidelog is not on the package index yet, so its extras are installed from a clone.
"""

from importlib.util import find_spec

SPARK = "in a clone of Tidelog, run make spark or pip install '.[spark]'"
CONSOLE = "in a clone of Tidelog, run pip install '.[console]'"


def console_installed() -> bool:
    """Whether the packages of the web console are installed."""
    return all(find_spec(package) is not None for package in ("uvicorn", "starlette"))
