"""Who a task is to the brokers: a producer id and an epoch that are the same in every attempt.

The id is made from query and task, the epoch is the number of the micro-batch, and sequences
begin at 0 in each of them. So a retry and a replay bear the same numbers as the first attempt
without having to look anything up, and the broker compares: what it has already is not written
twice, and who comes too late (a lower epoch) is refused.

Always true: ids lie above 2^62, where no broker hands ids out. The tasks of a query differ in
the lowest 16 bits only.
"""

from hashlib import blake2b
from typing import NamedTuple

EPOCHS = 2**15
"""An epoch is an int16: after so many micro-batches another id begins."""
_MADE = 1 << 62
_TASK_BITS = 16
_TASK_MASK = (1 << _TASK_BITS) - 1
_HASH_BITS = 62 - _TASK_BITS


class Origin(NamedTuple):
    """Where rows come from: a query (or job), its micro-batch, its task."""

    query: str
    batch: int
    task: int


class Identity(NamedTuple):
    """What batches of a task bear."""

    producer_id: int
    epoch: int

    def is_sibling(self, producer_id: int) -> bool:
        """Whether that producer is a task of the same query."""
        return producer_id >> _TASK_BITS == self.producer_id >> _TASK_BITS


def identity_of(origin: Origin) -> Identity:
    """The producer of these rows, whoever asks and how often."""
    series, epoch = divmod(origin.batch, EPOCHS)
    high = origin.task >> _TASK_BITS
    return Identity(
        _MADE | _hashed(f"{origin.query}/{series}/{high}") | (origin.task & _TASK_MASK), epoch
    )


def ledger_producer(query: str) -> int:
    """The id under which a query's lines are written to the ledger."""
    return _MADE | _hashed(f"{query}/ledger")


def task_of(producer_id: int) -> int:
    """Which task of its family a producer is, modulo 2^16."""
    return producer_id & _TASK_MASK


def _hashed(text: str) -> int:
    digest = blake2b(text.encode(), digest_size=8, person=b"tidelog-sink").digest()
    return (int.from_bytes(digest) >> (64 - _HASH_BITS)) << _TASK_BITS
