"""Other clients (librdkafka, kafka-python) read batches that our encoders wrote."""

import random
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from real_cluster import LONG_SESSIONS, PATIENCE_S, read_values

from tidelog.apps.spark.encoding.encoder import BatchEncoder, Rows
from tidelog.core.record.compression import Codec
from tidelog.core.record.record import Record
from tidelog.shell.client.admin import await_leaders, create_topic
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.producer import Producer, init_producer_id, produce
from tidelog.shell.supervisor.cluster import LocalCluster

KAFKA_PYTHON = """
import sys
from kafka import KafkaConsumer, TopicPartition
consumer = KafkaConsumer(bootstrap_servers=sys.argv[1], consumer_timeout_ms=120000)
place = TopicPartition(sys.argv[2], 0)
consumer.assign([place])
consumer.seek_to_beginning(place)
for _ in range(int(sys.argv[3])):
    print(next(consumer).value.hex() or "-")
consumer.close()
"""
"""In a process of its own, for its warnings."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=1, settings=LONG_SESSIONS) as cluster:
        yield cluster


@pytest.mark.parametrize(
    "codec",
    [Codec.LZ4, *(pytest.param(each, marks=pytest.mark.ci) for each in Codec if each != Codec.LZ4)],
    ids=lambda codec: codec.name,
)
def test_others_read_what_we_pack(cluster: LocalCluster, codec: Codec) -> None:
    """Batches encoded by record and by column, of one block and of several."""
    topic = f"packed-{codec.name.lower()}"
    draw = random.Random(codec)
    values = [draw.randbytes(draw.randrange(200)) + bytes(draw.randrange(400)) for _ in range(3000)]
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        create_topic(client, topic, 1, 1)
        await_leaders(client, topic)
        producer = Producer(client, codec=codec)
        producer.append(topic, 0, [Record(None, value) for value in values[:10]])
        producer.append(topic, 0, [Record(None, value) for value in values[10:1500]])
        encoder = BatchEncoder(*init_producer_id(client), {}, codec=codec, batch_bytes=300_000)
        rest = pa.array(values[1500:], pa.binary())
        rows = Rows(None, rest, None, np.full(len(rest), 1_700_000_000_000))
        known = client.topic(topic)
        leader = client.broker(client.leader(topic, 0).leader)
        for batch in (*encoder.append(rows, np.zeros(len(rest))), *encoder.finish()):
            assert not produce(leader, known, 0, batch.data).error
    assert read_values(cluster.bootstrap, topic) == values
    program = [sys.executable, "-W", "ignore", "-c", KAFKA_PYTHON]
    read = subprocess.run(
        [*program, cluster.bootstrap, topic, str(len(values))],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=True,
    )
    assert read.stdout.split() == [value.hex() or "-" for value in values]
