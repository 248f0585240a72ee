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
from tidelog.core.controller.metadata.metadata_store import Put
from tidelog.shell.store.cluster_file import prepare
from tidelog.shell.store.log_dir_lock import LogDirLock


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
        dead.release()
        yield tmp_path
    alive.release()


def run(*words: object) -> object:
    return store.main([str(word) for word in words], standalone_mode=False)


def shown(capsys: pytest.CaptureFixture[str], *words: object) -> Any:
    assert run(*words, "--format", "json") == 0
    return json.loads(capsys.readouterr().out)


def test_show_tells_keys_and_sessions(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = shown(capsys, "show", data)
    assert told["holds"] is True
    assert told["revision"] == 3
    keys = {entry["key"]: entry for entry in told["keys"]}
    assert list(keys) == ["brokers/ids/1", "meta/cluster", "topics/name/orders"]
    assert keys["brokers/ids/1"] == {
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
        assert secret not in capsys.readouterr().out


def test_show_as_a_table_with_a_prefix(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", data / "cluster.db", "--prefix", "topics/") == 0
    text = capsys.readouterr().out
    assert "topics/name/orders" in text
    assert "\\xffxxx" in text
    assert "brokers/ids" not in text
    assert "revision 3" in text


def test_a_backup_can_be_shown(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = shown(capsys, "backup", data, data / "copy.db")
    assert told == {
        "holds": True,
        "target": str(data / "copy.db"),
        "revision": 3,
        "bytes": (data / "copy.db").stat().st_size,
    }
    keys = [entry["key"] for entry in shown(capsys, "show", data / "copy.db")["keys"]]
    assert keys == ["brokers/ids/1", "meta/cluster", "topics/name/orders"]


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
