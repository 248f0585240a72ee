"""Topics read by real Spark from real brokers, nothing going wrong."""

from pathlib import Path
from typing import Any

import pytest
from real_cluster import make_topic
from topic_data import append, numbered, numbers_in, reading, run_available, streaming

from tidelog.core.record.record import Header, Record
from tidelog.shell.supervisor.cluster import LocalCluster
from tidelog.spark import register

pytestmark = pytest.mark.spark


def test_a_batch_has_rows_as_the_log_has_records(spark: Any, calm: LocalCluster, name: str) -> None:
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


def test_a_stream_goes_on_where_it_was(
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
