"""One format for what happened in a cluster: brokers, simulator and stories write the same.

An event has a time, a broker, a name and fields; an event about a partition has the fields `topic`
and `partition`. As JSON it is one flat object, and a history is a file with one object per line.
A broker's log with `tidelog.log.format=json` is such a file; `tidelog sim replay --history` and
`tidelog story play --history` write one. Names and fields are those of
`core/node/measuring/journal.py` and of docs/reference/log-events.md. Readers ignore fields and
events that they do not know.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tidelog.core.types import BrokerId, TopicPartition

_OWN_KEYS = ("ts", "level", "broker", "event", "text")


class HistoryEvent(NamedTuple):
    """Something that happened on a broker."""

    at_ms: int
    """Milliseconds since 1970; a simulation or a story starts at 0."""
    broker: BrokerId | None
    """None if it is about all brokers of a process."""
    event: str
    fields: Mapping[str, Any]
    level: str = "INFO"
    text: str = ""
    """The event as a sentence."""

    @property
    def partition(self) -> TopicPartition | None:
        """The partition that it is about, if it is about one."""
        topic, partition = self.fields.get("topic"), self.fields.get("partition")
        if not isinstance(topic, str) or not isinstance(partition, int):
            return None
        return TopicPartition(topic, partition)

    def as_data(self) -> dict[str, Any]:
        """Convert to values that JSON can represent."""
        return {
            "ts": _timestamp(self.at_ms),
            "level": self.level,
            "broker": self.broker,
            "event": self.event,
            **{name: _plain(value) for name, value in self.fields.items()},
            "text": self.text,
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "HistoryEvent":
        """Convert the result of `as_data` back. Raises KeyError, ValueError."""
        fields = {name: value for name, value in data.items() if name not in _OWN_KEYS}
        at_ms = _milliseconds(data["ts"])
        return cls(at_ms, data["broker"], data["event"], fields, data["level"], data["text"])


def _plain(value: object) -> object:
    if isinstance(value, frozenset | set):
        return sorted(value)
    return list(value) if isinstance(value, tuple) else value


def _timestamp(at_ms: int) -> str:
    """Format as `2026-01-31T12:00:00.123Z`."""
    from datetime import UTC, datetime

    at = datetime.fromtimestamp(at_ms // 1000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}Z"


def _milliseconds(timestamp: str) -> int:
    from datetime import datetime

    whole, _, fraction = timestamp.removesuffix("Z").rpartition(".")
    return int(datetime.fromisoformat(f"{whole}+00:00").timestamp()) * 1000 + int(fraction)
