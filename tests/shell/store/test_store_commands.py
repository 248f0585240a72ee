"""`tidelog store`: shows keys and sessions without secrets, copies, refuses in one line."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import pytest
from blocking_store import LocalClient

from tidelog.apps.cli.store import store
from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata.metadata_store import Put
from tidelog.core.controller.metadata.registrations import encode_scram
from tidelog.core.sasl.credential import ScramCredential
from tidelog.core.sasl.mechanism import SCRAM_SHA_512
from tidelog.shell.store.cluster_file import prepare
from tidelog.shell.store.log_dir_lock import LogDirLock

CREDENTIAL = encode_scram("alice", ScramCredential(b"salt", b"stored", b"server", 4096))


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A data folder whose cluster runs, with a broker that is alive and one that is dead."""
    path = str(tmp_path / "cluster.db")
    prepare(path)
    alive = LogDirLock.acquire(str(tmp_path))
    (tmp_path / "dead").mkdir()
    dead = LogDirLock.acquire(str(tmp_path / "dead"))
    living, killed = LocalClient(path, alive.path), LocalClient(path, dead.path)
    with closing(living) as one, closing(killed) as two:
        session = one.open_session(60_000)
        two.open_session(60_000)
        one.transact((), (Put("brokers/ids/1", '{"rack": "ä"}'.encode(), session),))
        one.transact((), (Put("topics/name/orders", b"\xff" + b"x" * 200),))
        one.transact((), (Put(keys.scram(SCRAM_SHA_512, "alice"), CREDENTIAL),))
        dead.release()
        yield tmp_path
    alive.release()


def run(*words: object) -> object:
    return store.main([str(word) for word in words], standalone_mode=False)


def shown(capsys: pytest.CaptureFixture[str], *words: object) -> Any:
    assert run(*words, "--format", "json") == 0
    return json.loads(capsys.readouterr().out)


def test_show_lists_keys_and_sessions(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = shown(capsys, "show", data)
    assert told["holds"] is True
    assert told["revision"] == 4
    found = {entry["key"]: entry for entry in told["keys"]}
    alice = keys.scram(SCRAM_SHA_512, "alice")
    assert list(found) == ["brokers/ids/1", "meta/cluster", "topics/name/orders", alice]
    assert found["brokers/ids/1"] == {
        "key": "brokers/ids/1",
        "value": '{"rack": "ä"}',
        "create_revision": 2,
        "mod_revision": 2,
        "session": 1,
    }
    assert [(s["ttl_ms"], s["proved_dead"]) for s in told["sessions"]] == [
        (60_000, False),
        (60_000, True),
    ]
    assert all(50_000 < s["left_ms"] <= 60_000 for s in told["sessions"])


def test_no_secret_is_shown(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = prepare(str(data / "cluster.db")).secret
    for form in ("text", "json"):
        assert run("show", data, "--format", form) == 0
        text = capsys.readouterr().out
        assert secret not in text
        assert b"server".hex() not in text


def test_show_as_a_table_with_a_prefix(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", data / "cluster.db", "--prefix", "topics/") == 0
    text = capsys.readouterr().out
    assert "topics/name/orders" in text
    assert "\\xffxxx" in text
    assert "brokers/ids" not in text
    assert "revision 4" in text


def test_a_backup_can_be_shown(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = shown(capsys, "backup", data, data / "copy.db")
    assert told == {
        "holds": True,
        "target": str(data / "copy.db"),
        "revision": 4,
        "bytes": (data / "copy.db").stat().st_size,
    }
    found = [entry["key"] for entry in shown(capsys, "show", data / "copy.db")["keys"]]
    alice = keys.scram(SCRAM_SHA_512, "alice")
    assert found == ["brokers/ids/1", "meta/cluster", "topics/name/orders", alice]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("show", "nowhere"), "no such file"),
        (("show", "other.db"), "is not a Tidelog metadata store"),
        (("backup", ".", "copy.db"), "copy.db exists already"),
        (("backup", ".", "missing/copy.db"), "no such file"),
    ],
)
def test_errors_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], what: str
) -> None:
    monkeypatch.chdir(tmp_path)
    prepare("cluster.db")
    Path("copy.db").touch()
    with closing(sqlite3.connect("other.db")) as connection:
        connection.execute("CREATE TABLE a (b)")
    with pytest.raises(click.UsageError, match=what) as refused:
        run(*words)
    assert "\n" not in refused.value.format_message()


def test_rebuild_refuses_while_a_broker_runs(data: Path) -> None:
    (data / "broker-1").mkdir()
    properties = "version=1\ncluster.id=c\nnode.id=1\n"
    (data / "broker-1" / "meta.properties").write_text(properties)
    lock = LogDirLock.acquire(str(data / "broker-1"))
    before = (data / "cluster.db").read_bytes()
    with pytest.raises(click.UsageError, match="stop all brokers first"):
        run("rebuild", data)
    lock.release()
    assert (data / "cluster.db").read_bytes() == before


def test_rebuild_needs_folders_of_one_cluster(tmp_path: Path) -> None:
    with pytest.raises(click.UsageError, match="no broker's folder found beside"):
        run("rebuild", tmp_path)
    for number in (1, 2):
        folder = tmp_path / f"broker-{number}"
        folder.mkdir()
        properties = f"version=1\ncluster.id=c{number}\nnode.id={number}\n"
        (folder / "meta.properties").write_text(properties)
    with pytest.raises(click.UsageError, match=r"belong to 2 clusters \(c1, c2\)"):
        run("rebuild", tmp_path)


@pytest.mark.parametrize("words", [("rebuild",), ("restore", "backup.db")])
def test_the_folders_of_one_of_several_machines_are_not_enough(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "broker-11").mkdir()
    (tmp_path / "machine.json").write_text("{}")
    (tmp_path / "store").write_text("etcd://127.0.0.1:1/p\n")
    with pytest.raises(click.UsageError, match="has the brokers of one machine only"):
        run(*words, tmp_path)


def test_restore_refuses_another_clusters_backup(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    prepare(str(other))
    folder = tmp_path / "data" / "broker-1"
    folder.mkdir(parents=True)
    (folder / "meta.properties").write_text("version=1\ncluster.id=mine\nnode.id=1\n")
    with pytest.raises(click.UsageError, match="the log directories to mine"):
        run("restore", other, tmp_path / "data")
    assert not (tmp_path / "data" / "cluster.db").exists()


def test_a_plan_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "broker-1"
    folder.mkdir()
    (folder / "meta.properties").write_text("version=1\ncluster.id=mine\nnode.id=1\n")
    assert run("rebuild", tmp_path, "--plan") == 0
    assert "would hold 0 topics" in capsys.readouterr().out
    assert not (tmp_path / "cluster.db").exists()
    assert run("rebuild", tmp_path) == 0
    assert prepare(str(tmp_path / "cluster.db")).cluster_id == "mine"


def test_copy_names_the_new_store_as_the_setting_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    prepare("old.db")
    assert run("copy", "old.db", "new.db") == 0
    assert (
        f"set tidelog.metadata.store=sqlite:{tmp_path}/new.db in"
        in capsys.readouterr().out.replace("\n", "")
    )
