"""A broker does not start on a data folder that is in use or belongs to another broker.

It prints a one-line error and changes no file.
"""

import shutil
import socket
from pathlib import Path

import pytest
from real_cluster import make_topic, read_values, send_all

from tidelog.shell.supervisor.cluster import ClusterFailed, LocalCluster


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data folder of a cluster of one broker, after a clean stop."""
    folder = tmp_path / "cluster"
    with LocalCluster(1, str(folder)) as cluster:
        make_topic(cluster.bootstrap, "orders")
        send_all(cluster.bootstrap, "orders", [b"precious"])
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """Return the content of all files except locks and the files directly in `folder`."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock" and path.parent != folder
    }


def refusal(folder: Path) -> str:
    """Start a broker that must fail; return its error. Its logs must not change."""
    before = contents(folder)
    with pytest.raises(ClusterFailed) as caught, LocalCluster(1, str(folder)):
        pass
    assert contents(folder) == before
    text = (folder / "broker-1.log").read_text()
    assert "Traceback" not in text
    lines = [line for line in text.splitlines() if "can't start" in line]
    assert len(lines) == 1
    return str(caught.value)


def meta(folder: Path) -> Path:
    return folder / "broker-1" / "meta.properties"


def change(folder: Path, key: str, value: str) -> None:
    lines = meta(folder).read_text().splitlines()
    changed = [f"{key}={value}" if line.startswith(f"{key}=") else line for line in lines]
    assert changed != lines
    meta(folder).write_text("\n".join(changed) + "\n")


def works(folder: Path) -> bool:
    with LocalCluster(1, str(folder)) as cluster:
        return read_values(cluster.bootstrap, "orders") == [b"precious"]


def test_a_stopped_cluster_starts_again(data: Path) -> None:
    assert works(data)


@pytest.mark.parametrize(
    ("key", "value"),
    [("cluster.id", "AAAAAAAAAAAAAAAAAAAAAA"), ("node.id", "7"), ("version", "2")],
)
def test_a_log_directory_of_another_broker_or_cluster_is_refused(
    data: Path, key: str, value: str
) -> None:
    before = meta(data).read_text()
    change(data, key, value)
    reason = refusal(data)
    assert value in reason
    assert "\n" not in reason
    meta(data).write_text(before)
    assert works(data)


def test_logs_of_another_cluster(data: Path, tmp_path: Path) -> None:
    """A log directory is copied next to another cluster's store."""
    other = tmp_path / "other"
    with LocalCluster(1, str(other)):
        pass
    shutil.rmtree(other / "broker-1")
    shutil.copytree(data / "broker-1", other / "broker-1")
    (other / "broker-1.log").unlink()
    assert "belongs to another broker or cluster" in refusal(other)
    assert works(data)


def test_a_folder_in_use(data: Path) -> None:
    with LocalCluster(1, str(data)) as cluster:
        with pytest.raises(ClusterFailed) as caught, LocalCluster(1, str(data)):
            pass
        assert str(cluster.pid(1)) in str(caught.value)
        assert cluster.is_running(1)
        assert read_values(cluster.bootstrap, "orders") == [b"precious"]


def test_a_file_that_is_not_a_store_is_refused(data: Path) -> None:
    store = data / "cluster.db"
    kept = store.read_bytes()
    for suffix in ("-wal", "-shm"):
        Path(f"{store}{suffix}").unlink(missing_ok=True)
    store.write_bytes(b"not a database at all " * 100)
    assert "cluster.db" in refusal(data)
    assert store.read_bytes() == b"not a database at all " * 100
    store.write_bytes(kept)
    assert works(data)


def test_a_port_in_use(data: Path) -> None:
    with socket.create_server(("localhost", 0)) as taken:
        port = taken.getsockname()[1]
        before = contents(data)
        with pytest.raises(ClusterFailed) as caught, LocalCluster(1, str(data), port=port):
            pass
        assert contents(data) == before
        assert str(port) in str(caught.value)
    assert works(data)
