"""Real brokers whose wall clock jumps by days: libfaketime sets it while they run.

Needs libfaketime (scripts/set_up_faketime.py installs it); without it the tests are skipped. The
monotonic clock does not change, as when an operator or NTP sets the clock of a machine.
"""

import os
import time
from collections.abc import Iterator
from glob import glob
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from real_cluster import (
    commit_offsets,
    committed_offsets,
    consumer,
    ends,
    eventually,
    make_topic,
    read_values,
    send_all,
)

from tidelog.shell.supervisor.cluster import LocalCluster

pytestmark = pytest.mark.ci

PLACES = "/usr/lib/*/faketime/libfaketime.so.1"
HOLD_MS = 5000
RIGHT, AHEAD, BEHIND = "+0", "+8d", "-8d"
SETTINGS = {
    "log.retention.check.interval.ms": "200",
    "offsets.retention.check.interval.ms": "200",
    "producer.id.expiration.check.interval.ms": "200",
}
SMALL_SEGMENTS = {"segment.bytes": "60000"}
VALUES = [b"%08d" % number * 500 for number in range(30)]
"""Ten values make a batch; two batches do not fit into one segment."""
GROUP = "readers"


class FakeClock:
    """The wall clock of all brokers, in a file that libfaketime rereads regularly."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.set(RIGHT)

    def set(self, offset: str) -> None:
        beside = self._path.with_suffix(".new")
        beside.write_text(f"{offset}\n")
        beside.replace(self._path)


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    library = os.environ.get("TIDELOG_FAKETIME") or next(iter(glob(PLACES)), None)
    if library is None:
        pytest.skip("no libfaketime: python scripts/set_up_faketime.py installs it")
    path = tmp_path / "faketime"
    monkeypatch.setenv("LD_PRELOAD", library)
    monkeypatch.setenv("FAKETIME_TIMESTAMP_FILE", str(path))
    monkeypatch.setenv("FAKETIME_CACHE_DURATION", "1")
    monkeypatch.setenv("FAKETIME_DONT_FAKE_MONOTONIC", "1")
    monkeypatch.setenv("DONT_FAKE_MONOTONIC", "1")
    return FakeClock(path)


@pytest.fixture
def cluster(clock: FakeClock, tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(data=str(tmp_path / "data"), settings=SETTINGS) as cluster:
        yield cluster


def logs(cluster: LocalCluster) -> dict[int, str]:
    return {b: Path(cluster.plan.data, f"broker-{b}.log").read_text() for b in cluster.ids}


def await_told(cluster: LocalCluster, text: str, times: int = 1) -> None:
    """Wait until every broker has logged `text` about its clock at least `times` times."""
    eventually(
        lambda: all(log.count(text) >= times for log in logs(cluster).values()),
        f"{text!r} in every broker's log",
    )


def await_checks() -> None:
    """Wait for retention, which checks five times a second, to delete what it would delete."""
    time.sleep(3)  # must stay: a check of retention that deletes nothing leaves no trace


def commit(cluster: LocalCluster, name: str, offset: int) -> None:
    with consumer(cluster.bootstrap, {"group.id": GROUP}) as client:
        commit_offsets(client, [TopicPartition(name, 0, offset)])


def committed(cluster: LocalCluster, name: str) -> int:
    with consumer(cluster.bootstrap, {"group.id": GROUP}) as client:
        return committed_offsets(client, [TopicPartition(name, 0)])[0].offset


def restart(cluster: LocalCluster) -> None:
    for broker in cluster.ids:
        cluster.kill(broker)
    for broker in cluster.ids:
        cluster.start_broker(broker)


@pytest.mark.parametrize("offset", [AHEAD, BEHIND], ids=["ahead", "behind"])
def test_clocks_that_jump_for_a_while_delete_nothing(
    clock: FakeClock, cluster: LocalCluster, name: str, offset: str
) -> None:
    make_topic(cluster.bootstrap, name, configs=SMALL_SEGMENTS)
    send_all(cluster.bootstrap, name, VALUES[:10])
    commit(cluster, name, 5)
    clock.set(offset)
    await_told(cluster, "the clock of this machine jumped")
    send_all(cluster.bootstrap, name, VALUES[10:20])
    await_checks()
    clock.set(RIGHT)
    await_told(cluster, "agrees with the confirmed time again")
    send_all(cluster.bootstrap, name, VALUES[20:])
    commit(cluster, name, 25)
    await_checks()
    assert read_values(cluster.bootstrap, name) == VALUES
    assert committed(cluster, name) == 25
    assert not any("deleted segment" in log for log in logs(cluster).values())


def test_brokers_that_start_with_a_wrong_clock_delete_nothing(
    clock: FakeClock, cluster: LocalCluster, name: str
) -> None:
    make_topic(cluster.bootstrap, name, configs=SMALL_SEGMENTS)
    send_all(cluster.bootstrap, name, VALUES[:10])
    send_all(cluster.bootstrap, name, VALUES[10:20])
    commit(cluster, name, 7)
    clock.set(AHEAD)
    restart(cluster)
    await_told(cluster, "the clock of this machine jumped")
    send_all(cluster.bootstrap, name, VALUES[20:])
    await_checks()
    assert read_values(cluster.bootstrap, name) == VALUES
    assert committed(cluster, name) == 7
    clock.set(RIGHT)
    restart(cluster)
    await_checks()
    assert read_values(cluster.bootstrap, name) == VALUES
    assert committed(cluster, name) == 7


def test_old_records_are_deleted_once_a_later_time_is_confirmed(
    clock: FakeClock, name: str, tmp_path: Path
) -> None:
    """The same as a cluster that was down for eight days."""
    settings = {**SETTINGS, "tidelog.clock.hold.ms": str(HOLD_MS)}
    with LocalCluster(data=str(tmp_path / "data"), settings=settings) as cluster:
        make_topic(cluster.bootstrap, name, configs=SMALL_SEGMENTS)
        send_all(cluster.bootstrap, name, VALUES[:10])
        send_all(cluster.bootstrap, name, VALUES[10:20])
        clock.set(AHEAD)
        restart(cluster)
        await_told(cluster, "has run without a jump for")
        with consumer(cluster.bootstrap) as client:
            eventually(lambda: ends(client, name) == (20, 20), "all of it is too old")
        eight_days_on = int(time.time() * 1000) + 8 * 86_400_000
        send_all(cluster.bootstrap, name, VALUES[20:], timestamp=eight_days_on)
        await_checks()
        assert read_values(cluster.bootstrap, name) == VALUES[20:]
        told = [line for log in logs(cluster).values() for line in log.splitlines()]
        deleted = [line for line in told if f"{name}-0: deleted segment" in line]
        assert any("offsets 0 to" in line and "retention.ms=604800000" in line for line in deleted)
