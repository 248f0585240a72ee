"""Record batches of all kinds, and the rows that core's decoder returns for them."""

from collections.abc import Iterable, Sequence
from typing import Any

from hypothesis import strategies as st

from tidelog.apps.spark.columns import ARROW_TYPES
from tidelog.core.record.compression import Codec
from tidelog.core.record.crc32c import crc32c
from tidelog.core.record.decoder import TimestampType, decode
from tidelog.core.record.encoder import encode_batch
from tidelog.core.record.record import Header, Record
from tidelog.core.record.record_batch import CRC_AT, CRC_FROM, LOG_APPEND_TIME, UINT32, batches

INT64_MAX = 2**63 - 1
optional_bytes = st.none() | st.binary(max_size=40)
headers = st.lists(st.builds(Header, st.text(max_size=6), optional_bytes), max_size=3).map(tuple)
records = st.builds(
    Record, optional_bytes, optional_bytes, st.integers(-1, 2**41), headers | st.just(())
)
codecs = st.sampled_from(list(Codec))


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Generate some batches one after another, with gaps, as in a log."""
    data = b""
    offset = draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(0, 4))):
        rows = draw(st.lists(records, min_size=1, max_size=8))
        deltas, at = [], 0
        for _row in rows:
            deltas.append(at)
            at += 1 + draw(st.sampled_from([0, 0, 0, 1, 70]))
        attributes = draw(codecs) | (LOG_APPEND_TIME if draw(st.booleans()) else 0)
        data += encode_batch(
            rows,
            attributes=attributes,
            base_offset=offset,
            leader_epoch=draw(st.integers(0, 9)),
            offset_deltas=deltas,
        )
        offset += at + draw(st.sampled_from([0, 0, 5]))
    return data


def microseconds(milliseconds: int) -> int:
    """Convert milliseconds to microseconds, limited to 64 bits."""
    if abs(milliseconds) > INT64_MAX // 1000:
        return INT64_MAX if milliseconds > 0 else -INT64_MAX - 1
    return milliseconds * 1000


def text(header: Header) -> str:
    """Decode bytes as Java does."""
    return header.key_bytes().decode(errors="replace")


def expected_rows(
    data: bytes, names: Iterable[str], start: int = 0, end: int = 2**63 - 1
) -> list[dict[str, Any]]:
    """Return the rows as core's decoder has them."""
    wanted = list(names)
    rows = []
    for batch in batches(data):
        if batch.is_control:
            continue
        for record in decode(batch):
            if start <= record.offset < end:
                row = {
                    "key": record.key,
                    "value": record.value,
                    "topic": "t",
                    "partition": 3,
                    "offset": record.offset,
                    "timestamp": microseconds(record.timestamp),
                    "timestampType": int(record.timestamp_type is TimestampType.LOG_APPEND_TIME),
                    "leader_epoch": record.leader_epoch,
                    "headers": [{"key": text(h), "value": h.value} for h in record.headers] or None,
                }
                rows.append({name: row[name] for name in wanted})
    return rows


def sealed(batch: bytearray) -> bytes:
    """Return the batch with a correct checksum."""
    UINT32.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[CRC_FROM:]))
    return bytes(batch)


def simple_log(count: int, each: int, codec: Codec = Codec.NONE) -> bytes:
    """Return a log of `count` batches of `each` records."""
    data = bytearray()
    for number in range(count):
        rows = [
            Record(b"k%d" % row, b"v%d" % (number * each + row), 1_700_000_000_000 + row)
            for row in range(each)
        ]
        data += encode_batch(rows, attributes=codec, base_offset=number * each, leader_epoch=number)
    return bytes(data)


ALL_NAMES: Sequence[str] = tuple(ARROW_TYPES)
