"""What was probably meant by a name that is not known."""

from collections.abc import Iterable


def near(name: str, known: Iterable[str]) -> str:
    """What was probably meant, or all there is to choose from."""
    names = list(known)
    return nearest(name, names) or f"choose from: {', '.join(names)}"


def nearest(name: str, known: Iterable[str]) -> str:
    """What was probably meant; nothing if there is no such thing."""
    from difflib import get_close_matches

    names = list(known)
    alike = [each for each in names if each.lower() == name.lower()]
    close = list(dict.fromkeys([*alike, *get_close_matches(name, names, n=3)]))[:3]
    return f"did you mean {' or '.join(close)}?" if close else ""
