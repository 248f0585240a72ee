"""A store that fails while brokers run is reported once, with its cause."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from blocking_store import LocalClient

from tidelog.core.controller.metadata.metadata_store import Put, TxnResult, Unavailable
from tidelog.shell.store import cluster_file
from tidelog.shell.store.sqlite_store_client import StoreFailureLog
from tidelog.shell.store.store_backend import NotAStore, StoreMissing


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.db"
    cluster_file.prepare(str(path))
    return path


@pytest.fixture
def client(path: Path) -> Iterator[LocalClient]:
    with closing(LocalClient(str(path))) as client:
        yield client


def test_a_damaged_key_is_reported_with_a_way_to_repair_it(client: LocalClient, path: Path) -> None:
    client.transact((), (Put("topics/name/orders", b"value"),))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE kv SET v = ? WHERE k = 'topics/name/orders'", (b"vblue",))
        connection.commit()
    for _ in range(5):
        assert client.try_read() == Unavailable()
    assert client.until(lambda: client.reports)
    (told,) = client.reports
    assert "'topics/name/orders' does not match its checksum" in told


def test_a_store_that_went_back_under_a_running_broker_is_reported(
    client: LocalClient, path: Path
) -> None:
    for number in range(5):
        client.transact((), (Put("a", b"%d" % number),))
    assert client.read().rev == 6
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE meta SET rev = 3")
        connection.commit()
    for _ in range(3):
        assert client.transact((), (Put("b", b""),)) == Unavailable()
    assert client.until(lambda: client.reports)
    (told,) = client.reports
    assert "went back from revision 6 to 3" in told


def test_a_failing_disk_is_reported_once_and_so_is_its_recovery(path: Path) -> None:
    told: list[str] = []
    trouble = StoreFailureLog(str(path), told.append)
    trouble.over()
    for _ in range(10):
        trouble.failed(OSError(28, "No space left on device"))
        trouble.failed(TimeoutError())
    assert len(told) == 2, told
    assert "can't be used: no space left on device" in told[0]
    trouble.over()
    trouble.over()
    assert told[2:] == [f"metadata store {path}: works again"]


def test_a_full_disk_under_a_running_broker_is_reported(path: Path) -> None:
    with closing(LocalClient(str(path))) as client:
        client.transact((), (Put("a", b"x"),))
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(
                "CREATE TRIGGER full BEFORE INSERT ON kv BEGIN"
                " SELECT RAISE(ABORT, 'database or disk is full'); END"
            )
        assert client.transact((), (Put("b", b"x"),)) == Unavailable()
        assert client.until(lambda: client.reports)
        assert "database or disk is full" in client.reports[0]
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("DROP TRIGGER full")
        assert isinstance(client.transact((), (Put("b", b"x"),)), TxnResult)
        assert client.until(lambda: len(client.reports) == 2)
        assert "works again" in client.reports[1]


def test_a_missing_store_is_not_created_if_data_of_its_cluster_exists(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    with pytest.raises(StoreMissing, match="tidelog store rebuild"):
        cluster_file.prepare(str(path), "some-cluster")
    assert not path.exists()


def test_a_store_of_garbage_bytes_is_reported_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    path.write_bytes(b"garbage" * 1000)
    with pytest.raises(NotAStore, match="tidelog store restore"):
        cluster_file.prepare(str(path))


def test_a_store_of_format_1_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    identity = cluster_file.prepare(str(path))
    with closing(sqlite3.connect(path)) as connection:
        for statement in (
            "ALTER TABLE kv DROP COLUMN checksum",
            "ALTER TABLE meta DROP COLUMN checksum",
            "DROP TABLE past",
            "PRAGMA user_version = 1",
        ):
            connection.execute(statement)
        connection.commit()
    assert cluster_file.prepare(str(path)) == identity
    with closing(LocalClient(str(path))) as client:
        client.transact((), (Put("a", b"x"),))
        snapshot = client.read(earlier=2)
        assert snapshot.earlier == snapshot.checksum != 0
        assert client.read(earlier=1).earlier is None
