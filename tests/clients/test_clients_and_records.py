"""Every client writes and reads: all codecs, a killed broker, times, large records."""

from typing import Any

import pytest
from client_programs import ALL_CLIENTS, CONFLUENT_FIRST, program, read_back, result
from driver_lines import (
    FIRST_TIMESTAMP,
    LARGE,
    Sample,
    large_value,
    sample,
    shown,
)
from real_cluster import await_members, leader_of, make_topic, send_all

from tidelog.shell.supervisor.cluster import LocalCluster

PARTITIONS, RECORDS = 3, 2500
FOREVER = {"retention.ms": "-1"}
"""The records are from years ago."""


def produce_over_a_kill(cluster: LocalCluster, client: str, topic: str) -> dict[int, Any]:
    """Produce while a leader is restarted; return the acknowledged offset of each number."""
    acked: dict[int, tuple[int, int]] = {}
    dead = leader_of(cluster, topic)
    conf = {"bootstrap": cluster.bootstrap, "topic": topic, "partitions": PARTITIONS}
    try:
        with program(client, "produce", **conf, count=RECORDS) as running:
            for line in running.lines():
                assert "failed" not in line, line
                number, partition, offset = line["acked"]
                assert number not in acked
                acked[number] = (partition, offset)
                if len(acked) == RECORDS * 3 // 10:
                    cluster.kill(dead)
                elif len(acked) == RECORDS * 7 // 10:
                    cluster.start_broker(dead, wait=False)
    finally:
        if not cluster.is_running(dead):
            cluster.start_broker(dead)
        await_members(cluster)
    return acked


@pytest.mark.parametrize("client", CONFLUENT_FIRST)
def test_no_record_is_lost_or_duplicated(cluster: LocalCluster, name: str, client: str) -> None:
    """Idempotent producers with all codecs, while a leader is killed; read with read_committed."""
    topic = make_topic(cluster.bootstrap, name, PARTITIONS, 3, FOREVER)
    acked = produce_over_a_kill(cluster, client, topic)
    assert set(acked) == set(range(RECORDS))
    read = read_back(
        client,
        bootstrap=cluster.bootstrap,
        topic=topic,
        partitions=PARTITIONS,
        count=RECORDS,
        isolation="read_committed",
    )
    for partition in range(PARTITIONS):
        of_it = [record for record in read if record["partition"] == partition]
        wanted = [number for number in range(RECORDS) if number % PARTITIONS == partition]
        assert [record["offset"] for record in of_it] == list(range(len(wanted)))
        for record, number in zip(of_it, wanted, strict=True):
            assert record == as_read(sample(number, PARTITIONS), record["offset"])
            assert acked[number] == (partition, record["offset"])


def as_read(one: Sample, offset: int) -> dict[str, Any]:
    return {
        "partition": one.partition,
        "offset": offset,
        "key": shown(one.key),
        "value": shown(one.value),
        "headers": [[key, shown(value)] for key, value in one.headers],
        "timestamp": one.timestamp,
    }


@pytest.mark.parametrize("client", ALL_CLIENTS)
def test_offsets_are_found_by_time(cluster: LocalCluster, name: str, client: str) -> None:
    topic = make_topic(cluster.bootstrap, name, 2, 3, FOREVER)
    for partition in range(2):
        for number in range(5):
            at = FIRST_TIMESTAMP + 100 * number
            send_all(cluster.bootstrap, topic, [b"%d" % number], partition, timestamp=at)
    conf = {"bootstrap": cluster.bootstrap, "topic": topic, "partitions": 2}
    times = [
        FIRST_TIMESTAMP - 1,
        FIRST_TIMESTAMP + 200,
        FIRST_TIMESTAMP + 201,
        FIRST_TIMESTAMP + 401,
    ]
    told = result(client, "offsets", **conf, timestamps=times)
    assert told["earliest"] == {"0": 0, "1": 0}
    assert told["latest"] == {"0": 5, "1": 5}
    assert told["at"] == [{"0": at, "1": at} for at in (0, 2, 3, None)]
    read = read_back(client, **conf, count=4, timestamp=FIRST_TIMESTAMP + 201)
    assert sorted((one["partition"], one["value"]) for one in read) == [
        (0, "3"),
        (0, "4"),
        (1, "3"),
        (1, "4"),
    ]


@pytest.mark.parametrize("client", ALL_CLIENTS)
def test_large_records_are_accepted_and_larger_ones_refused(
    cluster: LocalCluster, name: str, client: str
) -> None:
    topic = make_topic(cluster.bootstrap, name, 1, 3)
    conf = {"bootstrap": cluster.bootstrap, "topic": topic}
    told = result(client, "large", **conf)
    assert told["acked"] == 0
    assert any(word in told["error"].upper() for word in ("TOO_LARGE", "TOOLARGE", "TOO LARGE")), (
        told
    )
    [read] = read_back(client, **conf, partitions=1, count=1)
    assert read["value"] == shown(large_value(LARGE))
