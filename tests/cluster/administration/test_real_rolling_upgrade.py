"""Two versions of the software in one cluster: brokers are upgraded one by one, under load.

The older software is a commit of this repository. A shallow clone lacks it: then the tests are
skipped with the reason; with REQUIRE_ETCD=1, as in CI, they fail.
"""

import io
import os
import re
import subprocess
import tarfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from real_cluster import PATIENCE_S, Sent, consumer, eventually, read_values, said, send_all

from tidelog.apps.cli.main import cli
from tidelog.core.coordinator.lookup import TRANSACTIONS_TOPIC
from tidelog.shell.client.admin import create_topic, delete_topic, registered_brokers
from tidelog.shell.client.administration.features import describe_features
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.cluster_metadata import PartitionMetadata
from tidelog.shell.supervisor.broker_child import SETTINGS_FILE
from tidelog.shell.supervisor.cluster import LocalCluster


class OldSoftware(NamedTuple):
    """An older commit, and its levels of `tidelog.version`."""

    commit: str
    reported: int
    """The level that its brokers report; 0 before feature levels."""
    level: int
    """The newest level that it supports."""


OLD = {
    "no feature levels": OldSoftware("e6902f1a431715679a29448b526572ff53f4f8aa", 0, 1),
    "no transactions": OldSoftware("b84d27d1c55d47f42b08996adf7be2ff99ebf875", 2, 2),
}
NEWEST = 3
PROJECT = Path(__file__).parents[3]
TOPIC = "orders"
COMMITTED = "committed"
ACKNOWLEDGED_BETWEEN = 200
"""Records that must be acknowledged between two restarts."""


def _git(*words: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["git", "-C", str(PROJECT), *words], capture_output=True, check=False)
    except OSError as error:
        _is_missing(f"git is missing, and with it the older software: {error}")


def source_of(commit: str, folder: Path) -> str:
    """The source folder of a commit."""
    packed = _git("archive", commit, "src")
    if packed.returncode:
        _is_missing(f"this clone lacks commit {commit}: {packed.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder)
    source = folder / "src"
    # Only the supervisor's way to hand over settings is newer: then it was the command line.
    main = source / "tidelog" / "shell" / "supervisor" / "broker_child.py"
    text = main.read_text()
    assert "sys.argv[1]" in text
    main.write_text(text.replace("sys.argv[1]", f"open({SETTINGS_FILE}).readline()"))
    return str(source)


def _is_missing(why: str) -> NoReturn:
    """Skip the test; fail in CI, which has the whole history."""
    if os.environ.get("REQUIRE_ETCD") == "1":
        pytest.fail(f"REQUIRE_ETCD=1, but {why}")
    pytest.skip(why)


class MixedCluster(LocalCluster):
    """A cluster in which each broker runs the older or the current software.

    A broker of the current software has a log directory on a further disk too.
    """

    def __init__(self, old_source: str, **more: Any) -> None:
        super().__init__(3, fault_switches=True, **more)
        self.old = set(self.ids)
        self._old_source = old_source

    def _command(self, broker: int) -> tuple[Sequence[str], Mapping[str, str]]:
        return (), {"PYTHONPATH": self._old_source} if broker in self.old else {}

    def _own_settings(self, broker: int) -> list[str]:
        plan = self.plan._replace(disks=()) if broker in self.old else self.plan
        return plan.own_settings(broker, self.port(broker))

    def __enter__(self) -> "MixedCluster":
        self.start()
        return self

    def replace(self, broker: int, *, old: bool) -> None:
        """Restart a broker with the older or the current software."""
        self.old.discard(broker)
        if old:
            self.old.add(broker)
        self.restart(broker)


class Load:
    """Writes records with acks=all until it is stopped."""

    def __init__(self, bootstrap: str) -> None:
        conf = {"acks": "all", "enable.idempotence": True, "message.timeout.ms": 300_000}
        self.sent = Sent(bootstrap, TOPIC, conf)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(0.002):
            self.sent.send(b"%d" % number, partition=number % 3)
            number += 1

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()

    def await_more(self) -> None:
        """Wait until further records are acknowledged."""
        goal = len(self.sent.acknowledged) + ACKNOWLEDGED_BETWEEN
        eventually(lambda: len(self.sent.acknowledged) >= goal, "records are acknowledged")


def level(bootstrap: str) -> int:
    with Cluster(bootstrap, timeout_s=PATIENCE_S) as client:
        found = {each.name: each.level for each in describe_features(client).features}
    return found.get("tidelog.version", 0)


def features(bootstrap: str, *words: str) -> tuple[int, str]:
    where = ("-b", bootstrap, "--timeout", str(PATIENCE_S))
    done = CliRunner().invoke(cli, ["features", *words, *where])
    return done.exit_code, done.output


def await_level(bootstrap: str, wanted: int) -> None:
    eventually(lambda: level(bootstrap) == wanted, f"the level is {wanted}")


def replicas(cluster: LocalCluster, topic: str) -> list[PartitionMetadata]:
    """The partitions of a topic as a broker knows them."""
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        return list(client.refresh([topic]).topics[topic].partitions.values())


def in_sync(cluster: LocalCluster, topic: str = TOPIC) -> bool:
    """Whether all replicas of a topic are in sync."""
    found = replicas(cluster, topic)
    return bool(found) and all(len(each.isr) == 3 for each in found)


def offline_replicas(cluster: LocalCluster, topic: str) -> list[int] | None:
    """The offline replicas of a topic with one partition; None if the broker does not know it."""
    found = replicas(cluster, topic)
    return list(found[0].offline_replicas) if found else None


def transaction(bootstrap: str) -> KafkaError | None:
    """Write a record in a transaction; return the error that refuses transactions."""
    conf = {
        "bootstrap.servers": bootstrap,
        "transactional.id": "upgraded",
        "transaction.timeout.ms": 300_000,
        "log_level": 0,
    }
    client = Producer(conf)
    try:
        client.init_transactions(PATIENCE_S)
    except KafkaException as refused:
        error: KafkaError = refused.args[0]
        return error
    client.begin_transaction()
    client.produce(COMMITTED, b"value")
    client.commit_transaction(PATIENCE_S)
    return None


def committed_values(bootstrap: str) -> list[bytes]:
    """The values of committed transactions. Offsets do not say how many: markers have some too."""
    found: list[bytes] = []
    with consumer(bootstrap, {"enable.partition.eof": True}) as client:
        client.assign([TopicPartition(COMMITTED, 0, 0)])
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            for message in client.consume(10, 0.2):
                error = message.error()
                if error is None:
                    found.append(message.value() or b"")
                elif error.code() == KafkaError._PARTITION_EOF:
                    return found
                else:
                    assert error.retriable(), error
    raise AssertionError(f"no end after {PATIENCE_S:g} s and {len(found)} records")


def assert_no_transactions(bootstrap: str) -> None:
    """Assert that each broker refuses transactions for good, so that no client waits."""
    for address in bootstrap.split(","):
        refused = transaction(address)
        assert refused is not None
        assert refused.fatal(), refused
        assert "no transactions yet" in refused.str()


def fenced(cluster: LocalCluster) -> list[int]:
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        return [each.id for each in registered_brokers(client).values() if each.fenced]


def assert_kept_out(cluster: MixedCluster, broker: int, old: OldSoftware) -> None:
    """Assert that a broker can't return to the older software; end its process."""
    cluster.stop(broker)
    registered = said(cluster, broker).count("registered")
    cluster.old.add(broker)
    cluster.start_broker(broker, wait=False)
    if old.reported:
        eventually(lambda: cluster.exit_code(broker), "it stops")
        assert f"the metadata store is at tidelog.version {NEWEST}" in said(cluster, broker)
    else:
        # No controller admits it.
        eventually(lambda: said(cluster, broker).count("registered") > registered, "it registers")
    eventually(lambda: fenced(cluster) == [broker], "only it is fenced")
    eventually(
        lambda: all(broker not in each.isr for each in replicas(cluster, TOPIC)), "not in sync"
    )
    cluster.kill(broker)
    cluster.old.discard(broker)


def topic_in(cluster: MixedCluster, directory: str) -> str:
    """Return a new topic whose log is in this directory: a new log goes where the fewest are."""
    for number in range(5):
        topic = f"later-{number}"
        with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
            create_topic(client, topic, partitions=1, replication_factor=3)
        eventually(lambda topic=topic: in_sync(cluster, topic), "all replicas are in sync")  # type: ignore[misc]
        if Path(directory, f"{topic}-0").is_dir():
            return topic
    raise AssertionError(f"no new log is in {directory}")


def assert_stored_as_offline(cluster: MixedCluster, broker: int) -> None:
    """Assert that the failure of a log directory is stored, and keeps the level where it is."""
    (disk,) = cluster.plan.disks
    path = f"{disk}/broker-{broker}"
    later = topic_in(cluster, path)
    cluster.set_faults(broker, {"broken": [path]})
    send_all(cluster.bootstrap, later, [b"value"], conf={"acks": "all"})
    eventually(lambda: offline_replicas(cluster, later) == [broker], "it is offline")
    lower = ("downgrade", "--feature", f"tidelog.version={NEWEST - 1}")
    refused, text = features(cluster.bootstrap, *lower)
    assert refused == 1
    others = r"(and of \d+ other replicas )?"  # what else was in that directory
    assert re.search(rf"the log directory of \S+ on broker {broker} {others}failed", text), text
    assert level(cluster.bootstrap) == NEWEST
    cluster.restart(broker)
    eventually(lambda: in_sync(cluster, later), "all replicas are in sync")
    eventually(lambda: offline_replicas(cluster, later) == [], "it is online again")
    refused, text = features(cluster.bootstrap, *lower, "--dry-run")
    assert refused == 1
    assert f"end transactions: end them, then delete the topic {TRANSACTIONS_TOPIC}" in text
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        delete_topic(client, TRANSACTIONS_TOPIC)
    done, text = features(cluster.bootstrap, *lower, "--dry-run")
    assert done == 0, text


@pytest.mark.parametrize("version", OLD)
def test_the_older_software_is_in_the_history(version: str) -> None:
    """A commit that no branch has is missing in clones: its upgrade would no longer be tested."""
    if _git("rev-parse", "--is-shallow-repository").stdout.strip() != b"false":
        pytest.skip("no clone with the whole history")
    found = _git("merge-base", "--is-ancestor", OLD[version].commit, "HEAD")
    assert found.returncode == 0, found.stderr.decode()


@pytest.mark.ci
@pytest.mark.parametrize("version", OLD)
def test_brokers_are_upgraded_one_by_one_without_loss(version: str, tmp_path: Path) -> None:
    old = OLD[version]
    source = source_of(old.commit, tmp_path / "old")
    settings = {"min.insync.replicas": "2"}
    disk = str(tmp_path / "disk")
    upgrade = ("upgrade", "--feature")
    with MixedCluster(source, settings=settings, disks=[disk]) as cluster:
        with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
            create_topic(client, TOPIC, partitions=3, replication_factor=3)
            create_topic(client, COMMITTED, partitions=1, replication_factor=3)
        with Load(cluster.bootstrap) as load:
            load.await_more()
            assert level(cluster.bootstrap) == old.reported
            for broker in cluster.ids:
                cluster.replace(broker, old=False)
                eventually(lambda: in_sync(cluster), "all replicas are in sync")
                load.await_more()
                assert_no_transactions(cluster.bootstrap)
                if broker < 3:
                    assert level(cluster.bootstrap.split(",")[broker - 1]) == old.level
                    refused, _ = features(
                        cluster.bootstrap, *upgrade, f"tidelog.version={old.level + 1}"
                    )
                    assert refused == 1, "a broker still runs the older software"
            cluster.replace(1, old=True)  # nothing keeps it from returning
            eventually(lambda: in_sync(cluster), "all replicas are in sync")
            load.await_more()
            cluster.replace(1, old=False)
            eventually(lambda: in_sync(cluster), "all replicas are in sync")
            for higher in range(old.level + 1, NEWEST + 1):
                done, text = features(cluster.bootstrap, *upgrade, f"tidelog.version={higher}")
                assert done == 0, text
                await_level(cluster.bootstrap, higher)
                load.await_more()
            assert transaction(cluster.bootstrap) is None
            for higher in (1, 2):
                done, text = features(cluster.bootstrap, *upgrade, f"transaction.version={higher}")
                assert done == 0, text
                assert transaction(cluster.bootstrap) is None
            assert_kept_out(cluster, 3, old)
            load.await_more()
            cluster.start_broker(3)
            eventually(lambda: in_sync(cluster), "all replicas are in sync")
            load.await_more()
            assert_stored_as_offline(cluster, 2)
            load.await_more()
        sent = load.sent.settle(300)
        assert not sent.failed
        # The last marker may be written after the response to the producer.
        eventually(lambda: committed_values(cluster.bootstrap) == [b"value"] * 3, "committed")
        found = [value for p in range(3) for value in read_values(cluster.bootstrap, TOPIC, p)]
        assert len(found) == len(set(found)), "no duplicates"
        assert set(found) == set(sent.acknowledged), "no loss"
