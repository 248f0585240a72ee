"""The reader of a range, step by step, with responses that real brokers rarely send."""

from typing import Any

import pytest
from log_batches import simple_log

from tidelog.apps.spark.columns import arrow_schema
from tidelog.apps.spark.source import range_reader
from tidelog.apps.spark.source.range_reader import (
    EMPTY_RESPONSES,
    FETCH_BYTES_MIN,
    RangeCorrupt,
    RangeOverwritten,
    RangeToRead,
    RangeUnreachable,
    read_range,
)
from tidelog.core.record.encoder import Producer, encode_batch
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import TRANSACTIONAL
from tidelog.shell.client.fetching import READ_COMMITTED, READ_UNCOMMITTED, FetchedPartition


class Script:
    """Replaces RangeFetch: returns scripted responses, and records the requests."""

    def __init__(self, responses: list[FetchedPartition]) -> None:
        self.responses = responses
        self.requests: list[tuple[int, int]] = []
        self.ahead: list[int] = []
        self.pauses = 0
        self.closed = False
        self.on_disk = True

    def __call__(self, *_arguments: Any) -> "Script":
        return self

    def fetch(self, offset: int, size: int) -> FetchedPartition:
        self.requests.append((offset, size))
        return self.responses.pop(0)

    def send_ahead(self, offset: int, _size: int) -> None:
        self.ahead.append(offset)

    def progress(self) -> None:
        self.pauses = 0

    def pause(self, offset: int, why: str) -> None:
        self.pauses += 1
        if self.pauses > 12:
            raise RangeUnreachable(WANTED, offset, -1, 1, why)

    def is_on_disk(self, _offset: int) -> bool:
        return self.on_disk

    def close(self) -> None:
        self.closed = True


WANTED = RangeToRead("t", bytes(16), 0, 0, 30, 9)


def response(
    records: bytes, end: int = 30, stable: int = 30, *, throttled: bool = False, aborted: Any = ()
) -> FetchedPartition:
    return FetchedPartition(0, end, stable, 0, records, list(aborted), throttled)


def offsets(
    monkeypatch: pytest.MonkeyPatch, script: Script, isolation: int = READ_UNCOMMITTED
) -> list[int]:
    monkeypatch.setattr(range_reader, "RangeFetch", script)
    found = []
    for batch in read_range(None, WANTED, arrow_schema(), isolation=isolation, keep=True):  # type: ignore[arg-type]
        found += batch["offset"].to_pylist()
    assert script.closed
    assert not script.responses
    return found


def test_the_next_fetch_is_sent_before_the_response_is_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = simple_log(3, 10)
    first = len(simple_log(1, 10))
    script = Script([response(data[: first + 5]), response(data[first:])])
    assert offsets(monkeypatch, script) == list(range(30))
    assert script.ahead == [10]
    assert [offset for offset, _ in script.requests] == [0, 10]


def test_a_truncated_batch_is_fetched_with_more_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = bytes(encode_batch([Record(None, bytes(900))] * 30))
    script = Script([response(data[:2000]), response(data[:9000]), response(data)])
    assert offsets(monkeypatch, script) == list(range(30))
    sizes = [size for _, size in script.requests]
    assert sizes[0] >= FETCH_BYTES_MIN
    assert sizes[1] >= 2 * sizes[0]
    assert sizes[2] >= 2 * sizes[1]


def test_empty_responses_end_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction removed all records: the end is readable, but responses are empty."""
    script = Script([response(simple_log(1, 10)), *[response(b"")] * EMPTY_RESPONSES])
    assert offsets(monkeypatch, script) == list(range(10))


def test_empty_responses_of_tiered_storage_do_not_end_the_range(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With tiered storage, a leader sends an empty response if the remote storage is slow."""
    script = Script(
        [response(simple_log(1, 10)), *[response(b"")] * 7, response(simple_log(3, 10))]
    )
    script.on_disk = False
    assert offsets(monkeypatch, script) == list(range(30))


def test_truncated_batches_do_not_end_the_range(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(range_reader, "FETCH_BYTES_MAX", FETCH_BYTES_MIN)
    data = bytes(encode_batch([Record(None, bytes(900))] * 30))
    with pytest.raises(RangeUnreachable):
        offsets(monkeypatch, Script([response(data[:2000])] * 20))


def test_repeated_old_batches_do_not_end_the_range(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = simple_log(1, 10)
    with pytest.raises(RangeUnreachable):
        offsets(monkeypatch, Script([response(first)] * 20))


def test_throttled_responses_do_not_end_the_range(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A leader that throttles or has no high watermark yet also sends empty responses."""
    first, rest = simple_log(1, 10), simple_log(3, 10)
    script = Script(
        [
            response(first),
            *[response(b"", throttled=True)] * 4,
            *[response(b"")] * (EMPTY_RESPONSES - 1),
            response(b"", end=20),
            *[response(b"")] * (EMPTY_RESPONSES - 1),
            response(rest),
        ]
    )
    assert offsets(monkeypatch, script) == list(range(30))


def test_a_reader_of_committed_data_waits_for_the_last_stable_offset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = Script([response(b"", stable=0)] * 13)
    with pytest.raises(RangeUnreachable, match="readable records end at offset 0"):
        offsets(monkeypatch, script, READ_COMMITTED)


def test_aborted_transactions_are_left_out_for_readers_of_committed_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [Record(None, b"v")] * 10
    data = b"".join(
        bytes(
            encode_batch(
                rows,
                attributes=TRANSACTIONAL,
                producer=Producer(producer, 0, 0),
                base_offset=10 * number,
            )
        )
        for number, producer in enumerate((1, 2, 1))
    )
    aborted = [(1, 0)]
    script = Script([response(data, aborted=aborted)])
    assert offsets(monkeypatch, script, READ_COMMITTED) == list(range(10, 20))
    script = Script([response(data, aborted=aborted)])
    assert offsets(monkeypatch, script) == list(range(30))


def test_a_batch_of_an_older_leader_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan knew another batch at this offset: the log was truncated to an older end."""
    data = b"".join(
        bytes(encode_batch([Record(None, b"v")] * 10, base_offset=10 * n, leader_epoch=epoch))
        for n, epoch in enumerate((1, 2, 2))
    )
    wanted = WANTED._replace(epoch_max=3, epoch_since=20)
    script = Script([response(data)])
    monkeypatch.setattr(range_reader, "RangeFetch", script)
    reading = read_range(None, wanted, arrow_schema(), keep=True)  # type: ignore[arg-type]
    assert next(reading)["offset"].to_pylist() == list(range(20))
    with pytest.raises(
        RangeOverwritten, match="from offset 20 on: the batch there has leader epoch 2"
    ):
        next(reading)
    script = Script([response(data)])
    monkeypatch.setattr(range_reader, "RangeFetch", script)
    allowed = wanted._replace(epoch_max=2, epoch_since=10)
    assert sum(b.num_rows for b in read_range(None, allowed, arrow_schema())) == 30  # type: ignore[arg-type]


def test_damaged_bytes_are_an_error_of_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytearray(simple_log(3, 10))
    data[-2] ^= 1
    with pytest.raises(RangeCorrupt, match="checksum of the batch at offset 20 differs; run `"):
        offsets(monkeypatch, Script([response(bytes(data))]))


def test_batches_below_the_offset_do_not_reset_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that sends the same batches again is retried until the timeout."""
    first = simple_log(1, 10)
    script = Script([response(first), *[response(first, end=20)] * 13])
    with pytest.raises(RangeUnreachable):
        offsets(monkeypatch, script)
