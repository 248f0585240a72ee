"""What the demo writes: orders whose content follows from their number.

Always true: whoever knows an order's number and time can say what its record must hold, and
what every window must add up to.
"""

import json
from collections.abc import Iterable
from typing import NamedTuple

TOPIC = "orders"
PARTITION = 0
SUMS_TOPIC = "orders-by-shop"
SHOPS = ("north", "east", "south", "west")
WINDOW_MS = 5_000
LATE_MS = 5_000
"""How far behind the newest order another may be and still count: the watermark's delay."""
CLOSING_MS = 3_600_000
"""The last order is an hour ahead: it lets every window before it close."""


class Promise(NamedTuple):
    """An order that was acknowledged."""

    number: int
    offset: int
    at_s: float
    """When the producer heard of it."""
    event_ms: int
    """When it was ordered: the record's timestamp."""


class Sum(NamedTuple):
    """One shop's orders within one window."""

    window_ms: int
    shop: str
    orders: int
    cents: int


def shop(number: int) -> str:
    return SHOPS[number * 7 % len(SHOPS)]


def cents(number: int) -> int:
    return 100 + number * 37 % 9_900


def value(number: int) -> bytes:
    """A record's value."""
    order = {"number": number, "shop": shop(number), "cents": cents(number)}
    return json.dumps(order, separators=(",", ":")).encode()


def number_of(record: bytes | None) -> int:
    """The order in a record; -1 if it is none of ours, to the last byte."""
    try:
        number = int(json.loads(record or b"")["number"])
    except (ValueError, KeyError, TypeError):
        return -1
    return number if record == value(number) else -1


def sums(promises: Iterable[Promise]) -> list[Sum]:
    """What the windows must hold, in order of window and shop."""
    totals: dict[tuple[int, str], list[int]] = {}
    for promise in promises:
        window = promise.event_ms - promise.event_ms % WINDOW_MS
        total = totals.setdefault((window, shop(promise.number)), [0, 0])
        total[0] += 1
        total[1] += cents(promise.number)
    return sorted(Sum(*key, *total) for key, total in totals.items())
