"""The recorded history: transactions, sessions and reads, and how each transaction must have ended.

Invariant: `fate` says COMMITTED or ABORTED only if no correct cluster can have done otherwise.
"""

from collections.abc import Iterable
from enum import Enum

from tidelog.apps.verify.checker.transactions.events import (
    NO_TXN,
    Begun,
    Ended,
    Ending,
    Event,
    Opened,
    Outcome,
    Place,
    Read,
    Sent,
    describe,
)


class Fate(Enum):
    """How a transaction ended."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Txn:
    """One transaction of a client."""

    def __init__(self, txn: int, session: int, begun_at: int) -> None:
        self.txn = txn
        self.session = session
        self.begun_at = begun_at
        self.sends: list[Sent] = []
        self.reads: list[Read] = []
        self.commit_at: int | None = None
        """When the client began to commit; None if it never did."""
        self.outcome: str | None = None
        """The client's own knowledge; None if it was killed before it had any."""
        self.ended_at: int | None = None

    def __str__(self) -> str:
        return f"transaction {describe(self.txn)}"


class TxnHistory:
    """Everything that the transactional clients of a run did and saw."""

    def __init__(self, events: Iterable[Event]) -> None:
        """Take the events of all clients; those of one client must be in order."""
        self.txns: dict[int, Txn] = {}
        self.sent: dict[int, Sent] = {}
        """The send of each value."""
        self.reads: dict[tuple[str, Place], list[Read]] = {}
        """The reads of each consumer and partition, in order."""
        self._sessions: dict[int, Opened] = {}
        self._of_id: dict[str, list[Opened]] = {}
        for event in events:
            self._add(event)

    def _add(self, event: Event) -> None:
        match event:
            case Opened():
                self._sessions[event.session] = event
                self._of_id.setdefault(event.transactional_id, []).append(event)
            case Begun():
                self.txns[event.txn] = Txn(event.txn, event.session, event.at)
            case Sent():
                self.txns[event.txn].sends.append(event)
                self.sent[event.value] = event
            case Read():
                place = Place(event.topic, event.partition)
                self.reads.setdefault((event.reader, place), []).append(event)
                if event.txn != NO_TXN:
                    self.txns[event.txn].reads.append(event)
            case Ending():
                if event.commit:
                    self.txns[event.txn].commit_at = event.at
            case Ended():
                txn = self.txns[event.txn]
                txn.outcome, txn.ended_at = event.outcome, event.at

    def writer_of(self, value: int) -> Txn | None:
        """Return the transaction that sent a value; None if none did."""
        sent = self.sent.get(value)
        return None if sent is None else self.txns[sent.txn]

    def is_fenced(self, txn: Txn) -> bool:
        """Return whether a newer session fenced this one before it began to commit."""
        if txn.commit_at is None:
            return False
        own = self._sessions[txn.session]
        later = self._of_id[own.transactional_id]
        return any(own.at < each.at < txn.commit_at for each in later)

    def fate(self, txn: Txn) -> Fate:
        """Return how the transaction must have ended."""
        if txn.commit_at is None or self.is_fenced(txn) or txn.outcome == Outcome.ABORTED:
            return Fate.ABORTED
        return Fate.COMMITTED if txn.outcome == Outcome.COMMITTED else Fate.UNKNOWN
