"""The rows that a sink wrote to topics, read by a plain client."""

from typing import Any

from tidelog.core.record.decoder import LogRecord
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.consumer import Reader
from tidelog.shell.client.fetching import READ_COMMITTED, READ_UNCOMMITTED
from tidelog.shell.client.offsets import EARLIEST, list_offset


def rows_of(
    bootstrap: str, topic: str, isolation: int = READ_UNCOMMITTED
) -> dict[int, list[LogRecord]]:
    """Return every record by partition."""
    with Cluster(bootstrap) as cluster:
        reader = Reader(cluster, isolation)
        found = {}
        for partition in cluster.topic(topic).partitions:
            start = list_offset(cluster, topic, partition, EARLIEST).offset
            found[partition] = list(reader.read(topic, partition, start))
        return found


def values_of(bootstrap: str, topic: str, isolation: int = READ_UNCOMMITTED) -> list[bytes]:
    """Return every value, sorted."""
    found = rows_of(bootstrap, topic, isolation)
    return sorted(record.value or b"" for records in found.values() for record in records)


def committed_values(bootstrap: str, topic: str) -> list[bytes]:
    """Return every value that a committed reader sees now, sorted."""
    return values_of(bootstrap, topic, READ_COMMITTED)


def writing(frame: Any, bootstrap: str, **options: Any) -> Any:
    """Return `frame.write` (or `writeStream`) of the format, not started yet."""
    door = frame.writeStream if frame.isStreaming else frame.write.mode("append")
    door = door.format("tidelog").option("kafka.bootstrap.servers", bootstrap)
    for name, value in options.items():
        door = door.option(name, value)
    return door
