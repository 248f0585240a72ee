"""What became of changes, one line each: done, or refused, why, and what to do about it.

Always true: what was done is told on stdout, what was refused on stderr, and any refusal
makes the exit code 1.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tidelog.apps.near_names import nearest

if TYPE_CHECKING:
    from rich.console import Console

    from tidelog.shell.client.administration.topics import Outcome


class Change(NamedTuple):
    """One thing that was to be changed."""

    name: str
    done: str
    """What was done, in words; empty if it was refused."""
    error: str | None = None
    """Kafka's name of the error."""
    message: str | None = None
    """The whole refusal, in words."""

    @property
    def holds(self) -> bool:
        return self.error is None

    def as_data(self) -> dict[str, Any]:
        return {"name": self.name, "error": self.error, "message": self.message}


def done(name: str, text: str) -> Change:
    """A change that was made."""
    return Change(name, text)


def refused(doing: str, outcome: "Outcome", hint: str = "") -> Change:
    """A change that was refused; `doing` is as in "creating topic orders"."""
    from tidelog.shell.client.client_errors import error_name

    error = error_name(outcome.error)
    why = f"{error} ({outcome.message.rstrip('.')})" if outcome.message else error
    next_step = hint or _HINTS.get(error) or ("" if outcome.message else _UNTOLD.get(error, ""))
    message = f"{doing}: {why}{'; ' if next_step else ''}{next_step}"
    return Change(outcome.name, "", error, message)


_HINTS = {
    "INVALID_REPLICATION_FACTOR": "`tidelog cluster brokers` shows who is there",
    "INVALID_REPLICA_ASSIGNMENT": "`tidelog cluster brokers` shows who is there",
    "BROKER_ID_NOT_REGISTERED": "`tidelog cluster brokers` shows who is there",
    "TOPIC_ALREADY_EXISTS": "add --if-not-exists to leave it as it is",
    "TOPIC_DELETION_DISABLED": "set delete.topic.enable=true on the brokers",
    "NO_REASSIGNMENT_IN_PROGRESS": "`tidelog reassign --list` shows what moves",
}
_UNTOLD = {
    "INVALID_TOPIC_EXCEPTION": "use letters, digits, dot, underscore and hyphen, 249 at most",
    "INVALID_PARTITIONS": "partitions can only become more; `tidelog topic describe` shows them",
}
"""For brokers that say nothing more."""


def near_keys(wanted: Iterable[str], known: Sequence[str]) -> str:
    """For settings that do not exist: those that were probably meant."""
    strange = [key for key in wanted if key not in known]
    told = [(key, meant) for key in strange if (meant := nearest(key, known))]
    if len(told) == 1:
        return told[0][1]
    return " ".join(f"{key}: {meant}" for key, meant in told)


def tell(screen: "Console", changes: Iterable[Change]) -> None:
    """A line for each."""
    from tidelog.apps.cli.output import verdict_line

    for change in changes:
        if change.holds:
            screen.print(verdict_line(True, change.done), soft_wrap=True)
        else:
            click.echo(f"tidelog: {change.message}", err=True)


def conclude_changes(form: str, what: str, changes: Sequence[Change], **more: Any) -> int:
    """Print what became of all of them; the exit code."""
    from tidelog.apps.cli import output

    holds = all(change.holds for change in changes)
    data = {what: [change.as_data() for change in changes], **more}
    return output.conclude(form, holds, data, lambda screen: tell(screen, changes))
