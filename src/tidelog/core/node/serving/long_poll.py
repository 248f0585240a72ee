"""Fetches that wait until there is something to read.

A fetch is answered when its bytes reach `min_bytes`, when some partition has an error or
diverges, or when `max_wait_ms` is over. A follower's is also answered soon after the high
watermark has passed what it was last told, or followers would learn of commits half a
second late. Not at once: the next records tell it as well, and a message for every commit
would double the traffic between brokers. Nor does one wait in vain, as with Kafka: what is
there but does not fit counts as well, and what an older segment has won't grow.

A parked fetch is looked at only where something happened (`Replicas.touched`), and only
that part of it: a follower of a thousand partitions costs nothing while nine hundred sleep.
Only the first look notes the follower's progress.
"""

from typing import TypeAlias

from tidelog.core.errors import ErrorCode
from tidelog.core.node.events import Peer
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.messages import Fetch, FetchPartition, FetchPartitionResponse
from tidelog.core.node.serving.fetch_sessions import FetchSession, Sessionless, SessionPartition
from tidelog.core.record.record_batch import HEADER_SIZE
from tidelog.core.replication.effects import AnswerFetch
from tidelog.core.slotted import slotted
from tidelog.core.storage.disk import Region
from tidelog.core.storage.log import Log
from tidelog.core.storage.segment.verification import DamagedRecords
from tidelog.core.types import BrokerId, Offset

NOTHING: Offset = -1
_NONE = ErrorCode.NONE

Reads: TypeAlias = dict[tuple[Offset, int, Offset], Region]
"""What was found in one log from an offset on, in so many bytes, below another offset: readers
who are at the same place get the same answer, which is then read from the file once."""


@slotted(eq=False)
class FetchPart:
    """One partition of a fetch, as it would be answered now."""

    known: SessionPartition
    asked: FetchPartition
    """As it was asked in this fetch."""
    replica: HostedReplica | None
    told: Offset
    """The high watermark that the reader knows of."""
    answer: AnswerFetch
    region: Region | None = None
    preferred: BrokerId | None = None
    """Where the reader should read instead."""
    withheld: int = 0
    """How many more bytes the reader would take, but the next batch is larger."""

    def is_settled(self, reader: BrokerId | None) -> bool:
        """Whether the reader has all there is, and knows it. A follower must also be in the
        ISR: outside of it every fetch is another try to get in."""
        answer = self.answer
        return (
            answer.upto <= answer.offset
            and self.replica is not None
            and answer.error is _NONE
            and answer.diverging is None
            and self.preferred is None
            and self.known.high_watermark == self.replica.partition.high_watermark
            and (reader is None or reader in self.replica.partition.isr.members)
        )

    def response(self, read_committed: bool) -> FetchPartitionResponse:
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
            response.aborted = log.aborted_transactions(answer.offset, answer.upto)
        return response


def failed(asked: FetchPartition, error: ErrorCode) -> AnswerFetch:
    """An error of a partition that has no replica here to speak for it."""
    return AnswerFetch(None, error, asked.offset, asked.offset, NOTHING, NOTHING, NOTHING, None)


def past_emptied(log: Log, region: Region, answer: AnswerFetch, limit: int) -> Region:
    """What follows a batch without records at the end of a segment, if anything does.

    Our cleaner leaves one at the end of each segment, Kafka's only at the end of all that it
    cleaned: so there are clients who go back to the log's start when they are given one.
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
    """Something must be told at once, however few bytes there are."""
    behind: bool = False
    """The follower knows of less than is committed."""
    withheld: int = 0
    parked_partitions: int = 0
    """Of a client's fetch, once it waits."""

    @property
    def ripe(self) -> bool:
        return self.urgent or self.size + self.withheld >= self.request.min_bytes

    def add(self, part: FetchPart) -> None:
        self.parts.append(part)
        self.look(part)

    def look(self, part: FetchPart, reads: Reads | None = None) -> None:
        """Take in what this part has to say now; `reads` of its log were made just before."""
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
        if request.replica is not None and answer.high_watermark > part.told:
            self.behind = True
        if upto <= offset or part.replica is None:
            return
        room = request.max_bytes - self.size
        if room <= 0 and self.size:
            return
        limit = min(part.asked.max_bytes, room)
        try:
            self._take_records(part, part.replica.log, room, limit, reads)
        except DamagedRecords:
            # The client asks for the leader again: by then a sound replica leads.
            part.answer = failed(part.asked, ErrorCode.KAFKA_STORAGE_ERROR)
            self.urgent = True

    def _take_records(
        self, part: FetchPart, log: Log, room: int, limit: int, reads: Reads | None
    ) -> None:
        """Find the records of this part. Raises DamagedRecords if the next batch is damaged."""
        request, answer = self.request, part.answer
        place = (answer.offset, limit, answer.upto)
        region = None if reads is None else reads.get(place)
        if region is None:
            region = log.read(*place)
            if reads is not None:
                reads[place] = region
        if region.length == HEADER_SIZE and request.replica is None:
            region = past_emptied(log, region, answer, limit)
        # The first batch comes whole however large it is, or a reader would be stuck
        # (KIP-74); in an answer that has something already, too large is left for later.
        if region.length and (region.length <= room or self.size == 0):
            part.region = region
            self.size += region.length
        if region.length and not self.ripe:
            self._weigh(part, log, region, limit)

    def _weigh(self, part: FetchPart, log: Log, region: Region, limit: int) -> None:
        """Find out whether waiting could bring more of this partition."""
        active = log.segments.active
        if region.path != active.path:
            self.urgent = True
            return
        end = log.position_of(part.answer.upto)
        taken = 0 if part.region is None else part.region.length
        part.withheld = max(0, min(limit, end - region.position) - taken)
        self.withheld += part.withheld
