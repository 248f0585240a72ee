"""Checks the checksums of all segments in the background, a little every second.

A pass looks at what was on disk when the broker started, in the order of partitions; after
`tidelog.scrub.interval.ms` the next one looks at every closed segment again. Each second it
reads at most `tidelog.scrub.max.bytes.per.second`, in pieces, so that no turn of the loop
takes long. What it finds damaged is handled as if a reader had found it (log_reporter.py).
"""

from collections.abc import Iterator

from tidelog.core.node.config import NodeConfig
from tidelog.core.node.replicas import HostedReplica, Replicas
from tidelog.core.node.turn import Turn
from tidelog.core.storage.disk import DiskError
from tidelog.core.storage.segment.segment import Segment
from tidelog.core.storage.segment.verification import damage_of, verify_next

PIECE_BYTES = 1_048_576
PIECES_A_SECOND_MAX = 10
FIRST_PASS_MS = 1000
NO_TIME_MS = -1


class Scrubber:
    """The passes of one broker over its logs."""

    def __init__(self, config: NodeConfig, turn: Turn, replicas: Replicas) -> None:
        self._turn = turn
        self._replicas = replicas
        self._bytes_a_second = config.scrub_max_bytes_per_second
        self._pass_interval_ms = config.scrub_interval_ms
        self._next_ms = turn.now_ms + FIRST_PASS_MS
        self._to_check: Iterator[tuple[HostedReplica, Segment]] | None = None
        self._at: tuple[HostedReplica, Segment] | None = None
        self.verified_bytes = 0
        """Since the broker started."""
        self.passes = 0
        self.last_pass_ms = NO_TIME_MS
        """When the last whole pass ended."""

    def tick(self) -> None:
        """Check the next piece, if it is time."""
        now_ms = self._turn.now_ms
        if now_ms < self._next_ms or not self._bytes_a_second:
            return
        piece = max(1, self._bytes_a_second // PIECES_A_SECOND_MAX)
        checked = self._check_next(min(piece, PIECE_BYTES))
        self.verified_bytes += checked
        pause_ms = 1000 * checked // self._bytes_a_second
        self._next_ms = now_ms + max(pause_ms, 1000 // PIECES_A_SECOND_MAX)
        if self._at is None:
            self._end_pass(now_ms)

    def next_ms(self) -> int | None:
        return self._next_ms if self._bytes_a_second else None

    def _check_next(self, most: int) -> int:
        if self._to_check is None:
            if self.passes:
                self._forget_checks()
            self._to_check = self._unverified()
        if self._at is None:
            self._at = next(self._to_check, None)
            if self._at is None:
                return 0
        replica, segment = self._at
        if segment.verified >= segment.opened_size or segment not in replica.log.segments:
            self._at = next(self._to_check, None)
            return 0
        try:
            log, disk = replica.log, self._replicas.directory.disk
            end = log.segments.end_of(segment) or log.log_end_offset
            checked, damage = verify_next(disk, segment, most, end)
        except DiskError as error:
            checked, damage = 0, damage_of(segment, error)
        if damage is not None:
            # It stays unverified: readers of the damaged batch get an error.
            self._replicas.damage_found(replica.topic_partition, damage)
            self._at = next(self._to_check, None)
        return checked

    def _unverified(self) -> Iterator[tuple[HostedReplica, Segment]]:
        for replica in list(self._replicas.hosted.values()):
            for segment in list(replica.log.segments):
                if segment.verified < segment.opened_size:
                    yield replica, segment

    def _end_pass(self, now_ms: int) -> None:
        """Wait for the next pass."""
        self._to_check = None
        if len(self._replicas.hosted) < len(self._replicas.directory.logs):
            # The broker does not know all its replicas yet: go on with those soon.
            self._next_ms = now_ms + FIRST_PASS_MS
            return
        self.passes += 1
        self.last_pass_ms = now_ms
        self._next_ms = now_ms + self._pass_interval_ms

    def _forget_checks(self) -> None:
        """Every closed segment is checked again."""
        for replica in self._replicas.hosted.values():
            for segment in replica.log.segments:
                if segment is not replica.log.segments.active:
                    segment.verified, segment.opened_size = 0, segment.size
