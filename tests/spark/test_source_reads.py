"""Topics read by real Spark from real brokers, without faults."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from confluent_kafka import Producer
from real_cluster import eventually, make_topic
from topic_data import (
    append,
    failed_with,
    numbered,
    numbers_in,
    reading,
    run_available,
    streaming,
)

from tidelog.apps.cli.connection import LAST_RESORT
from tidelog.apps.pipeline.streaming import Lag
from tidelog.core.record.record import Header, Record
from tidelog.shell.client import admin
from tidelog.shell.client.administration.topics import create_partitions
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.groups.group_admin import committed_offsets
from tidelog.shell.supervisor.cluster import LocalCluster
from tidelog.spark import lag, register

pytestmark = pytest.mark.spark
PATIENCE_S = 120
STREAMS = 4


def test_a_batch_has_a_row_for_each_record(spark: Any, calm: LocalCluster, name: str) -> None:
    register(spark)
    make_topic(calm.bootstrap, name, partitions=2, configs={"retention.ms": "-1"})
    headers = (Header("trace", b"\x00\x01"), Header("none", None))
    append(calm.bootstrap, name, [Record(b"k", b"v", 1_700_000_000_123, headers)])
    append(calm.bootstrap, name, [Record(None, None, 1_700_000_000_456)], partition=1)
    frame = reading(spark, calm.bootstrap, subscribe=name, includeHeaders="true").load()
    assert frame.columns == [
        *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType"),
        *("leader_epoch", "headers"),
    ]
    first, second = frame.orderBy("partition").collect()
    assert (bytes(first.key), bytes(first.value), first.topic) == (b"k", b"v", name)
    assert (first.partition, first.offset, first.timestampType) == (0, 0, 0)
    assert first.timestamp.timestamp() == pytest.approx(1_700_000_000.123)
    assert [(h.key, h.value and bytes(h.value)) for h in first.headers] == [
        ("trace", b"\x00\x01"),
        ("none", None),
    ]
    assert (second.key, second.value, second.partition) == (None, None, 1)


def test_a_stream_continues_where_it_stopped(
    spark: Any, calm: LocalCluster, name: str, tmp_path: Path
) -> None:
    register(spark)
    make_topic(calm.bootstrap, name, partitions=2)
    append(calm.bootstrap, name, numbered(0, 3000))
    append(calm.bootstrap, name, numbered(3000, 4000), partition=1)
    frame = streaming(
        spark,
        calm.bootstrap,
        subscribe=name,
        startingOffsets="earliest",
        maxOffsetsPerTrigger="1500",
    ).load()
    seen = run_available(frame, tmp_path / "state", tmp_path / "out")
    assert [each["numInputRows"] for each in seen] == [1500, 1500, 1000]
    append(calm.bootstrap, name, numbered(4000, 4100))
    run_available(frame, tmp_path / "state", tmp_path / "out")
    assert numbers_in(spark, tmp_path / "out") == list(range(4100))


def test_streams_that_start_at_the_same_time_read_every_record(
    spark: Any, calm: LocalCluster, name: str, tmp_path: Path
) -> None:
    register(spark)
    make_topic(calm.bootstrap, name)
    append(calm.bootstrap, name, numbered(0, 100))
    frame = streaming(spark, calm.bootstrap, subscribe=name, startingOffsets="earliest").load()
    together = Barrier(STREAMS)

    def run(stream: int) -> None:
        together.wait()
        run_available(frame, tmp_path / f"state-{stream}", tmp_path / f"out-{stream}")

    with ThreadPoolExecutor(STREAMS) as threads:
        list(threads.map(run, range(STREAMS)))
    for stream in range(STREAMS):
        assert numbers_in(spark, tmp_path / f"out-{stream}") == list(range(100))


@pytest.mark.parametrize(
    ("isolation", "end", "lags"),
    [("read_committed", 10, [6, 2, 0]), ("read_uncommitted", 15, [11, 7, 3, 0])],
)
def test_the_lag_ends_at_the_last_stable_offset_for_committed_reads(
    spark: Any,
    calm: LocalCluster,
    name: str,
    tmp_path: Path,
    isolation: str,
    end: int,
    lags: list[int],
) -> None:
    """Ten records, then five of an open transaction: they are no lag until it is complete."""
    register(spark)
    make_topic(calm.bootstrap, name)
    append(calm.bootstrap, name, numbered(0, 10))
    # The coordinator must not abort it while Spark reads.
    limits = {"transactional.id": name, "transaction.timeout.ms": 600_000}
    producer = Producer({"bootstrap.servers": calm.bootstrap, **limits})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for number in range(10, 15):
        producer.produce(name, b"%d" % number)
    assert producer.flush(PATIENCE_S) == 0
    options = {"subscribe": name, "startingOffsets": "earliest", "isolationLevel": isolation}
    frame = streaming(spark, calm.bootstrap, maxOffsetsPerTrigger="4", **options).load()
    seen = run_available(frame, tmp_path / "state", tmp_path / "out")
    assert [lag(each["sources"][0]) for each in seen] == [{f"{name}-0": n} for n in lags]
    assert numbers_in(spark, tmp_path / "out") == list(range(end))
    lower = {option.lower(): value for option, value in options.items()}
    with closing(Lag({"kafka.bootstrap.servers": calm.bootstrap, **lower})) as unread:
        assert [unread.after(each) for each in seen] == lags
        producer.commit_transaction(PATIENCE_S)
        eventually(lambda: unread.after(seen[0]) == 16 - 4, "the lag with the end marker")


def offsets_of(frame: Any) -> list[tuple[int, int]]:
    return sorted(
        (row.partition, row.offset) for row in frame.select("partition", "offset").collect()
    )


def test_options_of_a_batch(spark: Any, calm: LocalCluster, name: str) -> None:
    register(spark)
    make_topic(calm.bootstrap, name, partitions=2, configs={"retention.ms": "-1"})
    for partition in range(2):
        append(
            calm.bootstrap,
            name,
            [Record(None, b"%d" % n, 1_000_000 + 10 * n) for n in range(10)],
            partition,
        )

    def read(**options: str) -> list[tuple[int, int]]:
        return offsets_of(reading(spark, calm.bootstrap, **options).load())

    def pair(first: int, second: int) -> str:
        return json.dumps({name: {"0": first, "1": second}})

    whole = [(partition, offset) for partition in range(2) for offset in range(10)]
    assert read(subscribePattern=f"{name[:-1]}.") == whole
    assert read(assign=json.dumps({name: [1]}), isolationLevel="read_committed") == whole[10:]
    assert read(subscribe=name, startingOffsets=pair(8, -2), endingOffsets=pair(-1, 2)) == [
        (0, 8),
        (0, 9),
        (1, 0),
        (1, 1),
    ]
    assert read(subscribe=name, startingTimestamp="1000085") == [(0, 9), (1, 9)]
    assert read(
        subscribe=name,
        startingOffsetsByTimestamp=pair(1_000_090, 2_000_000),
        startingOffsetsByTimestampStrategy="latest",
        endingTimestamp="2000000",
    ) == [(0, 9)]

    frame = (
        reading(spark, calm.bootstrap, subscribe=name, maxRecordsPerPartition="4")
        .schema("offset long, partition int")
        .load()
    )
    assert frame.columns == ["offset", "partition"]
    assert frame.rdd.getNumPartitions() == 6
    both = frame.where("partition = 0").union(frame.where("partition = 1 and offset > 7"))
    assert offsets_of(both) == [*whole[:10], (1, 8), (1, 9)]
    append(calm.bootstrap, name, [b"more"])
    assert frame.count() == 20, "a frame's offsets do not move"
    assert len(read(subscribe=name)) == 21


@pytest.mark.parametrize(
    ("options", "schema", "told"),
    [
        ({"subscribe": "gone"}, "", "there is no topic 'gone' in the cluster"),
        ({"subscribe": "IT"}, "", "there is no topic 'IT' in the cluster; did you mean it?"),
        ({"subscribe": "it", "startingOfset": "1"}, "", "did you mean startingOffsets?"),
        ({"subscribe": "it", "startingOffsets": '{"it": {"0": 7}}'}, "", "its log ends at 0"),
        (
            {"subscribe": "it", "startingTimestamp": "1"},
            "",
            "it-0 has no record of time 1 or",
        ),
        ({"subscribe": "it"}, "value string", "value"),
    ],
)
def test_reads_that_fail_say_why_in_one_line(
    spark: Any, calm: LocalCluster, options: dict[str, str], schema: str, told: str
) -> None:
    register(spark)
    with Cluster(calm.bootstrap) as client:
        admin.create_topic(client, "it", 1, exist_ok=True)
    door = reading(spark, calm.bootstrap, **options)
    assert told in failed_with(lambda: (door.schema(schema) if schema else door).load().count())


def test_a_stream_finds_new_partitions_and_topics(
    spark: Any, calm: LocalCluster, name: str, tmp_path: Path
) -> None:
    register(spark)
    make_topic(calm.bootstrap, f"{name}-a")
    append(calm.bootstrap, f"{name}-a", numbered(0, 10))
    frame = streaming(
        spark,
        calm.bootstrap,
        subscribePattern=f"{name}-.",
        startingOffsets="earliest",
        commitToGroup=name,
    ).load()
    query = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "state"))
        .option("path", str(tmp_path / "out"))
        .start()
    )
    try:
        query.processAllAvailable()
        with Cluster(calm.bootstrap) as client:
            create_partitions(client, {f"{name}-a": 2})
        make_topic(calm.bootstrap, f"{name}-b")
        append(calm.bootstrap, f"{name}-b", numbered(10, 20))
        eventually(lambda: _append_to_new(calm, f"{name}-a"), "the new partition has a leader")

        def read_all() -> bool:
            query.processAllAvailable()
            return numbers_in(spark, tmp_path / "out") == list(range(30))

        eventually(read_all, "all is read")

        def is_committed() -> bool:
            with Cluster(calm.bootstrap) as client:
                found = committed_offsets(client, name)
            return sorted((str(key), at.offset) for key, at in found.items()) == [
                (f"{name}-a-0", 10),
                (f"{name}-a-1", 10),
                (f"{name}-b-0", 10),
            ]

        eventually(is_committed, "the group has the progress")
    finally:
        query.stop()


def _append_to_new(calm: LocalCluster, topic: str) -> bool:
    append(calm.bootstrap, topic, numbered(20, 30), partition=1)
    return True


def test_the_examples_of_the_how_to_work(
    spark: Any, calm: LocalCluster, name: str, tmp_path: Path
) -> None:
    """The Python of the how-to, block by block, in this session."""
    page = Path(__file__).parents[2] / "docs" / "how-to" / "read-topics-in-spark.md"
    block_or_mark = r"(<!-- not run by tests[^\n]*\n)?^```python\n(.*?)^```$"
    found = re.findall(block_or_mark, page.read_text(), re.MULTILINE | re.DOTALL)
    blocks = [block for mark, block in found if not mark]
    assert len(blocks) == 6
    make_topic(calm.bootstrap, name)
    append(calm.bootstrap, name, numbered(0, 5))
    names: dict[str, Any] = {}
    for block in blocks:
        block = block.replace(LAST_RESORT, calm.bootstrap).replace('"orders', f'"{name}')
        exec(block.replace('"lake/', f'"{tmp_path}/lake/'), names)
    assert (names["values"].count(), names["some"].count()) == (5, 3)
    assert spark.read.parquet(str(tmp_path / "lake" / "orders")).count() == 5
