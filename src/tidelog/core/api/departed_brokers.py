"""Brokers that left a moment ago, which Metadata still lists.

New leaders are in the response at once, but a client should not see both changes together: when a
broker disappears from the list, librdkafka closes its connection, and for a second does not serve
the partitions that have just moved to another leader. So responses list a dead broker for one more
second; Kafka lists it until its session ends.
"""

from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.controller.metadata.registrations import BrokerRegistration
from tidelog.core.types import BrokerId

KEPT_MS = 1000


class DepartedBrokers:
    """The live brokers, and the time at which others left."""

    __slots__ = ("_alive", "_departed")

    def __init__(self) -> None:
        self._alive: dict[BrokerId, BrokerRegistration] = {}
        self._departed: dict[BrokerId, tuple[BrokerRegistration, int]] = {}

    def note(self, image: ClusterImage, now_ms: int) -> None:
        """Update the lists after a change of the image."""
        alive = {known.id: known for known in image.brokers.values() if not known.fenced}
        for broker, known in self._alive.items():
            if broker not in alive:
                self._departed[broker] = (known, now_ms)
        for broker in alive:
            self._departed.pop(broker, None)
        self._alive = alive

    def lately(self, now_ms: int) -> list[BrokerRegistration]:
        """The registrations of brokers that left within the last second."""
        for broker, (_, left_ms) in list(self._departed.items()):
            if now_ms - left_ms >= KEPT_MS:
                del self._departed[broker]
        return [known for known, _ in self._departed.values()]
