"""Rows from Spark into topics of real brokers: columns, options, restarts, retries."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sink_rows import rows_of, values_of, writing
from topic_data import append, numbered, streaming

from tidelog.core.record.compression import Codec
from tidelog.core.record.record import Header
from tidelog.core.record.record_batch import batches
from tidelog.core.types import TopicPartition
from tidelog.shell.client.admin import create_topic, topic_configs
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.fetching import FetchFrom, fetch
from tidelog.shell.client.partitioner import partition_of_key
from tidelog.shell.supervisor.cluster import LocalCluster

pytestmark = pytest.mark.spark
PATIENCE_S = 120


def make_topic(cluster: LocalCluster, name: str, partitions: int, **configs: str) -> None:
    with Cluster(cluster.bootstrap) as client:
        create_topic(client, name, partitions, configs=configs)


def test_batch_write_has_all_columns(spark: Any, calm: LocalCluster, name: str) -> None:
    make_topic(calm, name, 3)
    when = datetime.now(UTC).replace(microsecond=678000) - timedelta(hours=1)
    rows = [
        (b"k%d" % n, f"v{n}", n % 3 if n % 2 else None, [("h", b"1"), ("h", None)], when)
        for n in range(100)
    ]
    kinds = (
        "key binary, value string, partition int,"
        " headers array<struct<key:string,value:binary>>, timestamp timestamp"
    )
    frame = spark.createDataFrame([*rows, (None, None, 2, None, None)], kinds)
    writing(frame.coalesce(1), calm.bootstrap, topic=name).save()  # one task, so one order

    found = rows_of(calm.bootstrap, name)
    assert sum(map(len, found.values())) == 101
    last = found[2].pop()
    assert (last.key, last.value, last.headers) == (None, None, ())
    assert abs(last.timestamp - datetime.now(UTC).timestamp() * 1000) < 60_000
    for partition, records in found.items():
        numbers = [int((record.value or b"")[1:]) for record in records]
        assert numbers == sorted(numbers)
        for number, record in zip(numbers, records, strict=True):
            assert record.key == b"k%d" % number
            assert record.headers == (Header("h", b"1"), Header("h", None))
            assert record.timestamp == int(when.timestamp() * 1000)
            hashed = partition_of_key(b"k%d" % number, 3)
            assert partition == (number % 3 if number % 2 else hashed)


def test_topics_of_rows_codecs_and_creation(spark: Any, calm: LocalCluster, name: str) -> None:
    for codec in Codec:
        spelled = codec.name.lower()
        topic = f"{name}-{spelled}"
        frame = spark.range(0, 2000, 1, 2).selectExpr(
            "CAST(id AS STRING) value", f"'{topic}' topic", "id unused"
        )
        options = {"kafka.compression.type": spelled, "kafka.batch.size": "4096"}
        writing(frame, calm.bootstrap, **options).save()
        assert values_of(calm.bootstrap, topic) == sorted(numbered(0, 2000))
        assert codecs_of(calm, topic) == {codec}


def codecs_of(cluster: LocalCluster, topic: str) -> set[int]:
    found = set()
    with Cluster(cluster.bootstrap) as client:
        for partition, known in client.topic(topic).partitions.items():
            key = TopicPartition(topic, partition)
            leader = client.broker(known.leader)
            answer = fetch(leader, {topic: client.topic(topic)}, {key: FetchFrom(0)})
            found |= {batch.codec for batch in batches(answer[key].records)}
    return found


def test_writes_that_fail_say_why_in_one_line(spark: Any, calm: LocalCluster, name: str) -> None:
    make_topic(calm, name, 2, **{"max.message.bytes": "2000"})
    frame = spark.range(1000).selectExpr("CAST(id AS STRING) value")
    for what, message, options in [
        (frame.selectExpr("value x"), "column 'value' is missing", {"topic": name}),
        (frame, "no topic is set: set the option", {}),
        (frame, "kafka.batch.size below it", {"topic": name}),
        (frame.selectExpr("value", "9 partition"), "has partitions 0 to 1", {"topic": name}),
        (frame.selectExpr("value", "string(null) topic"), "a row has no topic", {}),
    ]:
        with pytest.raises(Exception, match=message):
            writing(what, calm.bootstrap, **options).save()
    with pytest.raises(Exception, match='use mode\\("append"\\)'):
        writing(frame, calm.bootstrap, topic=name).mode("overwrite").save()
    assert values_of(calm.bootstrap, name) == []
    small = {"kafka.batch.size": "1500", "topic": name}
    writing(frame, calm.bootstrap, **small).save()
    assert values_of(calm.bootstrap, name) == sorted(numbered(0, 1000))


def test_a_named_write_is_done_once(spark: Any, calm: LocalCluster, name: str) -> None:
    make_topic(calm, name, 2)
    frame = spark.range(0, 500, 1, 2).selectExpr("CAST(id AS STRING) value")
    for version in ("0", "0", "1", "0"):
        options = {"topic": name, "txnAppId": name, "txnVersion": version}
        writing(frame, calm.bootstrap, **options).save()
    assert values_of(calm.bootstrap, name) == sorted(numbered(0, 500) * 2)
    with Cluster(calm.bootstrap) as client:
        ledger = topic_configs(client, ["__tidelog_spark_sink"])["__tidelog_spark_sink"]
    assert (ledger["cleanup.policy"], ledger["min.insync.replicas"]) == ("compact", "2")


def test_a_stream_continues_after_a_restart(
    spark: Any, calm: LocalCluster, name: str, tmp_path: Path
) -> None:
    source = f"{name}-source"
    make_topic(calm, source, 2)
    make_topic(calm, name, 3)

    def run() -> list[int]:
        frame = streaming(
            spark,
            calm.bootstrap,
            subscribe=source,
            startingOffsets="earliest",
            maxOffsetsPerTrigger="400",
        ).load()
        query = (
            writing(frame.select("key", "value"), calm.bootstrap, topic=name)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(PATIENCE_S)
            return [each["batchId"] for each in query.recentProgress]
        finally:
            query.stop()

    for partition in (0, 1):
        append(
            calm.bootstrap, source, numbered(partition * 1000, partition * 1000 + 500), partition
        )
    run()
    append(calm.bootstrap, source, numbered(2000, 2100))
    batch_ids = run()
    assert values_of(calm.bootstrap, name) == sorted(
        [*numbered(0, 500), *numbered(1000, 1500), *numbered(2000, 2100)]
    )
    # Spark forgets its last commit: the batch is run again, and the ledger has it.
    commits = tmp_path / "checkpoint" / "commits"
    for last in (f"{batch_ids[-1]}", f".{batch_ids[-1]}.crc"):
        (commits / last).unlink(missing_ok=True)
    append(calm.bootstrap, source, numbered(3000, 3100))
    run()
    assert values_of(calm.bootstrap, name) == sorted(
        [*numbered(0, 500), *numbered(1000, 1500), *numbered(2000, 2100), *numbered(3000, 3100)]
    )
