"""Invariants of a compacted topic, on every replica and at any time.

The oracle reads each record when it is committed, before the cleaner can remove it. Below a
replica's high watermark:

- Invariant: every record of the replica is a committed record, at its original offset.
- Invariant: the replica has the latest record of each key.
- If the latest record of a key is a tombstone, the replica may lack the key. Then it lacks all
  older values of the key too.

The topic has flush-before-ack and no unclean elections, so no committed record is ever lost.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tidelog.core.record.decoder import decode
from tidelog.core.record.record_batch import batches
from tidelog.core.storage.log import Log
from tidelog.core.types import BrokerId, Offset, TopicPartition
from tidelog.lab.sim.machine.process import Process, Site
from tidelog.lab.sim.text import describe_ends

_READ_MAX = 1 << 20


class Written(NamedTuple):
    """A record of the table."""

    key: bytes
    stamp: int
    value: bytes | None

    def __str__(self) -> str:
        value = "deleted" if self.value is None else f"= {self.value.decode()}"
        return f"{self.key.decode()} {value} (write {self.stamp})"


def _read(log: Log, start: Offset, end: Offset) -> Iterator[tuple[Offset, Written]]:
    offset = start
    while offset < end:
        data = log.read_bytes(log.read(offset, _READ_MAX, end))
        for batch in batches(data):
            offset = batch.next_offset
            for record in decode(batch):
                if start <= record.offset < end:
                    assert record.key is not None
                    yield record.offset, Written(record.key, record.timestamp, record.value)
        if not data:
            return


class TableOracle:
    """The committed records of a compacted topic's only partition, and the checks against them."""

    def __init__(self, name: TopicPartition, report: Callable[[str, str], None]) -> None:
        self.end: Offset = 0
        """The records before this offset are committed."""
        self.cleaned_away = 0
        """The largest number of committed records that the cleaner removed from a replica."""
        self._name = name
        self._report = report
        self._history: dict[Offset, Written] = {}
        self._latest: dict[bytes, Offset] = {}
        self._seen: dict[BrokerId, tuple[int, int]] = {}
        self._led: dict[BrokerId, int] = {}
        """The brokers that led at their last step, each with its incarnation."""

    def started(self, process: Process) -> None:
        """Check the log that a broker has on disk at startup."""
        assert process.node is not None
        directory = process.node.directory
        log = directory.logs.get(self._name)
        if log is not None:
            self._check(process.id, log, directory.high_watermarks[self._name])

    def stepped(self, process: Process) -> None:
        assert process.node is not None
        replica = process.node.replicas.get(self._name)
        if replica is None:
            return
        mark = replica.partition.high_watermark
        # A leader may commit and acknowledge records in a step, and in the same step apply the
        # metadata change that deposes it, or find that its disk failed.
        leads, led = replica.partition.is_leader, self._led.pop(process.id, 0)
        if leads:
            self._led[process.id] = process.incarnation
        if (leads or led == process.incarnation) and mark > self.end:
            self._commit(replica.log, mark)
        if replica.log.offline or process.node.halted is not None:
            return  # its disk failed; its state in memory no longer counts
        seen = process.incarnation, process.disk.cuts
        if self._seen.get(process.id) != seen:
            self._seen[process.id] = seen
            self._check(process.id, replica.log, mark)

    def acknowledged(self, offset: Offset, stamp: int) -> None:
        known = self._history.get(offset)
        if known is None or known.stamp != stamp:
            what = f"write {stamp} was acknowledged at offset {offset}, committed there is {known}"
            self._report("acked-records-survive", f"{self._name}: {what}")

    def why_not_settled(self, site: Site) -> str | None:
        """Return why not all replicas have all committed records yet; None if they have."""
        ends = {}
        for broker, process in site.brokers.items():
            replica = None if process.node is None else process.node.replicas.get(self._name)
            if replica is not None:
                ends[broker] = replica.partition.log_end_offset, replica.partition.high_watermark
        if not ends or any(end != (self.end, self.end) for end in ends.values()):
            return f"{self._name}: {describe_ends(ends)}; committed is {self.end}"
        return None

    def check_settled(self, site: Site) -> None:
        for broker, process in site.brokers.items():
            replica = None if process.node is None else process.node.replicas.get(self._name)
            if replica is not None:
                self._check(broker, replica.log, self.end)

    def _commit(self, log: Log, mark: Offset) -> None:
        """Store the records that a leader has just committed; none of them is cleaned yet."""
        for offset, written in _read(log, self.end, mark):
            self._history[offset] = written
            self._latest[written.key] = offset
        self.end = mark

    def _check(self, broker: BrokerId, log: Log, mark: Offset) -> None:
        limit = min(mark, self.end)
        last: dict[bytes, Offset] = {}
        count = 0
        for offset, written in _read(log, log.log_start_offset, limit):
            count += 1
            last[written.key] = offset
            if self._history.get(offset) != written:
                what = f"has {written} at offset {offset}, committed is {self._history.get(offset)}"
                self._report("compaction-changes-nothing", self._where(broker, what))
        self.cleaned_away = max(self.cleaned_away, sum(o < limit for o in self._history) - count)
        for key, offset in self._latest.items():
            found = last.get(key)
            deleted = self._history[offset].value is None and found is None
            if offset < limit and found != offset and not deleted:
                what = f"the latest record is {self._history[offset]} at offset {offset}, it has"
                has = "none" if found is None else f"{self._history[found]} at offset {found}"
                self._report("latest-values-survive", self._where(broker, f"{what} {has}"))

    def _where(self, broker: BrokerId, what: str) -> str:
        return f"{self._name} on broker {broker}: {what}"
