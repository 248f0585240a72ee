import struct
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.core.errors import ErrorCode
from tidelog.core.lineage.producer_state import CorruptSnapshot, Duplicate, ProducerState
from tidelog.core.lineage.transaction_index import AbortedTransaction
from tidelog.core.record.control import ControlType
from tidelog.core.record.crc32c import crc32c
from tidelog.core.record.encoder import Producer, encode_batch, encode_marker
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import CONTROL, TRANSACTIONAL, RecordBatch, parse

A, B = 1000, 2000
ONE = Producer(A, 0, 0)
MAX = 2**31 - 1
OK = ErrorCode.NONE
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def data(
    sequence: int, count: int = 1, *, of: int = A, epoch: int = 0, txn: bool = False, time: int = 0
) -> RecordBatch:
    records = [Record(None, b"v", time)] * count
    attributes = TRANSACTIONAL if txn else 0
    return parse(
        encode_batch(records, attributes=attributes, producer=Producer(of, epoch, sequence))
    )


def marker(
    kind: ControlType, *, of: int = A, epoch: int = 0, coordinator: int = 0, time: int = 0
) -> RecordBatch:
    return parse(encode_marker(kind, Producer(of, epoch), coordinator, time))


def abort(of: int = A) -> RecordBatch:
    return marker(ControlType.ABORT, of=of)


def commit(of: int = A) -> RecordBatch:
    return marker(ControlType.COMMIT, of=of)


def begin(sequence: int = 0, of: int = A) -> RecordBatch:
    return data(sequence, of=of, txn=True)


def append(state: ProducerState, batch: RecordBatch) -> AbortedTransaction | None:
    batch.assign(state.end_offset, 0)
    return state.update(batch)


def after(*batches: RecordBatch) -> ProducerState:
    state = ProducerState()
    for batch in batches:
        append(state, batch)
    return state


def reloaded(state: ProducerState) -> ProducerState:
    again = ProducerState()
    again.load_snapshot(state.encode_snapshot(), state.end_offset)
    return again


FIVE = [data(2 * n, 2, time=100 + n) for n in range(5)]
"""Sequences 0 to 9 at offsets 0 to 9."""

VERDICTS: dict[str, tuple[list[RecordBatch], RecordBatch, ErrorCode | Duplicate]] = {
    "no producer": (FIVE, data(-1, of=-1, epoch=-1), OK),
    "unknown producer, any sequence": (FIVE, data(77, of=B), OK),
    "first sequence": ([], data(0), OK),
    "next in sequence": (FIVE, data(10, 3), OK),
    "gap": (FIVE, data(11), OUT_OF_ORDER),
    "wraps to zero": ([data(MAX - 1, 2)], data(0), OK),
    "wraps inside a batch": ([data(MAX, 3)], data(2), OK),
    "gap over the wrap": ([data(MAX - 1, 2)], data(1), OUT_OF_ORDER),
    "duplicate of the last": (FIVE, data(8, 2), Duplicate(8, 9, 104)),
    "duplicate of the fifth last": (FIVE, data(0, 2), Duplicate(0, 1, 100)),
    "duplicate of the sixth last": ([*FIVE, data(10)], data(0, 2), OUT_OF_ORDER),
    "duplicate over the wrap": ([data(MAX, 3), data(2)], data(MAX, 3), Duplicate(0, 2, 0)),
    "same start, other end": (FIVE, data(8, 1), OUT_OF_ORDER),
    "same end, other start": (FIVE, data(9, 1), OUT_OF_ORDER),
    "older epoch": ([data(0, epoch=3)], data(1, epoch=2), ErrorCode.INVALID_PRODUCER_EPOCH),
    "older epoch of a known batch": (
        [data(0, epoch=2), data(0, epoch=3)],
        data(0, epoch=2),
        ErrorCode.INVALID_PRODUCER_EPOCH,
    ),
    "newer epoch from zero": (FIVE, data(0, epoch=1), OK),
    "newer epoch going on": (FIVE, data(10, epoch=1), OUT_OF_ORDER),
    "first batch after a marker alone": ([commit()], data(0, txn=True), OK),
    "later batch after a marker alone": ([commit()], data(1, txn=True), OUT_OF_ORDER),
    "going on in a transaction": ([begin()], data(1, txn=True), OK),
    "plain batch in a transaction": ([begin()], data(1), ErrorCode.INVALID_TXN_STATE),
    "plain batch in another's transaction": ([begin(of=B), data(0)], data(1), OK),
    "plain batch after the transaction": ([begin(), commit()], data(1), OK),
    "duplicate in a transaction": ([begin()], data(0, txn=True), Duplicate(0, 0, 0)),
    "coordinator's batch": ([data(-1, txn=True)], data(-1, txn=True), OK),
    "coordinator's batch of an older epoch": (
        [data(-1, epoch=1, txn=True)],
        data(-1, txn=True),
        ErrorCode.INVALID_PRODUCER_EPOCH,
    ),
    "coordinator's batch of a newer epoch": ([begin()], data(-1, epoch=1, txn=True), OK),
    "marker": ([begin()], commit(), OK),
    "marker for an unknown producer": ([], abort(), OK),
    "marker of an older epoch": (
        [data(0, epoch=1, txn=True)],
        abort(),
        ErrorCode.INVALID_PRODUCER_EPOCH,
    ),
    "marker of a newer epoch": ([begin()], marker(ControlType.ABORT, epoch=1), OK),
    "marker of an older coordinator": (
        [marker(ControlType.COMMIT, coordinator=5)],
        marker(ControlType.COMMIT, coordinator=4),
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    ),
    "control batch that is no marker": (
        [begin()],
        parse(
            encode_batch(
                [Record(struct.pack(">hh", 0, 2), b"")],
                attributes=CONTROL,
                producer=Producer(A, 0, -1),
            )
        ),
        ErrorCode.INVALID_RECORD,
    ),
}


@pytest.mark.parametrize(("log", "batch", "verdict"), VERDICTS.values(), ids=VERDICTS)
def test_verdict_on_a_batch(
    log: list[RecordBatch], batch: RecordBatch, verdict: ErrorCode | Duplicate
) -> None:
    state = after(*log)
    assert state.validate(batch, verified=True) == verdict
    assert state == after(*log)


def test_followers_accept_every_batch_of_the_log() -> None:
    """A follower must accept an older epoch that is already in the log."""
    state = after(data(0, epoch=3), data(7, epoch=1))
    assert state.producers[A].epoch == 1
    assert state.validate(data(8, epoch=1)) == OK


def test_batches_without_a_producer_only_move_the_end() -> None:
    assert after(data(-1, 3, of=-1, epoch=-1)) == ProducerState(end_offset=3)


def test_the_latest_timestamp_of_a_batch_counts() -> None:
    state = after(parse(encode_batch([Record(None, b"", t) for t in (5, 9, 7)], producer=ONE)))
    assert state.producers[ONE.id].last_timestamp == 9


def test_a_new_epoch_forgets_the_old_ones_batches() -> None:
    state = after(*FIVE, data(0, epoch=1))
    assert [batch.last_offset for batch in state.producers[A].batches] == [10]


def test_a_marker_of_a_new_epoch_begins_the_sequences_again() -> None:
    state = after(begin(), marker(ControlType.ABORT, epoch=1, coordinator=4, time=55))
    entry = state.producers[A]
    assert (entry.epoch, entry.coordinator_epoch, entry.last_timestamp) == (1, 4, 55)
    assert entry.batches == []
    assert state.validate(data(0, epoch=1)) == OK


def test_control_batches_without_a_marker_change_no_producer() -> None:
    log, other, _ = VERDICTS["control batch that is no marker"]
    assert after(*log, other).producers == after(*log).producers


ABORTS: dict[str, tuple[list[RecordBatch], RecordBatch, AbortedTransaction | None]] = {
    "commit": ([begin()], commit(), None),
    "abort": ([begin(), begin(1)], abort(), AbortedTransaction(A, 0, 2, 3)),
    "abort of nothing": ([data(0)], abort(), None),
    "abort twice": ([begin(), abort()], abort(), None),
    "while another is open": (
        [begin(), begin(of=B)],
        abort(),
        AbortedTransaction(A, 0, 2, 1),
    ),
    "while an older one is open": (
        [begin(of=B), begin()],
        abort(),
        AbortedTransaction(A, 1, 2, 0),
    ),
    "after another has ended": (
        [begin(of=B), begin(), commit(of=B)],
        abort(),
        AbortedTransaction(A, 1, 3, 4),
    ),
}


@pytest.mark.parametrize(("log", "batch", "entry"), ABORTS.values(), ids=ABORTS)
def test_aborted_transactions_get_an_index_entry(
    log: list[RecordBatch], batch: RecordBatch, entry: AbortedTransaction | None
) -> None:
    assert append(after(*log), batch) == entry


PLAIN = data(-1, of=-1, epoch=-1)
UNSTABLE: dict[str, tuple[list[RecordBatch], int, int | None]] = {
    "no transactions": (FIVE, 5, None),
    "open": ([PLAIN, begin()], 2, 1),
    "open from offset 0, another ended": ([begin(), begin(of=B), commit(of=B)], 0, 0),
    "two open": ([PLAIN, begin(), begin(of=B)], 3, 1),
    "the older one ended and replicated": ([begin(), begin(of=B), commit()], 3, 1),
    "the older one ended, not replicated": ([begin(), begin(of=B), commit()], 2, 0),
    "marker below the high watermark": ([begin(), abort()], 2, None),
    "marker at the high watermark": ([begin(), abort()], 1, 0),
    "marker above the high watermark": ([begin(), abort()], 0, 0),
}


@pytest.mark.parametrize(("log", "high_watermark", "first"), UNSTABLE.values(), ids=UNSTABLE)
def test_first_unstable_offset(
    log: list[RecordBatch], high_watermark: int, first: int | None
) -> None:
    state = after(*log)
    assert state.first_unstable_offset(high_watermark) == first
    state.forget_ended(high_watermark)
    assert state.first_unstable_offset(high_watermark) == first


def test_ended_transactions_are_forgotten_once_replicated() -> None:
    state = after(begin(), commit(), begin(1), commit())
    state.forget_ended(3)
    assert [transaction.marker_offset for transaction in state.ended] == [3]
    state.forget_ended(4)
    assert state.ended == []


EXPIRY = {"not yet": (1099, {A, B}), "just": (1100, {B}), "both": (5000, {B})}


@pytest.mark.parametrize(("now", "left"), EXPIRY.values(), ids=EXPIRY)
def test_silent_producers_expire_but_none_in_a_transaction(now: int, left: set[int]) -> None:
    state = after(data(0, time=100), begin(of=B))
    state.expire(now, expiration_ms=1000)
    assert state.producers.keys() == left


def test_a_day_is_the_default_expiry() -> None:
    state = after(data(0, time=100))
    state.expire(86_400_099)
    assert A in state.producers
    state.expire(86_400_100)
    assert A not in state.producers


def test_truncation_above_the_end_changes_nothing() -> None:
    state = after(*FIVE)
    assert state.truncate_to(10)
    assert state == after(*FIVE)


def test_truncation_without_producers_needs_no_rebuilding() -> None:
    state = after(data(-1, 8, of=-1, epoch=-1))
    assert state.truncate_to(3)
    assert state == ProducerState(end_offset=3)


def test_truncation_empties_what_must_be_rebuilt() -> None:
    state = after(*FIVE, begin(0, of=B), abort(of=B))
    assert not state.truncate_to(9)
    assert state == ProducerState()


def test_copy_is_independent() -> None:
    state = after(begin(), commit(), begin(1))
    copied = state.copy()
    assert copied == state
    append(copied, begin(2))
    append(copied, abort())
    assert copied != state
    assert state == after(begin(), commit(), begin(1))


def test_snapshot_bytes() -> None:
    state = after(data(3, 2, epoch=1, time=77), begin(of=B), marker(ControlType.COMMIT, of=7))
    body = struct.pack(">i", 3)
    body += struct.pack(">qhiqiqiq", A, 1, 4, 1, 1, 77, -1, -1)
    body += struct.pack(">qhiqiqiq", B, 0, 0, 2, 0, 0, -1, 2)
    body += struct.pack(">qhiqiqiq", 7, 0, -1, -1, 0, 0, 0, -1)
    assert state.encode_snapshot() == struct.pack(">hI", 1, crc32c(body)) + body


def test_a_snapshot_keeps_the_last_batch_only() -> None:
    state = reloaded(after(*FIVE))
    assert state.end_offset == 10
    assert state.validate(data(8, 2)) == Duplicate(8, 9, 104)
    assert state.validate(data(6, 2)) == OUT_OF_ORDER
    assert state.validate(data(10)) == OK


def test_a_snapshot_keeps_open_transactions_in_order() -> None:
    state = after(begin(of=A), begin(of=B), commit(of=A), begin(1, of=A))
    assert list(state.producers) == [A, B]
    assert list(reloaded(state).open_transactions.items()) == [(B, 1), (A, 3)]


def test_a_duplicate_over_the_wrap_is_known_after_reloading() -> None:
    assert reloaded(after(data(MAX, 3))).validate(data(MAX, 3)) == Duplicate(0, 2, 0)


def with_crc(body: bytes, version: int = 1) -> bytes:
    return struct.pack(">hI", version, crc32c(body)) + body


BAD_SNAPSHOTS = {
    "nothing": b"",
    "cut header": with_crc(struct.pack(">i", 0))[:9],
    "newer version": with_crc(struct.pack(">i", 0), version=2),
    "damaged": with_crc(struct.pack(">i", 0))[:-1] + b"\x01",
    "fewer entries than counted": with_crc(struct.pack(">i", 2) + bytes(46)),
    "half an entry": with_crc(struct.pack(">i", 1) + bytes(45)),
    "bytes at the end": with_crc(struct.pack(">i", 0) + b"\x00"),
}


@pytest.mark.parametrize("snapshot", BAD_SNAPSHOTS.values(), ids=BAD_SNAPSHOTS)
def test_a_bad_snapshot_is_refused_and_changes_nothing(snapshot: bytes) -> None:
    state = after(*FIVE)
    with pytest.raises(CorruptSnapshot):
        state.load_snapshot(snapshot, 99)
    assert state == after(*FIVE)


steps = st.lists(
    st.tuples(st.sampled_from(["data", "txn", "abort", "commit", "bump"]), st.sampled_from([A, B])),
    max_size=25,
)


def lives(steps: Iterable[tuple[str, int]]) -> list[RecordBatch]:
    """Generate the batches of two correct producers."""
    sequence, epoch, open_ = {A: 0, B: 0}, {A: 0, B: 0}, {A: False, B: False}
    log = []
    for kind, of in steps:
        if kind == "bump":
            epoch[of] += 1
            sequence[of] = 0
        elif kind in ("abort", "commit"):
            log.append(marker(ControlType[kind.upper()], of=of, epoch=epoch[of]))
            open_[of] = False
        else:
            open_[of] = open_[of] or kind == "txn"
            log.append(data(sequence[of], 2, of=of, epoch=epoch[of], txn=open_[of]))
            sequence[of] += 2
    return log


@given(steps)
def test_correct_producers_are_never_refused_and_retries_never_written(
    steps: list[tuple[str, int]],
) -> None:
    state = ProducerState()
    for batch in lives(steps):
        assert state.validate(batch, verified=True) == OK
        append(state, batch)
        if not batch.is_control:
            again = state.validate(batch)
            assert again == Duplicate(batch.base_offset, batch.last_offset, 0)


@given(steps, st.integers(0, 25))
def test_snapshot_and_replay_give_the_state_of_the_whole_log(
    steps: list[tuple[str, int]], cut: int
) -> None:
    """Except older batches of the window, which snapshots do not contain."""
    log = lives(steps)
    whole = after(*log)
    rebuilt = reloaded(after(*log[:cut]))
    for batch in log[cut:]:
        append(rebuilt, batch)
    assert rebuilt.encode_snapshot() == whole.encode_snapshot()
    assert rebuilt.open_transactions == whole.open_transactions
    end = whole.end_offset
    assert rebuilt.first_unstable_offset(end) == whole.first_unstable_offset(end)


@given(steps, st.integers(0, 60))
def test_unstable_offset_agrees_with_the_log(
    steps: list[tuple[str, int]], high_watermark: int
) -> None:
    first: dict[int, int] = {}
    unstable = []
    state = ProducerState()
    for batch in lives(steps):
        append(state, batch)
        if not batch.is_control and batch.is_transactional:
            first.setdefault(batch.producer_id, batch.base_offset)
        elif batch.is_control and batch.producer_id in first:
            began = first.pop(batch.producer_id)
            if batch.last_offset >= high_watermark:
                unstable.append(began)
    expected = min([*unstable, *first.values()], default=None)
    assert state.first_unstable_offset(high_watermark) == expected
