"""Verify the checksums of all segments in the background, a little at a time.

A pass verifies the data that was on disk when the broker started, in the order of partitions; after
`tidelog.scrub.interval.ms` the next pass verifies everything that was written by then. It reads at
most `tidelog.scrub.max.bytes.per.second`, in pieces, so that no turn of the loop takes long.

More often it compares the sizes of all segments with those of their files, by name: a file that was
deleted or truncated while the broker has it open is found within seconds. Damage is handled as if
a reader had found it (log_reporter.py).
"""

from collections.abc import Iterator

from tidelog.core.node.config import NodeConfig
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.hosting.replicas import Replicas
from tidelog.core.node.turn import Turn
from tidelog.core.storage.disk import DiskError
from tidelog.core.storage.segment.damage import Damage, damage_by_size, damage_of, verify_next
from tidelog.core.storage.segment.segment import Segment

PIECE_BYTES = 1_048_576
PIECES_A_SECOND = 10
"""Pieces read in a second, if they are smaller than `PIECE_BYTES`."""
PAUSE_MIN_MS = 5
SEGMENTS_AT_ONCE = 16
SEGMENT_COST_BYTES = 16_384
"""Cost of each segment besides its bytes: many small segments cost time too."""
FIRST_PASS_MS = 1000
SIZES_INTERVAL_MS = 10_000
"""Between two comparisons of all sizes."""
SIZES_AT_ONCE = 100
SIZES_PAUSE_MS = 100
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
        self._sizes_ms = turn.now_ms + FIRST_PASS_MS
        self._to_compare: Iterator[tuple[HostedReplica, Segment]] = iter(())
        self.verified_bytes = 0
        """Since the broker started."""
        self.passes = 0
        self.last_pass_ms = NO_TIME_MS
        """When the last whole pass ended."""

    def tick(self) -> None:
        """Check the next piece, if it is time."""
        if not self._bytes_a_second:
            return
        now_ms = self._turn.now_ms
        if now_ms >= self._next_ms:
            self._check_piece(now_ms)
        if now_ms >= self._sizes_ms:
            self._compare_sizes(now_ms)

    def next_ms(self) -> int | None:
        """When `tick` has something to do."""
        return min(self._next_ms, self._sizes_ms) if self._bytes_a_second else None

    def _check_piece(self, now_ms: int) -> None:
        piece = min(max(1, self._bytes_a_second // PIECES_A_SECOND), PIECE_BYTES)
        cost = 0
        for _ in range(SEGMENTS_AT_ONCE):
            checked = self._check_next(piece - cost)
            self.verified_bytes += checked
            cost += checked + SEGMENT_COST_BYTES
            if self._at is None or cost >= piece:
                break
        pause_ms = 1000 * cost // self._bytes_a_second
        self._next_ms = now_ms + max(pause_ms, PAUSE_MIN_MS)
        if self._at is None:
            self._end_pass(now_ms)

    def _compare_sizes(self, now_ms: int) -> None:
        """Look for files that are missing or too short."""
        directory = self._replicas.directory
        for count, (replica, segment) in enumerate(self._to_compare, start=1):
            if self._is_here(replica, segment):
                disk = directory.disk_of(replica.topic_partition)
                damage = damage_by_size(disk, segment)
                if damage is not None:
                    self._lost_bytes(replica, segment, damage)
            if count == SIZES_AT_ONCE:
                self._sizes_ms = now_ms + SIZES_PAUSE_MS
                return
        self._to_compare = self._all_segments()
        self._sizes_ms = now_ms + SIZES_INTERVAL_MS

    def _is_here(self, replica: HostedReplica, segment: Segment) -> bool:
        """Whether the segment still exists since it was listed."""
        log = replica.log
        if self._replicas.hosted.get(replica.topic_partition) is not replica or log.offline:
            return False
        return next(log.segments.from_offset(segment.base_offset)) is segment

    def _lost_bytes(self, replica: HostedReplica, segment: Segment, damage: Damage) -> None:
        log, directory = replica.log, self._replicas.directory
        directory.restore_folder(log)
        if damage.offset < log.log_end_offset:
            log.require_verification(segment.path)
            self._replicas.damage_found(replica.topic_partition, damage)
        else:
            # It was empty. Records that are appended to a deleted file would be lost.
            disk = directory.disk_of(log.partition)
            disk.delete(segment.path)
            disk.write(segment.path, b"")

    def _all_segments(self) -> Iterator[tuple[HostedReplica, Segment]]:
        for replica in list(self._replicas.hosted.values()):
            for segment in list(replica.log.segments):
                yield replica, segment

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
        if segment.verified >= segment.opened_size or not self._is_here(replica, segment):
            self._at = next(self._to_check, None)
            return 0
        try:
            log = replica.log
            disk = self._replicas.directory.disk_of(log.partition)
            checked, damage = verify_next(disk, segment, most, log.expected_of(segment))
        except DiskError as error:
            checked, damage = 0, damage_of(segment, error)
        if damage is not None:
            # It stays unverified: readers of the damaged batch get an error.
            self._replicas.damage_found(replica.topic_partition, damage)
            self._at = next(self._to_check, None)
        return checked

    def _unverified(self) -> Iterator[tuple[HostedReplica, Segment]]:
        for replica, segment in self._all_segments():
            if segment.verified < segment.opened_size:
                yield replica, segment

    def _end_pass(self, now_ms: int) -> None:
        """Wait for the next pass."""
        self._to_check = None
        if len(self._replicas.hosted) < len(self._replicas.directory.logs):
            # The broker does not know all its replicas yet: continue soon with the others.
            self._next_ms = now_ms + FIRST_PASS_MS
            return
        self.passes += 1
        self.last_pass_ms = now_ms
        self._next_ms = now_ms + self._pass_interval_ms

    def _forget_checks(self) -> None:
        """Check everything again, including the written part of the active segments."""
        for replica in self._replicas.hosted.values():
            for segment in replica.log.segments:
                segment.require_verification()
