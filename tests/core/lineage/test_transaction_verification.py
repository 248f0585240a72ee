"""Transactions must be verified before their first batch (KIP-890), and markers of version 2."""

import pytest
from test_producer_state import A, B, abort, after, append, begin, commit, data, marker

from tidelog.core.errors import ErrorCode
from tidelog.core.lineage.producer_state import Duplicate, ProducerState
from tidelog.core.lineage.verification import Verification
from tidelog.core.record.control import ControlType
from tidelog.core.record.record_batch import RecordBatch

OK = ErrorCode.NONE
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
NOT_VERIFIED = ErrorCode.INVALID_TXN_STATE
FENCED = ErrorCode.INVALID_PRODUCER_EPOCH

UNVERIFIED: dict[str, tuple[list[RecordBatch], RecordBatch, ErrorCode | Duplicate]] = {
    "unknown producer": ([], begin(), NOT_VERIFIED),
    "after a plain batch": ([data(0)], begin(1), NOT_VERIFIED),
    "gap after a plain batch": ([data(0)], begin(5), NOT_VERIFIED),
    "going on": ([begin()], begin(1), OK),
    "gap in the transaction": ([begin()], begin(2), OUT_OF_ORDER),
    "duplicate after the transaction": ([begin(), commit()], begin(), Duplicate(0, 0, 0)),
    "after the transaction": ([begin(), commit()], begin(1), NOT_VERIFIED),
    "newer epoch in the transaction": ([begin()], data(0, epoch=1, txn=True), NOT_VERIFIED),
    "older epoch": ([data(0, epoch=1)], begin(), FENCED),
    "plain batch": ([], data(0), OK),
    "coordinator's batch": ([], data(-1, txn=True), NOT_VERIFIED),
}


@pytest.mark.parametrize(("log", "batch", "verdict"), UNVERIFIED.values(), ids=UNVERIFIED)
def test_verdict_on_an_unverified_batch(
    log: list[RecordBatch], batch: RecordBatch, verdict: ErrorCode | Duplicate
) -> None:
    assert after(*log).validate(batch) == verdict


MARKERS: dict[str, tuple[list[RecordBatch], RecordBatch, ErrorCode]] = {
    "higher epoch": ([begin()], marker(ControlType.COMMIT, epoch=1), OK),
    "same epoch, transaction open": ([begin()], commit(), FENCED),
    "same epoch, repeated": (
        [begin(), marker(ControlType.COMMIT, epoch=1)],
        marker(ControlType.COMMIT, epoch=1),
        OK,
    ),
    "late, in the next transaction": (
        [begin(), marker(ControlType.ABORT, epoch=1), data(0, epoch=1, txn=True)],
        marker(ControlType.ABORT, epoch=1),
        FENCED,
    ),
    "lower epoch": ([data(0, epoch=2, txn=True)], marker(ControlType.ABORT, epoch=1), FENCED),
    "unknown producer": ([], abort(), OK),
}


@pytest.mark.parametrize(("log", "batch", "verdict"), MARKERS.values(), ids=MARKERS)
def test_verdict_on_a_marker_of_version_2(
    log: list[RecordBatch], batch: RecordBatch, verdict: ErrorCode
) -> None:
    assert after(*log).validate(batch, transaction_version=2) == verdict


def verification(
    state: ProducerState, sequence: int, *, epoch: int = 0, adds: bool = False, at_ms: int = 0
) -> Verification:
    found = state.begin_verification(A, epoch, sequence, adds=adds, wall_ms=at_ms)
    assert isinstance(found, Verification)
    return found


def test_an_open_transaction_needs_no_verification() -> None:
    state = after(begin())
    assert state.begin_verification(A, 0, 1, adds=True, wall_ms=0) is OK
    assert state.begin_verification(A, -1, 1, adds=True, wall_ms=0) is FENCED
    assert not state.verifications


def test_a_producer_has_one_verification_until_it_writes() -> None:
    state = ProducerState()
    found = verification(state, 0)
    assert verification(state, 1) is found
    append(state, data(0))
    assert state.verifications == {A: found}, "a plain batch leaves it"
    append(state, begin(1))
    assert state.verifications == {}
    append(state, commit())
    assert verification(state, 2) is not found


@pytest.mark.parametrize("end", [commit(), abort()])
def test_a_marker_removes_the_verification(end: RecordBatch) -> None:
    state = ProducerState()
    verification(state, 0)
    append(state, end)
    assert state.verifications == {}


def test_the_lowest_sequence_is_appended_first() -> None:
    state = ProducerState()
    verification(state, 2)
    verification(state, 1)
    verification(state, 3)
    assert state.validate(begin(2), verified=True) == OUT_OF_ORDER
    assert state.validate(begin(2, B), verified=True) == OK
    assert state.validate(begin(1), verified=True) == OK
    verification(state, 5, epoch=1)
    assert state.validate(data(5, epoch=1, txn=True), verified=True) == OK
    verification(state, 0)
    assert state.validate(data(5, epoch=1, txn=True), verified=True) == OK


@pytest.mark.parametrize(("adds", "verdict"), [(True, OUT_OF_ORDER), (False, OK)])
def test_unknown_producers_of_version_2_start_at_0(adds: bool, verdict: ErrorCode) -> None:
    state = ProducerState()
    verification(state, 4, adds=adds)
    assert state.validate(begin(4), verified=True) == verdict


def test_known_producers_of_version_2_continue() -> None:
    state = after(data(0), data(1))
    verification(state, 2, adds=True)
    assert state.validate(begin(2), verified=True) == OK
    assert state.validate(data(-1, txn=True), verified=True) == OK


def test_verifications_expire_and_are_not_restored() -> None:
    state = after(data(0, of=B))
    verification(state, 0, at_ms=1000)
    state.expire(1999, 1000)
    assert A in state.verifications
    assert state.copy().verifications == {}
    state.expire(2000, 1000)
    assert state.verifications == {}
    verification(state, 0)
    state.restart_at(0)
    assert state.verifications == {}
