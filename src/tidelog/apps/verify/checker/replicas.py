"""The logs of all replicas, batch by batch, after a clean stop.

Below the high watermark every replica has the same bytes, and they are what clients were
served. Segments may begin at other offsets on each broker, so batches are compared, not
files. Reading goes on in step, one batch of each replica in memory.
"""

from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import NamedTuple

from tidelog.apps.verify.checker.final_log import FinalLog
from tidelog.apps.verify.checker.findings import Findings
from tidelog.apps.verify.history.rows import Kind, ReadBatch


class StoredBatch(NamedTuple):
    """A batch on a broker's disk."""

    batch: ReadBatch
    data: bytes
    sound: bool = True
    """Its checksum fits."""


class Served(NamedTuple):
    """What remains of a final log for this check: where it ends, and a digest of it."""

    start: int
    end: int
    digest: str

    @classmethod
    def of(cls, log: FinalLog) -> "Served":
        seal = _Seal()
        for number in range(log.batches):
            seal.add(log.batch(number))
        return cls(log.start, log.end, seal.digest())


class _Seal:
    """A digest over where batches lie, their epochs and checksums."""

    def __init__(self) -> None:
        self._hash = sha256()

    def add(self, batch: ReadBatch) -> None:
        self._hash.update(Kind.BATCHES.row.pack(*batch))

    def digest(self) -> str:
        return self._hash.hexdigest()


def check_replicas(
    partition: int, served: Served, replicas: dict[int, Iterable[StoredBatch]]
) -> Findings:
    """All replicas hold the same batches up to where the served log ends, and the served ones."""
    found = Findings()
    logs = {broker: _within(batches, served) for broker, batches in replicas.items()}
    seal = _Seal()
    first = min(replicas, default=0)
    while True:
        row = {broker: next(log, None) for broker, log in logs.items()}
        if not any(row.values()):
            break
        for broker, stored in row.items():
            if stored is not None and not stored.sound:
                found.add("corrupt", f"partition {partition}, broker {broker}: {stored.batch}")
        if len({stored and stored.data for stored in row.values()}) > 1:
            found.add("replicas differ", f"partition {partition}: {_told(row)}")
            return found
        same = row[first]
        assert same is not None
        seal.add(same.batch)
    if replicas and seal.digest() != served.digest:
        found.add(
            "replicas differ",
            f"partition {partition}: the disks agree with each other, not with what was served",
        )
    return found


def _within(batches: Iterable[StoredBatch], served: Served) -> Iterator[StoredBatch]:
    for stored in batches:
        if stored.batch.base_offset >= served.end:
            return
        if stored.batch.last_offset >= served.start:
            yield stored


def _told(row: dict[int, StoredBatch | None]) -> str:
    return "; ".join(
        f"broker {broker} has {stored.batch if stored else 'no batch here'}"
        for broker, stored in sorted(row.items())
    )
