"""What open and aborted transactions do to partitions and groups, as in a real Apache Kafka.

Reads at every version, unusual batches, deleted topics, and offsets that are pending in a group.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from real_kafka import Sides, compare, running_sides
from two_sides import Identity, Side, newer, older, stranger

from tidelog.core import api_table as api
from tidelog.core.record.control import ControlType
from tidelog.core.record.encoder import Producer, encode_batch, encode_marker
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import TRANSACTIONAL

pytestmark = pytest.mark.slow

EARLIEST, LATEST, NEWEST_RECORD = -2, -1, -3
TRANSACTION_APIS = (
    api.FIND_COORDINATOR,
    api.INIT_PRODUCER_ID,
    api.ADD_PARTITIONS_TO_TXN,
    api.ADD_OFFSETS_TO_TXN,
    api.END_TXN,
    api.WRITE_TXN_MARKERS,
    api.TXN_OFFSET_COMMIT,
    api.DESCRIBE_PRODUCERS,
    api.DESCRIBE_TRANSACTIONS,
    api.LIST_TRANSACTIONS,
)


@pytest.fixture(scope="module")
def sides() -> Iterator[Sides]:
    with running_sides() as both:
        yield both


def test_the_same_versions_are_offered(sides: Sides) -> None:
    """So Kafka 4.3 does not offer two-phase commits (KIP-939): they begin at InitProducerId 6."""
    ours, theirs = (side.offered() for side in sides)
    assert [ours[key] for key in TRANSACTION_APIS] == [theirs[key] for key in TRANSACTION_APIS]


def test_all_errors_of_transactions_occur(sides: Sides) -> None:
    """Each error that clients of transactions handle is returned by both for the same request."""

    def scenario(side: Side) -> None:
        topic = side.prepare("errors")
        side.init("errors", timeout_ms=900_001)
        first = side.init("errors")
        producer = side.init("errors")
        side.describe("errors-unknown")
        side.end("errors", first, committed=True)
        side.end("errors", first, committed=True, version=1)
        side.end("errors", stranger(producer), committed=True)
        side.end("errors", producer, committed=True)
        side.produce(topic, producer, 0, name="errors", version=11)
        side.add("errors", producer, (topic, [0]))
        side.add("errors", producer, (topic, [0, 7]))
        side.init("errors")
        side.settle("errors")

    assert compare(sides, scenario) >= {
        "INVALID_TRANSACTION_TIMEOUT",
        "TRANSACTIONAL_ID_NOT_FOUND",
        "PRODUCER_FENCED",
        "INVALID_PRODUCER_EPOCH",
        "INVALID_PRODUCER_ID_MAPPING",
        "INVALID_TXN_STATE",
        "CONCURRENT_TRANSACTIONS",
        "OPERATION_NOT_ATTEMPTED",
        "UNKNOWN_TOPIC_OR_PARTITION",
    }


# -- reads -----------------------------------------------------------------------------------


def test_reads_of_every_version(sides: Sides) -> None:
    """Four transactions end in a mixed order, and one stays open."""

    def scenario(side: Side) -> None:
        topic = side.prepare("reads")
        names = [f"reads-{number}" for number in range(5)]
        producers = [side.init(name) for name in names]

        def produce(number: int, sequence: int, count: int) -> None:
            name = names[number]
            side.produce(topic, producers[number], sequence, name=name, version=12, count=count)

        def end(number: int, committed: bool) -> None:
            side.end(names[number], producers[number], committed=committed, version=5)

        produce(0, 0, 2)
        produce(1, 0, 1)
        produce(2, 0, 3)
        end(1, committed=False)
        produce(0, 2, 1)
        produce(3, 0, 2)
        end(0, committed=False)
        produce(4, 0, 1)
        end(2, committed=True)
        end(3, committed=False)
        for isolation in (0, 1):
            for version in range(4, 13):
                side.fetch(topic, 0, isolation=isolation, version=version)
            for offset in range(14):
                side.fetch(topic, offset, isolation=isolation)
            for version in range(2, 9):
                for timestamp in (EARLIEST, LATEST):
                    side.list_offsets(topic, timestamp, isolation, version)
            for timestamp in (NEWEST_RECORD, 0, 1_700_000_000_000, 1_700_000_000_001):
                side.list_offsets(topic, timestamp, isolation, 8)
        end(4, committed=True)
        for isolation in (0, 1):
            side.fetch(topic, 0, isolation=isolation)
            side.list_offsets(topic, LATEST, isolation, 8)

    compare(sides, scenario)


# -- unusual batches -------------------------------------------------------------------------


def a_record(count: int = 1) -> list[Record]:
    return [Record(None, b"v", 1_700_000_000_000)] * count


def a_batch(producer: Identity, sequence: int, *, transactional: bool = True) -> bytes:
    made = Producer(producer.id, producer.epoch, sequence)
    attributes = TRANSACTIONAL if transactional else 0
    return bytes(encode_batch(a_record(), attributes=attributes, producer=made))


@pytest.mark.parametrize("version", [11, 12])
def test_unusual_batches(sides: Sides, version: int) -> None:
    name = f"unusual-{version}"

    def scenario(side: Side) -> None:
        topic = side.prepare(name)
        producer = side.init(name)
        side.add(name, producer, (topic, [0, 1]))

        def send(batch: bytes, about: str, by: str | None = name, partition: int = 0) -> None:
            side.send_batch(
                topic, batch, name=by, version=version, partition=partition, about=about
            )

        send(a_batch(Identity(-1, -1), -1), "without a producer id")
        send(a_batch(Identity(producer.id, -1), 0), "without an epoch")
        send(a_batch(producer, -1), "without a sequence")
        send(a_batch(producer, 0), "empty transactional id", by="")
        two = a_batch(producer, 0) + a_batch(stranger(producer), 0)
        send(two, "two producers")
        send(a_batch(producer, 0) + a_batch(producer, 1), "two batches")
        mixed = a_batch(producer, 0) + a_batch(producer, 1, transactional=False)
        send(mixed, "transactional and not")
        marker = encode_marker(ControlType.COMMIT, Producer(producer.id, producer.epoch), 0, 1)
        send(bytes(marker), "a marker")
        side.stable_offset(topic)
        side.producers(topic, [0, 1])
        side.end(name, producer, committed=True)
        side.fetch(topic)

    compare(sides, scenario)


def test_a_sequence_that_does_not_begin_at_zero(sides: Sides) -> None:
    def scenario(side: Side) -> None:
        topic = side.prepare("sequences")
        producer = side.init("sequences")
        side.produce(topic, producer, 7, name="sequences", version=12, about="first")
        side.produce(topic, producer, 0, name="sequences", version=12)
        after = side.end("sequences", producer, committed=True, version=5)
        side.produce(topic, after, 1, name="sequences", version=12, about="next epoch, not from 0")
        side.produce(topic, after, 0, name="sequences", version=12, about="next epoch")
        side.produce(topic, producer, 1, name="sequences", version=12, about="epoch before")
        side.end("sequences", after, committed=False, version=5)
        side.producers(topic)
        side.fetch(topic)

    compare(sides, scenario)


@pytest.mark.parametrize("topic", ["__transaction_state", "__consumer_offsets"])
def test_produce_to_an_internal_topic(sides: Sides, topic: str) -> None:
    def scenario(side: Side) -> None:
        # Only the errors: Kafka adds the partition to the transaction before it refuses the batch.
        name = f"internal-{topic}"
        producer = side.init(name)
        side.produce(topic, producer, 0, name=name, version=12)
        side.produce(topic, producer, 0, name=None, transactional=False)

    compare(sides, scenario)


def test_a_topic_is_deleted_while_its_transaction_is_open(sides: Sides) -> None:
    def scenario(side: Side) -> None:
        gone, kept = side.prepare("open-gone"), side.prepare("open-kept")
        producer = side.init("open-gone")
        for topic in (gone, kept):
            side.produce(topic, producer, 0, name="open-gone", version=12)
        side.delete_topic(gone)
        side.describe("open-gone")
        side.produce(gone, producer, 1, name="open-gone", version=12, about="deleted")
        side.end("open-gone", producer, committed=True, version=5)
        side.describe("open-gone")
        side.fetch(kept)

    compare(sides, scenario)


# -- offsets of a group ----------------------------------------------------------------------


def commit_plainly(side: Side, group: str, topic: str, offset: int) -> None:
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    topics = [{"name": topic, "partitions": [partition]}]
    side.ask(api.OFFSET_COMMIT, {"group_id": group, "member_id": "", "topics": topics}, 7)


def offsets_of(side: Side, group: str, topic: str, about: str) -> None:
    """Fetch the offset at every version."""
    topics = [{"name": topic, "partition_indexes": [0, 1]}]
    for version in range(1, 10):
        for stable in (False, True) if version >= 7 else (False,):
            request: dict[str, Any] = {"group_id": group, "topics": topics}
            if version >= 8:
                request = {"groups": [request]}
            side.ask(
                api.OFFSET_FETCH,
                {**request, "require_stable": stable} if version >= 7 else request,
                version,
                f"{about}, stable {stable}",
            )


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_offsets_while_a_transaction_has_others(sides: Sides, committed: bool) -> None:
    name = f"pending-{committed}".lower()

    def scenario(side: Side) -> None:
        topic = side.prepare(name)
        commit_plainly(side, name, topic, 1)
        producer = side.init(name)
        side.commit_offsets(name, producer, name, topic, 5, version=5)
        offsets_of(side, name, topic, "pending")
        commit_plainly(side, name, topic, 3)
        offsets_of(side, name, topic, "committed meanwhile")
        wanted = [{"name": topic, "partitions": [{"partition_index": 0}]}]
        side.ask(api.OFFSET_DELETE, {"group_id": name, "topics": wanted}, 0)
        offsets_of(side, name, topic, "deleted meanwhile")
        side.end(name, producer, committed=committed, version=5)
        offsets_of(side, name, topic, "ended")

    compare(sides, scenario)


def test_two_transactions_have_offsets_of_one_partition(sides: Sides) -> None:
    def scenario(side: Side) -> None:
        topic = side.prepare("two-pending")
        one, other = side.init("two-pending-1"), side.init("two-pending-2")
        side.commit_offsets("two-pending-1", one, "two-pending", topic, 5, version=5)
        side.commit_offsets("two-pending-2", other, "two-pending", topic, 7, version=5)
        side.end("two-pending-2", other, committed=True, version=5)
        offsets_of(side, "two-pending", topic, "one is left")
        side.end("two-pending-1", one, committed=True, version=5)
        offsets_of(side, "two-pending", topic, "both committed")

    compare(sides, scenario)


def test_a_group_is_deleted_while_a_transaction_has_offsets(sides: Sides) -> None:
    def scenario(side: Side) -> None:
        topic = side.prepare("deleted-group")
        commit_plainly(side, "deleted-group", topic, 1)
        producer = side.init("deleted-group")
        side.commit_offsets("deleted-group", producer, "deleted-group", topic, 5, version=5)
        side.ask(api.DELETE_GROUPS, {"groups_names": ["deleted-group"]}, 2)
        offsets_of(side, "deleted-group", topic, "deleted")
        side.end("deleted-group", producer, committed=True, version=5)
        offsets_of(side, "deleted-group", topic, "ended")

    compare(sides, scenario)


def test_offsets_of_a_member(sides: Sides) -> None:
    """Only the current generation of the group may commit offsets in a transaction (KIP-447)."""

    def scenario(side: Side) -> None:
        topic = side.prepare("member")
        member, generation = side.join("member")
        producer = side.init("member")

        def commit(about: str, member_id: str, generation_id: int, offset: int) -> None:
            side.commit_offsets(
                "member",
                producer,
                "member",
                topic,
                offset,
                version=5,
                about=about,
                member_id=member_id,
                generation_id=generation_id,
            )

        commit("current", member, generation, 1)
        commit("older generation", member, generation - 1, 2)
        commit("newer generation", member, generation + 1, 2)
        commit("no generation", member, -1, 2)
        commit("another member", "nobody", generation, 2)
        commit("nobody", "", -1, 3)
        side.end("member", producer, committed=True, version=5)
        side.offsets("member", topic, stable=True)

    compare(sides, scenario)


def test_epochs_of_offsets(sides: Sides) -> None:
    """The group coordinator, too, refuses an older epoch of a producer."""

    def scenario(side: Side) -> None:
        topic = side.prepare("epochs")
        first = side.init("epochs")
        for version in (3, 5):
            side.add_offsets("epochs", first, "epochs")
            side.commit_offsets("epochs", first, "epochs", topic, version, version=version)
        side.init("epochs", about="while open")
        side.settle("epochs")
        second = side.init("epochs")
        for version in (3, 5):
            for by in (first, older(second), newer(second), second):
                about = f"epoch {by.epoch}"
                side.commit_offsets("epochs", by, "epochs", topic, 9, version=version, about=about)
        side.end("epochs", second, committed=True, version=5)
        side.offsets("epochs", topic, stable=True)

    compare(sides, scenario)
