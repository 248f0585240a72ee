"""Fetches of one partition from whoever leads it, the next one sent before the last is used.

Always true: an answer is only taken for the offset it was asked for; a connection with an
answer under way is never used for anything else; when nothing has come for `timeout_s`, an
error says what stood in the way.
"""

import time
from typing import NamedTuple

from tidelog.apps.spark.source.range_errors import (
    RangeOutOfRange,
    RangeToRead,
    RangeUnreachable,
    TopicRecreated,
)
from tidelog.apps.spark.source.survey import is_retriable_or_no_topic, somebody_knows
from tidelog.core.errors import ErrorCode
from tidelog.core.types import Offset, TopicPartition
from tidelog.core.wire.codec import Struct
from tidelog.shell.client.api_keys import FETCH
from tidelog.shell.client.client_errors import (
    BrokerError,
    CannotConnect,
    ClientError,
    NoSuchTopic,
    NotOffered,
    Unresolved,
)
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.cluster_metadata import NO_TOPIC_ID, TopicMetadata
from tidelog.shell.client.connection import KafkaConnection, Question, ReceiveMemory
from tidelog.shell.client.reader import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    READ_COMMITTED,
    FetchedPartition,
    FetchFrom,
    fetch_request,
    list_offset,
    read_fetched,
)
from tidelog.shell.client.retry import Retry

MAX_WAIT_MS = 500
TIERED_WAIT_MS = 5000
"""For what a leader has to get from elsewhere first: it answers with nothing when that takes
longer than its client would wait."""
RECREATED_S = 1.0
"""A broker may know less than the one that was asked when the range was planned."""
FETCH_BYTES_MAX = 256 * 1024 * 1024
_OTHER_TOPIC = (
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


class Answer(NamedTuple):
    """What a leader said."""

    found: FetchedPartition
    throttled: bool

    def readable_end(self, isolation: int) -> Offset:
        """Up to where readers of that kind may see."""
        committed = isolation == READ_COMMITTED
        return self.found.last_stable_offset if committed else self.found.high_watermark


class _Asked(NamedTuple):
    connection: KafkaConnection
    question: Question
    offset: Offset


class RangeFetch:
    """Fetches for one range; close it in the end."""

    def __init__(
        self, cluster: Cluster, wanted: RangeToRead, isolation: int, timeout_s: float
    ) -> None:
        self._cluster = cluster
        self._wanted = wanted
        self._key = TopicPartition(wanted.topic, wanted.partition)
        self._isolation = isolation
        self._timeout_s = timeout_s
        self._memory = ReceiveMemory()
        self._asked: _Asked | None = None
        self._stale = False
        self._retry: Retry | None = None
        """Runs while an answer is awaited, and ends with progress."""
        self._other_since: float | None = None
        self._log_end = -1
        self._max_wait_ms = MAX_WAIT_MS

    def close(self) -> None:
        """An answer that is still under way is nobody's: its connection goes."""
        if self._asked is not None:
            self._asked.connection.close()
            self._asked = None

    def progress(self) -> None:
        """Something came. The time begins anew when more is asked for: whoever takes the rows
        may take long."""
        self._retry = None
        self._other_since = None

    def ask_ahead(self, offset: Offset, size: int) -> None:
        """Send the next fetch; what goes wrong shows when its answer is asked for."""
        try:
            self._send(offset, size)
        except (BrokerError, CannotConnect, Unresolved, NoSuchTopic):
            self.close()
            self._stale = True

    def answer(self, offset: Offset, size: int) -> Answer:
        """What lies at `offset`; good until the next answer is asked for. Raises RangeError, and
        BrokerError for what is final."""
        self._retry = self._retry or Retry(self._timeout_s)
        while True:
            try:
                if self._asked is None or self._asked.offset != offset:
                    self.close()
                    self._send(offset, size)
                return self._take(offset)
            except ClientError as error:
                self.close()
                self._stale = True
                if not is_retriable_or_no_topic(error):
                    raise
                self.pause(offset, str(error))

    def pause(self, offset: Offset, why: str) -> None:
        """Wait a little before another try. Raises RangeUnreachable when the time is up."""
        self._retry = self._retry or Retry(self._timeout_s)
        unreachable = RangeUnreachable(self._wanted, offset, self._log_end, self._timeout_s, why)
        self._retry.wait(unreachable)

    # -- one fetch ----------------------------------------------------------------------------

    def _send(self, offset: Offset, size: int) -> None:
        if self._stale:
            self._cluster.refresh([self._wanted.topic])
            self._stale = False
        topics = {self._wanted.topic: self._planned_topic(offset)}
        leader = self._cluster.leader(*self._key)
        connection = self._cluster.broker(leader.leader)
        place = FetchFrom(offset, leader.leader_epoch, size)
        request, newest = fetch_request(
            topics, {self._key: place}, self._isolation, self._max_wait_ms, 1, size
        )
        self._asked = _Asked(connection, connection.ask(FETCH, request, newest), offset)

    def _take(self, offset: Offset) -> Answer:
        assert self._asked is not None
        connection, question, _ = self._asked
        wait_s = self._max_wait_ms / 1000 + connection.timeout_s
        answer = connection.answer(question, wait_s, self._memory)
        self._asked = None
        found = self._partition(answer)
        if found.error in _OTHER_TOPIC:
            self._cluster.refresh([self._wanted.topic])
            self._planned_topic(offset)
        if found.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._check_log(offset)
        if found.error:
            what = f"fetch of {self._key} at offset {offset}"
            if found.error == ErrorCode.OFFSET_OUT_OF_RANGE:  # and yet it is there by now
                raise BrokerError(what, ErrorCode.OFFSET_NOT_AVAILABLE)
            raise BrokerError(what, found.error)
        self._other_since = None
        told = Answer(found, bool(answer.get("throttle_time_ms")))
        self._log_end = told.readable_end(self._isolation)
        return told

    def _partition(self, answer: Struct) -> FetchedPartition:
        wanted = self._wanted
        topic = TopicMetadata(wanted.topic, 0, wanted.topic_id, False, {})
        found = read_fetched(answer, {wanted.topic: topic}).get(self._key)
        if found is None:
            raise BrokerError(f"fetch of {self._key}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return found

    # -- is it still what was planned? ----------------------------------------------------------

    def _planned_topic(self, offset: Offset) -> TopicMetadata:
        """The topic, if it is the one that the range was planned for."""
        wanted = self._wanted
        found_id = None
        try:
            found = self._cluster.topic(wanted.topic)
            if found.id == wanted.topic_id or NO_TOPIC_ID in (found.id, wanted.topic_id):
                return found._replace(id=wanted.topic_id)
            found_id = found.id
        except NoSuchTopic:
            pass
        now = time.monotonic()
        self._other_since = self._other_since or now
        doubted_s = now - self._other_since
        planned = {wanted.topic: wanted.topic_id}
        if (
            doubted_s > min(RECREATED_S, self._timeout_s / 2)
            and somebody_knows(self._cluster, planned) is None
        ):
            raise TopicRecreated(wanted, offset, found_id)
        raise BrokerError(f"topic {wanted.topic!r}", ErrorCode.UNKNOWN_TOPIC_ID)

    def is_on_disk(self, offset: Offset) -> bool:
        """Whether the leader has the offset's part of the log itself: then it sends all there is.
        With tiered storage (KIP-405) it sends nothing, too, while another place is slow."""
        wanted = self._wanted
        try:
            first = list_offset(self._cluster, wanted.topic, wanted.partition, EARLIEST_LOCAL)
        except NotOffered:
            return True  # older than tiered storage
        except (BrokerError, CannotConnect, Unresolved, NoSuchTopic):
            return False
        if offset < first.offset:
            self._max_wait_ms = TIERED_WAIT_MS
        return offset >= first.offset

    def _check_log(self, offset: Offset) -> None:
        """Raises RangeOutOfRange if the leader's log really does not have the offset."""
        wanted = self._wanted
        log_start = list_offset(self._cluster, wanted.topic, wanted.partition, EARLIEST).offset
        log_end = list_offset(self._cluster, wanted.topic, wanted.partition, LATEST).offset
        if not log_start <= offset <= log_end:
            raise RangeOutOfRange(wanted, offset, log_start, log_end)
