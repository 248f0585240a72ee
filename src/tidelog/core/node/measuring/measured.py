"""What can be measured of a node: its counters, its journal, who waits in it, its session."""

from typing import NamedTuple

from tidelog.core.node.measuring.counters import Counters
from tidelog.core.node.measuring.journal import Journal
from tidelog.core.node.membership.registration import Registration
from tidelog.core.node.serving.fetch import FetchService
from tidelog.core.node.serving.offsets import OffsetService
from tidelog.core.node.serving.produce import ProduceService


class Measured(NamedTuple):
    """The parts of a node that have something to show."""

    counters: Counters
    journal: Journal
    registration: Registration
    produces: ProduceService
    fetches: FetchService
    offsets: OffsetService

    def purgatory(self) -> dict[str, int]:
        """How many requests wait, under Kafka's names for what they are."""
        return {
            "Produce": self.produces.waiting,
            "Fetch": self.fetches.waiting,
            "DeleteRecords": self.offsets.waiting,
        }
