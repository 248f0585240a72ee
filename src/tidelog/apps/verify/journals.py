"""Journals: one row for each response, record or batch that a client saw.

A journal is a file of fixed-size rows, one file for each client and partition. So the checker
needs only one partition in memory, however long the run was. Rows are little endian; times are
ticks of 0.1 ms since the run began.

Invariant: the rows of a file are in the order in which that client saw them.
"""

import os
from collections.abc import Iterator
from enum import Enum
from struct import Struct
from typing import NamedTuple

TICKS_A_SECOND = 10_000
_CHUNK_ROWS = 4096
_BUFFER_BYTES = 65_536


class Outcome:
    """The outcome of a send, in place of the offset that an acknowledged send has."""

    NO_OFFSET = -1
    """Acknowledged without an offset: the broker already had the batch."""
    UNKNOWN = -2
    """No response in time, or a response that does not show whether the record was written."""
    REFUSED = -3
    """Certainly not written."""


class MarkKind:
    """The kind of response that a mark comes from."""

    FETCH = 0
    LIST_LATEST = 1
    OUT_OF_RANGE = 2
    """A broker rejected the position of a consumer: the offset does not exist."""


class Ack(NamedTuple):
    """The outcome of one send."""

    sequence: int
    offset: int
    """The offset, or one of Outcome."""
    at: int
    waited: int
    """Ticks since the record was sent."""


class Read(NamedTuple):
    """One record that a consumer received."""

    offset: int
    value: int
    leader_epoch: int
    """-1 if the client does not provide it."""


class ReadBatch(NamedTuple):
    """One batch of a raw fetch, not decoded. Its checksum represents its records."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int


class Mark(NamedTuple):
    """The offsets in one response for a partition; -1 for an offset that it does not have."""

    kind: int
    leader_epoch: int
    at: int
    high_watermark: int
    last_stable: int
    last_returned: int


class Kind(Enum):
    """The kinds of journals: file name prefix, row format and row type."""

    ACKS = ("acks", Struct("<qqII"), Ack)
    READS = ("reads", Struct("<qQi"), Read)
    BATCHES = ("batches", Struct("<qqiI"), ReadBatch)
    MARKS = ("marks", Struct("<BxxxiIqqq"), Mark)

    def __init__(self, prefix: str, row: Struct, shape: type) -> None:
        self.prefix = prefix
        self.row = row
        self.shape = shape


def journal_path(folder: str, kind: Kind, client: str, partition: int) -> str:
    """Return the path of the journal of one client and partition."""
    return os.path.join(folder, f"{kind.prefix}-{client}-{partition}.bin")


class Journal:
    """Appends rows of one kind for one client, to one file per partition."""

    def __init__(self, folder: str, kind: Kind, client: str, partitions: int) -> None:
        self._pack = kind.row.pack
        self._buffers = [bytearray() for _ in range(partitions)]
        self._files = [
            open(journal_path(folder, kind, client, p), "ab", buffering=0)  # noqa: SIM115
            for p in range(partitions)
        ]

    def add(self, partition: int, *fields: int) -> None:
        """Append one row."""
        buffer = self._buffers[partition]
        buffer += self._pack(*fields)
        if len(buffer) >= _BUFFER_BYTES:
            self._flush(partition)

    def close(self) -> None:
        """Write all rows to disk and close the files."""
        for partition, file in enumerate(self._files):
            self._flush(partition)
            file.close()

    def _flush(self, partition: int) -> None:
        view = memoryview(self._buffers[partition])
        while view:
            view = view[self._files[partition].write(view) :]
        self._buffers[partition] = bytearray()


def read_rows(folder: str, kind: Kind, client: str, partition: int) -> Iterator[tuple[int, ...]]:
    """Yield the rows of one journal as plain tuples; read the file in chunks."""
    with open(journal_path(folder, kind, client, partition), "rb") as file:
        while chunk := file.read(kind.row.size * _CHUNK_ROWS):
            yield from kind.row.iter_unpack(chunk)


def read_acks(folder: str, client: str, partition: int) -> Iterator[Ack]:
    """Yield the outcomes of all sends of a producer to a partition."""
    return map(Ack._make, read_rows(folder, Kind.ACKS, client, partition))
