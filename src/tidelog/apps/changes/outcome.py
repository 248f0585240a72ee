"""The result of a requested change: done, or rejected, with the reason and what to do."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.apps.near_names import nearest
from tidelog.core.errors import ErrorCode
from tidelog.shell.client.client_errors import advice, error_name

if TYPE_CHECKING:
    from tidelog.shell.client.administration.topics import Outcome


class Change(NamedTuple):
    """The result for one topic, partition, broker or group."""

    name: str
    done: str
    """What was done, as a sentence; empty if it was rejected."""
    error: str | None = None
    """Kafka's name of the error."""
    message: str | None = None
    """The full error message."""

    @property
    def holds(self) -> bool:
        return self.error is None

    def as_data(self) -> dict[str, Any]:
        return {"name": self.name, "error": self.error, "message": self.message}


def done(name: str, text: str) -> Change:
    """Return the result of a change that was made."""
    return Change(name, text)


def rejected(doing: str, outcome: "Outcome", hint: str = "") -> Change:
    """Return the result of a change that was rejected; `doing` is as in "creating topic orders"."""
    error = error_name(outcome.error)
    why = f"{error} ({outcome.message.rstrip('.')})" if outcome.message else error
    next_step = hint or _HINTS.get(error) or ("" if outcome.message else _FALLBACK.get(error, ""))
    message = f"{doing}: {why}{'; ' if next_step else ''}{next_step}"
    return Change(outcome.name, "", error, message)


_HINTS = {
    "NOT_CONTROLLER": advice(ErrorCode.NOT_CONTROLLER),
    "INVALID_REPLICATION_FACTOR": "`tidelog cluster brokers` lists the brokers",
    "INVALID_REPLICA_ASSIGNMENT": "`tidelog cluster brokers` lists the brokers",
    "BROKER_ID_NOT_REGISTERED": "`tidelog cluster brokers` lists the brokers",
    "TOPIC_ALREADY_EXISTS": "add --if-not-exists to accept an existing topic",
    "TOPIC_DELETION_DISABLED": "set delete.topic.enable=true on the brokers",
    "NO_REASSIGNMENT_IN_PROGRESS": "`tidelog reassign --list` lists reassignments in progress",
}
_FALLBACK = {
    "INVALID_TOPIC_EXCEPTION": "use letters, digits, '.', '_' and '-', at most 249 characters",
    "INVALID_PARTITIONS": "the partition count can only grow; `tidelog topic describe` shows it",
}
"""Hints for errors that the broker sent without a message."""


def near_keys(wanted: Iterable[str], known: Sequence[str]) -> str:
    """Suggest names for configs that do not exist."""
    unknown = [key for key in wanted if key not in known]
    found = [(key, hint) for key in unknown if (hint := nearest(key, known))]
    if len(found) == 1:
        return found[0][1]
    return " ".join(f"{key}: {hint}" for key, hint in found)
