"""Checks and errors that several handlers share: topic names, and the length of error texts."""

import re

from tidelog.core.errors import ErrorCode

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_MESSAGE_MAX = 1000


class Refused(Exception):
    """One part of a request fails; the other parts may succeed."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


def error_text(message: str | None) -> str | None:
    """Shorten an error message so that it fits into every version's response.

    It may quote the client, which may send as much as a field of an old version can hold.
    """
    if not message:
        return None
    return message if len(message) <= _MESSAGE_MAX else f"{message[:_MESSAGE_MAX]}..."


def name_problem(name: str) -> str | None:
    """The reason why this is not a valid topic name; None if it is valid."""
    if not name:
        return "The topic name is empty."
    if name in (".", ".."):
        return f"{name!r} is not a valid topic name."
    if len(name) > 249:
        return f"The topic name has {len(name)} characters; at most 249 are allowed."
    if _NAME.fullmatch(name) is None:
        return (
            f"The topic name {name!r} has invalid characters: only ASCII letters, digits, "
            "'.', '_' and '-' are allowed."
        )
    return None
