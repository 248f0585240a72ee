"""A cluster's metadata moves from SQLite to etcd and back, is backed up, and is restored."""

import json
from base64 import b64encode
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import click
import pytest
from real_cluster import make_topic, read_values, send_all
from real_etcd import EtcdCluster, running_etcd

from tidelog.apps.cli.store import store
from tidelog.shell.store.etcd.store_setup import StoreSetup
from tidelog.shell.store.store_backend import StoreUnusable
from tidelog.shell.supervisor.cluster import ClusterFailed, LocalCluster
from tidelog.shell.supervisor.data_folder import store_url

ALL = {"acks": "all"}


@pytest.fixture(scope="module")
def etcd() -> Iterator[EtcdCluster]:
    with running_etcd(1) as etcd:
        yield etcd


def values(begin: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(begin, end)]


def run(capsys: pytest.CaptureFixture[str], *words: object) -> Any:
    assert store.main([*map(str, words), "--format", "json"], standalone_mode=False) == 0
    return json.loads(capsys.readouterr().out)


def refused(*words: object) -> str:
    with pytest.raises(click.UsageError) as refusal:
        store.main([*map(str, words)], standalone_mode=False)
    return refusal.value.format_message()


def test_records_survive_the_move_to_etcd_and_back(
    tmp_path: Path, etcd: EtcdCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    data, url = tmp_path / "data", etcd.url("moved")
    with LocalCluster(3, str(data)) as cluster:
        make_topic(cluster.bootstrap, "kept")
        send_all(cluster.bootstrap, "kept", values(0, 300), conf=ALL)
        assert "stop all brokers first" in refused("copy", data, url)
    before = run(capsys, "show", data)
    copied = run(capsys, "copy", data, url)
    assert copied["revision"] > before["revision"]
    assert not (data / "cluster.db").exists()
    assert store_url(str(data)) == url
    with LocalCluster(3, str(data)) as cluster:
        assert read_values(cluster.bootstrap, "kept") == values(0, 300)
        send_all(cluster.bootstrap, "kept", values(300, 600), conf=ALL)
        make_topic(cluster.bootstrap, "made-on-etcd")
        assert "in use by 3 sessions" in refused("copy", url, tmp_path / "other.db")
        shown = run(capsys, "show", data)
        assert {"topics/name/kept", "controller", "brokers/ids/1"} <= {
            entry["key"] for entry in shown["keys"]
        }
        assert [s["proved_dead"] for s in shown["sessions"]] == [False] * 3
        assert all(0 < s["left_ms"] <= s["ttl_ms"] == 9_000 for s in shown["sessions"])
        assert not any(e["value"] for e in shown["keys"] if e["key"] == "meta/cluster")
    assert "has a metadata store already" in refused("copy", url, url)
    back = run(capsys, "copy", data, data / "cluster.db")
    assert back["revision"] > copied["revision"]
    assert store_url(str(data)) == f"sqlite:{data}/cluster.db"
    assert "was copied to" in refused("show", url)
    with LocalCluster(3, str(data)) as cluster:
        assert read_values(cluster.bootstrap, "kept") == values(0, 600)
        assert read_values(cluster.bootstrap, "made-on-etcd") == []


def test_a_broker_does_not_start_on_the_store_that_was_moved(
    tmp_path: Path, etcd: EtcdCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    data, url = tmp_path / "data", etcd.url("left")
    with LocalCluster(1, str(data)) as cluster:
        make_topic(cluster.bootstrap, "kept")
    run(capsys, "copy", data, url)
    (data / "store-url").unlink()  # as a broker whose setting was not changed
    with pytest.raises(ClusterFailed, match="is missing, but data of cluster"):
        LocalCluster(1, str(data)).start()


@pytest.mark.ci
def test_a_backup_of_etcd_is_restored_to_an_empty_etcd(
    tmp_path: Path, etcd: EtcdCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """The restored store goes on above every revision that a broker has seen."""
    data, url, other = tmp_path / "data", etcd.url("first"), etcd.url("second")
    backup = tmp_path / "backup.db"
    with LocalCluster(3, str(data), store=url) as cluster:
        make_topic(cluster.bootstrap, "old")
        send_all(cluster.bootstrap, "old", values(0, 100), conf=ALL)
        run(capsys, "backup", url, backup)
        make_topic(cluster.bootstrap, "new")
        send_all(cluster.bootstrap, "new", values(0, 100), conf=ALL)
    words = [w for n in (1, 2, 3) for w in ("--log-dir", data / f"broker-{n}")]
    refusal = refused("restore", backup, other, *words[:2])
    assert "these brokers are needed too, else acknowledged records may be lost: 2, 3" in refusal
    lost = run(capsys, "restore", backup, other, *words[:4], "--lost-broker", 3, "--plan")
    assert lost["brokers"] == [1, 2]
    done = run(capsys, "restore", backup, other, *words)
    assert {made["topic"] for made in done["partitions"]} >= {"old", "new"}
    with LocalCluster(3, str(data), store=other) as cluster:
        assert read_values(cluster.bootstrap, "old") == values(0, 100)
        assert read_values(cluster.bootstrap, "new") == values(0, 100)


@pytest.mark.ci
def test_a_missing_store_is_rebuilt_from_the_log_directories_of_all_brokers(
    tmp_path: Path, etcd: EtcdCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also if nothing of the store is left: the folders tell which brokers there are."""
    data, url = tmp_path / "data", etcd.url("gone")
    with LocalCluster(3, str(data), store=url) as cluster:
        make_topic(cluster.bootstrap, "kept")
        send_all(cluster.bootstrap, "kept", values(0, 100), conf=ALL)
    remove(etcd, "/gone/")
    words = [w for n in (1, 2, 3) for w in ("--log-dir", data / f"broker-{n}")]
    needed = "these brokers are needed too, else acknowledged records may be lost:"
    assert f"{needed} 2, 3" in refused("rebuild", url, *words[:2])
    lost = run(capsys, "rebuild", url, *words[:4], "--lost-broker", 3, "--plan")
    assert lost["brokers"] == [1, 2]
    # Earlier releases wrote no brokers into the copies.
    copies = [data / f"broker-{n}" / "metadata-copy" for n in (1, 2, 3)]
    written = [copy.read_bytes() for copy in copies]
    for copy in copies:
        fields = json.loads(copy.read_bytes())
        assert fields.pop("brokers") == [1, 2, 3]
        copy.write_text(json.dumps(fields))
    assert "--no-other-brokers" in refused("rebuild", url, *words)
    assert "--no-other-brokers" in refused("rebuild", url, *words, "--lost-broker", 4)
    planned = run(capsys, "rebuild", url, *words, "--no-other-brokers", "--plan")
    assert planned["brokers"] == [1, 2, 3]
    for copy, content in zip(copies, written, strict=True):
        copy.write_bytes(content)
    assert run(capsys, "rebuild", url, *words)["moved"] == []
    with LocalCluster(3, str(data), store=url) as cluster:
        assert read_values(cluster.bootstrap, "kept") == values(0, 100)


@pytest.mark.ci
def test_an_interrupted_rebuild_names_the_file_with_the_earlier_contents(
    tmp_path: Path,
    etcd: EtcdCluster,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data, url = tmp_path / "data", etcd.url("interrupted")
    with LocalCluster(3, str(data), store=url) as cluster:
        make_topic(cluster.bootstrap, "kept")
        send_all(cluster.bootstrap, "kept", values(0, 100), conf=ALL)
    words = [w for n in (1, 2, 3) for w in ("--log-dir", data / f"broker-{n}")]
    steps = count()

    def stopped(setup: StoreSetup, *what: Any) -> int:
        if next(steps) > 0:
            raise StoreUnusable("etcd stopped")
        return step(setup, *what)

    step = StoreSetup._step
    with monkeypatch.context() as patch:
        patch.setattr(StoreSetup, "_step", stopped)
        interrupted = refused("rebuild", url, *words)
    (kept,) = data.glob("etcd-store.replaced-*.db")
    assert str(kept) in interrupted
    assert "2, 3" in refused("rebuild", url, *words[:2]), "the incomplete store tells nothing"
    remarks = run(capsys, "rebuild", url, *words)["remarks"]
    assert any(f"tidelog store restore {kept} {url}" in remark for remark in remarks)
    again = run(capsys, "restore", kept, url, *words)
    assert {made["topic"] for made in again["partitions"]} >= {"kept"}
    with LocalCluster(3, str(data), store=url) as cluster:
        assert read_values(cluster.bootstrap, "kept") == values(0, 100)


def remove(etcd: EtcdCluster, prefix: str) -> None:
    """Delete all keys with a prefix."""
    encoded = [b64encode(text.encode()).decode() for text in (prefix, prefix[:-1] + "0")]
    done = etcd.nodes[0].post("/v3/kv/deleterange", {"key": encoded[0], "range_end": encoded[1]})
    assert int(done["deleted"]) > 0


@pytest.mark.ci
def test_brokers_refuse_an_etcd_that_went_back(tmp_path: Path) -> None:
    """Also when its revisions are higher again than those that the brokers have seen."""
    data = tmp_path / "data"
    with running_etcd(1) as etcd:
        node, url = etcd.nodes[0], etcd.url("back")
        files, old = etcd.folder / node.name, etcd.folder / "old"
        with LocalCluster(1, str(data), store=url) as cluster:
            make_topic(cluster.bootstrap, "one")
        node.kill()
        copytree(files, old)
        restart(etcd)
        with LocalCluster(1, str(data), store=url) as cluster:
            make_topic(cluster.bootstrap, "two")
        node.kill()
        rmtree(files)
        copytree(old, files)
        restart(etcd)
        with pytest.raises(ClusterFailed, match="went back in time"):
            LocalCluster(1, str(data), store=url).start()
        for _ in range(50):
            node.put("of another program")
        with pytest.raises(ClusterFailed, match="another history"):
            LocalCluster(1, str(data), store=url).start()


def restart(etcd: EtcdCluster) -> None:
    etcd.nodes[0].start()
    etcd.wait_for(etcd.nodes[0])
