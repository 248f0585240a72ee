"""Fetches that wait until there is enough to read.

A fetch is answered when its bytes reach `min_bytes`, when a partition has an error or diverges, or
when `max_wait_ms` is over. A follower's fetch is also answered soon after the high watermark has
passed the one it knows, or followers would learn of commits half a second late. This waits a few
milliseconds: the next records carry the high watermark as well, and a message for every commit
would double the traffic between brokers. As in Kafka, no fetch waits needlessly: bytes that are
there but do not fit count as well, and an older segment does not grow.

A parked fetch is checked only if one of its replicas changed (`Replicas.touched`), and only for
that replica: a follower of a thousand partitions costs nothing for those that are idle. A
follower's progress is noted only when its fetch arrives.
"""

from typing import TypeAlias

from tidelog.core.errors import ErrorCode
from tidelog.core.node.events import Peer
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.messages import Fetch, FetchPartition, FetchPartitionResponse
from tidelog.core.node.serving.fetch_sessions import FetchSession, Sessionless, SessionPartition
from tidelog.core.record.record_batch import HEADER_SIZE
from tidelog.core.replication.effects import AnswerFetch
from tidelog.core.replication.events import NO_PROGRESS
from tidelog.core.slotted import slotted
from tidelog.core.storage.disk import Region
from tidelog.core.storage.log import Log
from tidelog.core.storage.segment.damage import DamagedRecords
from tidelog.core.types import BrokerId, Offset

NOTHING: Offset = -1
_NONE = ErrorCode.NONE

Reads: TypeAlias = dict[tuple[Offset, int, Offset], Region]
"""Regions found in one log, by start offset, most bytes and end offset: readers at the same
position share one lookup."""


@slotted(eq=False)
class FetchPart:
    """One partition of a fetch, and its result as of now."""

    known: SessionPartition
    asked: FetchPartition
    """The position in this fetch."""
    replica: HostedReplica | None
    known_high_watermark: Offset
    """The high watermark that the reader knows."""
    answer: AnswerFetch
    region: Region | None = None
    preferred: BrokerId | None = None
    """The replica that the reader should use instead."""
    withheld: int = 0
    """Bytes that are there and that the reader would accept, but that do not fit: the next batch is
    larger."""

    throttled_ms: int = 0
    """How long the records of this partition are left out: the leader's quota is exceeded."""
    most_bytes: int | None = None
    """The most bytes for a replica that may be throttled."""

    def is_settled(self, reader: BrokerId | None) -> bool:
        """Whether the reader is caught up and knows the high watermark, and its next fetch could
        not change the ISR."""
        answer = self.answer
        return (
            answer.upto <= answer.offset
            and self.replica is not None
            and answer.error is _NONE
            and answer.diverging is None
            and self.preferred is None
            and self.known.high_watermark == self.replica.partition.high_watermark
            and (
                reader is None
                or reader in self.replica.partition.isr.members
                or (
                    self.asked.log_start_offset != NO_PROGRESS
                    and not self.replica.partition.needs_fetches_of(reader)
                )
            )
        )

    def response(self, read_committed: bool) -> FetchPartitionResponse:
        """Return the response for this partition."""
        answer, asked = self.answer, self.asked
        response = FetchPartitionResponse(
            asked.topic_partition,
            asked.topic_id,
            answer.error,
            answer.high_watermark,
            answer.last_stable_offset,
            answer.log_start_offset,
            answer.diverging,
            self.region,
            None,
            self.preferred,
        )
        if read_committed and self.region is not None and self.replica is not None:
            log = self.replica.log
            response.aborted = log.aborted_in(self.region, answer.offset, answer.upto)
        return response


def failed(asked: FetchPartition, error: ErrorCode) -> AnswerFetch:
    """Return an error for a partition without a replica on this broker."""
    return AnswerFetch(None, error, asked.offset, asked.offset, NOTHING, NOTHING, NOTHING, None)


def past_emptied(log: Log, region: Region, answer: AnswerFetch, limit: int) -> Region:
    """Skip a batch without records at the end of a segment, if records follow.

    Our cleaner leaves such a batch at the end of each segment, Kafka's only at the end of all that
    it cleaned: some clients go back to the log start when they receive one.
    """
    for segment in log.segments.from_offset(answer.offset):
        if segment.base_offset >= answer.upto or region.length != HEADER_SIZE:
            break
        if segment.path == region.path:
            if region.position + HEADER_SIZE != segment.size:
                break
        elif segment.base_offset > answer.offset:
            following = log.read(segment.base_offset, limit, answer.upto)
            region = following if following.length else region
    return region


@slotted(eq=False)
class PendingFetch:
    """A fetch, parked or about to be answered."""

    peer: Peer
    correlation: int
    request: Fetch
    session: FetchSession | Sessionless
    deadline_ms: int
    parts: list[FetchPart]
    size: int = 0
    urgent: bool = False
    """Respond at once, however few bytes there are."""
    behind: bool = False
    """The follower knows an older high watermark."""
    withheld: int = 0
    parked_partitions: int = 0
    """The partitions of a client's fetch while it waits."""

    @property
    def complete(self) -> bool:
        """Whether there is enough to respond."""
        return self.urgent or self.size + self.withheld >= self.request.min_bytes

    def add(self, part: FetchPart) -> None:
        """Add a partition."""
        self.parts.append(part)
        self.update(part)

    def update(self, part: FetchPart, reads: Reads | None = None) -> None:
        """Recompute one partition's share of the response; `reads` are recent lookups in its
        log."""
        answer = part.answer
        if part.region is not None:
            self.size -= part.region.length
            part.region = None
        if part.withheld:
            self.withheld -= part.withheld
            part.withheld = 0
        if answer.error is not _NONE or answer.diverging is not None or part.preferred is not None:
            self.urgent = True
            return
        request, offset, upto = self.request, answer.offset, answer.upto
        if request.replica is not None and answer.high_watermark > part.known_high_watermark:
            self.behind = True
        if upto <= offset or part.replica is None or part.throttled_ms:
            return
        room = request.max_bytes - self.size
        if room <= 0 and self.size:
            return
        limit = min(part.asked.max_bytes, room)
        if part.most_bytes is not None:
            limit = min(limit, part.most_bytes)
        try:
            self._find_records(part, part.replica.log, room, limit, reads)
        except DamagedRecords:
            # The client looks up the leader again: by then an undamaged replica leads.
            part.answer = failed(part.asked, ErrorCode.KAFKA_STORAGE_ERROR)
            self.urgent = True

    def _find_records(
        self, part: FetchPart, log: Log, room: int, limit: int, reads: Reads | None
    ) -> None:
        """Find the records of one partition. Raises DamagedRecords if the next batch is damaged."""
        request, answer = self.request, part.answer
        place = (answer.offset, limit, answer.upto)
        region = None if reads is None else reads.get(place)
        if region is None:
            region = log.read(*place)
            if reads is not None:
                reads[place] = region
        if region.length == HEADER_SIZE and request.replica is None:
            region = past_emptied(log, region, answer, limit)
        # The first batch of a response is sent whole however large it is, or a reader could not
        # continue (KIP-74); in a response with other records, a batch too large is left out.
        if region.length and (region.length <= room or self.size == 0):
            part.region = region
            self.size += region.length
        if region.length and not self.complete:
            self._check_growth(part, log, region, limit)

    def _check_growth(self, part: FetchPart, log: Log, region: Region, limit: int) -> None:
        """Check whether waiting could add bytes of this partition."""
        active = log.segments.active
        if region.path != active.path:
            self.urgent = True
            return
        end = log.position_of(part.answer.upto)
        taken = 0 if part.region is None else part.region.length
        part.withheld = max(0, min(limit, end - region.position) - taken)
        self.withheld += part.withheld
