"""Describe each event in one line, to show the last events of a run.

Invariant: no line contains a Python repr (plain_values.py). An event without a phrase here is
shown by its name and its values.
"""

from collections.abc import Callable, Iterable
from typing import Any

from tidelog.core.node import events as on
from tidelog.lab.sim.clients.producer import PartitionQueue, PendingBatch
from tidelog.lab.sim.machine.process import Process
from tidelog.lab.sim.machine.store import StoreClient
from tidelog.lab.sim.plain_values import plain
from tidelog.lab.sim.world import Event

CLIENTS_FROM = 80
"""The lowest address of a client; lower addresses belong to brokers."""


def event_lines(events: Iterable[Event]) -> list[str]:
    """Return one line of text for each event, with its time."""
    return [f"{at / 1000:9.3f}  {_line(action, arguments)}" for at, _, action, arguments in events]


def _line(action: Any, arguments: tuple[Any, ...]) -> str:
    owner = getattr(action, "__self__", None)
    name = action.__name__.strip("_")
    kind = type(owner).__name__.removeprefix("Sim").lower()
    phrase = _PHRASES.get((kind, name)) or _PHRASES.get(("", name))
    if phrase is not None:
        subject = "schedule:" if kind == "faults" else _subject(owner, kind)
        return f"{subject} {phrase(*arguments)}"
    words = " ".join(_value(value) for value in arguments)
    return f"{_subject(owner, kind)}: {name.replace('_', ' ')} {words}".rstrip()


def _subject(owner: Any, kind: str) -> str:
    who = getattr(owner, "id", None) or getattr(owner, "_address", None)
    if kind == "process":
        return f"broker {who}"
    return f"{kind} {who}" if who is not None else kind


def _value(value: Any) -> str:
    match value:
        case Process():
            return f"broker {value.id}"
        case StoreClient():
            return f"broker {value.broker}"
        case PartitionQueue():
            return str(value.partition)
        case PendingBatch():
            return b"+".join(value.values).decode()
        case _:
            return plain(value)


def _peer(address: int) -> str:
    return f"broker {address}" if address < CLIENTS_FROM else f"client {address}"


def _received(_incarnation: int, kind: type, *fields: Any) -> str:
    if kind is on.ResponseReceived:
        return f"<- response to request {fields[0]}: {plain(fields[1])}"
    return f"<- {_event(kind, fields)}"


def _from_store(client: StoreClient, kind: type, *fields: Any) -> str:
    return f"-> broker {client.broker}: {_event(kind, fields)}"


def _event(kind: type, fields: tuple[Any, ...]) -> str:
    return " ".join([plain(kind), *map(_value, fields)])


_PHRASES: dict[tuple[str, str], Callable[..., str]] = {
    ("process", "wake"): lambda *_: "checks its timers",
    ("process", "request"): lambda source, _life, number, request: (
        f"<- {_peer(source)}, request {number}: {plain(request)}"
    ),
    ("process", "receive_for"): _received,
    ("process", "receive"): lambda kind, *fields: f"<- {_event(kind, fields)}",
    ("process", "refuse"): lambda source, _life, number: (
        f"is down: request {number} of {_peer(source)} is refused"
    ),
    ("process", "flushed"): lambda _life, effect, _syncs: (
        f"has flushed {', '.join((*effect.files, *effect.directories)) or 'nothing'}"
    ),
    ("process", "carry_out_late"): lambda *_: "continues after its disk was slow",
    ("process", "start"): lambda *_: "starts",
    ("process", "resume"): lambda *_: "continues after a pause",
    ("", "answered"): lambda number, response: (
        f"<- response to request {number}: {plain(response)}"
    ),
    ("", "arrive"): lambda process, number, *what: (
        f"-> broker {process.id}, request {number}: {' '.join(map(_value, what))}"
    ),
    ("", "late"): lambda number: f"checks for the response to request {number}",
    ("", "then"): lambda number, _what: f"continues after request {number}",
    ("cleaner", "continue"): lambda number, _cleaning: f"continues cleaning {number}",
    ("producer", "failed"): lambda number, error: (
        f"checks for the response to request {number}; without one: {_value(error)}"
    ),
    ("producer", "retry"): lambda queue, batch: f"sends {_value(batch)} to {queue.partition} again",
    ("faults", "act"): lambda action: f"do: {plain(action)}",
    ("faults", "chase"): lambda partition, *_: f"look for the next leader of partition {partition}",
    ("faults", "kill"): lambda process, _action: f"kill broker {process.id}",
    ("faults", "restart"): lambda process: f"restart broker {process.id}",
    ("network", "mend"): lambda one, other: f"mends the link from {one} to {other}",
    ("store", "apply"): lambda client, effect: f"<- broker {client.broker}: {plain(effect)}",
    ("store", "commit_unanswered"): lambda effect: f"commits, without a response: {plain(effect)}",
    ("store", "deliver"): _from_store,
    ("store", "pull"): lambda client, _watch: (
        f"-> broker {client.broker}: changes since its last read"
    ),
}
