"""Read a range of a partition from real brokers, also under faults."""

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from real_cluster import PATIENCE_S, eventually

from tidelog.apps.spark.columns import arrow_schema
from tidelog.apps.spark.source.range_reader import (
    RangeCorrupt,
    RangeError,
    RangeFetch,
    RangeOutOfRange,
    RangeOverwritten,
    RangeToRead,
    RangeUnreachable,
    ReadLimits,
    TopicRecreated,
    read_range,
)
from tidelog.apps.spark.worker import settle_worker
from tidelog.core.record.compression import Codec
from tidelog.core.record.record import Header, Record
from tidelog.shell.client.admin import await_deleted, await_leaders, create_topic, delete_topic
from tidelog.shell.client.client_errors import NoSuchTopic
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.cluster_metadata import NO_TOPIC_ID, TopicMetadata
from tidelog.shell.client.fetching import READ_COMMITTED, READ_UNCOMMITTED
from tidelog.shell.client.producer import Producer
from tidelog.shell.supervisor.cluster import LocalCluster

NOW_MS = int(time.time() * 1000)
QUICK = ReadLimits(timeout_s=1)
SHORT = ReadLimits(timeout_s=5)
PATIENT = ReadLimits(timeout_s=PATIENCE_S)
DELETE_RECORDS = 21


@pytest.fixture
def client(calm: LocalCluster) -> Iterator[Cluster]:
    with Cluster(calm.bootstrap) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def fragile() -> Iterator[LocalCluster]:
    """A cluster whose brokers a test may kill; all of them run again between tests."""
    with LocalCluster() as cluster:
        yield cluster


def written(cluster: Cluster, topic: str, count: int, each: int = 500, **options: Any) -> list[Any]:
    """Create a topic of one partition with records of all kinds; return its values."""
    if topic not in cluster.refresh([topic]).topics or cluster.metadata.topics[topic].error:
        create_topic(cluster, topic, 1, 3)
        await_leaders(cluster, topic)
    rng = random.Random(topic)
    producer = Producer(cluster, **options)
    values: list[bytes] = []
    for start in range(0, count, each):
        rows = [
            Record(
                b"k%d" % n if n % 3 else None,
                rng.randbytes(rng.randrange(300)),
                NOW_MS + n,
                (Header("h", b"%d" % n),) if n % 5 == 0 else (),
            )
            for n in range(start, min(start + each, count))
        ]
        producer.append(topic, 0, rows)
        values += [row.value or b"" for row in rows]
    return values


def planned(cluster: Cluster, topic: str, start: int, end: int, epoch: int = -1) -> RangeToRead:
    return RangeToRead(topic, cluster.topic(topic).id, 0, start, end, epoch)


def table(cluster: Cluster, wanted: RangeToRead, **options: Any) -> Any:
    batches = list(read_range(cluster, wanted, arrow_schema(True), keep=True, **options))
    found = pa.Table.from_batches(batches, arrow_schema(True))
    found.validate(full=True)
    return found


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_every_row_of_the_range_once(client: Cluster, name: str, codec: Codec) -> None:
    """For every size of fetches and RecordBatches, and every start of the range."""
    settle_worker()
    values = written(client, name, 3000, codec=codec)
    for limits in (
        ReadLimits(),
        ReadLimits(rows=7, fetch_bytes=1),
        ReadLimits(bytes=1000, fetch_bytes=90_000),
    ):
        for start, end in ((0, 3000), (499, 501), (1234, 2345), (2999, 3000), (5, 5)):
            found = table(client, planned(client, name, start, end, 0), limits=limits)
            assert found["offset"].to_pylist() == list(range(start, end))
            assert found["value"].to_pylist() == values[start:end]
    committed = table(client, planned(client, name, 10, 3000), isolation=READ_COMMITTED)
    assert committed.num_rows == 2990
    assert committed["headers"].to_pylist()[0] == [{"key": "h", "value": b"10"}]


def test_brokers_without_topic_ids_are_fetched_by_name(client: Cluster, name: str) -> None:
    written(client, name, 10)
    wanted = planned(client, name, 0, 10)._replace(topic_id=NO_TOPIC_ID)
    assert table(client, wanted).num_rows == 10


def test_memory_is_reused_for_the_next_batch(client: Cluster, name: str) -> None:
    written(client, name, 2000)
    wanted = planned(client, name, 0, 2000)
    rows = iter(read_range(client, wanted, arrow_schema(), limits=ReadLimits(rows=100)))
    places = {batch["value"].buffers()[2].address for batch in rows}
    assert len(places) == 1


def test_the_connection_of_an_unfinished_read_is_not_reused(client: Cluster, name: str) -> None:
    """Otherwise the pending response would be read as the response to the next request."""
    written(client, name, 3000, each=100)
    wanted = planned(client, name, 0, 3000)
    limits = ReadLimits(rows=50, fetch_bytes=1)
    reading = read_range(client, wanted, arrow_schema(), limits=limits)
    assert next(reading).num_rows == 50
    leader = client.broker(client.leader(name, 0).leader)
    assert leader.fileno() >= 0
    reading.close()  # type: ignore[attr-defined]
    assert leader.fileno() == -1
    assert table(client, wanted).num_rows == 3000


def test_offsets_outside_of_the_log_are_an_error(client: Cluster, name: str) -> None:
    written(client, name, 100)
    with pytest.raises(RangeOutOfRange) as caught:
        table(client, planned(client, name, 200, 300))
    assert (caught.value.log_start, caught.value.log_end, caught.value.offset) == (0, 100, 200)
    asked = {"partitions": [{"partition_index": 0, "offset": 40}], "name": name}
    request = {"topics": [asked], "timeout_ms": 5000}
    leader = client.broker(client.leader(name, 0).leader)
    assert not leader.call(DELETE_RECORDS, request)["topics"][0]["partitions"][0]["error_code"]
    with pytest.raises(
        RangeOutOfRange, match=r"cannot read .*\[10, 100\) from offset 10 on"
    ) as old:
        table(client, planned(client, name, 10, 100))
    assert (old.value.log_start, old.value.log_end) == (40, 100)
    fetch = RangeFetch(client, planned(client, name, 40, 100), READ_UNCOMMITTED, 1)
    assert [fetch.is_on_disk(offset) for offset in (39, 40, 100)] == [False, True, True]


def test_rows_before_an_error_are_returned(client: Cluster, name: str) -> None:
    """The log ends before the range does."""
    written(client, name, 100)
    reading = read_range(client, planned(client, name, 0, 150), arrow_schema(), limits=SHORT)
    assert next(reading).num_rows == 100
    with pytest.raises(RangeUnreachable, match="the readable records end at offset 100") as caught:
        next(reading)
    assert (caught.value.log_end, caught.value.offset) == (100, 100)


@pytest.mark.ci
def test_a_batch_of_a_newer_leader_is_an_error(fragile: LocalCluster, name: str) -> None:
    """Rows before that batch are returned."""
    with Cluster(fragile.bootstrap) as client:
        written(client, name, 1000)
        fragile.kill(client.leader(name, 0).leader)
        Producer(client).append(name, 0, [Record(None, b"of the next leader")])
        old = client.leader(name, 0).leader_epoch - 1
        wanted = planned(client, name, 0, 1001, old)
        reading = read_range(client, wanted, arrow_schema(), limits=PATIENT)
        assert sum(batch.num_rows for batch in _until(reading, RangeOverwritten)) == 1000
        assert table(client, planned(client, name, 0, 1000, old)).num_rows == 1000
        assert table(client, planned(client, name, 0, 1001, old + 1)).num_rows == 1001
    _all_run(fragile)


def _until(reading: Iterator[Any], error: type[RangeError]) -> Iterator[Any]:
    with pytest.raises(error):
        yield from reading


def _all_run(cluster: LocalCluster) -> None:
    for broker in cluster.ids:
        if not cluster.is_running(broker):
            cluster.start_broker(broker, timeout_s=PATIENCE_S)
    cluster.wait_ready(PATIENCE_S)


@pytest.mark.ci
def test_a_read_survives_the_death_of_the_leader(fragile: LocalCluster, name: str) -> None:
    """Then the next leader hangs."""
    with Cluster(fragile.bootstrap) as writer:
        values = written(writer, name, 6000)
        wanted = planned(writer, name, 0, 6000, writer.leader(name, 0).leader_epoch)
    with Cluster(fragile.bootstrap, timeout_s=3) as client:
        limits = ReadLimits(rows=200, fetch_bytes=1, timeout_s=PATIENCE_S)
        found: list[bytes] = []
        hung = None
        for number, batch in enumerate(
            read_range(client, wanted, arrow_schema(), limits=limits, keep=True)
        ):
            found += batch["value"].to_pylist()
            if number == 5:
                fragile.kill(client.leader(name, 0).leader)
            if number == 15:
                _all_run(fragile)
                hung = client.leader(name, 0).leader
                fragile.pause(hung)
        assert found == values
        assert hung is not None
        fragile.resume(hung)
    _all_run(fragile)


@pytest.mark.ci
def test_a_slow_consumer_of_rows_does_not_time_out(fragile: LocalCluster, name: str) -> None:
    """Reading takes longer than the timeout of a response, and the leader changes meanwhile."""
    with Cluster(fragile.bootstrap) as client:
        written(client, name, 3000, each=100)
        limits = ReadLimits(rows=50, fetch_bytes=1, timeout_s=10)
        reading = read_range(client, planned(client, name, 0, 3000), arrow_schema(), limits=limits)
        count = next(reading).num_rows
        fragile.kill(client.leader(name, 0).leader)
        time.sleep(10.5)
        assert count + sum(batch.num_rows for batch in reading) == 3000
    _all_run(fragile)


@pytest.mark.ci
def test_a_partition_without_a_leader_times_out(fragile: LocalCluster, name: str) -> None:
    with Cluster(fragile.bootstrap) as writer:
        written(writer, name, 10)
    with Cluster(fragile.bootstrap, timeout_s=1) as client:
        wanted = eventually(lambda: planned(client, name, 0, 10), "the brokers respond")
        for broker in fragile.ids:
            fragile.kill(broker)
        with pytest.raises(RangeUnreachable, match="no records arrived within 1 s"):
            table(client, wanted, limits=QUICK)
    _all_run(fragile)


@pytest.mark.ci
def test_a_recreated_topic_is_an_error(client: Cluster, name: str) -> None:
    written(client, name, 50)
    wanted = planned(client, name, 0, 50)
    delete_topic(client, name)
    await_deleted(client, name)
    with pytest.raises(TopicRecreated, match="does not exist now") as gone:
        table(client, wanted, limits=PATIENT)
    assert gone.value.found_id is None
    written(client, name, 50)
    with pytest.raises(TopicRecreated) as caught:
        table(client, wanted, limits=PATIENT)
    assert caught.value.found_id == client.topic(name).id != wanted.topic_id


def test_a_topic_recreated_during_the_read_is_an_error(client: Cluster, name: str) -> None:
    written(client, name, 3000, each=100)
    wanted = planned(client, name, 0, 3000)
    limits = ReadLimits(rows=50, fetch_bytes=1, timeout_s=PATIENCE_S)
    reading = read_range(client, wanted, arrow_schema(), limits=limits)
    assert next(reading).num_rows == 50
    with Cluster(client.bootstrap[0][0] + f":{client.bootstrap[0][1]}") as other:
        delete_topic(other, name)
        await_deleted(other, name)
        create_topic(other, name, 1, 3)
        with pytest.raises(TopicRecreated) as caught:
            list(reading)
        assert caught.value.found_id == other.refresh([name]).topics[name].id


def test_damage_on_the_leaders_disk_is_an_error(calm: LocalCluster, name: str) -> None:
    with Cluster(calm.bootstrap) as client:
        written(client, name, 1000, each=100)
        leader = client.leader(name, 0).leader
        (segment,) = (Path(calm.log_dir(leader)) / f"{name}-0").glob("*.log")
        data = bytearray(segment.read_bytes())
        data[len(data) // 2] ^= 1
        with segment.open("r+b") as file:
            file.write(data)
        with pytest.raises(RangeCorrupt, match="checksum of the batch at offset"):
            table(client, planned(client, name, 0, 1000))
        delete_topic(client, name)


def test_all_brokers_must_agree_that_a_topic_was_deleted(
    client: Cluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One broker may be stale: all brokers are queried before a topic counts as deleted."""
    written(client, name, 10)
    wanted = planned(client, name, 0, 10)
    assert table(client, wanted).num_rows == 10
    know, until = client.topic, time.monotonic() + 2

    def topic(asked: str) -> TopicMetadata:
        if time.monotonic() < until:
            raise NoSuchTopic(f"topic {asked!r}", asked)
        return know(asked)

    monkeypatch.setattr(client, "topic", topic)
    assert table(client, wanted, limits=PATIENT).num_rows == 10


def test_a_missing_topic_is_an_error(client: Cluster, name: str) -> None:
    with pytest.raises(NoSuchTopic):
        client.topic(name)
    wanted = RangeToRead(name, b"0123456789abcdef", 0, 0, 1)
    with pytest.raises(TopicRecreated, match="30313233"):
        table(client, wanted, limits=QUICK, isolation=READ_UNCOMMITTED)
