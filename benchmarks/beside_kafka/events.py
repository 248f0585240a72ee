"""Rare events of a cluster: a start, an idle period, a dead leader, a restart, a new replica.

Invariant: only processes that the benchmark started are killed. Brokers that were killed or paused
run again when a round ends.
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
"""Kafka needs one minute for thousands of partitions on two otherwise idle cores, and seven minutes
on busy cores."""
PARTITIONS = 3
REPLICAS = 3
WARM_S = 2.0
"""A librdkafka client may need one second to get its producer id."""
SHORT_TIMEOUTS = {"request_timeout_ms": 1000, "socket_timeout_ms": 1000}
"""Settings of a client whose leader hangs: its defaults are longer than the cluster needs."""
SESSION_MS = 3000
EQUAL = {
    "broker.session.timeout.ms": str(SESSION_MS),
    "broker.heartbeat.interval.ms": str(SESSION_MS // 6),
}
_numbers = numbers()


def start_up(_loads: Loads, side: Side, _scale: float) -> dict[str, Any]:
    """Measure from exec of three brokers, with new folders, until Metadata lists all three."""
    return side.start


def idle(_loads: Loads, side: Side, _scale: float) -> dict[str, Any]:
    """Measure memory and CPU of a cluster without clients, after its startup work is done."""
    time.sleep(max(side.ready_at + REST_S - time.monotonic(), 0))
    meter = Meter(side.pids)
    time.sleep(IDLE_S)
    found = meter.read()
    return {**found, "rss_mb": side.rss_mb(), "cores": found["broker_cpu_s"] / IDLE_S}


def kill(_loads: Loads, side: Side, _scale: float) -> dict[str, Any]:
    """Measure from kill -9 of a leader to the first acknowledgement of a record sent after it."""
    name = f"killed-{next(_numbers)}"
    side.make(name, PARTITIONS, REPLICAS)
    writer = Writer(side.bootstrap, name, PARTITIONS)
    writer.send_for(WARM_S)
    leader, meter, moment = side.leader(name), Meter(side.pids), time.monotonic()
    side.brokers.kill(leader)
    found = {"seconds": writer.gap_after(moment, PATIENCE_S), **meter.read()}
    side.start_broker(leader)
    return finish(found, writer, side, name)


def hang(_loads: Loads, side: Side, _scale: float) -> dict[str, Any]:
    """Measure the same as `kill` for SIGSTOP, with a client whose own time-outs are short."""
    name = f"hung-{next(_numbers)}"
    side.make(name, PARTITIONS, REPLICAS)
    writer = Writer(side.bootstrap, name, PARTITIONS, **SHORT_TIMEOUTS)
    writer.send_for(WARM_S)
    leader, meter, moment = side.leader(name), Meter(side.pids), time.monotonic()
    side.brokers.pause(leader)
    try:
        found = {"seconds": writer.gap_after(moment, PATIENCE_S), **meter.read()}
    finally:
        side.brokers.resume(leader)
    return finish(found, writer, side, name)


def finish(found: dict[str, Any], writer: Writer, side: Side, topic: str) -> dict[str, Any]:
    """Wait until all records are acknowledged and all replicas in sync; then delete the topic."""
    writer.finish()
    side.wait_in_sync([topic], PARTITIONS * REPLICAS)
    side.drop(topic)
    return {**found, "messages": len(writer.acknowledged), "failed": writer.failed}


def first_record(_loads: Loads, side: Side, _scale: float) -> dict[str, Any]:
    """Measure from the creation of a topic until all replicas acknowledge its first record.

    This is what each test of a suite waits for. The cluster has other topics, which are idle.
    """
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
    """Kill -9 three brokers with 2 GB each; measure from their start until replicas are in sync."""
    side.make("full", PARTITIONS, REPLICAS)
    records = max(int(2e6 * scale), 3000)
    where = (side, "produce", "full", PARTITIONS, records, 1000)
    loads.librdkafka(*where, *BULK, "acks=all")
    return {**restart_all(side, ["full"]), "bytes": records * 1000}


def restart_with_many(_loads: Loads, side: Side, scale: float) -> dict[str, Any]:
    """Measure the same as `restart` with 3,000 partitions that have a few records each."""
    names = [f"many-{n}" for n in range(max(int(1000 * scale), 10))]
    side.make_many(names, PARTITIONS, REPLICAS)
    write_to_each(side, names, 20)
    return restart_all(side, names)


def restart_all(side: Side, topics: Sequence[str]) -> dict[str, Any]:
    """Kill and restart all brokers, and measure until all replicas are in sync.

    Metadata may list replicas that are not in sync yet. So one record is written to each partition
    with acks=all before the last check.
    """
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
    """Write `records` records of 1 KB to each partition; return when all replicas have them.

    The client's time-outs are as long as ours, because some of Kafka's brokers learn late about
    thousands of new topics.
    """
    patience_ms = int(LONG_S * 1000)
    patient = {"message.timeout.ms": patience_ms, "topic.metadata.propagation.max.ms": patience_ms}
    given = {"bootstrap.servers": side.bootstrap, "acks": "all", "log_level": 0}
    producer = Producer({**given, **patient})
    producer.list_topics(timeout=LONG_S)
    failed: list[object] = []

    def on_delivery(error: object, _message: object) -> None:
        if error is not None:
            failed.append(error)

    for topic in topics:
        for partition in range(partitions):
            for _ in range(records):
                producer.produce(topic, bytes(1000), partition=partition, on_delivery=on_delivery)
        producer.poll(0)
    if producer.flush(LONG_S) or failed:
        raise SystemExit(f"{side.name}: records are not acknowledged: {failed[:1]}")


def catch_up(loads: Loads, side: Side, scale: float) -> dict[str, Any]:
    """Add a third replica to a partition of 2 GB that has two; measure until it is in sync."""
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
