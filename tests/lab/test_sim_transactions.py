"""Transactions in the simulator: many commit under faults, and broken rules are found."""

import pytest

from tidelog.core.transactions.transaction import ProducerIdentity
from tidelog.core.types import TopicPartition
from tidelog.lab.sim.faults import OUTCOME_INTERRUPTED
from tidelog.lab.sim.machine.network import LinkConditions, Network
from tidelog.lab.sim.machine.process import Site
from tidelog.lab.sim.machine.store import SimStore, StoreFaults
from tidelog.lab.sim.oracle.transactions import TransactionOracle
from tidelog.lab.sim.runner import run_seed
from tidelog.lab.sim.swarm import draw_plan
from tidelog.lab.sim.world import World

ONE, OTHER = TopicPartition("transfers", 0), TopicPartition("transfers", 1)
PRODUCER = ProducerIdentity(1000, 0)
ID = "id"


class Broken(Exception):
    """An invariant that the oracle reported."""


def report(invariant: str, what: str) -> None:
    assert what
    raise Broken(invariant)


@pytest.fixture
def oracle() -> TransactionOracle:
    world = World(0)
    network = Network(world, LinkConditions())
    oracle = TransactionOracle(
        Site(world, network, SimStore(world, network, StoreFaults())), report
    )
    oracle.initialised(ID, PRODUCER)
    return oracle


def test_many_transactions_commit_under_faults() -> None:
    plans = [plan for plan in map(draw_plan, range(150)) if plan.transactional_ids]
    results = [run_seed(plan.seed) for plan in plans]
    assert [result.violations for result in results if not result.clean] == []
    assert sum(result.transactions for result in results) > 3 * len(results)
    assert sum(result.faults.get(OUTCOME_INTERRUPTED, 0) for result in results) > len(results)


def test_record_of_an_open_transaction_must_not_be_read(oracle: TransactionOracle) -> None:
    attempt = oracle.begun(ID, PRODUCER)
    oracle.written(attempt, b"a")
    with pytest.raises(Broken, match="reads-committed"):
        oracle.read(ONE, 0, b"a")


def test_record_of_a_fenced_transaction_must_not_be_read(oracle: TransactionOracle) -> None:
    attempt = oracle.begun(ID, PRODUCER)
    oracle.written(attempt, b"a")
    oracle.initialised(ID, ProducerIdentity(1000, 2))
    oracle.ending(attempt)
    with pytest.raises(Broken, match="reads-committed"):
        oracle.read(ONE, 0, b"a")
    with pytest.raises(Broken, match="fenced-producers-stop"):
        oracle.committed(attempt)


def test_record_is_read_at_one_offset(oracle: TransactionOracle) -> None:
    attempt = oracle.begun(ID, PRODUCER)
    oracle.written(attempt, b"a")
    oracle.ending(attempt)
    oracle.read(ONE, 0, b"a")
    oracle.read(ONE, 0, b"a")
    with pytest.raises(Broken, match="reads-once"):
        oracle.read(ONE, 3, b"a")


@pytest.mark.parametrize(
    ("acknowledged", "read", "broken"),
    [
        (True, [b"a", b"b"], None),
        (True, [b"a"], "transactions-survive"),
        (True, [], "transactions-survive"),
        (False, [b"a", b"b"], None),
        (False, [b"a"], "transactions-atomic"),
        (False, [], None),
    ],
)
def test_transaction_is_visible_as_a_whole_or_not_at_all(
    oracle: TransactionOracle, acknowledged: bool, read: list[bytes], broken: str | None
) -> None:
    attempt = oracle.begun(ID, PRODUCER)
    attempt.records += [(ONE, b"a"), (OTHER, b"b")]
    for _, value in attempt.records:
        oracle.written(attempt, value)
    oracle.ending(attempt)
    if acknowledged:
        oracle.committed(attempt)
    for offset, value in enumerate(read):
        oracle.read(ONE, offset, value)
    if broken is None:
        oracle.check_settled()
        return
    with pytest.raises(Broken, match=broken):
        oracle.check_settled()


@pytest.mark.parametrize(
    ("fetched", "broken"), [(1, None), (0, "offsets-with-their"), (-1, "offsets-with-their")]
)
def test_committed_offset_is_that_of_the_last_transaction(
    oracle: TransactionOracle, fetched: int, broken: str | None
) -> None:
    for _ in range(2):
        attempt = oracle.begun(ID, PRODUCER)
        attempt.with_offset = True
        oracle.ending(attempt)
        oracle.committed(attempt)
    at_least = oracle.expected_offset(ID, stable=True)
    assert (at_least, oracle.expected_offset(ID, stable=False)) == (1, -1)
    if broken is None:
        oracle.fetched_offset(ID, fetched, at_least)
        oracle.check_settled()
        return
    with pytest.raises(Broken, match=broken):
        oracle.fetched_offset(ID, fetched, at_least)


def test_offset_of_a_visible_transaction_is_committed_at_the_end(
    oracle: TransactionOracle,
) -> None:
    attempt = oracle.begun(ID, PRODUCER)
    attempt.with_offset = True
    attempt.records.append((ONE, b"a"))
    oracle.written(attempt, b"a")
    oracle.ending(attempt)
    oracle.read(ONE, 0, b"a")
    with pytest.raises(Broken, match="offsets-with-their-transaction"):
        oracle.check_settled()


def test_offset_of_an_open_transaction_must_not_be_fetched(oracle: TransactionOracle) -> None:
    attempt = oracle.begun(ID, PRODUCER)
    attempt.with_offset = True
    with pytest.raises(Broken, match="reads-committed"):
        oracle.fetched_offset(ID, attempt.number, -1)
