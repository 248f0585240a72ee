"""The store's file is created atomically, checked, refused with one line, and copied in use."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from blocking_store import LocalClient

from tidelog.core.controller.metadata.metadata_store import Put
from tidelog.shell.store import cluster_file
from tidelog.shell.store.cluster_file import backup, prepare
from tidelog.shell.store.store_backend import (
    NotAStore,
    StoreDamaged,
    StoreError,
    StoreTooNew,
    StoreUnusable,
)

NOBODY = 65534


@pytest.fixture
def read_only() -> Iterator[Path]:
    """A folder that can be read but not written by a user who is not root."""
    with TemporaryDirectory() as name:
        yield Path(name)
        Path(name).chmod(0o755)


@contextmanager
def without_privileges(folder: Path, mode: int = 0o555) -> Iterator[None]:
    """Become another user for a moment, because root may write anywhere."""
    folder.chmod(mode)
    root = os.geteuid() == 0
    if root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def refusal(path: Path, kind: type[StoreError]) -> str:
    with pytest.raises(kind) as refused:
        prepare(str(path))
    text = str(refused.value)
    assert "\n" not in text
    assert str(path) in text
    return text


def test_the_store_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "data" / "cluster.db"
    identity = prepare(str(path))
    assert prepare(str(path)) == identity
    assert len(identity.cluster_id) == 22
    assert len(identity.secret) == 64
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == ["cluster.db"]
    assert prepare(str(tmp_path / "other.db")) != identity


def test_the_wal_is_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    prepare(str(path))
    with closing(LocalClient(str(path))) as client:
        client.transact((), (Put("a", b""),))
        for suffix in ("-wal", "-shm"):
            assert Path(f"{path}{suffix}").stat().st_mode & 0o777 == 0o600


def test_commits_survive_power_loss(tmp_path: Path) -> None:
    path = str(tmp_path / "cluster.db")
    prepare(path)
    with closing(cluster_file.connect(path, 0.0)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_a_path_with_strange_characters_is_one_path(tmp_path: Path) -> None:
    path = tmp_path / "50% of? #1 ü.db"
    identity = prepare(str(path))
    assert prepare(str(path)) == identity
    assert path.exists()


@pytest.mark.parametrize("content", [b"", b"hello\n" * 100], ids=["empty", "text"])
def test_a_file_that_is_not_a_database_is_not_changed(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "cluster.db"
    path.write_bytes(content)
    assert "is not a Tidelog metadata store" in refusal(path, NotAStore)
    assert path.read_bytes() == content
    assert [entry.name for entry in tmp_path.iterdir()] == ["cluster.db"]


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE kv (k, v)")
    content = path.read_bytes()
    refusal(path, NotAStore)
    assert path.read_bytes() == content


def test_a_newer_format_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    cluster_file.create(str(path), {})
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    content = path.read_bytes()
    assert "has format 99, this Tidelog supports up to 2" in refusal(path, StoreTooNew)
    assert path.read_bytes() == content


def test_an_older_format_is_brought_up_to_date_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "cluster.db")
    identity = prepare(path)
    upgrades = (("ALTER TABLE sess ADD COLUMN note TEXT", "UPDATE meta SET rev = rev + 100"),)
    monkeypatch.setattr(cluster_file, "UPGRADES", (*cluster_file.UPGRADES, *upgrades))
    monkeypatch.setattr(cluster_file, "SCHEMA_VERSION", 3)
    assert prepare(path) == prepare(path) == identity
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (3,)
        assert connection.execute("SELECT rev FROM meta").fetchone() == (101,)
        assert connection.execute("SELECT count(note) FROM sess").fetchone() == (0,)


def test_a_store_that_names_no_cluster_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    cluster_file.create(str(path), {})
    refusal(path, NotAStore)


@pytest.mark.parametrize("folder_mode", [0o555, 0o777], ids=["folder too", "file only"])
def test_a_read_only_store_is_refused(read_only: Path, folder_mode: int) -> None:
    path = read_only / "cluster.db"
    prepare(str(path))
    path.chmod(0o444)
    with without_privileges(read_only, folder_mode):
        assert "can't be used: attempt to write a readonly" in refusal(path, StoreUnusable)


def test_a_folder_that_can_not_be_made_is_refused(read_only: Path) -> None:
    (read_only / "file").touch()
    refusal(read_only / "file" / "sub" / "cluster.db", StoreUnusable)
    with without_privileges(read_only):
        for missing in (read_only / "new" / "cluster.db", read_only / "cluster.db"):
            assert "permission denied" in refusal(missing, StoreUnusable)


def test_a_folder_at_the_stores_place_is_refused(tmp_path: Path) -> None:
    refusal(tmp_path, StoreUnusable)


def test_a_damaged_store_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    prepare(str(path))
    content = bytearray(path.read_bytes())
    content[100:4096] = b"\xff" * 3996
    other = tmp_path / "damaged.db"
    other.write_bytes(content)
    said = refusal(other, StoreDamaged)
    assert "malformed" in said
    assert "tidelog store restore" in said


def test_a_backup_is_a_store_as_of_one_moment(tmp_path: Path) -> None:
    path, target = str(tmp_path / "cluster.db"), tmp_path / "backup.db"
    identity = prepare(path)
    with closing(LocalClient(path)) as client:
        for number in range(50):
            client.transact((), (Put(f"k{number}", b"x" * 1000),))
        backup(path, str(target))
        before = client.read()
        client.transact((), (Put("later", b""),))
    assert target.stat().st_mode & 0o777 == 0o600
    assert prepare(str(target)) == identity
    with closing(LocalClient(str(target))) as restored:
        assert restored.read() == before
    assert {entry.name for entry in tmp_path.iterdir()} == {"cluster.db", "backup.db"}


def test_a_backup_overwrites_nothing_and_needs_a_store(tmp_path: Path) -> None:
    path, target = tmp_path / "cluster.db", tmp_path / "backup.db"
    with pytest.raises(StoreUnusable, match="no such file"):
        backup(str(path), str(target))
    assert not list(tmp_path.iterdir())
    prepare(str(path))
    target.write_bytes(b"precious")
    with pytest.raises(StoreUnusable, match="exists already"):
        backup(str(path), str(target))
    assert target.read_bytes() == b"precious"
