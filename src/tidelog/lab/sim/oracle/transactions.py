"""Check transactions by what their producers know, and what clients read.

reads-committed       a read-committed reader, or a fetch of committed offsets, sees nothing of a
                      transaction before its producer asked to commit it, or if it was fenced before
reads-once            a read-committed reader finds each record at one offset
transactions-atomic   once everything has settled, all records of a transaction are visible, or none
transactions-survive  every record of a transaction whose commit was acknowledged is visible then
offsets-with-their-transaction  a group's committed offset is that of the last visible transaction
fenced-producers-stop no commit is acknowledged to a producer that a later one has fenced

A transaction has a number, which is also the offset that it commits. Numbers of one transactional
id rise in the order in which its transactions can commit.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from tidelog.core.coordinator.lookup import TRANSACTIONS_TOPIC
from tidelog.core.transactions.transaction import ProducerIdentity
from tidelog.core.types import BrokerId, Offset, TopicPartition
from tidelog.lab.sim.machine.process import Process, Site

OnOutcome = Callable[[BrokerId, frozenset[TopicPartition]], None]
"""Called with a coordinator that has just decided an outcome, and the partitions of the
transaction, which have no marker yet."""


@dataclass(slots=True, eq=False)
class Attempt:
    """A transaction, as its producer knows it."""

    number: int
    transactional_id: str
    producer: ProducerIdentity
    records: list[tuple[TopicPartition, bytes]] = field(default_factory=list)
    """The acknowledged records."""
    with_offset: bool = False
    """Whether its number was acknowledged as an offset to commit."""
    may_commit: bool = False
    """Whether the producer asked to commit it before it was fenced."""
    acknowledged: bool = False
    """Whether the commit was acknowledged."""
    seen: set[bytes] = field(default_factory=set)
    """The records that a read-committed reader found."""
    offset_seen: bool = False

    def __str__(self) -> str:
        who = f"{self.transactional_id!r}, producer {self.producer.producer_id}"
        return f"transaction {self.number} of {who} in epoch {self.producer.epoch}"


class TransactionOracle:
    """All transactions of a run, and the checks against them."""

    def __init__(self, site: Site, report: Callable[[str, str], None]) -> None:
        self.acknowledged = 0
        """Number of acknowledged commits."""
        self.awaiting_outcome: list[OnOutcome] = []
        """Called once each, with the next outcome that a coordinator decides."""
        self._site = site
        self._report = report
        self._attempts: list[Attempt] = []
        self._by_record: dict[bytes, Attempt] = {}
        self._places: dict[bytes, tuple[TopicPartition, Offset]] = {}
        self._newest: dict[str, ProducerIdentity] = {}
        """The newest producer of each transactional id."""
        self._acknowledged_offsets: dict[str, int] = {}
        self._fetched_offsets: dict[str, int] = {}

    # -- producers -------------------------------------------------------------------------

    def initialised(self, transactional_id: str, producer: ProducerIdentity) -> None:
        """Note the identity of a producer, which fences all earlier ones of its id."""
        if not self._is_fenced(transactional_id, producer):
            self._newest[transactional_id] = producer

    def _is_fenced(self, transactional_id: str, producer: ProducerIdentity) -> bool:
        newest = self._newest.get(transactional_id, producer)
        return newest.producer_id == producer.producer_id and newest.epoch > producer.epoch

    def begun(self, transactional_id: str, producer: ProducerIdentity) -> Attempt:
        """Return the next transaction of a producer."""
        attempt = Attempt(len(self._attempts), transactional_id, producer)
        self._attempts.append(attempt)
        return attempt

    def written(self, attempt: Attempt, value: bytes) -> None:
        """Note a record that a producer is about to write."""
        self._by_record[value] = attempt

    def ending(self, attempt: Attempt) -> None:
        """Note that the producer is about to commit."""
        if not self._is_fenced(attempt.transactional_id, attempt.producer):
            attempt.may_commit = True

    def committed(self, attempt: Attempt) -> None:
        """Note that a commit was acknowledged."""
        if not attempt.may_commit:
            self._report("fenced-producers-stop", f"{attempt} was committed after it was fenced")
        attempt.acknowledged = True
        self.acknowledged += 1
        if attempt.with_offset:
            name = attempt.transactional_id
            before = self._acknowledged_offsets.get(name, attempt.number)
            self._acknowledged_offsets[name] = max(before, attempt.number)

    # -- readers ---------------------------------------------------------------------------

    def read(self, partition: TopicPartition, offset: Offset, value: bytes) -> None:
        """Check a record that a read-committed reader found."""
        attempt = self._by_record[value]
        place = self._places.setdefault(value, (partition, offset))
        if place != (partition, offset):
            both = f"at offset {place[1]} of {place[0]}, then at {offset} of {partition}"
            self._report("reads-once", f"{value.decode()} of {attempt} was read {both}")
        if not attempt.may_commit:
            what = f"{value.decode()} at offset {offset} of {partition} was read"
            self._report("reads-committed", f"{what}; nobody may commit {attempt}")
        attempt.seen.add(value)

    def expected_offset(self, transactional_id: str, *, stable: bool) -> int:
        """Return the lowest offset that a fetch of committed offsets may return from now on.

        A fetch of stable offsets waits for the markers of acknowledged commits, others do not.
        """
        fetched = self._fetched_offsets.get(transactional_id, -1)
        acknowledged = self._acknowledged_offsets.get(transactional_id, -1)
        return max(fetched, acknowledged) if stable else fetched

    def fetched_offset(self, transactional_id: str, offset: Offset, at_least: int) -> None:
        """Check a committed offset that a fetch returned; -1 if there is none."""
        found = None if offset < 0 else self._attempts[offset]
        if found is not None and not (found.may_commit and found.with_offset):
            what = f"offset {offset} was fetched; nobody may commit {found}"
            self._report("reads-committed", what)
        if offset < at_least:
            what = f"{transactional_id!r} fetched offset {offset}, after offset {at_least}"
            self._report("offsets-with-their-transaction", what)
        if found is not None:
            found.offset_seen = True
        before = self._fetched_offsets.get(transactional_id, -1)
        self._fetched_offsets[transactional_id] = max(before, offset)

    # -- brokers ---------------------------------------------------------------------------

    def stepped(self, process: Process) -> None:
        """Call those who wait for an outcome, if this broker has just decided one."""
        if not self.awaiting_outcome:
            return
        assert process.node is not None
        for hosted in process.node.coordinators.shards(TRANSACTIONS_TOPIC).values():
            for entry in hosted.shard.entries.values():
                known = entry.current
                if known is not None and known.state.is_prepared and entry.left:
                    self.awaiting_outcome.pop(0)(process.id, frozenset(entry.left))
                    return

    def why_not_settled(self) -> str | None:
        """Return which transaction is still open on a partition or at its coordinator, or None."""
        for process in self._site.brokers.values():
            node = process.node
            if node is None:
                continue
            for name, replica in node.replicas.items():
                one = replica.partition
                if one.is_leader and one.last_stable_offset < one.high_watermark:
                    ends = f"the LSO is {one.last_stable_offset}, the HW {one.high_watermark}"
                    return f"{name}: {ends} on broker {process.id}, the leader"
            for hosted in node.coordinators.shards(TRANSACTIONS_TOPIC).values():
                if not hosted.loaded:
                    return f"broker {process.id} has not loaded its transactional ids"
                for transactional_id, entry in hosted.shard.entries.items():
                    known = entry.current
                    if entry.pending or known is None or not known.state.is_idle:
                        state = "new" if known is None else known.state.label
                        return f"transactional id {transactional_id!r} is {state}"
        return None

    def check_settled(self) -> None:
        """Check all transactions; every reader has read up to the end of its partition."""
        visible: dict[str, int] = {}
        for attempt in self._attempts:
            missing = [value for _, value in attempt.records if value not in attempt.seen]
            if attempt.acknowledged and missing:
                what = f"{attempt} was committed; not visible is {missing[0].decode()}"
                self._report("transactions-survive", what)
            seen = bool(attempt.seen) or attempt.offset_seen
            if seen and missing:
                what = f"{attempt} is visible, but not its record {missing[0].decode()}"
                self._report("transactions-atomic", what)
            if seen and attempt.with_offset:
                visible[attempt.transactional_id] = attempt.number
        for transactional_id, number in visible.items():
            found = self._fetched_offsets.get(transactional_id, -1)
            if found != number:
                what = f"{transactional_id!r} has the committed offset {found}, not {number}"
                self._report("offsets-with-their-transaction", what)
