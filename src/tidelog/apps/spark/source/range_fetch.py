"""Fetch one range of one partition, and check that the log is still the one that was planned.

Invariant: when no record arrived for `timeout_s`, an error says why.
"""

import time

from tidelog.apps.spark.source.partition_lookup import is_retriable_or_no_topic, known_by_a_broker
from tidelog.apps.spark.source.range_errors import (
    RangeOutOfRange,
    RangeToRead,
    RangeUnreachable,
    TopicRecreated,
)
from tidelog.core.errors import ErrorCode
from tidelog.core.types import Offset, TopicPartition
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
from tidelog.shell.client.fetching import FetchedPartition, PartitionFetcher
from tidelog.shell.client.offsets import EARLIEST, EARLIEST_LOCAL, LATEST, list_offset
from tidelog.shell.client.retry import Retry

TIERED_WAIT_MS = 5000
"""The wait for records in tiered storage: a leader that needs longer returns an empty response."""
RECREATED_S = 1.0
"""How long a topic must be missing: a broker may lag behind the one that planned the range."""
FETCH_BYTES_MAX = 256 * 1024 * 1024
_OTHER_TOPIC = (
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


class RangeFetch(PartitionFetcher):
    """Fetches for one range; close it at the end."""

    def __init__(
        self, cluster: Cluster, wanted: RangeToRead, isolation: int, timeout_s: float
    ) -> None:
        super().__init__(cluster, TopicPartition(wanted.topic, wanted.partition), isolation)
        self._wanted = wanted
        self._timeout_s = timeout_s
        self._retry: Retry | None = None
        """Runs while a response is awaited, and ends with progress."""
        self._other_since: float | None = None
        self._log_end = -1

    def progress(self) -> None:
        """Note that records arrived.

        The time limit starts again with the next request, because Spark may use the rows slowly.
        """
        self._retry = None
        self._other_since = None

    def answer(self, offset: Offset, size: int) -> FetchedPartition:
        """Return the leader's records at `offset`; valid until the next call.

        Raises RangeError, and BrokerError for permanent errors.
        """
        self._retry = self._retry or Retry(self._timeout_s)
        while True:
            try:
                found = self.attempt(offset, size)
            except ClientError as error:
                if not is_retriable_or_no_topic(error):
                    raise
                self.pause(offset, str(error))
            else:
                self._other_since = None
                self._log_end = found.readable_end(self.isolation)
                return found

    def pause(self, offset: Offset, why: str) -> None:
        """Wait before the next attempt. Raises RangeUnreachable when the time is up."""
        self._retry = self._retry or Retry(self._timeout_s)
        unreachable = RangeUnreachable(self._wanted, offset, self._log_end, self._timeout_s, why)
        self._retry.wait(unreachable)

    # -- checks against the plan ----------------------------------------------------------------

    def refused(self, offset: Offset, code: int) -> None:
        if code in _OTHER_TOPIC:
            self.cluster.refresh([self._wanted.topic])
            self.planned_topic(offset)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._check_log(offset)
            code = ErrorCode.OFFSET_NOT_AVAILABLE  # the log has the offset by now
        super().refused(offset, code)

    def planned_topic(self, offset: Offset) -> TopicMetadata:
        """Return the topic, if it is the one that the range was planned for."""
        wanted = self._wanted
        found_id = None
        try:
            found = self.cluster.topic(wanted.topic)
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
            and known_by_a_broker(self.cluster, planned) is None
        ):
            raise TopicRecreated(wanted, offset, found_id)
        raise BrokerError(f"fetch of topic {wanted.topic!r}", ErrorCode.UNKNOWN_TOPIC_ID)

    def is_on_disk(self, offset: Offset) -> bool:
        """Return whether the leader has the offset on its own disk.

        Then an empty response means that no record is left. With tiered storage (KIP-405) it may
        also mean that the remote storage is slow.
        """
        wanted = self._wanted
        try:
            first = list_offset(self.cluster, wanted.topic, wanted.partition, EARLIEST_LOCAL)
        except NotOffered:
            return True  # older than tiered storage
        except (BrokerError, CannotConnect, Unresolved, NoSuchTopic):
            return False
        if offset < first.offset:
            self.max_wait_ms = TIERED_WAIT_MS
        return offset >= first.offset

    def _check_log(self, offset: Offset) -> None:
        """Raise RangeOutOfRange if the leader's log really does not have the offset."""
        wanted = self._wanted
        log_start = list_offset(self.cluster, wanted.topic, wanted.partition, EARLIEST).offset
        log_end = list_offset(self.cluster, wanted.topic, wanted.partition, LATEST).offset
        if not log_start <= offset <= log_end:
            raise RangeOutOfRange(wanted, offset, log_start, log_end)
