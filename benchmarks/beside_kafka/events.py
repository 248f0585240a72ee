"""What happens once in a while: a start, a rest, the death of a leader, a restart, a new replica.

Always true: only processes that the bench started are killed, and those that were killed or
paused run again when a round is over.
"""

import statistics
import time
from collections.abc import Sequence
from itertools import count as numbers
from typing import Any

from beside_kafka.loads import BULK, Loads
from beside_kafka.sides import Side
from confluent_kafka import Producer
from how_fast_is_failover import Writer
from processes import Meter

from tidelog.shell.client.admin import create_topic
from tidelog.shell.client.cluster import Cluster

REST_S = 10.0
IDLE_S = 10.0
PATIENCE_S = 60.0
NEW_TOPICS = 9
REST_BETWEEN_S = 0.7
"""Longer than a follower's fetch waits at its leader."""
LONG_S = 600.0
"""Kafka needs a minute for thousands of partitions on two cores that do nothing else, and seven
where others work too."""
PARTITIONS = 3
REPLICAS = 3
WARM_S = 2.0
"""A client of librdkafka may need one second until it has its producer id."""
HASTY = {"request_timeout_ms": 1000, "socket_timeout_ms": 1000}
"""Of a client whose leader hangs: by default it waits longer than the cluster needs."""
SESSION_MS = 3000
EQUAL = {
    "broker.session.timeout.ms": str(SESSION_MS),
    "broker.heartbeat.interval.ms": str(SESSION_MS // 6),
}
_numbers = numbers()


def start_up(_loads: Loads, side: Side, _scale: float) -> dict[str, Any]:
    """From exec of three to Metadata that lists three, in folders that were just made."""
    return side.start


def idle(_loads: Loads, side: Side, _scale: float) -> dict[str, Any]:
    """Nobody asks for anything; what a start leaves behind is over."""
    time.sleep(max(side.ready_at + REST_S - time.monotonic(), 0))
    meter = Meter(side.pids)
    time.sleep(IDLE_S)
    found = meter.read()
    return {**found, "rss_mb": side.rss_mb(), "cores": found["broker_cpu_s"] / IDLE_S}


def kill(_loads: Loads, side: Side, _scale: float) -> dict[str, Any]:
    """From kill -9 of a leader to the first acknowledgement of a record sent after it."""
    name = f"killed-{next(_numbers)}"
    side.make(name, PARTITIONS, REPLICAS)
    writer = Writer(side.bootstrap, name, PARTITIONS)
    writer.go_on(WARM_S)
    leader, meter, moment = side.leader(name), Meter(side.pids), time.monotonic()
    side.brokers.kill(leader)
    found = {"seconds": writer.gap_after(moment, PATIENCE_S), **meter.read()}
    side.start_broker(leader)
    return after(found, writer, side, name)


def hang(_loads: Loads, side: Side, _scale: float) -> dict[str, Any]:
    """The same from SIGSTOP, with a client that does not wait for long itself."""
    name = f"hung-{next(_numbers)}"
    side.make(name, PARTITIONS, REPLICAS)
    writer = Writer(side.bootstrap, name, PARTITIONS, **HASTY)
    writer.go_on(WARM_S)
    leader, meter, moment = side.leader(name), Meter(side.pids), time.monotonic()
    side.brokers.pause(leader)
    try:
        found = {"seconds": writer.gap_after(moment, PATIENCE_S), **meter.read()}
    finally:
        side.brokers.resume(leader)
    return after(found, writer, side, name)


def after(found: dict[str, Any], writer: Writer, side: Side, topic: str) -> dict[str, Any]:
    """All is as it was before; what was sent is acknowledged."""
    writer.finish()
    side.wait_in_sync([topic], PARTITIONS * REPLICAS)
    side.drop(topic)
    return {**found, "messages": len(writer.acknowledged), "failed": writer.failed}


def first_record(_loads: Loads, side: Side, _scale: float) -> dict[str, Any]:
    """From the wish for a topic to the acknowledgement, by all replicas, of its first record: what
    each test of a suite waits for. There are other topics, and nothing happens in them."""
    names = [f"new-{next(_numbers)}" for _ in range(NEW_TOPICS)]
    took: list[float] = []
    meter = Meter(side.pids)
    for name in names:
        began = time.monotonic()
        with Cluster(side.bootstrap) as client:
            create_topic(client, name, 1, REPLICAS)
        write_to_each(side, [name], 1, partitions=1)
        took.append(time.monotonic() - began)
        time.sleep(REST_BETWEEN_S)
    found = {"seconds": statistics.median(took), **meter.read()}
    for name in names:
        side.drop(name)
    return found


def restart(loads: Loads, side: Side, scale: float) -> dict[str, Any]:
    """kill -9 of all three with 2 GB on each; from their start until all replicas are in sync."""
    side.make("full", PARTITIONS, REPLICAS)
    records = max(int(2e6 * scale), 3000)
    where = (side, "produce", "full", PARTITIONS, records, 1000)
    loads.librdkafka(*where, *BULK, "acks=all")
    return {**come_back(side, ["full"]), "bytes": records * 1000}


def restart_with_many(_loads: Loads, side: Side, scale: float) -> dict[str, Any]:
    """The same with 3,000 partitions that have a few records each."""
    names = [f"many-{n}" for n in range(max(int(1000 * scale), 10))]
    side.make_many(names, PARTITIONS, REPLICAS)
    write_to_each(side, names, 20)
    return come_back(side, names)


def come_back(side: Side, topics: Sequence[str]) -> dict[str, Any]:
    """A record to each partition, acknowledged by all, proves that who is listed is in sync."""
    for broker in side.brokers.ids:
        side.brokers.kill(broker)
    meter, began = Meter(side.pids), time.monotonic()
    for broker in side.brokers.ids:
        side.start_broker(broker)
    side.wait_in_sync(topics, PARTITIONS * REPLICAS, LONG_S)
    write_to_each(side, topics, 1)
    side.wait_in_sync(topics, PARTITIONS * REPLICAS)
    return {"seconds": time.monotonic() - began, **meter.read()}


def write_to_each(
    side: Side, topics: Sequence[str], records: int, partitions: int = PARTITIONS
) -> None:
    """So many of 1 KB to each partition; returns when all replicas have them. The client is as
    patient with thousands of new topics as we are: Kafka's brokers know of some of them late."""
    patience_ms = int(LONG_S * 1000)
    patient = {"message.timeout.ms": patience_ms, "topic.metadata.propagation.max.ms": patience_ms}
    given = {"bootstrap.servers": side.bootstrap, "acks": "all", "log_level": 0}
    producer = Producer({**given, **patient})
    producer.list_topics(timeout=LONG_S)
    failed: list[object] = []

    def told(error: object, _message: object) -> None:
        if error is not None:
            failed.append(error)

    for topic in topics:
        for partition in range(partitions):
            for _ in range(records):
                producer.produce(topic, bytes(1000), partition=partition, on_delivery=told)
        producer.poll(0)
    if producer.flush(LONG_S) or failed:
        raise SystemExit(f"{side.name}: records are not acknowledged: {failed[:1]}")


def catch_up(loads: Loads, side: Side, scale: float) -> dict[str, Any]:
    """A third replica is added to a partition of 2 GB that had two: until it is in sync."""
    name = f"followed-{next(_numbers)}"
    side.make(name, 1, 2)
    records = max(int(2e6 * scale), 3000)
    loads.librdkafka(side, "produce", name, 1, records, 1000, *BULK, "acks=all")
    meter, began = Meter(side.pids), time.monotonic()
    side.add_replica(name)
    side.wait_in_sync([name], REPLICAS)
    seconds = time.monotonic() - began
    found = {"seconds": seconds, "bytes": records * 1000, **meter.read()}
    side.drop(name)
    return {**found, "cpu_bytes": found["bytes"]}
