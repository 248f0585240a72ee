"""Each planted anomaly of transactions is found under its name; a clean history has none."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tidelog.apps.verify.checker.findings import Findings, Guarantees
from tidelog.apps.verify.checker.transactions.check import check_transactions
from tidelog.apps.verify.checker.transactions.cycles import components
from tidelog.apps.verify.checker.transactions.events import (
    INPUT,
    NO_SOURCE,
    NO_TXN,
    OUTPUT,
    Begun,
    Ended,
    Ending,
    Event,
    Opened,
    Outcome,
    Place,
    Read,
    Sent,
    as_row,
    describe,
    from_row,
    number,
)
from tidelog.apps.verify.checker.transactions.history import Fate, TxnHistory
from tidelog.apps.verify.checker.transactions.txn_log import Ends, TxnLog
from tidelog.apps.verify.journals import ReadBatch
from tidelog.apps.verify.record_value import ABSENT, STRANGER
from tidelog.apps.verify.transactions.journal import EventJournal, read_events

A, B = Place(INPUT, 0), Place(INPUT, 1)
OUT = Place(OUTPUT, 0)
WHOLE = "whole"
"""The reader that reads everything from the start."""


@dataclass
class World:
    """A history and the final logs, written step by step. Each step takes one tick."""

    events: list[Event] = field(default_factory=list)
    logs: dict[Place, TxnLog] = field(
        default_factory=lambda: {place: TxnLog(place.partition) for place in (A, B, OUT)}
    )
    offsets: dict[int, int] = field(default_factory=dict)
    clock: int = 0
    _counts: dict[int, int] = field(default_factory=dict)
    _clients: dict[int, int] = field(default_factory=dict)
    _sessions: dict[int, int] = field(default_factory=dict)

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def next_number(self, client: int) -> int:
        self._counts[client] = self._counts.get(client, 0) + 1
        return number(client, 0, self._counts[client])

    def open(self, client: int) -> int:
        session = self.next_number(client)
        self.events.append(Opened(self.tick(), session, f"id-{client}"))
        self._sessions[client] = session
        return session

    def begin(self, client: int, session: int | None = None) -> int:
        if client not in self._sessions:
            self.open(client)
        txn = self.next_number(client)
        self._clients[txn] = client
        self.events.append(Begun(self.tick(), txn, session or self._sessions[client]))
        return txn

    def send(
        self, txn: int, place: Place, source: tuple[int, int] = NO_SOURCE, *, stored: bool = True
    ) -> int:
        """Send a record, which is stored unless it is lost; return its value."""
        value = self.next_number(self._clients[txn])
        self.events.append(Sent(self.tick(), txn, *place, value, *source))
        if stored:
            self.store(place, value, txn)
        return value

    def store(self, place: Place, value: int, txn: int) -> int:
        offset = self.logs[place].end
        self.logs[place].add(
            ReadBatch(offset, offset, 0, 0), [value], self._clients[txn], transactional=True
        )
        return offset

    def mark(self, txn: int, *places: Place, committed: bool = True) -> None:
        """Write the markers of a transaction."""
        for place in places:
            end = self.logs[place].end
            row = ReadBatch(end, end, 0, 0)
            self.logs[place].add_marker(row, self._clients[txn], committed=committed)

    def ask(self, txn: int, *, commit: bool = True) -> None:
        self.events.append(Ending(self.tick(), txn, commit))

    def end(self, txn: int, outcome: str = Outcome.COMMITTED) -> None:
        self.events.append(Ended(self.tick(), txn, outcome))

    def commit(self, txn: int, *places: Place) -> None:
        self.ask(txn)
        self.mark(txn, *places)
        self.end(txn)

    def read(
        self, reader: str, place: Place, *offsets: int, txn: int = NO_TXN, value: int | None = None
    ) -> None:
        log = self.logs[place]
        values = [log.value(offset) if value is None else value for offset in offsets]
        self.events.append(Read(self.tick(), txn, reader, *place, offsets, values))

    def read_all(self) -> None:
        for place, log in self.logs.items():
            if log.visible():
                self.read(WHOLE, place, *log.visible())

    def check(self) -> Findings:
        return check_transactions(TxnHistory(self.events), self.logs, self.offsets, [WHOLE])

    def counts(self) -> dict[str, int]:
        return dict(self.check().counts)


def write(world: World, client: int, *places: Place) -> list[int]:
    """Commit a transaction with a record in each place; return the values."""
    txn = world.begin(client)
    values = [world.send(txn, place) for place in places]
    world.commit(txn, *dict.fromkeys(places))
    return values


def test_a_clean_history_has_no_anomaly() -> None:
    world = World()
    write(world, 1, A, B)
    aborted = world.begin(2)
    world.send(aborted, A)
    world.ask(aborted, commit=False)
    world.mark(aborted, A, committed=False)
    world.end(aborted, Outcome.ABORTED)
    unknown = world.begin(3)
    world.send(unknown, A)
    world.send(unknown, B)
    world.ask(unknown)
    world.mark(unknown, A, B)
    world.end(unknown, Outcome.UNKNOWN)
    process(world, 4, 0)
    reader = world.begin(5)
    world.read("w", A, 0, 4, txn=reader)
    world.send(reader, B)
    world.commit(reader, B)
    world.offsets = {0: 1}
    world.read_all()
    assert not world.counts()
    assert not world.check().broken(Guarantees(transactions=True))


def process(world: World, client: int, offset: int) -> int:
    """Process one record of A in a transaction; return the transaction."""
    txn = world.begin(client)
    world.read(f"p{client}", A, offset, txn=txn)
    world.send(txn, OUT, (0, offset))
    world.commit(txn, OUT)
    return txn


# -- outcomes


def test_missing_record_of_a_committed_transaction_is_lost_and_torn() -> None:
    world = World()
    txn = world.begin(1)
    world.send(txn, A)
    world.send(txn, B, stored=False)
    world.commit(txn, A)
    world.read_all()
    assert world.counts() == {"lost": 1, "torn": 1}
    assert "is missing" in world.check().examples["lost"][0]


def test_record_of_a_committed_transaction_with_an_abort_marker_is_lost() -> None:
    world = World()
    txn = world.begin(1)
    world.send(txn, A)
    world.ask(txn)
    world.mark(txn, A, committed=False)
    world.end(txn)
    assert world.counts() == {"lost": 1}
    assert "is aborted" in world.check().examples["lost"][0]


def test_half_of_an_unknown_transaction_is_torn() -> None:
    world = World()
    txn = world.begin(1)
    world.send(txn, A)
    world.send(txn, B)
    world.ask(txn)
    world.mark(txn, A)
    world.mark(txn, B, committed=False)
    world.end(txn, Outcome.UNKNOWN)
    world.read_all()
    assert world.counts() == {"torn": 1}


@pytest.mark.parametrize("visible", [True, False])
def test_unknown_transaction_may_be_committed_or_aborted(visible: bool) -> None:
    world = World()
    txn = world.begin(1)
    world.send(txn, A)
    world.send(txn, B)
    world.ask(txn)  # the client is killed before it has a response
    world.mark(txn, A, B, committed=visible)
    world.read_all()
    assert not world.counts()


def test_committed_records_of_a_transaction_that_never_began_to_commit() -> None:
    world = World()
    txn = world.begin(1)
    world.send(txn, A)
    world.mark(txn, A)
    assert world.counts()["G1a aborted read"] == 1


def test_committed_records_of_an_aborted_transaction() -> None:
    world = World()
    txn = world.begin(1)
    world.send(txn, A)
    world.ask(txn, commit=False)
    world.mark(txn, A)
    world.end(txn, Outcome.ABORTED)
    world.read_all()
    assert world.counts() == {"G1a aborted read": 2}  # in the final log, and by the reader


def zombie(outcome: str, *, committed: bool) -> World:
    """Begin a transaction, fence it by a newer session, and try to commit it then."""
    world = World()
    txn = world.begin(1)
    world.send(txn, A)
    world.open(1)
    world.ask(txn)
    world.mark(txn, A, committed=committed)
    world.end(txn, outcome)
    return world


def test_fenced_transaction_is_aborted() -> None:
    assert not zombie(Outcome.UNKNOWN, committed=False).counts()


def test_zombie_that_commits_is_found() -> None:
    found = zombie(Outcome.COMMITTED, committed=False).counts()
    assert found == {"zombie committed": 1}


def test_records_of_a_fenced_transaction_are_an_aborted_read() -> None:
    found = zombie(Outcome.UNKNOWN, committed=True).counts()
    assert found["G1a aborted read"] == 1


def test_newer_session_of_another_id_does_not_fence() -> None:
    world = World()
    txn = world.begin(1)
    world.send(txn, A)
    world.open(2)
    world.commit(txn, A)
    world.read_all()
    assert not world.counts()


# -- records


def test_record_that_is_in_the_log_twice() -> None:
    world = World()
    txn = world.begin(1)
    value = world.send(txn, A)
    world.store(A, value, txn)
    world.commit(txn, A)
    world.read_all()
    assert world.counts() == {"duplicated": 1}


def test_records_in_another_order_than_sent() -> None:
    world = World()
    txn = world.begin(1)
    first = world.send(txn, A, stored=False)
    world.send(txn, A)
    world.store(A, first, txn)
    world.commit(txn, A)
    world.read_all()
    assert world.counts() == {"reordered": 1}


@pytest.mark.parametrize("value", [STRANGER, number(9, 0, 9)], ids=["other bytes", "never sent"])
def test_record_that_was_never_sent(value: int) -> None:
    world = World()
    txn = world.begin(1)
    world.store(A, value, txn)
    world.mark(txn, A)
    world.read_all()
    assert world.counts() == {"phantom": 1}


def test_record_in_another_partition_than_sent() -> None:
    world = World()
    txn = world.begin(1)
    value = world.send(txn, A, stored=False)
    world.store(B, value, txn)
    world.commit(txn, B)
    world.read_all()
    assert world.counts() == {"phantom": 1}


def test_transaction_without_a_marker_is_hanging() -> None:
    world = World()
    txn = world.begin(1)
    world.send(txn, A)
    assert world.counts() == {"hanging": 1}


# -- reads


def test_aborted_record_is_read() -> None:
    world = World()
    txn = world.begin(1)
    world.send(txn, A)
    world.ask(txn, commit=False)
    world.mark(txn, A, committed=False)
    world.end(txn, Outcome.ABORTED)
    world.read("r", A, 0)
    assert world.counts() == {"G1a aborted read": 1}


def test_record_is_read_before_its_transaction_begins_to_commit() -> None:
    world = World()
    txn = world.begin(1)
    world.send(txn, A)
    world.read("r", A, 0)
    world.commit(txn, A)
    world.read_all()
    assert world.counts() == {"G1b intermediate read": 1}


def test_transaction_reads_its_own_record() -> None:
    world = World()
    txn = world.begin(1)
    world.send(txn, A)
    world.read("w", A, 0, txn=txn)
    world.commit(txn, A)
    world.read_all()
    assert world.counts() == {"G1b intermediate read": 1}


def test_record_is_read_while_the_commit_is_under_way() -> None:
    world = World()
    txn = world.begin(1)
    world.send(txn, A)
    world.ask(txn)
    world.mark(txn, A)
    world.read("r", A, 0)
    world.end(txn)
    world.read_all()
    assert not world.counts()


def test_reader_that_goes_back() -> None:
    world = World()
    write(world, 1, A, A)
    world.read("r", A, 1)
    world.read("r", A, 0)
    world.read_all()
    assert world.counts() == {"out-of-order read": 1}


def test_reader_that_skips_committed_records() -> None:
    world = World()
    write(world, 1, A, A, A, A)
    world.read("r", A, 0, 3)
    world.read_all()
    assert world.counts() == {"skipped": 2}


def test_reader_that_never_receives_the_end() -> None:
    world = World()
    write(world, 1, A, A, A)
    write(world, 2, B)
    world.read(WHOLE, A, 0, 1)
    assert world.counts() == {"skipped": 2}


def test_markers_and_aborted_records_are_not_skipped() -> None:
    world = World()
    write(world, 1, A)
    txn = world.begin(2)
    world.send(txn, A)
    world.ask(txn, commit=False)
    world.mark(txn, A, committed=False)
    world.end(txn, Outcome.ABORTED)
    write(world, 1, A)
    world.read_all()
    assert not world.counts()


def test_read_that_differs_from_the_final_log() -> None:
    world = World()
    [first, second] = write(world, 1, A, B)
    world.read("r", A, 0, value=second)
    world.read("r", A, 7, value=first)
    world.read_all()
    assert world.counts() == {"changed after read": 1, "read, then gone": 1}


# -- exactly-once processing


def test_input_processed_by_two_transactions() -> None:
    world = World()
    write(world, 1, A)
    process(world, 2, 0)
    process(world, 3, 0)
    world.offsets = {0: 1}
    world.read_all()
    assert world.counts() == {"processed twice": 1}


def test_offset_without_output() -> None:
    world = World()
    write(world, 1, A, A)
    process(world, 2, 0)
    world.offsets = {0: 2}
    world.read_all()
    assert world.counts() == {"not processed": 1}


def test_output_without_offset() -> None:
    world = World()
    write(world, 1, A)
    process(world, 2, 0)
    world.read_all()
    assert world.counts() == {"offset not committed": 1}


def test_output_in_another_order_than_the_input() -> None:
    world = World()
    write(world, 1, A, A)
    process(world, 2, 1)
    process(world, 3, 0)
    world.offsets = {0: 2}
    world.read_all()
    assert world.counts() == {"reordered": 1}


# -- cycles


def test_interleaved_writes_are_allowed() -> None:
    world = World()
    one, two = world.begin(1), world.begin(2)
    world.send(one, A)
    world.send(two, A)
    world.send(two, B)
    world.send(one, B)
    world.commit(one, A, B)
    world.commit(two, A, B)
    world.read_all()
    assert world.counts() == {"G0 write cycle": 1}
    assert not world.check().broken(Guarantees(transactions=True))


def read_cycle(*clients: int) -> World:
    """Let each transaction read a record of the next one before any has committed."""
    world = World()
    places = [A, B, OUT]
    txns = [world.begin(client) for client in clients]
    for txn, place in zip(txns, places, strict=False):
        world.send(txn, place, (0, 0))
    for txn in txns:
        world.ask(txn)
    for number_, txn in enumerate(txns):
        place = places[(number_ + 1) % len(txns)]
        world.read(f"w{number_}", place, 0, txn=txn)
    for txn, place in zip(txns, places, strict=False):
        world.mark(txn, place)
        world.end(txn)
    world.offsets = {0: 1}
    world.read_all()
    return world


def test_two_transactions_that_read_each_other() -> None:
    found = read_cycle(1, 2).check()
    assert found.counts["G1c read cycle"] == 1
    [example] = found.examples["G1c read cycle"]
    assert "transaction 1.0.2 depends on transaction 2.0.2" in example
    assert "transaction 2.0.2 depends on transaction 1.0.2" in example
    assert found.broken(Guarantees(transactions=True))["G1c read cycle"] == 1


def test_three_transactions_that_read_each_other() -> None:
    found = read_cycle(1, 2, 3).check()
    assert found.counts["G1c read cycle"] == 1
    assert "3 transactions depend on each other" in found.examples["G1c read cycle"][0]


def test_cycle_of_a_write_and_a_read_is_allowed() -> None:
    """T1's record follows T2's, and T2 read another record of T1."""
    world = World()
    one, two = world.begin(1), world.begin(2)
    world.send(two, A)
    world.send(one, A)
    world.send(one, B)
    world.commit(one, A, B)
    world.read("w", B, 0, txn=two)
    world.commit(two, A)
    world.read_all()
    assert world.counts() == {"mixed cycle": 1}


def test_reads_of_aborted_transactions_make_no_cycle() -> None:
    """A transaction that is not visible may have read whatever it wanted."""
    world = World()
    one, two = world.begin(1), world.begin(2)
    world.send(one, A)
    world.send(two, B)
    world.ask(one)
    world.mark(one, A)
    world.end(one)
    world.read("w", A, 0, txn=two)
    world.ask(two, commit=False)
    world.mark(two, B, committed=False)
    world.end(two, Outcome.ABORTED)
    world.read_all()
    assert not world.counts()


def test_components_of_a_long_chain_need_no_deep_recursion() -> None:
    chain = {n: {n + 1: ""} for n in range(5000)}
    assert list(components(chain)) == []
    chain[5000] = {2500: ""}
    [component] = components(chain)
    assert sorted(component) == list(range(2500, 5001))


# -- the parts


def test_log_knows_the_end_of_each_record() -> None:
    log = TxnLog(0, 10)
    rows = [(1, 7), (2, 8), (1, 7), (3, 9)]
    for offset, (value, producer) in enumerate(rows, 10):
        log.add(ReadBatch(offset, offset, 0, 0), [value], producer, transactional=True)
    log.add_marker(ReadBatch(14, 14, 0, 0), 7, committed=True)
    log.add_marker(ReadBatch(15, 15, 0, 0), 8, committed=False)
    log.add(ReadBatch(17, 17, 0, 0), [4], 9, transactional=False)
    ends = [log.end_of(offset) for offset in range(9, 19)]
    assert ends == [
        Ends.NO_RECORD, Ends.COMMITTED, Ends.ABORTED, Ends.COMMITTED, Ends.OPEN, Ends.NO_RECORD,
        Ends.NO_RECORD, Ends.NO_RECORD, Ends.COMMITTED, Ends.NO_RECORD,
    ]  # fmt: skip
    assert log.visible() == [10, 12, 17]
    assert log.value(14) == ABSENT


def test_fates() -> None:
    world = World()
    txns = [world.begin(client) for client in range(1, 5)]
    for txn, outcome in zip(txns, (Outcome.COMMITTED, Outcome.UNKNOWN, None, None), strict=True):
        if outcome:
            world.ask(txn)
            world.end(txn, outcome)
    world.ask(txns[3])
    history = TxnHistory(world.events)
    fates = [history.fate(history.txns[txn]) for txn in txns]
    assert fates == [Fate.COMMITTED, Fate.UNKNOWN, Fate.ABORTED, Fate.UNKNOWN]


def test_events_survive_a_journal(tmp_path: Path) -> None:
    events: list[Event] = [
        Opened(1, 2, "id"),
        Begun(3, 4, 2),
        Sent(5, 4, INPUT, 1, 6),
        Read(7, NO_TXN, "r", OUTPUT, 0, [8, 9], [10, 11]),
        Ending(12, 4, True),
        Ended(13, 4, Outcome.COMMITTED),
    ]
    for life, part in enumerate((events[:3], events[3:])):
        journal = EventJournal(str(tmp_path), 1, life)
        for event in part:
            journal.add(event)
        journal.close()
    with open(tmp_path / "transactions-1-1.jsonl", "ab") as file:
        file.write(b'["Ended", 14')  # the client was killed while it wrote
    assert list(read_events(str(tmp_path))) == events


def test_row_that_is_no_event_is_refused() -> None:
    assert from_row(json.loads(json.dumps(as_row(Begun(1, 2, 3))))) == Begun(1, 2, 3)
    for row in ([], ["Nothing", 1], ["Begun", 1]):
        with pytest.raises(ValueError, match="not an event"):
            from_row(row)


def test_numbers_are_unique_and_readable() -> None:
    assert describe(number(12, 3, 45)) == "12.3.45"
    assert number(1, 0, 2**32 - 1) < number(1, 1, 0) < number(2, 0, 0)
