"""What handlers refuse alike: names that no topic can have; and how they say so."""

import re

from tidelog.core.errors import ErrorCode

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_MESSAGE_MAX = 1000


class Refused(Exception):
    """Something in a request that can't be done, though the rest of it may."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


def told(message: str | None) -> str | None:
    """An error message that fits into every version's answer: it may quote the client, who
    may send as much as one field of an old version can hold."""
    if not message:
        return None
    return message if len(message) <= _MESSAGE_MAX else f"{message[:_MESSAGE_MAX]}..."


def name_problem(name: str) -> str | None:
    """Why this can't be a topic's name; None if it can."""
    if not name:
        return "The topic name is empty."
    if name in (".", ".."):
        return f"A topic can't be called {name!r}."
    if len(name) > 249:
        return f"The topic name has {len(name)} characters; at most 249 are allowed."
    if _NAME.fullmatch(name) is None:
        return (
            f"The topic name {name!r} has other characters than letters, digits, "
            "'.', '_' and '-' of ASCII."
        )
    return None
