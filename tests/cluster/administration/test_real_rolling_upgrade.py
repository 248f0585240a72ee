"""Two versions of the software in one cluster: brokers are upgraded one by one, under load.

The older software is a commit of this repository, from before feature levels. Without its history
the tests are skipped.
"""

import io
import subprocess
import tarfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from real_cluster import Sent, eventually, isr_of, read_values, said

from tidelog.apps.cli.main import cli
from tidelog.shell.client.admin import create_topic, registered_brokers
from tidelog.shell.client.administration.features import describe_features
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.supervisor.cluster import LocalCluster

pytestmark = pytest.mark.ci

OLD_COMMIT = "e6902f1a431715679a29448b526572ff53f4f8aa"
PROJECT = Path(__file__).parents[3]
TOPIC = "orders"
ACKNOWLEDGED_BETWEEN = 200
"""Records that must be acknowledged between two restarts."""


@pytest.fixture(scope="module")
def old_source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The source folder of the older software."""
    try:
        packed = subprocess.run(
            ["git", "-C", str(PROJECT), "archive", OLD_COMMIT, "src"],
            capture_output=True,
            check=False,
        )
    except OSError as error:
        pytest.skip(f"git is missing, and with it the older software: {error}")
    if packed.returncode:
        pytest.skip(f"this clone lacks commit {OLD_COMMIT}: {packed.stderr.decode().strip()}")
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder)
    return str(folder / "src")


class MixedCluster(LocalCluster):
    """A cluster in which each broker runs the older or the current software."""

    def __init__(self, old_source: str, **more: Any) -> None:
        super().__init__(3, **more)
        self.old = set(self.ids)
        self._old_source = old_source

    def _command(self, broker: int) -> tuple[Sequence[str], Mapping[str, str]]:
        return (), {"PYTHONPATH": self._old_source} if broker in self.old else {}

    def __enter__(self) -> "MixedCluster":
        self.start()
        return self

    def upgrade(self, broker: int) -> None:
        """Restart a broker with the current software."""
        self.old.discard(broker)
        self.restart(broker)


class Load:
    """Writes records with acks=all until it is stopped."""

    def __init__(self, bootstrap: str) -> None:
        conf = {"acks": "all", "enable.idempotence": True, "message.timeout.ms": 120_000}
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
        eventually(lambda: len(self.sent.acknowledged) >= goal, "records are acknowledged", 60)


def level(bootstrap: str) -> int:
    with Cluster(bootstrap) as client:
        found = {each.name: each.level for each in describe_features(client).features}
    return found.get("tidelog.version", 0)


def features(bootstrap: str, *words: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["features", *words, "-b", bootstrap])
    return done.exit_code, done.output


def in_sync(cluster: LocalCluster) -> bool:
    """Whether all replicas of the topic are in sync."""
    with Cluster(cluster.bootstrap) as client:
        topic = client.refresh([TOPIC]).topics[TOPIC]
        return all(len(each.isr) == 3 for each in topic.partitions.values())


def test_brokers_are_upgraded_one_by_one_without_loss(old_source: str) -> None:
    settings = {"min.insync.replicas": "2"}
    with MixedCluster(old_source, settings=settings) as cluster:
        with Cluster(cluster.bootstrap) as client:
            create_topic(client, TOPIC, partitions=3, replication_factor=3)
        with Load(cluster.bootstrap) as load:
            load.await_more()
            assert level(cluster.bootstrap) == 0, "the older software knows no such feature"
            for broker in cluster.ids:
                cluster.upgrade(broker)
                eventually(lambda: in_sync(cluster), "all replicas are in sync", 60)
                load.await_more()
                if broker < 3:
                    assert level(cluster.bootstrap.split(",")[broker - 1]) == 1
                    refused, _ = features(
                        cluster.bootstrap, "upgrade", "--feature", "tidelog.version=2"
                    )
                    assert refused == 1, "a broker still runs the older software"
            done, text = features(cluster.bootstrap, "upgrade", "--feature", "tidelog.version=2")
            assert done == 0, text
            eventually(lambda: level(cluster.bootstrap) == 2, "the level is raised")
            load.await_more()
            # A broker of the older software can't return: no controller admits it.
            cluster.stop(3)
            registered = said(cluster, 3).count("registered")
            cluster.old.add(3)
            cluster.start_broker(3, wait=False)
            eventually(
                lambda: said(cluster, 3).count("registered") > registered, "broker 3 registers", 60
            )
            load.await_more()
            with Cluster(cluster.bootstrap) as client:
                assert [b.id for b in registered_brokers(client).values() if b.fenced] == [3]
            assert all(3 not in isr_of(cluster, TOPIC, p) for p in range(3))
            cluster.kill(3)
            cluster.old.discard(3)
            cluster.start_broker(3)
            eventually(lambda: in_sync(cluster), "all replicas are in sync", 60)
            load.await_more()
        sent = load.sent.settle(120)
        assert not sent.failed
        found = [value for p in range(3) for value in read_values(cluster.bootstrap, TOPIC, p)]
        assert len(found) == len(set(found)), "no duplicates"
        assert set(found) == set(sent.acknowledged), "no loss"
