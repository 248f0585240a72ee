"""Flushes: group commit where acknowledgements wait for the disk, and Kafka's policies.

One flush runs at a time, over all logs that need one; records appended meanwhile wait for the
next. So the disk syncs as often as it can, and a hundred produces share one sync. By default only
rolled segments are flushed here: the operating system writes the rest later, and
replication protects the records.
"""

from tidelog.core.node.effects import Flush
from tidelog.core.node.hosting.gate import Gate
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.hosting.replicas import Replicas
from tidelog.core.node.turn import Turn
from tidelog.core.replication.events import RecordsFlushed
from tidelog.core.storage import flush as log_flush
from tidelog.core.storage.disk import DiskError


class Flushing:
    """The running flush; logs that wait are in `Replicas.to_flush`."""

    def __init__(self, turn: Turn, replicas: Replicas, gate: Gate) -> None:
        self._turn = turn
        self._gate = gate
        self._replicas = replicas
        self._under_way: list[tuple[HostedReplica, log_flush.Flush]] = []
        self._number = 0

    def pump(self) -> None:
        """Start the next flush, if none is running and a log needs it."""
        waiting = self._replicas.to_flush
        if self._under_way or not waiting:
            return
        files: dict[str, None] = {}
        directories: dict[str, None] = {}
        flushed = []
        for replica in waiting:
            if not self._hosted(replica):
                continue
            if replica.partition.config.flush_before_ack:
                upto = None
            else:
                upto = replica.log.flush_due(self._turn.now_ms)
            flush = replica.log.start_flush(upto)
            if flush is None:
                flushed.append(replica)
                continue
            self._under_way.append((replica, flush))
            files.update(dict.fromkeys(flush.files))
            directories.update(dict.fromkeys(flush.directories))
        waiting.clear()
        if self._under_way:
            self._number += 1
            self._turn.emit(Flush(self._number, tuple(files), tuple(directories)))
        for replica in flushed:
            self._report_flushed(replica)

    def completed(self, number: int, error: str | None) -> None:
        """Apply the result of a flush; raises DiskError if it failed."""
        if error is not None:
            raise DiskError(error, "")
        if number != self._number:
            return
        under_way, self._under_way = self._under_way, []
        for replica, flush in under_way:
            if self._hosted(replica):
                replica.log.flush_completed(flush)
                self._report_flushed(replica)

    def begin_acting(self) -> None:
        """Report flushed offsets to leaders, which were not reported while fenced."""
        for replica in list(self._replicas.hosted.values()):
            self._report_flushed(replica)

    def _report_flushed(self, replica: HostedReplica) -> None:
        """Report the flushed offset to the partition. A leader might then commit, so it gets the
        report only while this broker serves."""
        partition = replica.partition
        if partition.config.flush_before_ack and (self._gate.serving or not partition.is_leader):
            event = RecordsFlushed(replica.log.recovery_point, self._turn.now_ms)
            self._replicas.step(replica, event)
            self._replicas.flushed(replica)
            self._replicas.check_flush(replica)

    def _hosted(self, replica: HostedReplica) -> bool:
        return self._replicas.hosted.get(replica.topic_partition) is replica
