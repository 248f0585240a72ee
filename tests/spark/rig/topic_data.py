"""Topics with records for tests of the source, and the rows that Spark reads from them."""

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import ElectionType, TopicPartition
from real_cluster import PATIENCE_S, admin_client, eventually

from tidelog.core.record.compression import Codec
from tidelog.core.record.record import Record
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.producer import Producer


def append(
    bootstrap: str,
    topic: str,
    records: Iterable[Record | bytes],
    partition: int = 0,
    batch: int = 1000,
    codec: Codec = Codec.NONE,
) -> int:
    """Append records (bytes mean only a value) with acks=all; return the first offset."""
    now = int(time.time() * 1000)
    ready = [each if isinstance(each, Record) else Record(None, each, now) for each in records]
    first = -1
    with Cluster(bootstrap, timeout_s=PATIENCE_S) as cluster:
        producer = Producer(cluster, codec=codec, timeout_s=PATIENCE_S)
        for start in range(0, len(ready), batch):
            offset = producer.append(topic, partition, ready[start : start + batch])
            first = offset if first < 0 else first
    return first


def numbered(start: int, end: int) -> list[bytes]:
    """Return values that contain their number."""
    return [b"%d" % number for number in range(start, end)]


def elect_unclean(bootstrap: str, topic: str, dead: int) -> None:
    """Let a broker that was not in sync lead partition 0, after the death of its leader.

    librdkafka does not retry while the controller changes, or has not noticed the death.
    """
    partition = TopicPartition(topic, 0)
    librdkafka = admin_client(bootstrap)

    def elected() -> bool:
        librdkafka.elect_leaders(ElectionType.UNCLEAN, [partition]).result(PATIENCE_S)
        with Cluster(bootstrap) as client:
            leader = client.refresh([topic]).topics[topic].partitions[0].leader
        return leader not in (-1, dead)

    eventually(elected, f"another broker than {dead} leads {topic}-0")


def reading(spark: Any, bootstrap: str, **options: Any) -> Any:
    """Return `spark.read` of the format, not loaded yet."""
    return _with(spark.read.format("tidelog"), bootstrap, options)


def streaming(spark: Any, bootstrap: str, **options: Any) -> Any:
    """Return `spark.readStream` of the format, not loaded yet."""
    return _with(spark.readStream.format("tidelog"), bootstrap, options)


def _with(door: Any, bootstrap: str, options: dict[str, Any]) -> Any:
    door = door.option("kafka.bootstrap.servers", bootstrap)
    for name, value in options.items():
        door = door.option(name, value)
    return door


def run_available(frame: Any, checkpoint: Any, out: Any) -> list[dict[str, Any]]:
    """Stream all available records to Parquet at `out`; return the progress of the batches."""
    query = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(checkpoint))
        .option("path", str(out))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(PATIENCE_S), "the query does not end"
        return [each for each in query.recentProgress if each["numInputRows"] or each["batchId"]]
    finally:
        query.stop()


def numbers_in(spark: Any, path: Any) -> list[int]:
    """Return the numbers of `numbered` values in Parquet, sorted."""
    rows = spark.read.parquet(str(path)).select("value").collect()
    return sorted(int(bytes(row.value)) for row in rows)


def failed_with(run: Any) -> str:
    """Return the text of the error with which a query ends, with Spark's text around it."""
    from pyspark.errors import PySparkException

    try:
        run()
    except PySparkException as error:
        return str(error)
    raise AssertionError("the query did not fail")


def last_end(checkpoint: Any) -> dict[str, Any]:
    """Return the end of the last batch that a stream planned, from its checkpoint."""
    folder = Path(checkpoint, "offsets")
    last = max(int(file.name) for file in folder.iterdir() if file.name.isdecimal())
    lines = (folder / str(last)).read_text().splitlines()
    found: dict[str, Any] = json.loads(lines[-1])
    return found
