"""The orders that the demo writes, with content computed from their number.

Invariant: the number and the time of each order determine the content of its record, and the sums
of every window.
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
"""The watermark's delay: how much older than the newest order an order may be to still count."""
CLOSING_MS = 60_000
"""How far ahead the timestamp of the last order is, which closes all earlier windows.

More than WINDOW_MS and LATE_MS together, and less than `message.timestamp.after.max.ms` (an hour):
a broker rejects later timestamps, and its clock can be some milliseconds behind the producer's.
"""


class AckedOrder(NamedTuple):
    """An order that was acknowledged."""

    number: int
    offset: int
    at_s: float
    """When the producer received the acknowledgement."""
    event_ms: int
    """The time of the order, which is the record's timestamp."""


class Sum(NamedTuple):
    """One shop's orders within one window."""

    window_ms: int
    shop: str
    orders: int
    cents: int


def shop(number: int) -> str:
    """Return the shop of an order."""
    return SHOPS[number * 7 % len(SHOPS)]


def cents(number: int) -> int:
    """Return the amount of an order, in cents."""
    return 100 + number * 37 % 9_900


def value(number: int) -> bytes:
    """Return the record value of an order."""
    order = {"number": number, "shop": shop(number), "cents": cents(number)}
    return json.dumps(order, separators=(",", ":")).encode()


def number_of(record: bytes | None) -> int:
    """Return the number of the order in a record; -1 if any byte differs from our order."""
    try:
        number = int(json.loads(record or b"")["number"])
    except (ValueError, KeyError, TypeError):
        return -1
    return number if record == value(number) else -1


def sums(acked: Iterable[AckedOrder]) -> list[Sum]:
    """Return the expected sums, sorted by window and shop."""
    totals: dict[tuple[int, str], list[int]] = {}
    for order in acked:
        window = order.event_ms - order.event_ms % WINDOW_MS
        total = totals.setdefault((window, shop(order.number)), [0, 0])
        total[0] += 1
        total[1] += cents(order.number)
    return sorted(Sum(*key, *total) for key, total in totals.items())
