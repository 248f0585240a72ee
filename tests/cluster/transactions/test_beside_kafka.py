"""Transaction APIs answer as a real Apache Kafka does: same requests, same answers.

The scenarios run on one broker of each.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from real_kafka import Sides, compare, running_sides
from two_sides import (
    GROUP,
    TRANSACTION,
    Identity,
    Side,
    newer,
    older,
    stranger,
)

from tidelog.core import api_table as api

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sides() -> Iterator[Sides]:
    with running_sides() as both:
        yield both


# -- coordinators ----------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(7))
def test_find_coordinator(sides: Sides, version: int) -> None:
    def scenario(side: Side) -> None:
        def find(key: str, kind: int) -> None:
            keys = {"coordinator_keys": [key]} if version >= 4 else {"key": key}
            request = {**keys, "key_type": kind} if version >= 1 else keys
            side.ask(api.FIND_COORDINATOR, request, version, f"{key!r} {kind}")

        for kind in (GROUP, TRANSACTION) if version >= 1 else (GROUP,):
            find("some id", kind)
            find("", kind)
        if version >= 1:
            find("some id", 3)
        if version >= 4:
            request = {"coordinator_keys": ["a", "", "b"], "key_type": TRANSACTION}
            side.ask(api.FIND_COORDINATOR, request, version, "three")
            request = {"coordinator_keys": [], "key_type": TRANSACTION}
            side.ask(api.FIND_COORDINATOR, request, version, "none")

    compare(sides, scenario)


# -- producers -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_init_producer_id(sides: Sides, version: int) -> None:
    name = f"init-{version}"

    def scenario(side: Side) -> None:
        side.init(None, version=version, about="idempotent")
        side.init("", version=version, about="empty id")
        for timeout_ms in (0, -1, 900_000, 900_001):
            side.init(f"{name}-{timeout_ms}", version=version, timeout_ms=timeout_ms)
        first = side.init(name, version=version, about="first")
        second = side.init(name, version=version, about="second")
        if version < 3:
            return
        side.init(name, stranger(second), version=version, about="another producer id")
        third = side.init(name, second, version=version, about="bump")
        side.init(name, second, version=version, about="bump again")
        side.init(name, first, version=version, about="old epoch")
        side.init(name, newer(third), version=version, about="future epoch")
        side.init(name, Identity(third.id, -1), version=version, about="no epoch")
        side.init(name, Identity(-1, third.epoch), version=version, about="no id")
        side.init(f"{name}-new", third, version=version, about="unknown id with a producer")
        side.init(None, third, version=version, about="idempotent with a producer")
        side.describe(name, f"{name}-new")

    compare(sides, scenario)


def test_init_producer_id_aborts_an_open_transaction(sides: Sides) -> None:
    def scenario(side: Side) -> None:
        topic = side.prepare("init-open")
        producer = side.init("init-open")
        side.add("init-open", producer, (topic, [0]))
        side.produce(topic, producer, 0, name="init-open")
        side.init("init-open", about="while open")
        side.settle("init-open")
        side.describe("init-open")
        after = side.init("init-open", about="after the abort")
        side.produce(topic, producer, 1, name="init-open", about="fenced")
        side.end("init-open", producer, committed=True, about="fenced")
        side.add("init-open", after, (topic, [0]))
        side.init("init-open", after, about="bump while open")
        side.settle("init-open")
        side.init("init-open", after, about="bump after the abort")
        side.init("init-open", after, about="bump again")
        side.fetch(topic)
        side.producers(topic)

    compare(sides, scenario)


# -- partitions ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_add_partitions(sides: Sides, version: int) -> None:
    name = f"add-{version}"

    def scenario(side: Side) -> None:
        topic = side.prepare(name)
        producer = side.init(name)
        side.init(name)
        producer = side.init(name)
        side.add(name, producer, (topic, [0]), version=version, about="first")
        side.add(name, producer, (topic, [0, 1]), version=version, about="more")
        side.add(name, producer, (topic, [1]), version=version, about="again")
        side.add(name, producer, ("missing", [0]), version=version, about="no topic")
        side.add(name, producer, (topic, [0, 9]), version=version, about="no partition")
        side.add(name, producer, version=version, about="nothing")
        side.add(name, older(producer), (topic, [0]), version=version, about="old epoch")
        side.add(name, newer(producer), (topic, [0]), version=version, about="future epoch")
        side.add(name, stranger(producer), (topic, [0]), version=version, about="other id")
        side.add("missing", producer, (topic, [0]), version=version, about="unknown id")
        side.add("", producer, (topic, [0]), version=version, about="empty id")
        side.add(name, producer, ("__transaction_state", [0]), version=version, about="internal")
        side.describe(name)
        side.end(name, producer, committed=False)
        side.add(name, producer, (topic, [0]), version=version, about="after an abort")
        side.end(name, producer, committed=True)
        side.describe(name)

    compare(sides, scenario)


@pytest.mark.parametrize("version", [4, 5])
def test_verify_partitions(sides: Sides, version: int) -> None:
    name = f"verify-{version}"

    def scenario(side: Side) -> None:
        topic = side.prepare(name)
        producer = side.init(name)
        verify: dict[str, Any] = {"version": version, "verify_only": True}
        side.add(name, producer, (topic, [0]), about="empty", **verify)
        side.add(name, producer, (topic, [0]), version=version)
        side.add(name, producer, (topic, [0]), about="added", **verify)
        side.add(name, producer, (topic, [0, 1]), about="half added", **verify)
        side.add(name, newer(producer), (topic, [0]), about="future epoch", **verify)
        side.add(name, stranger(producer), (topic, [0]), about="other id", **verify)
        side.add("missing", producer, (topic, [0]), about="unknown id", **verify)
        side.add(name, producer, ("missing", [0]), about="no topic", **verify)
        side.end(name, producer, committed=True)
        side.add(name, producer, (topic, [0]), about="ended", **verify)
        many = [
            {
                "transactional_id": each,
                "producer_id": producer.id,
                "producer_epoch": producer.epoch,
                "verify_only": only,
                "topics": [{"name": topic, "partitions": [0]}],
            }
            for each, only in ((name, False), (f"{name}-missing", True), (f"{name}-gone", False))
        ]
        # Not compared: a request without transactions. Kafka never answers it.
        side.ask(api.ADD_PARTITIONS_TO_TXN, {"transactions": many}, version, "three")
        side.end(name, producer, committed=True)

    compare(sides, scenario)


# -- offsets ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5))
def test_add_offsets(sides: Sides, version: int) -> None:
    name = f"add-offsets-{version}"

    def scenario(side: Side) -> None:
        side.init(name)
        producer = side.init(name)
        add = side.add_offsets
        add(name, producer, "some group", version, "first")
        add(name, producer, "some group", version, "again")
        add(name, producer, "", version, "empty group")
        add(name, older(producer), "some group", version, "old epoch")
        add(name, newer(producer), "some group", version, "future epoch")
        add(name, stranger(producer), "some group", version, "other id")
        add("missing", producer, "some group", version, "unknown id")
        add("", producer, "some group", version, "empty id")
        side.describe(name)
        side.end(name, producer, committed=True)
        side.describe(name)

    compare(sides, scenario)


@pytest.mark.parametrize("version", range(6))
def test_commit_offsets(sides: Sides, version: int) -> None:
    name = f"offsets-{version}"
    ending = 5 if version == 5 else 4

    def scenario(side: Side) -> None:
        topic = side.prepare(name)
        side.init(name)
        producer = side.init(name)

        def commit(by: Identity, offset: int, about: str, of: str = name, **more: Any) -> None:
            group = more.pop("group", name)
            where = more.pop("topic", topic)
            side.commit_offsets(of, by, group, where, offset, version=version, about=about, **more)

        commit(producer, 1, "not added")
        side.describe(name)
        side.add_offsets(name, producer, name)
        commit(producer, 2, "added")
        commit(producer, 3, "again")
        commit(older(producer), 4, "old epoch")
        commit(newer(producer), 4, "future epoch")
        commit(stranger(producer), 4, "other id")
        commit(producer, 4, "unknown id", of="missing")
        commit(producer, 4, "empty id", of="")
        commit(producer, 4, "empty group", group="")
        commit(producer, 4, "no topic", topic="missing")
        commit(producer, -1, "negative offset")
        if version >= 3:
            commit(producer, 4, "unknown member", member_id="nobody", generation_id=1)
            commit(producer, 4, "unknown instance", group_instance_id="i", generation_id=1)
            commit(producer, 4, "generation without member", generation_id=3)
        side.offsets(name, topic, stable=True, about="pending")
        side.offsets(name, topic, stable=False, about="pending")
        after = side.end(name, producer, committed=True, version=ending)
        side.offsets(name, topic, stable=True, about="committed")
        producer = after if ending == 5 else producer
        side.add_offsets(name, producer, name)
        commit(producer, 9, "to be aborted")
        side.end(name, producer, committed=False, version=ending)
        side.offsets(name, topic, stable=True, about="aborted")

    compare(sides, scenario)


# -- the end ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_end(sides: Sides, version: int, committed: bool) -> None:
    name = f"end-{version}-{committed}"

    def scenario(side: Side) -> None:
        topic = side.prepare(name)
        side.init(name)
        producer = side.init(name)

        def end(by: Identity, commits: bool, about: str, of: str = name) -> Identity:
            return side.end(of, by, committed=commits, version=version, about=about)

        end(producer, True, "commit of nothing")
        after = end(producer, False, "abort of nothing")
        producer = after if after.id >= 0 else side.init(name)
        side.add(name, producer, (topic, [0]), version=5 if version == 5 else 3)
        end(older(producer), committed, "older epoch")
        end(newer(producer), committed, "future epoch")
        end(stranger(producer), committed, "other id")
        end(producer, committed, "unknown id", of="missing")
        end(producer, committed, "empty id", of="")
        after = end(producer, committed, "open")
        end(producer, committed, "again")
        end(producer, not committed, "the other way")
        end(newer(newer(producer)), committed, "future epoch")
        if version == 5:
            end(after, True, "commit of nothing by the next epoch")
            end(after, False, "abort of nothing by the next epoch")
        side.describe(name)
        side.fetch(topic)
        side.producers(topic)

    compare(sides, scenario)


# -- records ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [11, 12])
def test_produce(sides: Sides, version: int) -> None:
    name = f"produce-{version}"
    ending = 5 if version == 12 else 4

    def scenario(side: Side) -> None:
        topic = side.prepare(name)
        side.init(name)
        producer = side.init(name)

        def produce(by: Identity, sequence: int, about: str, **more: Any) -> None:
            side.produce(
                topic, by, sequence, about=about, **{"name": name, "version": version, **more}
            )

        produce(producer, 0, "not added", partition=1)
        if version < 12:
            side.add(name, producer, (topic, [0]))
        produce(producer, 0, "first", count=2)
        produce(producer, 0, "first again", count=2)
        produce(producer, 5, "gap")
        produce(older(producer), 0, "old epoch")
        produce(newer(producer), 0, "future epoch")
        produce(stranger(producer), 0, "other id")
        produce(producer, 2, "another transactional id", name="missing")
        produce(producer, 2, "no transactional id", name=None)
        produce(producer, 2, "not transactional", transactional=False)
        produce(producer, 2, "not transactional, no id", transactional=False, name=None)
        produce(producer, 2, "second")
        side.stable_offset(topic, about="open")
        side.fetch(topic)
        side.producers(topic, [0, 1, 9])
        side.describe(name)
        after = side.end(name, producer, committed=False, version=ending)
        produce(producer, 3, "ended")
        produce(producer, 0, "ended, from the start")
        side.stable_offset(topic, about="aborted")
        side.fetch(topic)
        side.producers(topic)
        if version == 12:
            produce(after, 0, "next epoch")
            produce(producer, 3, "old epoch")
            side.end(name, after, committed=True, version=ending)
        side.fetch(topic)
        side.fetch(topic, 2)
        side.fetch(topic, isolation=0)
        side.stable_offset(topic, about="at the end")
        side.describe(name)
        side.producers(topic)

    compare(sides, scenario)


def test_older_produce_versions(sides: Sides) -> None:
    """Without verification in the request, as clients of before KIP-890 send it."""

    def scenario(side: Side) -> None:
        topic = side.prepare("older-produce")
        producer = side.init("older-produce")
        for version in range(3, 12):
            at = version - 3
            side.produce(topic, producer, at, name="older-produce", version=version, about="bare")
        side.add("older-produce", producer, (topic, [0]))
        for version in range(3, 12):
            at = version - 3
            side.produce(topic, producer, at, name="older-produce", version=version, about="added")
        side.end("older-produce", producer, committed=True)
        for version in (3, 9, 11):
            side.produce(topic, producer, 9, name="older-produce", version=version, about="ended")

    compare(sides, scenario)


def test_delete_records_of_an_open_transaction(sides: Sides) -> None:
    def scenario(side: Side) -> None:
        topic = side.prepare("deleted")
        producer = side.init("deleted")
        # Whole batches: Kafka's last stable offset falls back to the start of a deleted half.
        for sequence in (0, 2):
            side.produce(topic, producer, sequence, name="deleted", version=12, count=2)

        def delete(offset: int) -> None:
            partition = {"partition_index": 0, "offset": offset}
            topics = [{"name": topic, "partitions": [partition]}]
            request = {"topics": topics, "timeout_ms": 10_000}
            side.ask(api.DELETE_RECORDS, request, 2, f"before {offset}")

        delete(2)
        side.stable_offset(topic, about="half")
        side.fetch(topic, 2)
        side.producers(topic)
        delete(-1)
        side.stable_offset(topic, about="all")
        side.producers(topic)
        after = side.end("deleted", producer, committed=False, version=5)
        side.stable_offset(topic, about="ended")
        side.fetch(topic, 4)
        side.produce(topic, after, 0, name="deleted", version=12)
        side.end("deleted", after, committed=True, version=5)
        side.fetch(topic, 4)
        side.producers(topic)

    compare(sides, scenario)


# -- markers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
def test_write_markers(sides: Sides, version: int) -> None:
    name = f"markers-{version}"

    def scenario(side: Side) -> None:
        topic = side.prepare(name)
        side.init(name)
        producer = side.init(name)
        side.add(name, producer, (topic, [0]))
        side.produce(topic, producer, 0, name=name)

        def mark(
            by: Identity,
            about: str,
            *,
            to: str = topic,
            index: int = 0,
            epoch: int = 0,
            committed: bool = False,
            level: int = 0,
        ) -> None:
            marker = {
                "producer_id": by.id,
                "producer_epoch": by.epoch,
                "transaction_result": committed,
                "topics": [{"name": to, "partition_indexes": [index]}],
                "coordinator_epoch": epoch,
            }
            if version >= 2:
                marker["transaction_version"] = level
            side.ask(api.WRITE_TXN_MARKERS, {"markers": [marker]}, version, about)
            side.stable_offset(topic)

        mark(producer, "no topic", to="missing")
        mark(producer, "no partition", index=9)
        mark(older(producer), "old epoch")
        mark(producer, "same epoch, version 2", level=2)
        mark(producer, "open", epoch=3)
        mark(producer, "again", epoch=3)
        mark(producer, "older coordinator", epoch=1)
        mark(newer(producer), "newer epoch", epoch=3)
        mark(stranger(producer), "unknown producer", committed=True)
        side.producers(topic)
        side.fetch(topic)
        side.describe(name)

    compare(sides, scenario)


def test_markers_for_many_producers(sides: Sides) -> None:
    def scenario(side: Side) -> None:
        topic = side.prepare("many-markers")
        producers = [side.init(f"many-markers-{number}") for number in range(2)]
        markers = [
            {
                "producer_id": producer.id,
                "producer_epoch": producer.epoch,
                "transaction_result": True,
                "topics": [
                    {"name": topic, "partition_indexes": [0, 1]},
                    {"name": "missing", "partition_indexes": [0]},
                ],
                "coordinator_epoch": 0,
            }
            for producer in producers
        ]
        side.ask(api.WRITE_TXN_MARKERS, {"markers": markers}, 1)
        side.ask(api.WRITE_TXN_MARKERS, {"markers": []}, 1)
        side.fetch(topic)

    compare(sides, scenario)


# -- descriptions ----------------------------------------------------------------------------


def test_describe_and_list(sides: Sides) -> None:
    def scenario(side: Side) -> None:
        topic = side.prepare("listed")
        names = ["listed-empty", "listed-open", "listed-committed", "listed-aborted"]
        producers = [side.init(name) for name in names]
        for name, producer in zip(names[1:], producers[1:], strict=True):
            side.add(name, producer, (topic, [0, 1]), ("warm", [0]))
        side.end(names[2], producers[2], committed=True)
        side.end(names[3], producers[3], committed=False)
        side.describe(*names)
        side.describe("listed-missing", "", names[0], names[0])
        side.describe()
        for version in (0, 1, 2):

            def listed(version: int = version, **filters: Any) -> None:
                side.list_transactions(version, "listed", **filters)

            listed()
            listed(state_filters=["Ongoing"])
            listed(state_filters=["Ongoing", "Empty"])
            listed(state_filters=["Nonsense"])
            listed(state_filters=["Nonsense", "CompleteCommit"])
            listed(state_filters=["ongoing"])
            listed(state_filters=["Dead", "PrepareEpochFence"])
            side.list_transactions(version, "listed", producer_id_filters=[-1])
            if version >= 1:
                for duration in (-5, -1, 0, 10_000_000):
                    listed(duration_filter=duration)
            if version >= 2:
                for pattern in (
                    "",
                    "listed-.*",
                    "listed-e.*|.*-open",
                    "open",
                    "listed-[",
                    "(?i)LISTED-O.*",
                ):
                    listed(transactional_id_pattern=pattern)
                listed(transactional_id_pattern="listed-.*", state_filters=["Empty"])
        side.end(names[1], producers[1], committed=True)

    compare(sides, scenario)


def test_describe_producers(sides: Sides) -> None:
    def scenario(side: Side) -> None:
        topic = side.prepare("described")
        side.producers("missing")
        side.producers("described", [0, 9])
        side.producers("bad name!")
        idempotent = side.init(None)
        side.produce(topic, idempotent, 0, name=None, transactional=False, count=3)
        producer = side.init("described")
        side.produce(topic, producer, 0, name="described", version=12)
        side.producers(topic)
        after = side.end("described", producer, committed=True, version=5)
        side.producers(topic)
        side.produce(topic, after, 0, name="described", version=12)
        side.producers(topic)
        side.end("described", after, committed=False, version=5)
        side.producers(topic)

    compare(sides, scenario)
