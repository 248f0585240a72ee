"""Followers that have not asked yet for what is led here since a moment ago.

A follower has one fetch with each leader. If that waits for records of other partitions when
a new one comes to be led here, the new one would be asked for half a second later, and its
first acknowledgement by all replicas would wait as long. So a follower that is missed is kept
waiting for a few milliseconds only, until it asks, or for so long that it may have other
reasons: it hears of the partition from the store, as this broker did.
"""

from collections.abc import Container

from tidelog.core.types import BrokerId, TopicPartition

WAIT_MS = 5
"""As long as a fetch of such a follower is kept."""
MISSED_MS = 200
"""So long a follower is missed."""


class MissedFollowers:
    """Who is missed, for which partitions, and until when."""

    __slots__ = ("_missed",)

    def __init__(self) -> None:
        self._missed: dict[BrokerId, dict[TopicPartition, int]] = {}
        """The longest missed first."""

    def __bool__(self) -> bool:
        return bool(self._missed)

    def miss(self, follower: BrokerId, partition: TopicPartition, now_ms: int) -> None:
        missed = self._missed.setdefault(follower, {})
        missed.pop(partition, None)
        missed[partition] = now_ms + MISSED_MS
        self._drop_found(missed, (), now_ms)

    def is_missed(self, follower: BrokerId, asked: Container[TopicPartition], now_ms: int) -> bool:
        """Whether this follower, who asks for these, lacks one."""
        missed = self._missed.get(follower)
        if missed is None:
            return False
        self._drop_found(missed, asked, now_ms)
        if not missed:
            del self._missed[follower]
        return bool(missed)

    @staticmethod
    def _drop_found(
        missed: dict[TopicPartition, int], asked: Container[TopicPartition], now_ms: int
    ) -> None:
        """Drop the first of them, up to one that is still missed: each is looked at once."""
        while missed:
            first = next(iter(missed))
            if first not in asked and now_ms < missed[first]:
                break
            del missed[first]
