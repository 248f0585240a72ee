"""Suggest known names that are similar to an unknown one."""

from collections.abc import Iterable


def near(name: str, known: Iterable[str]) -> str:
    """Suggest the nearest names; if none is similar, list all."""
    names = list(known)
    return nearest(name, names) or f"choose from: {', '.join(names)}"


def nearest(name: str, known: Iterable[str]) -> str:
    """Suggest the nearest names; return an empty string if none is similar."""
    from difflib import get_close_matches

    names = list(known)
    alike = [each for each in names if each.lower() == name.lower()]
    close = list(dict.fromkeys([*alike, *get_close_matches(name, names, n=3)]))[:3]
    return f"did you mean {' or '.join(close)}?" if close else ""
