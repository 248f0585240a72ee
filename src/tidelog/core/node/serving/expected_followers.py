"""Followers that should soon fetch a partition which this broker has just begun to lead.

A follower has one fetch with each leader. If that fetch waits for records of other partitions when
this broker becomes the leader of another one, the follower would fetch the new partition half a
second later, and the first acks=all there would wait as long. So the fetch of an expected follower
waits only a few milliseconds, until the follower fetches the partition or `EXPECTED_MS` are over.
The follower learns of the partition from the store, as this broker did.
"""

from collections.abc import Container

from tidelog.core.types import BrokerId, TopicPartition

WAIT_MS = 5
"""How long a fetch of an expected follower waits."""
EXPECTED_MS = 200
"""How long a follower is expected."""


class ExpectedFollowers:
    """The expected followers, with the partitions and until when."""

    __slots__ = ("_expected",)

    def __init__(self) -> None:
        self._expected: dict[BrokerId, dict[TopicPartition, int]] = {}
        """By follower: partitions with deadlines, the earliest first."""

    def __bool__(self) -> bool:
        return bool(self._expected)

    def expect(self, follower: BrokerId, partition: TopicPartition, now_ms: int) -> None:
        """Expect a follower to fetch a partition."""
        expected = self._expected.setdefault(follower, {})
        expected.pop(partition, None)
        expected[partition] = now_ms + EXPECTED_MS
        self._drop_found(expected, (), now_ms)

    def lacks_any(self, follower: BrokerId, asked: Container[TopicPartition], now_ms: int) -> bool:
        """Whether a follower that fetches these partitions lacks one that is expected."""
        expected = self._expected.get(follower)
        if expected is None:
            return False
        self._drop_found(expected, asked, now_ms)
        if not expected:
            del self._expected[follower]
        return bool(expected)

    @staticmethod
    def _drop_found(
        expected: dict[TopicPartition, int], asked: Container[TopicPartition], now_ms: int
    ) -> None:
        """Drop the first ones that were found or are late; each partition is dropped once."""
        while expected:
            first = next(iter(expected))
            if first not in asked and now_ms < expected[first]:
                break
            del expected[first]
