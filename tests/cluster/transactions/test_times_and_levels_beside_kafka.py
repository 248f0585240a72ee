"""Time-outs, expiration and older transaction versions, as in a real Apache Kafka."""

from collections.abc import Iterator

import pytest
from real_cluster import eventually
from real_kafka import Sides, compare, running_sides
from two_sides import TIMEOUT_MS, Identity, Side

from tidelog.core import api_table as api
from tidelog.core.errors import ErrorCode

pytestmark = pytest.mark.slow

QUICK = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
    "transactional.id.expiration.ms": "4000",
}
TIMED_OUT_MS = 500
FEATURE = "transaction.version"
SAFE_DOWNGRADE, UPGRADE = 2, 1


@pytest.fixture(scope="module")
def sides() -> Iterator[Sides]:
    with running_sides(QUICK) as both:
        yield both


@pytest.fixture(scope="module")
def calm_sides() -> Iterator[Sides]:
    with running_sides() as both:
        yield both


def await_state(side: Side, name: str, *states: str) -> None:
    """Wait until a transactional id is in one of these states; the answers do not count."""

    def is_in_state() -> bool:
        asked = {"transactional_ids": [name]}
        [found] = side.quietly(api.DESCRIBE_TRANSACTIONS, asked, 0)["transaction_states"]
        return found["transaction_state"] in states

    eventually(is_in_state, f"{name} is {states}")


def write_twice(side: Side, topic: str, name: str, producer: Identity, version: int) -> None:
    for sequence in range(2):
        side.produce(topic, producer, sequence, name=name, version=version, about="after")


@pytest.mark.parametrize("version", [11, 12])
def test_a_transaction_times_out(sides: Sides, version: int) -> None:
    name = f"slow-{version}"
    ending = 5 if version == 12 else 4

    def scenario(side: Side) -> None:
        topic = side.prepare(name)
        producer = side.init(name, timeout_ms=TIMED_OUT_MS)
        if version < 12:
            side.add(name, producer, (topic, [0]))
        side.produce(topic, producer, 0, name=name, version=version, about="in time")
        await_state(side, name, "CompleteAbort")
        side.describe(name)
        side.fetch(topic)
        side.producers(topic)
        write_twice(side, topic, name, producer, version)
        side.add(name, producer, (topic, [0]))
        side.add_offsets(name, producer, "group")
        side.commit_offsets(name, producer, "group", topic, 1, version=3)
        side.commit_offsets(name, producer, "group", topic, 1, version=5)
        side.end(name, producer, committed=True, version=ending, about="commit")
        side.end(name, producer, committed=False, version=ending, about="abort")
        again = side.init(name, producer, timeout_ms=TIMEOUT_MS, about="with the old epoch")
        side.init(name, again, timeout_ms=TIMEOUT_MS, about="with the new epoch")
        last = side.init(name, timeout_ms=TIMEOUT_MS, about="anew")
        if version < 12:
            side.add(name, last, (topic, [0]))
        write_twice(side, topic, name, last, version)
        side.end(name, last, committed=True, version=ending)
        side.fetch(topic)

    compare(sides, scenario)


def test_a_transactional_id_expires(sides: Sides) -> None:
    def scenario(side: Side) -> None:
        topic = side.prepare("expired")
        unused = side.init("expired-unused")
        producer = side.init("expired")
        side.produce(topic, producer, 0, name="expired", version=12)
        after = side.end("expired", producer, committed=True, version=5)
        for name in ("expired-unused", "expired"):
            await_state(side, name, "")
        side.describe("expired", "expired-unused")
        side.list_transactions(2, "expired")
        side.produce(topic, after, 0, name="expired", version=12, about="unknown")
        side.produce(topic, after, 0, name="expired", version=11, about="unknown")
        side.add("expired", after, (topic, [0]))
        side.add_offsets("expired", after, "group")
        side.end("expired", after, committed=True, version=5)
        side.init("expired-unused", unused, about="with the old producer")
        new = side.init("expired", about="anew")
        side.produce(topic, new, 0, name="expired", version=12, about="anew")
        side.end("expired", new, committed=True, version=5)
        side.fetch(topic)

    compare(sides, scenario)


def set_level(side: Side, level: int, how: int) -> None:
    """Change the finalised transaction version; wait until the broker reports it."""
    updates = [{"feature": FEATURE, "max_version_level": level, "upgrade_type": how}]
    request = {"timeout_ms": TIMEOUT_MS, "feature_updates": updates, "validate_only": False}
    answer = side.quietly(api.UPDATE_FEATURES, request, 1)
    assert answer["error_code"] == ErrorCode.NONE
    assert [each["error_code"] for each in answer["results"]] == [ErrorCode.NONE], answer

    def is_set() -> bool:
        asked = {"client_software_name": "test", "client_software_version": "1"}
        features = side.quietly(api.API_VERSIONS, asked, 4)["finalized_features"]
        levels = {each["name"]: each["max_version_level"] for each in features}
        return bool(levels.get(FEATURE, 0) == level)

    eventually(is_set, f"{FEATURE} is {level}")


@pytest.mark.parametrize("level", [1, 0])
def test_an_older_transaction_version(calm_sides: Sides, level: int) -> None:
    """With the requests of version 1: a client sends those of version 2 only at level 2."""
    name = f"level-{level}"

    def scenario(side: Side) -> None:
        set_level(side, level, SAFE_DOWNGRADE)
        topic = side.prepare(name)
        producer = side.init(name)
        for sequence, committed in enumerate((True, False)):
            side.produce(topic, producer, sequence, name=name, about="not added")
            side.add(name, producer, (topic, [0]))
            side.produce(topic, producer, sequence, name=name, about="added")
            side.add_offsets(name, producer, name)
            side.commit_offsets(name, producer, name, topic, sequence)
            side.describe(name)
            side.end(name, producer, committed=committed)
            side.offsets(name, topic, stable=True)
            side.describe(name)
            side.producers(topic)
        side.init(name, about="anew")
        side.fetch(topic)
        side.producers(topic)

    try:
        compare(calm_sides, scenario)
    finally:
        for side in calm_sides:
            set_level(side, 2, UPGRADE)
