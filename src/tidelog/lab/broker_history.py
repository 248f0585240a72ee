"""History events of brokers that run in the lab, in the format of a broker's JSON log.

The simulator and stories use it, so that a reader of history (core/history.py) needs one parser.
Log ends and high watermarks are no log events, so the lab also samples replicas: the console shows
a run from these samples.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tidelog.core.history import HistoryEvent
from tidelog.core.node.description import describe
from tidelog.core.node.measuring.journal import EVENTS, Note
from tidelog.core.node.node import Node
from tidelog.core.types import BrokerId

SAMPLED = "replica_sampled"
SAMPLED_FIELDS = (
    "topic",
    "partition",
    "role",
    "leader",
    "leader_epoch",
    "partition_epoch",
    "log_start_offset",
    "log_end_offset",
    "high_watermark",
    "last_stable_offset",
    "epochs",
    "damage",
    "replicas",
    "isr",
    "maximal_isr",
    "pending_isr",
    "elr",
    "lost",
    "min_isr",
    "adding",
    "removing",
    "unclean_election",
    "unstable",
    "followers",
)
"""Fields of a sample: those of a broker's description (core/node/description.py)."""
SAMPLED_MEANING = (
    "the state of a replica after it changed, as in `tidelog partition describe`; `followers` are"
    " the followers as their leader sees them"
)
_OF_FOLLOWERS = ("broker", "log_end_offset", "log_start_offset", "in_isr")


def logged(broker: BrokerId | None, at_ms: int, notes: Iterable[Note]) -> Iterator[HistoryEvent]:
    """Yield the event of each note that a broker wrote to its journal.

    The broker is None for a controller that does not run in a broker.
    """
    name = "controller" if broker is None else f"broker {broker}"
    for note in notes:
        level, text = EVENTS[note.event].level, f"{name}: {note.text()}"
        yield HistoryEvent(at_ms, broker, note.event, note.fields(), level, text)


def stopped(broker: BrokerId, at_ms: int, *, clean: bool) -> HistoryEvent:
    """Return the event that a broker's supervisor logs when the process ends."""
    level, text = ("INFO", "stopped cleanly") if clean else ("ERROR", "stopped")
    return HistoryEvent(
        at_ms, broker, "stopped", {"clean": clean}, level, f"broker {broker}: {text}"
    )


class ReplicaSamples:
    """The samples of one broker: one for each replica, whenever it changed."""

    def __init__(self, every_ms: int = 0) -> None:
        """`every_ms`: the shortest time between two samples of the broker."""
        self._every_ms = every_ms
        self._looked_ms: int | None = None
        self._last: dict[tuple[str, int], dict[str, Any]] = {}

    def take(self, broker: BrokerId, at_ms: int, node: Node) -> Iterator[HistoryEvent]:
        """Yield a sample of each replica that changed since the last one."""
        if self._looked_ms is not None and at_ms - self._looked_ms < self._every_ms:
            return
        self._looked_ms = at_ms
        yield from self.changed(broker, at_ms, describe(node)["partitions"])

    def changed(
        self, broker: BrokerId, at_ms: int, partitions: Iterable[Mapping[str, Any]]
    ) -> Iterator[HistoryEvent]:
        """Yield a sample of each replica in a description that changed since the last one."""
        for each in partitions:
            fields = {name: each.get(name) for name in SAMPLED_FIELDS}
            fields["followers"] = [
                {name: follower[name] for name in _OF_FOLLOWERS} for follower in each["followers"]
            ]
            key = (each["topic"], each["partition"])
            if self._last.get(key) != fields:
                self._last[key] = fields
                yield HistoryEvent(at_ms, broker, SAMPLED, fields, "INFO", _sentence(fields))


def _sentence(fields: dict[str, Any]) -> str:
    return (
        f"{fields['topic']}-{fields['partition']}: {fields['role']} in leader epoch"
        f" {fields['leader_epoch']}, LEO {fields['log_end_offset']}, HW {fields['high_watermark']}"
    )
