"""Brokers that left a moment ago are still named in Metadata.

Others lead instead of them at once, but clients should not hear both at once: a broker that
is gone from the list makes librdkafka give up its connection, and with it for a second the
partitions that have just moved elsewhere. So the first answers after a death still name the
dead; Kafka does for as long as its session lasts.
"""

from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.controller.metadata.registrations import BrokerRegistration
from tidelog.core.types import BrokerId

KEPT_MS = 1000


class DepartedBrokers:
    """Who was alive until when."""

    __slots__ = ("_alive", "_departed")

    def __init__(self) -> None:
        self._alive: dict[BrokerId, BrokerRegistration] = {}
        self._departed: dict[BrokerId, tuple[BrokerRegistration, int]] = {}

    def note(self, image: ClusterImage, now_ms: int) -> None:
        """The image has changed."""
        alive = {known.id: known for known in image.brokers.values() if not known.fenced}
        for broker, known in self._alive.items():
            if broker not in alive:
                self._departed[broker] = (known, now_ms)
        for broker in alive:
            self._departed.pop(broker, None)
        self._alive = alive

    def lately(self, now_ms: int) -> list[BrokerRegistration]:
        """Those to be named although they are gone, as they were."""
        for broker, (_, left_ms) in list(self._departed.items()):
            if now_ms - left_ms >= KEPT_MS:
                del self._departed[broker]
        return [known for known, _ in self._departed.values()]
