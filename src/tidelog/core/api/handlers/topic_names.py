"""What a topic may be called, and which topics are the brokers' own."""

import re

INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Clients may read them; brokers write them."""

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


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
