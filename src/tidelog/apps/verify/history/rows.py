"""One row for each thing a client saw, and the journal that holds them.

A journal is a file of fixed-size rows, one file for each client and partition, so that the
checker holds one partition in memory at a time however long the run was. Rows are little
endian, times are ticks of 0.1 ms since the run began.

Always true: the rows of one file are in the order in which that client saw them.
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
    """How a send ended, where an acknowledged one has its offset."""

    NO_OFFSET = -1
    """Acknowledged, but the broker did not say where: it knew the batch already."""
    UNKNOWN = -2
    """No answer in time, or one that leaves it open."""
    REFUSED = -3
    """Surely not written."""


class MarkKind:
    """Where an offset was seen."""

    FETCH = 0
    LIST_LATEST = 1
    OUT_OF_RANGE = 2
    """A consumer was told that its position does not exist."""


class Ack(NamedTuple):
    """The end of one send."""

    sequence: int
    offset: int
    """Or one of Outcome."""
    at: int
    waited: int
    """Ticks since it was sent."""


class Read(NamedTuple):
    """One record that a consumer got."""

    offset: int
    value: int
    leader_epoch: int
    """-1 where the client does not say."""


class ReadBatch(NamedTuple):
    """One closed batch that a raw fetch got. Its checksum stands for its records."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int


class Mark(NamedTuple):
    """The offsets that one answer gave for a partition; -1 for what it did not say."""

    kind: int
    leader_epoch: int
    at: int
    high_watermark: int
    last_stable: int
    last_returned: int


class Kind(Enum):
    """The kinds of journal: the word in the file's name, its row, and what a row is."""

    ACKS = ("acks", Struct("<qqII"), Ack)
    READS = ("reads", Struct("<qQi"), Read)
    BATCHES = ("batches", Struct("<qqiI"), ReadBatch)
    MARKS = ("marks", Struct("<BxxxiIqqq"), Mark)

    def __init__(self, word: str, row: Struct, shape: type) -> None:
        self.word = word
        self.row = row
        self.shape = shape


def journal_path(folder: str, kind: Kind, client: str, partition: int) -> str:
    """Where the rows of one client and partition lie."""
    return os.path.join(folder, f"{kind.word}-{client}-{partition}.bin")


class Journal:
    """Appends rows of one kind for one client, a file a partition."""

    def __init__(self, folder: str, kind: Kind, client: str, partitions: int) -> None:
        self._pack = kind.row.pack
        self._buffers = [bytearray() for _ in range(partitions)]
        self._files = [
            open(journal_path(folder, kind, client, p), "ab", buffering=0)  # noqa: SIM115
            for p in range(partitions)
        ]

    def add(self, partition: int, *fields: int) -> None:
        """One row."""
        buffer = self._buffers[partition]
        buffer += self._pack(*fields)
        if len(buffer) >= _BUFFER_BYTES:
            self._flush(partition)

    def close(self) -> None:
        """Everything on disk."""
        for partition, file in enumerate(self._files):
            self._flush(partition)
            file.close()

    def _flush(self, partition: int) -> None:
        view = memoryview(self._buffers[partition])
        while view:
            view = view[self._files[partition].write(view) :]
        self._buffers[partition] = bytearray()


def read_rows(folder: str, kind: Kind, client: str, partition: int) -> Iterator[tuple[int, ...]]:
    """The rows of one journal as plain tuples, a chunk of the file at a time."""
    with open(journal_path(folder, kind, client, partition), "rb") as file:
        while chunk := file.read(kind.row.size * _CHUNK_ROWS):
            yield from kind.row.iter_unpack(chunk)


def read_acks(folder: str, client: str, partition: int) -> Iterator[Ack]:
    """The ends of all sends of a producer to a partition."""
    return map(Ack._make, read_rows(folder, Kind.ACKS, client, partition))
