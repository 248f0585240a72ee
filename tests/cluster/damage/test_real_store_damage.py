"""The metadata store is lost, damaged or replaced by an old copy while all brokers are down.

No broker starts on it. After the store is rebuilt or restored, every acknowledged record is
readable again.
"""

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from real_cluster import (
    PATIENCE_S,
    admin_client,
    await_isr,
    eventually,
    make_topic,
    read_values,
    said,
    segment_bytes,
    send_all,
)

from tidelog.apps.cli.main import cli
from tidelog.shell.store import cluster_file
from tidelog.shell.supervisor.cluster import LocalCluster

SETTINGS = {"replica.high.watermark.checkpoint.interval.ms": "200"}
EARLY, LATE = [b"early-%d" % n for n in range(200)], [b"late-%d" % n for n in range(200)]


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(settings=SETTINGS) as running:
        yield running


def store_of(cluster: LocalCluster) -> Path:
    return Path(cluster.data, "cluster.db")


def fill(cluster: LocalCluster) -> None:
    """Create two topics, back up the store between them, then kill all brokers.

    Kill only when every broker's copy of the metadata contains the second topic.
    """
    make_topic(cluster.bootstrap, "early", configs={"cleanup.policy": "compact"})
    send_all(cluster.bootstrap, "early", EARLY, key=b"k")
    cluster_file.backup(str(store_of(cluster)), f"{cluster.data}/backup.db")
    make_topic(cluster.bootstrap, "late", partitions=3, configs={"retention.ms": "123456789"})
    for partition in range(3):
        send_all(cluster.bootstrap, "late", LATE, partition)
    copies = [Path(cluster.log_dir(broker), "metadata-copy") for broker in cluster.ids]
    eventually(lambda: all(b"123456789" in copy.read_bytes() for copy in copies), "copies")
    for broker in cluster.ids:
        cluster.kill(broker)


def wal_deleted(store: Path) -> None:
    Path(f"{store}-wal").unlink()


def wal_cut(store: Path) -> None:
    wal = Path(f"{store}-wal")
    wal.write_bytes(wal.read_bytes()[: wal.stat().st_size // 3])


def wal_flipped(store: Path) -> None:
    wal = Path(f"{store}-wal")
    content = bytearray(wal.read_bytes())
    content[len(content) // 3] ^= 0xFF
    wal.write_bytes(content)


def merge_wal(store: Path) -> None:
    """Move all pages into the main file, as a checkpoint does."""
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE").fetchone()
        connection.execute("PRAGMA journal_mode = WAL").fetchone()


def db_flipped(store: Path) -> None:
    """Change one digit in the partition registrations; SQLite itself does not detect it."""
    merge_wal(store)
    content = store.read_bytes()
    assert b'"leader_epoch":0' in content
    store.write_bytes(content.replace(b'"leader_epoch":0', b'"leader_epoch":7'))


def db_torn(store: Path) -> None:
    merge_wal(store)
    content = bytearray(store.read_bytes())
    content[4096 : 4096 * 4] = b"\xa5" * (4096 * 3)
    store.write_bytes(content)


def db_deleted(store: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{store}{suffix}").unlink(missing_ok=True)


def db_garbage(store: Path) -> None:
    db_deleted(store)
    store.write_bytes(b"garbage " * 1000)


def old_copy(store: Path) -> None:
    db_deleted(store)
    shutil.copy(store.parent / "backup.db", store)


def another_clusters(store: Path) -> None:
    db_deleted(store)
    cluster_file.prepare(str(store))


DAMAGE = [wal_deleted, wal_cut, wal_flipped, db_flipped, db_torn, db_deleted, db_garbage, old_copy]
DAMAGE.append(another_clusters)
QUICK = (wal_deleted,)
EACH = [
    pytest.param(damage, id=damage.__name__, marks=() if damage in QUICK else pytest.mark.ci)
    for damage in DAMAGE
]


def assert_refused(cluster: LocalCluster) -> None:
    """Assert that no broker starts, that each logs what to do, and that no folder changes."""
    for broker in cluster.ids:
        cluster.start_broker(broker, wait=False)
    for broker in cluster.ids:
        eventually(lambda b=broker: not cluster.is_running(b), f"broker {broker} ends")  # type: ignore[misc]
        assert cluster.exit_code(broker) == 1
        last = said(cluster, broker).splitlines()[-1]
        assert "tidelog store restore" in last, last
        assert "tidelog store rebuild" in last, last
        names = {path.name for path in Path(cluster.log_dir(broker)).iterdir()}
        assert {"early-0", "late-0", "late-1", "late-2"} <= names
        assert not [name for name in names if name.endswith("-stray")]


def run(*words: str) -> dict[str, object]:
    result = CliRunner().invoke(cli, [*words, "--format", "json"])
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.stdout))


def are_alike(cluster: LocalCluster, topic: str, partition: int) -> bool:
    return len({segment_bytes(cluster, b, topic, partition) for b in cluster.ids}) == 1


def assert_all_there(cluster: LocalCluster) -> None:
    for broker in cluster.ids:
        cluster.start_broker(broker, wait=False)
    cluster.wait_ready(started=cluster.ids)
    await_isr(cluster, "early", cluster.ids)
    assert read_values(cluster.bootstrap, "early") == EARLY
    for partition in range(3):
        await_isr(cluster, "late", cluster.ids, partition)
        assert read_values(cluster.bootstrap, "late", partition) == LATE
        eventually(lambda p=partition: are_alike(cluster, "late", p), "the same bytes")  # type: ignore[misc]
    offsets = send_all(cluster.bootstrap, "late", [b"more"], conf={"acks": "all"})
    assert offsets == [len(LATE)]
    assert config(cluster, "early", "cleanup.policy") == "compact"
    assert config(cluster, "late", "retention.ms") == "123456789"


def config(cluster: LocalCluster, topic: str, name: str) -> str | None:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    client = admin_client(cluster.bootstrap)  # must exist until the response arrives
    (future,) = client.describe_configs([resource]).values()
    return str(future.result(PATIENCE_S)[name].value)


@pytest.mark.parametrize("damage", EACH)
def test_a_damaged_store_is_refused_and_rebuilt_without_loss(
    cluster: LocalCluster, damage: Callable[[Path], None]
) -> None:
    fill(cluster)
    damage(store_of(cluster))
    assert_refused(cluster)
    before = store_of(cluster).read_bytes() if store_of(cluster).exists() else None
    plan = run("store", "rebuild", cluster.data, "--plan")
    assert before == (store_of(cluster).read_bytes() if before is not None else None)
    assert not plan["written"]
    done = run("store", "rebuild", cluster.data)
    assert done["partitions"] == plan["partitions"]
    assert_all_there(cluster)


@pytest.mark.ci
def test_an_old_backup_is_restored_with_topics_created_since(cluster: LocalCluster) -> None:
    fill(cluster)
    db_garbage(store_of(cluster))
    done = run("store", "restore", f"{cluster.data}/backup.db", cluster.data)
    assert done["written"]
    assert_all_there(cluster)
    secret = cluster_file.prepare(f"{cluster.data}/backup.db").secret
    assert cluster_file.prepare(str(store_of(cluster))).secret == secret
