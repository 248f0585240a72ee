"""Each hand-made anomaly is found under its name; a clean history has none."""

from collections.abc import Iterable

import pytest

from tidelog.apps.verify.checker.final_log import FinalLog
from tidelog.apps.verify.checker.findings import EXAMPLES_MAX, KINDS, Findings, Guarantees
from tidelog.apps.verify.checker.partition_check import (
    check_acknowledged,
    check_epochs,
    check_marks,
    check_order,
    check_read_batches,
    check_reads,
    check_strangers,
)
from tidelog.apps.verify.checker.replicas import Served, StoredBatch, check_replicas
from tidelog.apps.verify.journals import Ack, Mark, MarkKind, Outcome, Read, ReadBatch
from tidelog.apps.verify.record_value import ABSENT, STRANGER, value_id


def final_log(*batches: tuple[int, list[tuple[int, int]]], start: int = 0) -> FinalLog:
    """Return a log of batches given as (leader epoch, [(producer, sequence)])."""
    log = FinalLog(0, start)
    for epoch, records in batches:
        base = log.end
        batch = ReadBatch(base, base + len(records) - 1, epoch, 1000 + base)
        log.add_batch(batch, [value_id(*record) for record in records])
    return log


CLEAN = final_log((0, [(1, 0), (1, 1)]), (0, [(2, 0)]), (2, [(1, 2), (1, 3)]), (5, [(2, 1)]))
SENT = {1: 4, 2: 2}


def acks(*pairs: tuple[int, int]) -> list[Ack]:
    return [Ack(sequence, offset, 100, 10) for sequence, offset in pairs]


def counts(found: Findings) -> dict[str, int]:
    return dict(found.counts)


def test_a_clean_history_has_no_anomaly() -> None:
    reads = [Read(o, CLEAN.value(o), CLEAN.leader_epochs[o]) for o in range(6)]
    batches = [CLEAN.batch(n) for n in range(4)] + [CLEAN.batch(1)]
    marks = [
        Mark(MarkKind.FETCH, 0, 1, 2, 2, 1),
        Mark(MarkKind.FETCH, 0, 2, 3, 3, 2),
        Mark(MarkKind.LIST_LATEST, 0, 3, 3, -1, -1),
        Mark(MarkKind.FETCH, 2, 4, 2, 2, -1),  # a new leader learns of the newest one late
        Mark(MarkKind.FETCH, 2, 5, 6, 6, 5),
        Mark(MarkKind.LIST_LATEST, 2, 6, 6, -1, -1),
    ]
    found = Findings()
    for part in (
        check_epochs(CLEAN),
        check_strangers(CLEAN, SENT),
        check_order(CLEAN, SENT),
        check_acknowledged(CLEAN, 1, acks((0, 0), (1, 1), (2, 3), (3, 4))),
        check_acknowledged(CLEAN, 2, acks((0, Outcome.NO_OFFSET), (1, Outcome.UNKNOWN))),
        check_reads(CLEAN, "c", reads),
        check_read_batches(CLEAN, "r", batches),
        check_marks(CLEAN, "r", marks),
        check_replicas(0, Served.of(CLEAN), {b: stored(CLEAN) for b in (1, 2, 3)}),
    ):
        found.merge(part)
    assert not counts(found)
    assert not found.broken(Guarantees())


# -- producers


def test_missing_acknowledged_record_is_lost() -> None:
    found = check_acknowledged(CLEAN, 1, acks((0, 0), (7, 3)))
    assert counts(found) == {"lost": 1}
    text = found.examples["lost"][0]
    assert "record 7 of producer 1" in text
    assert "at offset 3" in text
    assert "record 2 of producer 1" in text, "says what is there instead"


def test_lost_beyond_the_end_and_lost_without_an_offset() -> None:
    found = check_acknowledged(CLEAN, 1, acks((8, 6), (9, Outcome.NO_OFFSET)))
    assert counts(found) == {"lost": 2}


def test_a_record_below_the_start_is_lost_too() -> None:
    log = final_log((0, [(1, 5)]), start=5)
    assert counts(check_acknowledged(log, 1, acks((5, 5)))) == {}
    assert counts(check_acknowledged(log, 1, acks((4, 4)))) == {"lost": 1}


def test_another_producers_record_at_the_offset_does_not_count() -> None:
    assert counts(check_acknowledged(CLEAN, 2, acks((1, 1)))) == {"wrong offset": 1}


def test_acknowledged_at_another_offset() -> None:
    found = check_acknowledged(CLEAN, 1, acks((2, 1)))
    assert counts(found) == {"wrong offset": 1}
    assert "acknowledged at offset 1, is at 3" in found.examples["wrong offset"][0]


def test_record_with_unknown_outcome_may_exist_or_not() -> None:
    rows = acks((2, Outcome.UNKNOWN), (9, Outcome.UNKNOWN))
    assert counts(check_acknowledged(CLEAN, 1, rows)) == {}


def test_refused_record_must_not_exist() -> None:
    rows = acks((2, Outcome.REFUSED), (9, Outcome.REFUSED))
    assert counts(check_acknowledged(CLEAN, 1, rows)) == {"refused, yet written": 1}


def test_the_same_send_twice_is_a_duplicate() -> None:
    log = final_log((0, [(1, 0), (1, 1)]), (1, [(1, 1), (1, 2)]))
    assert counts(check_order(log, {1: 3})) == {"duplicated": 1}
    late = final_log((0, [(1, 0), (1, 1), (1, 2), (1, 0)]))
    assert counts(check_order(late, {1: 3})) == {"duplicated": 1}


def test_a_lower_sequence_seen_for_the_first_time_is_out_of_order() -> None:
    log = final_log((0, [(1, 0), (1, 2), (1, 1)]))
    found = check_order(log, {1: 3})
    assert counts(found) == {"reordered": 1}
    assert "offset 2: record 1 of producer 1, after record 2" in found.examples["reordered"][0]


def test_order_is_per_producer_and_gaps_are_allowed() -> None:
    log = final_log((0, [(1, 5), (2, 0), (1, 7), (2, 3)]))
    assert counts(check_order(log, {1: 8, 2: 4})) == {}


@pytest.mark.parametrize(
    ("records", "sent"),
    [([(1, 0), (1, 4)], {1: 4}), ([(3, 0)], {1: 4})],
    ids=["sequence never sent", "producer unknown"],
)
def test_a_record_never_sent_is_a_phantom(
    records: list[tuple[int, int]], sent: dict[int, int]
) -> None:
    log = final_log((0, records))
    assert counts(check_strangers(log, sent)) == {"phantom": 1}
    assert counts(check_order(log, sent)) == {}, "and nothing else"


def test_foreign_value_is_a_phantom_and_a_gap_is_not() -> None:
    log = final_log((0, [(1, 0)]))
    log.add_batch(ReadBatch(3, 3, 0, 1), [STRANGER])
    assert list(log.values[1:]) == [ABSENT, ABSENT, STRANGER]
    assert counts(check_strangers(log, {1: 1})) == {"phantom": 1}
    assert counts(check_order(log, {1: 1})) == {}


def test_decreasing_epochs_are_found() -> None:
    log = final_log((3, [(1, 0)]), (2, [(1, 1)]), (3, [(1, 2)]))
    found = check_epochs(log)
    assert counts(found) == {"epochs backwards": 1}
    assert "epoch 2 at offset 1 after epoch 3" in found.examples["epochs backwards"][0]


# -- consumers


def all_reads(log: FinalLog) -> list[Read]:
    return [Read(o, log.value(o), -1) for o in range(log.start, log.end)]


def test_read_that_differs_from_the_final_log() -> None:
    reads = all_reads(CLEAN)
    reads[3] = Read(3, value_id(2, 9), -1)
    assert counts(check_reads(CLEAN, "c", reads)) == {"changed after read": 1}
    reads[3] = Read(3, CLEAN.value(3), 1)
    assert counts(check_reads(CLEAN, "c", reads)) == {"changed after read": 1}, "epoch"


def test_read_beyond_the_final_end_is_read_then_gone() -> None:
    reads = [*all_reads(CLEAN), Read(6, value_id(1, 4), 5)]
    assert counts(check_reads(CLEAN, "c", reads)) == {"read, then gone": 1}


def test_an_offset_may_be_read_twice_with_the_same_value() -> None:
    reads = all_reads(CLEAN)
    assert counts(check_reads(CLEAN, "c", [*reads[:3], *reads])) == {}
    changed = [*reads[:3], Read(1, value_id(1, 3), -1), *reads[2:]]
    assert counts(check_reads(CLEAN, "c", changed)) == {"changed after read": 1}


def test_skipped_records_are_counted() -> None:
    reads = all_reads(CLEAN)
    found = check_reads(CLEAN, "c", reads[:2] + reads[4:5])
    assert counts(found) == {"skipped": 3}
    assert "read offset 4 after 1" in found.examples["skipped"][0]
    assert "did not receive offsets 5 to 5" in found.examples["skipped"][1]


@pytest.mark.parametrize(
    "batch",
    [
        ReadBatch(3, 4, 2, 999),
        ReadBatch(3, 4, 1, 1003),
        ReadBatch(3, 3, 2, 1003),
        ReadBatch(4, 4, 2, 1),
    ],
    ids=["checksum", "epoch", "length", "begins elsewhere"],
)
def test_a_batch_that_changed(batch: ReadBatch) -> None:
    assert counts(check_read_batches(CLEAN, "r", [batch])) == {"changed after read": 1}


def test_batch_beyond_the_end_is_read_then_gone() -> None:
    rows = [ReadBatch(5, 6, 5, 1005), ReadBatch(6, 6, 5, 1)]
    assert counts(check_read_batches(CLEAN, "r", rows)) == {"read, then gone": 2}


@pytest.mark.parametrize(
    ("mark", "times"),
    [
        (Mark(MarkKind.FETCH, 0, 1, 4, 4, 3), 0),
        (Mark(MarkKind.FETCH, 0, 1, 4, 4, 4), 1),
        (Mark(MarkKind.FETCH, 0, 1, 4, 2, 2), 1),
        (Mark(MarkKind.FETCH, 0, 1, 4, -1, 4), 1),
        (Mark(MarkKind.FETCH, 0, 1, 4, 5, -1), 1),
        (Mark(MarkKind.FETCH, 0, 1, 4, 4, -1), 0),
    ],
    ids=["below", "at the HW", "at the LSO", "no LSO given", "LSO above HW", "empty"],
)
def test_response_beyond_its_own_high_watermark(mark: Mark, times: int) -> None:
    assert check_marks(CLEAN, "r", [mark]).counts["read above HW"] == times


def fetched(epoch: int, high_watermark: int) -> Mark:
    return Mark(MarkKind.FETCH, epoch, 1, high_watermark, high_watermark, -1)


def listed(end: int) -> Mark:
    return Mark(MarkKind.LIST_LATEST, 0, 1, end, -1, -1)


@pytest.mark.parametrize(
    ("marks", "times"),
    [
        ([fetched(3, 4), fetched(3, 3)], 1),
        ([fetched(3, 4), fetched(4, 3)], 0),
        ([fetched(-1, 4), fetched(-1, 3)], 0),
        ([listed(4), listed(3), listed(3)], 2),
        ([listed(4), fetched(3, 1), listed(4)], 0),
        ([fetched(3, 7)], 1),
        ([listed(7)], 1),
        ([Mark(MarkKind.OUT_OF_RANGE, 1, 1, -1, -1, -1)], 1),
    ],
    ids=[
        "HW in one epoch",
        "HW under a new leader",
        "epoch unknown",
        "ListOffsets",
        "ListOffsets apart from HW",
        "HW beyond the final end",
        "end beyond the final end",
        "out of range",
    ],
)
def test_log_ends_that_decrease(marks: list[Mark], times: int) -> None:
    found = check_marks(CLEAN, "r", marks)
    assert counts(found) == ({"offsets backwards": times} if times else {})


# -- replicas


def stored(log: FinalLog, **changed: bytes) -> list[StoredBatch]:
    batches = (log.batch(n) for n in range(log.batches))
    return [StoredBatch(b, changed.get(f"at{b.base_offset}", str(b).encode())) for b in batches]


def compared(logs: dict[int, Iterable[StoredBatch]], end: int | None = None) -> Findings:
    served = Served.of(CLEAN)
    return check_replicas(0, served if end is None else served._replace(end=end), logs)


def test_bytes_that_differ_on_one_broker() -> None:
    found = compared({1: stored(CLEAN), 2: stored(CLEAN, at3=b"other"), 3: stored(CLEAN)})
    assert counts(found) == {"replicas differ": 1}
    assert "base_offset=3" in found.examples["replicas differ"][0]


def test_a_replica_that_ends_too_early() -> None:
    found = compared({1: stored(CLEAN), 2: stored(CLEAN)[:-1]})
    assert counts(found) == {"replicas differ": 1}
    assert "broker 2 has no batch here" in found.examples["replicas differ"][0]


def test_records_above_the_high_watermark_may_differ() -> None:
    more = StoredBatch(ReadBatch(6, 8, 6, 1), b"not committed")
    assert counts(compared({1: stored(CLEAN), 2: [*stored(CLEAN), more]})) == {}


def test_disks_that_agree_but_differ_from_served_batches() -> None:
    log = final_log((0, [(1, 0), (1, 1)]), (0, [(2, 0)]), (3, [(1, 2), (1, 3)]), (5, [(2, 1)]))
    assert counts(compared({1: stored(log), 2: stored(log)})) == {"replicas differ": 1}
    assert counts(compared({1: [], 2: []})) == {"replicas differ": 1}


def test_a_batch_with_a_wrong_checksum_on_disk() -> None:
    bad = [b._replace(sound=b.batch.base_offset != 2) for b in stored(CLEAN)]
    assert counts(compared({1: stored(CLEAN), 2: bad})) == {"corrupt": 1}


def test_records_deleted_by_retention_are_not_compared() -> None:
    log = final_log((4, [(1, 9)]), start=6)
    whole = [*stored(CLEAN), *stored(log)]
    assert counts(check_replicas(0, Served.of(log), {1: whole, 2: stored(log)})) == {}


# -- findings


def test_settings_decide_which_anomalies_fail() -> None:
    found = Findings()
    for kind in ("duplicated", "reordered", "lost", "changed after read"):
        found.add(kind, "example")
    assert set(found.broken(Guarantees())) == {
        "duplicated",
        "reordered",
        "lost",
        "changed after read",
    }
    no_idempotence = Guarantees(idempotence=False)
    assert set(found.broken(no_idempotence)) == {"lost", "changed after read"}
    assert set(found.broken(Guarantees(acks_all=False, idempotence=False))) == {
        "changed after read"
    }


def test_every_kind_of_anomaly_fails_by_default() -> None:
    found = Findings()
    for kind in KINDS:
        found.add(kind, "example", 2)
    assert found.broken(Guarantees()) == dict.fromkeys(KINDS, 2)


def test_examples_are_limited_and_counts_are_complete() -> None:
    found, more = Findings(), Findings()
    for number in range(4):
        found.add("lost", f"first {number}")
        more.add("lost", f"second {number}")
    found.merge(more)
    assert found.counts["lost"] == 8
    assert found.examples["lost"] == [f"first {n}" for n in range(4)] + ["second 0"]
    assert len(found.examples["lost"]) == EXAMPLES_MAX
