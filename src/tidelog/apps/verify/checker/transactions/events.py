"""The rows of a transactional client's journal: its actions and observations, in order.

A row is written before the client sends a record or asks to commit, and after it received a
response. So a killed client's journal has everything that may have reached a broker.

Times are ticks of 0.1 ms on a clock that all clients share. Transactions, records and sessions are
numbered by `number`: each number is used once in a run, also over restarts of a client.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

INPUT, OUTPUT = 0, 1
"""The two topics of a run: writers write the input, processors write the output."""
NO_TXN = -1
NO_SOURCE = (-1, -1)
_LIFE_BITS, _COUNT_BITS = 16, 32
LIVES_MAX = 1 << _LIFE_BITS


def number(client: int, life: int, count: int) -> int:
    """Return a number that is unique among all clients and their restarts."""
    return (client << _LIFE_BITS | life) << _COUNT_BITS | count


def describe(numbered: int) -> str:
    """Return `client.life.count` for reports."""
    client_life, count = divmod(numbered, 1 << _COUNT_BITS)
    client, life = divmod(client_life, LIVES_MAX)
    return f"{client}.{life}.{count}"


class Place(NamedTuple):
    """A partition of one of the two topics."""

    topic: int
    partition: int

    def __str__(self) -> str:
        return f"{('input', 'output')[self.topic]} partition {self.partition}"


class Opened(NamedTuple):
    """A producer initialized its transactional id; from `at` on, older sessions are fenced."""

    at: int
    session: int
    transactional_id: str


class Begun(NamedTuple):
    """A transaction began."""

    at: int
    txn: int
    session: int


class Sent(NamedTuple):
    """A record is about to be sent."""

    at: int
    txn: int
    topic: int
    partition: int
    value: int
    source_partition: int = NO_SOURCE[0]
    """The input record that this output record was made from."""
    source_offset: int = NO_SOURCE[1]


class Read(NamedTuple):
    """A read-committed consumer received records of a partition."""

    at: int
    """When the consumer returned them."""
    txn: int
    """The open transaction of the client that read; NO_TXN if there is none."""
    reader: str
    """The consumer since it was last positioned: its offsets must rise without gaps."""
    topic: int
    partition: int
    offsets: Sequence[int]
    values: Sequence[int]


class Ending(NamedTuple):
    """The client is about to commit (or to abort) a transaction."""

    at: int
    txn: int
    commit: bool


class Outcome:
    """How a transaction ended, as its client knows."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    """The client got no response, or an unclear one: the transaction may be committed."""


class Ended(NamedTuple):
    """The outcome of a transaction."""

    at: int
    txn: int
    outcome: str
    reason: str = ""


Event: TypeAlias = Opened | Begun | Sent | Read | Ending | Ended
_TYPES: tuple[type[Event], ...] = (Opened, Begun, Sent, Read, Ending, Ended)
_NAMES = {kind: kind.__name__ for kind in _TYPES}
_BY_NAME = {name: kind for kind, name in _NAMES.items()}


def as_row(event: Event) -> list[object]:
    """Return the event as a list for JSON."""
    return [_NAMES[type(event)], *event]


def from_row(row: Sequence[object]) -> Event:
    """Return the event of a row. Raises ValueError for a row that is no event."""
    try:
        return _BY_NAME[str(row[0])]._make(row[1:])
    except (IndexError, KeyError, TypeError) as error:
        raise ValueError(f"not an event: {row!r}") from error
