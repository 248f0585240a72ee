"""The producer id and epoch of a task, the same in every attempt.

The id is computed from query and task, the epoch is the number of the micro-batch, and sequence
numbers begin at 0 in each micro-batch. So a retry and a replay use the same numbers as the first
attempt without a lookup. Brokers do not append duplicates, and reject a producer with a lower
epoch.

Invariants: ids are above 2^62; brokers never assign such ids. The ids of a query's tasks differ
only in the lowest 16 bits.
"""

from hashlib import blake2b
from typing import NamedTuple

EPOCHS = 2**15
"""An epoch is an int16: after this many micro-batches the next id is used."""
_COMPUTED = 1 << 62
_TASK_BITS = 16
_TASK_MASK = (1 << _TASK_BITS) - 1
_HASH_BITS = 62 - _TASK_BITS


class Origin(NamedTuple):
    """The query (or job), micro-batch and task that rows come from."""

    query: str
    batch: int
    task: int


class Identity(NamedTuple):
    """The producer id and epoch in the batches of a task."""

    producer_id: int
    epoch: int

    def is_sibling(self, producer_id: int) -> bool:
        """Whether that producer is a task of the same query."""
        return producer_id >> _TASK_BITS == self.producer_id >> _TASK_BITS


def identity_of(origin: Origin) -> Identity:
    """Return the producer id and epoch of these rows, computed from the origin alone."""
    series, epoch = divmod(origin.batch, EPOCHS)
    high = origin.task >> _TASK_BITS
    return Identity(
        _COMPUTED | _hashed(f"{origin.query}/{series}/{high}") | (origin.task & _TASK_MASK), epoch
    )


def ledger_producer(query: str) -> int:
    """Return the producer id that writes a query's lines to the ledger."""
    return _COMPUTED | _hashed(f"{query}/ledger")


def task_of(producer_id: int) -> int:
    """Return the task number of a producer, modulo 2^16."""
    return producer_id & _TASK_MASK


def _hashed(text: str) -> int:
    digest = blake2b(text.encode(), digest_size=8, person=b"tidelog-sink").digest()
    return (int.from_bytes(digest) >> (64 - _HASH_BITS)) << _TASK_BITS
