"""Events in one line each, for people who want to know what happened last."""

from collections.abc import Callable, Iterable
from typing import Any

from tidelog.core.node.messages import (
    Fetch,
    FetchPartitionResponse,
    FetchResponse,
    Produce,
    ProduceResponse,
)
from tidelog.core.storage.disk import Region
from tidelog.lab.sim.clients.producer import Lane, PendingBatch
from tidelog.lab.sim.machine.process import Process
from tidelog.lab.sim.machine.store import StoreClient
from tidelog.lab.sim.world import Event

VALUE_MAX = 90


def event_lines(events: Iterable[Event]) -> list[str]:
    """What the queue held, in words."""
    return [f"{at / 1000:9.3f}  {_line(action, arguments)}" for at, _, action, arguments in events]


def _line(action: Any, arguments: tuple[Any, ...]) -> str:
    owner = getattr(action, "__self__", None)
    name = action.__name__.strip("_").replace("_", " ")
    who = getattr(owner, "id", None) or getattr(owner, "_address", None)
    where = type(owner).__name__.removeprefix("Sim").lower()
    subject = f"{where} {who}" if who is not None else where
    if where == "process":
        subject = f"broker {who}"
    return f"{subject}: {name} " + " ".join(_value(value) for value in arguments)


def _value(value: Any) -> str:
    describe = _DESCRIBE.get(type(value))
    if describe is not None:
        return describe(value)
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, tuple | list):
        text = ", ".join(_value(item) for item in value)
        return f"({text[:VALUE_MAX]})"
    text = str(value)
    if text.startswith("<") and text.endswith(">"):
        return type(value).__name__
    return text if len(text) <= VALUE_MAX else text[:VALUE_MAX] + "…"


def _fetch(value: Fetch) -> str:
    asked = ", ".join(f"{p.topic_partition}@{p.offset}" for p in value.partitions)
    return f"Fetch(replica={value.replica}, [{asked}])"


def _fetch_response(value: FetchResponse) -> str:
    parts = ", ".join(_fetched(part) for part in value.partitions)
    return f"FetchResponse({value.error.name}, [{parts}])"


def _produce_response(value: ProduceResponse) -> str:
    part = value.partitions[0]
    return f"ProduceResponse({part.error.name}, {part.base_offset})"


def _fetched(part: FetchPartitionResponse) -> str:
    size = 0
    if part.records is not None:
        size = part.records.length if isinstance(part.records, Region) else len(part.records)
    diverging = "" if part.diverging is None else f" diverging {tuple(part.diverging)}"
    return (
        f"{part.topic_partition} {part.error.name} HW={part.high_watermark} {size} bytes{diverging}"
    )


_DESCRIBE: dict[type, Callable[[Any], str]] = {
    Fetch: _fetch,
    FetchResponse: _fetch_response,
    Produce: lambda value: f"Produce(acks={value.acks}, {value.partitions[0].topic_partition})",
    ProduceResponse: _produce_response,
    Process: lambda value: f"broker {value.id}",
    StoreClient: lambda value: f"broker {value.broker}",
    Lane: lambda value: str(value.partition),
    PendingBatch: lambda value: b"+".join(value.values).decode(),
    bytes: lambda value: f"<{len(value)} bytes>",
    bytearray: lambda value: f"<{len(value)} bytes>",
}
