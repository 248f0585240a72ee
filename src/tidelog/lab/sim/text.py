"""Describe values and events of the simulator in words: short, on one line each.

Invariant: no line contains a Python repr. An event without a phrase here is shown by its name and
its values.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from tidelog.core.controller.effects import StoreTransaction
from tidelog.core.controller.metadata.metadata_store import Put, TxnResult
from tidelog.core.controller.metadata.registrations import PartitionKey
from tidelog.core.errors import ErrorCode
from tidelog.core.node import events as on
from tidelog.core.node.messages import (
    Fetch,
    FetchPartitionResponse,
    FetchResponse,
    Forwarded,
    Produce,
    ProduceResponse,
)
from tidelog.core.storage.disk import Region
from tidelog.core.types import BrokerId, Offset, TopicPartition
from tidelog.lab.sim.clients.producers import PartitionQueue, PendingBatch
from tidelog.lab.sim.machine.process import Process
from tidelog.lab.sim.machine.store import StoreClient
from tidelog.lab.sim.swarm import Action
from tidelog.lab.sim.world import Event

VALUE_MAX = 110
WHOLE_MAX = 400
"""Limit for a registration: any of its fields may be the cause."""
ITEMS_MAX = 6
BYTES_MAX = 24
"""Longer values are shown by their length."""
OMITTED = frozenset({"request", "now_ms", "broker_epoch", "correlation", "topic_id", "message"})
"""Fields that do not help to find a cause."""
ENDINGS = ("Received", "Response", "Answer")
NOT_TIMES = frozenset(
    {"die-in-write", "elect", "reassign", "delete-records", "compact-store", "update-features"}
)
"""Kinds of action whose first amount is not a time."""


def plain(value: Any, most: int = VALUE_MAX) -> str:
    """Describe a value, truncated to `most` characters."""
    text = _plain(value)
    return text if len(text) <= most else text[: most - 1] + "…"


def describe_ends(ends: Mapping[BrokerId, tuple[Offset, Offset]]) -> str:
    """Describe each broker's log end offset and high watermark."""
    return ", ".join(f"broker {b} has LEO {end}, HW {mark}" for b, (end, mark) in ends.items())


def describe_action(action: Action) -> str:
    """Describe one action of a plan: its kind, the broker, and the duration."""
    if action.kind == "produce":
        producer, count = action.amounts
        return f"producer {producer} writes {count} records to partition {action.target}"
    target = f"broker {action.target}"
    if action.target < 0:
        target = f"the leader of partition {-1 - action.target}"
    if not action.amounts:
        return f"{action.kind} {target}"
    first, *rest = action.amounts
    shown = f"{first:,} ms" if action.kind not in NOT_TIMES else str(first)
    drawn = f", drawn {' '.join(map(str, rest))}" if rest else ""
    return f"{action.kind} {target} ({shown}{drawn})"


def _plain(value: Any) -> str:
    describe = _DESCRIBE.get(type(value))
    if describe is not None:
        return describe(value)
    if isinstance(value, Enum):
        return value.name
    if value is None or isinstance(value, bool | int | float | str):
        return str(value)
    if isinstance(value, type):
        return _class(value)
    names = getattr(value, "_fields", ())
    if is_dataclass(value):
        names = [each.name for each in fields(value)]
    if names:
        return _object({name: getattr(value, name) for name in names}, type(value))
    if isinstance(value, dict):
        return _listed([f"{_plain(key)}: {_plain(each)}" for key, each in value.items()], "{}")
    if isinstance(value, set | frozenset):
        return _listed(sorted(map(_plain, value)), "{}")
    if isinstance(value, tuple | list):
        return _listed([_plain(each) for each in value], "[]")
    return _class(type(value))


def _class(kind: type) -> str:
    name = kind.__name__
    return next((name.removesuffix(e) for e in ENDINGS if name.endswith(e) and name != e), name)


def _object(found: dict[str, Any], kind: type) -> str:
    shown = [
        f"{name.removesuffix('_code')} {_plain(value)}"
        for name, value in found.items()
        if name not in OMITTED and not _is_empty(value)
    ]
    return f"{_class(kind)}({', '.join(shown)})" if shown else _class(kind)


def _is_empty(value: Any) -> bool:
    return value is None or value in ((), "") or value is ErrorCode.NONE


def _listed(texts: list[str], around: str) -> str:
    more = f", … {len(texts) - ITEMS_MAX} more" if len(texts) > ITEMS_MAX else ""
    return f"{around[0]}{', '.join(texts[:ITEMS_MAX])}{more}{around[1]}"


def _bytes(value: bytes | bytearray) -> str:
    if (
        value
        and len(value) <= BYTES_MAX
        and value.isascii()
        and bytes(value).decode().isprintable()
    ):
        return value.decode()
    return f"<{len(value)} bytes>"


def _fetch(value: Fetch) -> str:
    positions = [f"{p.topic_partition} from {p.offset}" for p in value.partitions]
    who = "" if value.replica is None else f" of broker {value.replica}"
    return f"Fetch{who} {_listed(positions, '[]')}"


def _fetched(part: FetchPartitionResponse) -> str:
    size = 0
    if part.records is not None:
        size = part.records.length if isinstance(part.records, Region) else len(part.records)
    error = "" if part.error.name == "NONE" else f" {part.error.name}"
    diverging = "" if part.diverging is None else f" diverging epoch:end {part.diverging[0]}:"
    if part.diverging is not None:
        diverging += str(part.diverging[1])
    return f"{part.topic_partition}{error} HW {part.high_watermark}, {size} bytes{diverging}"


def _fetch_response(value: FetchResponse) -> str:
    error = "" if value.error.name == "NONE" else f" {value.error.name}"
    return f"Fetch{error} {_listed([_fetched(part) for part in value.partitions], '[]')}"


def _produce_response(value: ProduceResponse) -> str:
    part = value.partitions[0]
    if part.error.name == "NONE":
        return f"Produce acknowledged at offset {part.base_offset}"
    return f"Produce {part.error.name}"


def _transaction(value: StoreTransaction) -> str:
    ops = [f"{'write' if isinstance(op, Put) else 'delete'} {op.key}" for op in value.ops]
    return f"transaction {value.tag}: {', '.join(ops) or 'no change'}"


_DESCRIBE: dict[type, Callable[[Any], str]] = {
    Action: describe_action,
    Forwarded: lambda value: f"forwarded {_plain(value.request)}",
    Fetch: _fetch,
    FetchResponse: _fetch_response,
    PartitionKey: lambda value: f"partition {value.partition}",
    Produce: lambda value: f"Produce(acks {value.acks}, {value.partitions[0].topic_partition})",
    ProduceResponse: _produce_response,
    StoreTransaction: _transaction,
    TopicPartition: str,
    TxnResult: lambda value: f"{'committed at' if value.ok else 'refused at'} revision {value.rev}",
    bytearray: _bytes,
    bytes: _bytes,
}


# -- events ------------------------------------------------------------------------------


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
    ("faults", "act"): plain,
    ("faults", "chase"): lambda partition, *_: f"look for the next leader of partition {partition}",
    ("faults", "kill"): lambda process, _action: f"kill broker {process.id}",
    ("faults", "restart"): lambda process: f"restart broker {process.id}",
    ("network", "mend"): lambda one, other: f"repairs the link from {one} to {other}",
    ("store", "apply"): lambda client, effect: f"<- broker {client.broker}: {plain(effect)}",
    ("store", "commit_unanswered"): lambda effect: f"commits, without a response: {plain(effect)}",
    ("store", "deliver"): _from_store,
    ("store", "pull"): lambda client, _watch: (
        f"-> broker {client.broker}: changes since its last read"
    ),
}
