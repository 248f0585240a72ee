"""A producer that has used up its epochs gets another id, as from a real Apache Kafka.

A producer epoch has 16 bits. Each scenario asks for about 32,000 epochs before it compares answers.
"""

from collections.abc import Iterator

import pytest
from real_kafka import Sides, compare, running_sides
from two_sides import NEWEST_INIT, TIMEOUT_MS, Identity, Side

from tidelog.core import api_table as api

pytestmark = pytest.mark.slow

LAST_EPOCH = 2**15 - 2
"""A coordinator keeps the epoch after it for fencing."""


@pytest.fixture(scope="module")
def sides() -> Iterator[Sides]:
    with running_sides() as both:
        yield both


def use_up(side: Side, name: str, until: int) -> Identity:
    """Start producers until one has the epoch."""
    request = {"transactional_id": name, "transaction_timeout_ms": TIMEOUT_MS}
    while True:
        answer = side.quietly(api.INIT_PRODUCER_ID, request, NEWEST_INIT)
        assert answer["error_code"] == 0
        if answer["producer_epoch"] == until:
            return Identity(answer["producer_id"], answer["producer_epoch"])


def test_new_producers_after_the_last_epoch(sides: Sides) -> None:
    def scenario(side: Side) -> None:
        name = "last-epoch"
        before = use_up(side, name, LAST_EPOCH - 2)
        for about in ("the last but one", "the last", "another id", "its second epoch"):
            side.init(name, about=about)
        side.init(name, before, about="of the used-up id")
        side.describe(name)

    compare(sides, scenario)


def test_a_producer_asks_for_an_epoch_after_its_last(sides: Sides) -> None:
    def scenario(side: Side) -> None:
        name = "own-last-epoch"
        last = use_up(side, name, LAST_EPOCH)
        side.init(name, last, about="another id")
        side.init(name, last, about="the same request again")
        side.describe(name)

    compare(sides, scenario)


def test_transactions_of_version_2_use_the_last_epochs(sides: Sides) -> None:
    def scenario(side: Side) -> None:
        name = "transactions-of-the-last-epochs"
        topic = side.prepare(name)
        producer = use_up(side, name, LAST_EPOCH - 2)
        for number in range(4):
            about = f"transaction {number}"
            side.add(name, producer, (topic, [0]), version=3, about=about)
            side.produce(topic, producer, 0, name=name, version=12, about=about)
            committed = number % 2 == 0
            after = side.end(name, producer, committed=committed, version=5, about=about)
            side.end(name, producer, committed=committed, version=5, about=f"{about}, again")
            producer = after
        side.describe(name)
        side.fetch(topic)
        side.producers(topic)

    compare(sides, scenario)


def test_a_transaction_of_the_last_epoch_is_aborted_by_a_new_producer(sides: Sides) -> None:
    def scenario(side: Side) -> None:
        name = "open-in-the-last-epoch"
        topic = side.prepare(name)
        last = use_up(side, name, LAST_EPOCH)
        side.add(name, last, (topic, [0]))
        side.produce(topic, last, 0, name=name)
        side.init(name, about="while it is open")
        side.settle(name)
        side.describe(name)
        side.init(name, about="after the abort")
        side.produce(topic, last, 1, name=name, about="of the fenced producer")
        side.fetch(topic)
        side.producers(topic)

    compare(sides, scenario)
