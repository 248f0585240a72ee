"""The last sample, as the writer of the history store remembers it."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from tidelog.apps.console.history import derive
from tidelog.apps.console.history.row_codec import Numbers, Shape
from tidelog.apps.views.broker import State
from tidelog.core.history import HistoryEvent
from tidelog.core.types import BrokerId, TopicPartition
from tidelog.shell.client.cluster_metadata import PartitionMetadata


class KnownBroker(NamedTuple):
    """A broker in the last sample."""

    own: Mapping[str, Any] | None = None
    """Its state without partitions; None if it did not respond."""
    reported: Mapping[str, Any] | None = None
    """The same, of the last sample in which it responded."""
    clock_base: int = 0
    """Wall clock of the console minus monotonic clock of the broker, as of its last row."""
    now_ms: int = 0
    """Its monotonic clock when it last responded."""


class KnownPartition:
    """A partition in the last sample, and its last row."""

    __slots__ = (
        "at_ms",
        "behind",
        "metadata",
        "number",
        "numbers",
        "raw",
        "shape",
        "shape_id",
        "silent",
    )

    def __init__(
        self,
        number: int,
        shape: Shape | None = None,
        shape_id: int = 0,
        numbers: Numbers = (),
        at_ms: int = 0,
        raw: Mapping[BrokerId, State] | None = None,
        metadata: PartitionMetadata | None = None,
    ) -> None:
        self.number = number
        self.shape = shape
        self.shape_id = shape_id
        self.numbers = numbers
        self.at_ms = at_ms
        """The time of the last row."""
        self.raw: Mapping[BrokerId, State] = raw or {}
        self.metadata = metadata
        self.behind = False
        """Whether the last row has older numbers than the last sample."""
        self.silent: frozenset[BrokerId] = frozenset()
        """Replicas in the last row whose broker did not respond then: their numbers are older."""

    def is_same(
        self,
        reported: Mapping[BrokerId, State],
        metadata: PartitionMetadata | None,
        responded: Collection[BrokerId],
    ) -> bool:
        """Whether the sample has the same objects as the last one, so no new state was fetched."""
        if self.behind or self.shape is None or metadata is not self.metadata:
            return False
        if any(self.raw.get(broker) is not state for broker, state in reported.items()):
            return False
        return all(broker in reported or broker not in responded for broker in self.raw)

    def events(
        self,
        at_ms: int,
        key: TopicPartition,
        metadata: PartitionMetadata | None,
        replicas: Mapping[BrokerId, State],
    ) -> Iterable[HistoryEvent]:
        """Return the events between the last sample and this one."""
        if self.shape is None:
            return []
        before = derive.standing(self.metadata, self.raw)
        after = derive.standing(metadata, replicas)
        found: list[HistoryEvent] = []
        if before is not None and after is not None:
            found += derive.partition_events(at_ms, key, before, after)
        for broker, state in replicas.items():
            damage = state.get("damage")
            if damage is not None and self.raw.get(broker, {}).get("damage") is None:
                found.append(derive.damage_event(at_ms, key, broker, damage))
        return found
