"""The main job in ten seconds: a real cluster, a real client, a killed leader, nothing lost.

Three brokers in three processes, a librdkafka producer with acks=all that never stops, kill
-9 for the leader in the middle of it, the broker back again; then everything is read and
compared with what the producer was promised.
"""

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

from tidelog.shell.client.admin import create_topic
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.cluster_metadata import PartitionMetadata
from tidelog.shell.client.reader import Reader
from tidelog.shell.supervisor.cluster import LocalCluster

TOPIC = "orders"
PARTITION = 0
EVERY_S = 0.001
BEFORE_S = 1.5
AFTER_S = 1.5
REJOIN_S = 20.0


class Promise(NamedTuple):
    """A record that was acknowledged."""

    number: int
    offset: int
    at_s: float


class Found(NamedTuple):
    """What the demo showed."""

    started_s: float
    killed: int
    successor: int
    failover_s: float
    sent: int
    acknowledged: int
    failed: int
    lost: list[int]
    repeated: int
    out_of_order: int
    in_log: int

    @property
    def holds(self) -> bool:
        return not (self.lost or self.repeated or self.out_of_order or self.failed)

    def as_data(self) -> dict[str, Any]:
        return self._asdict()


class _Writer:
    """A producer that sends numbers, and keeps every promise it got."""

    def __init__(self, bootstrap: str) -> None:
        from confluent_kafka import Producer

        self.sent = 0
        self.failed = 0
        self.promises: list[Promise] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 1,
                "log_level": 0,
            }
        )

    def write_for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._producer.produce(TOPIC, str(self.sent).encode(), on_delivery=self._told)
            self.sent += 1
            self._producer.poll(EVERY_S)

    def finish(self) -> None:
        self._producer.flush(30)

    def _told(self, error: object, message: Any) -> None:
        if error is None:
            number = int(message.value())
            self.promises.append(Promise(number, message.offset(), time.monotonic()))
        else:
            self.failed += 1


def run(say: Callable[[str], None], look: Callable[[str], None]) -> Found:
    """Play it; `say` hears each step, `look` may show the partition at the end."""
    began = time.monotonic()
    with LocalCluster(brokers=3) as cluster:
        started_s = time.monotonic() - began
        ids = ", ".join(str(cluster.pid(broker)) for broker in cluster.ids)
        say(f"three brokers at {cluster.bootstrap} after {started_s * 1000:.0f} ms (pids {ids})")
        with Cluster(cluster.bootstrap) as client:
            create_topic(client, TOPIC, 1, 3)
            leader = client.leader(TOPIC, PARTITION)
            say(f"topic {TOPIC}: leader {leader.leader}, in sync {_names(leader)}")
            writer = _Writer(cluster.bootstrap)
            writer.write_for(BEFORE_S)
            say(f"{len(writer.promises):,} records acknowledged by all in-sync replicas")
            killed_at = time.monotonic()
            cluster.kill(leader.leader)
            say(f"kill -9 for broker {leader.leader}, the leader, while the producer goes on")
            writer.write_for(AFTER_S)
            failover_s = min(p.at_s for p in writer.promises if p.at_s > killed_at) - killed_at
            client.refresh([TOPIC])
            successor = client.leader(TOPIC, PARTITION)
            say(
                f"broker {successor.leader} leads, epoch {successor.leader_epoch};"
                f" next acknowledgement after {failover_s * 1000:.0f} ms"
            )
            cluster.start_broker(leader.leader)
            writer.write_for(AFTER_S)
            writer.finish()
            say(f"broker {leader.leader} is back and in sync: {_rejoined(client)}")
            values = [int(r.value or b"") for r in Reader(client).read(TOPIC, PARTITION, 0)]
            look(cluster.bootstrap)
        found = _compare(writer, values, started_s, leader.leader, successor.leader, failover_s)
    say(f"{found.in_log:,} records read back, compared with {found.acknowledged:,} promises")
    return found


def _names(partition: PartitionMetadata) -> str:
    return ", ".join(str(broker) for broker in sorted(partition.isr))


def _rejoined(client: Cluster) -> str:
    give_up = time.monotonic() + REJOIN_S
    while True:
        client.refresh([TOPIC])
        partition = client.leader(TOPIC, PARTITION)
        if len(partition.isr) == len(partition.replicas) or time.monotonic() > give_up:
            return _names(partition)
        time.sleep(0.05)


def _compare(
    writer: _Writer,
    values: list[int],
    started_s: float,
    killed: int,
    successor: int,
    failover_s: float,
) -> Found:
    by_offset = dict(enumerate(values))
    lost = [p.number for p in writer.promises if by_offset.get(p.offset) != p.number]
    return Found(
        started_s,
        killed,
        successor,
        failover_s,
        writer.sent,
        len(writer.promises),
        writer.failed,
        lost,
        len(values) - len(set(values)),
        sum(later < earlier for earlier, later in pairwise(values)),
        len(values),
    )
