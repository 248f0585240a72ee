"""Flushes: group commit where acknowledgements wait for the disk, and Kafka's policies.

One flush runs at a time in each log directory, over all its logs that need one; records appended
meanwhile wait for the next. So the disk syncs as often as it can, and a hundred produces share one
sync. By default only rolled segments are flushed here: the operating system writes the rest later,
and replication protects the records.
"""

from collections.abc import Callable

from tidelog.core.node.effects import Flush
from tidelog.core.node.hosting.gate import Gate
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.hosting.replicas import Replicas
from tidelog.core.node.turn import Turn
from tidelog.core.replication.events import RecordsFlushed
from tidelog.core.storage import flush as log_flush
from tidelog.core.storage.disk import DiskError


class _Running:
    """The flush that runs in one log directory."""

    def __init__(self) -> None:
        self.number = 0
        self.logs: list[tuple[HostedReplica, log_flush.Flush]] = []
        self.files: dict[str, None] = {}
        self.directories: dict[str, None] = {}


class Flushing:
    """The running flush of each log directory; logs that wait are in `Replicas.to_flush`."""

    def __init__(self, turn: Turn, replicas: Replicas, gate: Gate) -> None:
        self._turn = turn
        self._gate = gate
        self._replicas = replicas
        self._in_flight: dict[int, _Running] = {}
        """The running flushes, by the number of the log directory."""
        self._number = 0
        self._syncs: dict[int, tuple[int, Callable[[], None]]] = {}
        """Running syncs of files that do not belong to logs: the log directory, and the
        callback."""

    def sync(
        self,
        place: int,
        files: tuple[str, ...],
        directories: tuple[str, ...],
        then: Callable[[], None],
    ) -> None:
        """Sync files of a log directory outside the node, then call `then`."""
        self._number += 1
        self._syncs[self._number] = place, then
        self._turn.emit(Flush(self._number, files, directories, place))

    def pump(self) -> None:
        """Start the next flush of each directory, if none is running there and a log needs it."""
        waiting, directory = self._replicas.to_flush, self._replicas.directory
        if not waiting or len(self._in_flight) >= directory.count:
            return
        begun: dict[int, _Running] = {}
        later = []
        flushed = []
        for replica in waiting:
            if not self._hosted(replica) or replica.log.offline:
                continue
            place = directory.place_of(replica.topic_partition)
            if place in self._in_flight:
                later.append(replica)
                continue
            if replica.partition.config.flush_before_ack:
                upto = None
            else:
                upto = replica.log.flush_due(self._turn.now_ms)
            flush = replica.log.start_flush(upto)
            if flush is None:
                flushed.append(replica)
                continue
            running = begun.get(place)
            if running is None:
                running = begun[place] = _Running()
            running.logs.append((replica, flush))
            running.files.update(dict.fromkeys(flush.files))
            running.directories.update(dict.fromkeys(flush.directories))
        waiting.clear()
        waiting.update(dict.fromkeys(later))
        for place, running in begun.items():
            self._number += 1
            running.number = self._number
            self._in_flight[place] = running
            files, directories = tuple(running.files), tuple(running.directories)
            self._turn.emit(Flush(self._number, files, directories, place))
        for replica in flushed:
            self._report_flushed(replica)

    def completed(self, number: int, error: str | None) -> None:
        """Apply the result of a flush; raises DiskError if it failed in the last directory."""
        if number in self._syncs:
            place, then = self._syncs.pop(number)
            if error is not None:
                self._replicas.directory.fail(place, DiskError(error, ""))
            then()
            return
        found = [p for p, running in self._in_flight.items() if running.number == number]
        if error is not None:
            self._replicas.directory.fail(found[0] if found else 0, DiskError(error, ""))
        for place in found:
            running = self._in_flight.pop(place)
            for replica, flush in running.logs:
                if self._hosted(replica) and not replica.log.offline:
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
