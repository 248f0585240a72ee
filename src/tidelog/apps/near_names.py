"""Suggest names for an unknown one."""

from collections.abc import Iterable


def near(name: str, known: Iterable[str]) -> str:
    """Suggest the nearest names; without any, list all."""
    names = list(known)
    return nearest(name, names) or f"choose from: {', '.join(names)}"


def nearest(name: str, known: Iterable[str]) -> str:
    """Suggest the nearest names; return an empty string without any."""
    from difflib import get_close_matches

    names = list(known)
    alike = [each for each in names if each.lower() == name.lower()]
    close = list(dict.fromkeys([*alike, *get_close_matches(name, names, n=3)]))[:3]
    return f"did you mean {' or '.join(close)}?" if close else ""
