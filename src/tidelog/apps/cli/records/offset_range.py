"""Start and end offsets of `consume -o`, in the syntax of kcat and rpk.

    beginning, end, stored     N, -N (before the end), N:M      @TIME, @TIME:TIME
    s@TIME and e@TIME as in kcat, given in two options

Invariant: an end is the offset after the last record to read.
"""

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from tidelog.apps.cli.records.points_in_time import parse_time
from tidelog.core.types import Offset, TopicPartition
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.consumer import Span
from tidelog.shell.client.offsets import EARLIEST, LATEST, list_all_offsets
from tidelog.shell.client.retry import Retry

BEGINNING, END, STORED, NUMBER, BEFORE_END, TIME = range(6)
_WORDS = {
    "beginning": BEGINNING,
    "earliest": BEGINNING,
    "start": BEGINNING,
    "end": END,
    "latest": END,
    "stored": STORED,
}
_NUMBERS = re.compile(r"(-?\d+)(?::(\d+))?")


class Point(NamedTuple):
    """A start or an end: its kind, and its number."""

    kind: int
    number: int = 0


class OffsetRange(NamedTuple):
    """A range to read; without an end, reading continues."""

    start: Point
    end: Point | None = None


def parse_offsets(texts: Sequence[str], now_ms: int) -> OffsetRange | None:
    """Parse all values of `-o`; return None without any. Raises ValueError."""
    start: Point | None = None
    end: Point | None = None
    for text in texts:
        offsets = _parse(text, now_ms)
        if (start and offsets[0]) or (end and offsets[1]):
            raise ValueError(f"-o {text}: start or end offset given twice")
        start, end = start or offsets[0], end or offsets[1]
    if not texts:
        return None
    return OffsetRange(start or Point(BEGINNING), end)


def _parse(text: str, now_ms: int) -> tuple[Point | None, Point | None]:
    if text in _WORDS:
        return Point(_WORDS[text]), None
    numbers = _NUMBERS.fullmatch(text)
    if numbers:
        number, behind = int(numbers[1]), numbers[2]
        start = Point(BEFORE_END, -number) if text.startswith("-") else Point(NUMBER, number)
        return start, None if behind is None else Point(NUMBER, int(behind))
    if text.startswith("s@"):
        return Point(TIME, parse_time(text[2:], now_ms)), None
    if text.startswith("e@"):
        return None, Point(TIME, parse_time(text[2:], now_ms))
    if text.startswith("@"):
        return _parse_times(text[1:], now_ms)
    raise ValueError(
        f"{text!r} is not an offset; write beginning, end, stored, 42, -10, 10:20, @TIME or"
        " @TIME:TIME"
    )


def _parse_times(text: str, now_ms: int) -> tuple[Point, Point | None]:
    """Parse `TIME` or `TIME:TIME`; ISO times contain colons too."""
    for at in [place for place, letter in enumerate(text) if letter == ":"]:
        last = text[at + 1 :]
        if last.isdecimal() and len(last) <= len("59"):
            continue  # minutes or seconds, not milliseconds since 1970
        try:
            return Point(TIME, parse_time(text[:at], now_ms)), Point(TIME, parse_time(last, now_ms))
        except ValueError:
            continue
    return Point(TIME, parse_time(text, now_ms)), None


def resolve(
    cluster: Cluster,
    keys: Collection[TopicPartition],
    offsets: OffsetRange,
    isolation: int,
    *,
    to_the_end: bool,
) -> dict[TopicPartition, Span]:
    """Return the offsets to read in each partition. Raises ClientError.

    `to_the_end`: end at the current end of the log, or at the range's own end before it.
    """
    times = {point.number for point in offsets if point is not None and point.kind == TIME}
    by_time = {time: _offsets(cluster, keys, time, isolation) for time in times}
    points = [offsets.start, offsets.end or Point(BEGINNING)]
    needs_first = any(point.kind in (BEGINNING, STORED, BEFORE_END) for point in points)
    first = _offsets(cluster, keys, EARLIEST, isolation) if needs_first else {}
    needs_last = to_the_end or times or any(point.kind in (END, BEFORE_END) for point in points)
    last = _offsets(cluster, keys, LATEST, isolation) if needs_last else {}

    def offset(point: Point, key: TopicPartition) -> Offset:
        if point.kind == NUMBER:
            return point.number
        if point.kind == END:
            return last[key]
        if point.kind == BEFORE_END:
            return max(last[key] - point.number, first[key])
        if point.kind == TIME:
            found = by_time[point.number][key]
            return last[key] if found < 0 else found
        return first[key]

    spans = {}
    for key in keys:
        end = None if offsets.end is None else offset(offsets.end, key)
        if to_the_end:
            end = last[key] if end is None else min(end, last[key])
        spans[key] = Span(offset(offsets.start, key), end)
    return spans


def _offsets(
    cluster: Cluster, keys: Collection[TopicPartition], timestamp: int, isolation: int
) -> dict[TopicPartition, Offset]:
    wanted = dict.fromkeys(keys, timestamp)
    found = list_all_offsets(cluster, wanted, Retry(cluster.timeout_s), isolation)
    return {key: each.offset for key, each in found.items()}
