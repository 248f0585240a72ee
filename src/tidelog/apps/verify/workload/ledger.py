"""A producer's bookkeeping (what it sent, and the outcome of each send) and its pace.

Invariant: `sent` counts a record before the client library gets it, so every record that is in
the log was counted.
"""

from collections import Counter

from tidelog.apps.verify.journals import Journal, Kind, Outcome
from tidelog.apps.verify.record_value import pack
from tidelog.apps.verify.workload.worker import Task


class Ledger:
    """One producer's sequences and outcomes, partition by partition."""

    def __init__(self, task: Task, producer: int) -> None:
        self.producer = producer
        self.sent = [0] * task.partitions
        self.tally: Counter[str] = Counter()
        self.open = 0
        """The number of sends without an outcome."""
        self._task = task
        self._tag = bytes.fromhex(task.tag)
        self._send_number = 0
        self._journal = Journal(task.folder, Kind.ACKS, str(producer), task.partitions)

    def next_value(self, partition: int) -> bytes:
        """Return the next value to send; it counts as sent from now on."""
        value = pack(self._tag, self.producer, partition, self.sent[partition], self._send_number)
        self.sent[partition] += 1
        self._send_number += 1
        self.open += 1
        return value

    def take_back(self, partition: int) -> None:
        """Undo `next_value`, because the client library refused the value."""
        self.sent[partition] -= 1
        self._send_number -= 1
        self.open -= 1

    def settle(self, partition: int, sequence: int, offset: int, waited_s: float) -> None:
        """Record the outcome of a send: an offset, or one of Outcome."""
        ticks = self._task.ticks()
        self._journal.add(
            partition, sequence, offset, ticks, min(ticks, max(0, int(waited_s * 10_000)))
        )
        self.open -= 1
        self.tally[_OUTCOME_NAMES.get(offset, "acked")] += 1

    def close(self) -> None:
        """Write all rows to disk."""
        self._journal.close()


_OUTCOME_NAMES = {Outcome.UNKNOWN: "unknown", Outcome.REFUSED: "refused"}


def total_of(ledgers: list[Ledger]) -> dict[str, int]:
    """Return how many sends of all producers had each outcome."""
    outcomes = ("acked", *_OUTCOME_NAMES.values())
    return {name: sum(ledger.tally[name] for ledger in ledgers) for name in outcomes}


def sent_by(ledgers: list[Ledger]) -> dict[str, list[int]]:
    """Return how many records each producer sent, by partition."""
    return {str(ledger.producer): ledger.sent for ledger in ledgers}


_CATCH_UP_S = 0.25


class Pace:
    """Computes how many records are due at a rate; after a pause, at most `_CATCH_UP_S` of it."""

    def __init__(self, rate: float, now_s: float) -> None:
        self._rate = rate
        self._due = 0.0
        self._at = now_s

    def due(self, now_s: float) -> int:
        """Return how many records to send now."""
        self._due = min(self._due + (now_s - self._at) * self._rate, _CATCH_UP_S * self._rate + 1)
        self._at = now_s
        return int(self._due)

    def done(self, count: int) -> None:
        """Note that `count` records were sent."""
        self._due -= count
