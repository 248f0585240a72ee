"""Compare the logs of all replicas batch by batch after a clean stop.

Below the high watermark all replicas must have the same bytes, and these must be the bytes that
clients read. Segments may begin at different offsets on each broker, so the check compares
batches, not files. It reads all replicas in step, with one batch of each in memory.
"""

from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import NamedTuple

from tidelog.apps.verify.checker.final_log import FinalLog
from tidelog.apps.verify.checker.findings import Findings
from tidelog.apps.verify.journals import Kind, ReadBatch


class StoredBatch(NamedTuple):
    """A batch on a broker's disk."""

    batch: ReadBatch
    data: bytes
    sound: bool = True
    """Whether the batch matches its checksum."""


class Served(NamedTuple):
    """A summary of a final log for this check: its start, end and digest."""

    start: int
    end: int
    digest: str

    @classmethod
    def of(cls, log: FinalLog) -> "Served":
        digest_so_far = _BatchDigest()
        for number in range(log.batches):
            digest_so_far.add(log.batch(number))
        return cls(log.start, log.end, digest_so_far.digest())


class _BatchDigest:
    """A digest over the offsets, epochs and checksums of batches."""

    def __init__(self) -> None:
        self._hash = sha256()

    def add(self, batch: ReadBatch) -> None:
        self._hash.update(Kind.BATCHES.row.pack(*batch))

    def digest(self) -> str:
        return self._hash.hexdigest()


def check_replicas(
    partition: int | str, served: Served, replicas: dict[int, Iterable[StoredBatch]]
) -> Findings:
    """Check that all replicas have the batches of the served log, up to its end."""
    found = Findings()
    logs = {broker: _within(batches, served) for broker, batches in replicas.items()}
    digest_so_far = _BatchDigest()
    first = min(replicas, default=0)
    while True:
        row = {broker: next(log, None) for broker, log in logs.items()}
        if not any(row.values()):
            break
        for broker, stored in row.items():
            if stored is not None and not stored.sound:
                found.add("corrupt", f"partition {partition}, broker {broker}: {stored.batch}")
        if len({stored and stored.data for stored in row.values()}) > 1:
            found.add("replicas differ", f"partition {partition}: {_describe(row)}")
            return found
        same = row[first]
        assert same is not None
        digest_so_far.add(same.batch)
    if replicas and digest_so_far.digest() != served.digest:
        found.add(
            "replicas differ",
            f"partition {partition}: all disks have the same batches, but clients read others",
        )
    return found


def _within(batches: Iterable[StoredBatch], served: Served) -> Iterator[StoredBatch]:
    for stored in batches:
        if stored.batch.base_offset >= served.end:
            return
        if stored.batch.last_offset >= served.start:
            yield stored


def _describe(row: dict[int, StoredBatch | None]) -> str:
    return "; ".join(
        f"broker {broker} has {stored.batch if stored else 'no batch here'}"
        for broker, stored in sorted(row.items())
    )
