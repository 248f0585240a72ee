"""Check that losses are recorded: each one is in the loss ledger on a broker's disk.

Two checks. When a replica has removed records, its broker's ledger covers their offsets. At the
end of the run, each batch that a broker acknowledged, with acks=1 or acks=all, is on the leader's
disk, or was deleted, or a ledger covers it. Records that a power failure or damage took are
excepted from the second check: no broker removed them.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any, cast

from tidelog.core.storage.disk import Disk
from tidelog.core.storage.loss_ledger import read_lines
from tidelog.core.types import LeaderEpoch, Offset, TopicPartition
from tidelog.lab.sim.machine.disk import SECOND, SimDisk
from tidelog.lab.sim.machine.process import Process, Site
from tidelog.lab.sim.oracle.shadow import Entry, entries_on_disk
from tidelog.lab.sim.oracle.truth import Truth


class LedgerOracle:
    """Compares the ledgers of all brokers with what was removed and acknowledged."""

    def __init__(self, site: Site, report: Callable[[str, str], None]) -> None:
        self._site = site
        self._report = report
        self._acked: dict[tuple[TopicPartition, Offset], int] = {}
        """The checksum of the latest batch that was acknowledged at each base offset."""
        self._taken_from: dict[TopicPartition, Offset] = {}
        """The first offset that any replica lost in a power failure or by damage."""
        self.missing = 0
        """Acknowledged batches that were lost, and that a ledger covers."""

    def acknowledged(self, name: TopicPartition, base: Offset, crc: int) -> None:
        """Remember a batch that a broker acknowledged."""
        self._acked[name, base] = crc

    def taken(self, name: TopicPartition, offset: Offset) -> None:
        """Note that a replica lost the records from `offset` on without removing them."""
        self._taken_from[name] = min(offset, self._taken_from.get(name, offset))

    def truncated(self, process: Process, name: TopicPartition, start: Offset, end: Offset) -> None:
        """Check that a broker recorded the records that it has just removed."""
        ranges = list(_ranges(process, name))
        missing = [at for at in range(start, end) if not _covers(ranges, at)]
        if missing:
            what = f"{name}: broker {process.id} removed the offsets {start} to {end - 1}, "
            what += f"but its ledger lacks offset {missing[0]}"
            self._report("losses-recorded", what)

    def check_settled(self, name: TopicPartition, truth: Truth) -> None:
        """Check that each acknowledged batch is on the leader's disk, or its loss is recorded."""
        known, brokers = truth.registration, self._site.brokers.values()
        if known is None or known.leader is None:
            return
        recorded = {epoch for process in brokers for epoch in _unclean_epochs(process, name)}
        for epoch in sorted(truth.unclean_epochs_to_record - recorded):
            what = f"{name}: no ledger has the unclean election of leader epoch {epoch}"
            self._report("losses-recorded", what)
        leader = self._site.brokers[known.leader]
        log = truth.shadows[known.leader].log
        if log is None or log.offline:
            return
        start = log.log_start_offset
        found = dict(enumerate(entries_on_disk(leader.disk, log, damaged=True), start))
        # After a power failure the leader's log may start before records that all replicas had
        # deleted.
        deleted_upto = max(start, truth.deleted_upto)
        taken_from = self._taken_from.get(name)
        ranges = [each for process in brokers for each in _ranges(process, name)]
        for (partition, base), crc in self._acked.items():
            if partition != name or base < deleted_upto or _is_there(found.get(base), crc):
                continue
            if taken_from is not None and base >= taken_from:
                continue
            if _covers(ranges, base):
                self.missing += 1
                continue
            what = f"{name}: the batch at offset {base} (crc {crc:08x}) was acknowledged, the "
            what += f"leader, broker {known.leader}, lacks it, and no ledger says so"
            self._report("losses-recorded", what)
            return


def _is_there(entry: Entry | None, crc: int) -> bool:
    return entry is not None and entry.crc == crc


def _covers(ranges: list[tuple[Offset, Offset]], offset: Offset) -> bool:
    return any(start <= offset < end for start, end in ranges)


def _ranges(process: Process, name: TopicPartition) -> Iterator[tuple[Offset, Offset]]:
    """Yield the ranges of removed offsets in the broker's ledger."""
    for entry in _entries(process, name):
        if entry["event"] == "loss":
            start, end = entry["start"], entry["end"]
            yield (0, 2**63) if start is None else (start, end)


def _unclean_epochs(process: Process, name: TopicPartition) -> Iterator[LeaderEpoch]:
    for entry in _entries(process, name):
        if entry["event"] == "unclean_election":
            yield entry["leader_epoch"]


def _entries(process: Process, name: TopicPartition) -> Iterator[dict[str, Any]]:
    """Yield the entries of the broker's ledger about a partition."""
    for place in ("", f"{SECOND}/"):
        for line in read_lines(cast(Disk, _Folder(process.disk, place))):
            try:
                entry: dict[str, Any] = json.loads(line)
            except ValueError:
                continue  # a crash cut it off
            if (entry["topic"], entry["partition"]) == name:
                yield entry


class _Folder:
    """A log directory's files, without faults."""

    def __init__(self, disk: SimDisk, prefix: str) -> None:
        self._disk = disk
        self._prefix = prefix

    def exists(self, path: str) -> bool:
        return self._disk.exists(self._prefix + path)

    def size(self, path: str) -> int:
        return len(self._disk.contents(self._prefix + path))

    def read(self, path: str, position: int, length: int) -> bytes:
        return self._disk.contents(self._prefix + path)[position : position + length]
