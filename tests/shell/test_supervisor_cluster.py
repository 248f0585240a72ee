"""A cluster from Python: processes start and stop on request, and none is left over."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tidelog.shell.supervisor import metadata_probe, process_identity
from tidelog.shell.supervisor.cluster import ClusterFailed, LocalCluster
from tidelog.shell.supervisor.metadata_probe import PartitionView, ProbeFailed
from tidelog.shell.supervisor.report_line import describe, log_line

HERE = Path(__file__).parent
FAKE = "fake_brokers:run_brokers"
PATIENCE_S = 120.0


def eventually(what: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < until, "it never came true"
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def _fakes_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2, data=str(tmp_path / "data"), entry=FAKE) as started:
        yield started


def test_brokers_start_list_each_other_and_stop(tmp_path: Path) -> None:
    with LocalCluster(brokers=2, entry=FAKE) as cluster:
        data = cluster.data
        pids = [cluster.pid(broker) for broker in cluster.ids]
        assert len(set(pids)) == 2
        view = cluster.metadata(1)
        assert {b: port for b, (_, port) in view.brokers.items()} == {
            b: cluster.port(b) for b in cluster.ids
        }
        assert cluster.bootstrap == ",".join(f"localhost:{cluster.port(b)}" for b in cluster.ids)
        assert "listening on" in Path(cluster.log_path(2)).read_text()
    assert not os.path.exists(data)
    assert [process_identity.started(pid) for pid in pids] == [None, None]
    assert [cluster.exit_code(broker) for broker in cluster.ids] == [0, 0]


def test_a_killed_broker_comes_back_on_its_port(cluster: LocalCluster) -> None:
    pid, port = cluster.pid(1), cluster.port(1)
    cluster.kill(1)
    assert not cluster.is_running(1)
    assert cluster.exit_code(1) == -signal.SIGKILL
    assert cluster.how_it_ended(1) == "killed by SIGKILL"
    assert cluster.is_running(2)
    cluster.wait_ready()
    cluster.start_broker(1)
    assert cluster.port(1) == port
    assert cluster.pid(1) != pid
    assert cluster.metadata(1).brokers[1][1] == port


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere ports can't be shared like that")
def test_the_port_of_a_broker_that_is_down_stays_reserved(cluster: LocalCluster) -> None:
    cluster.kill(1)
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", cluster.port(1)))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", cluster.port(1)), 5)
    cluster.start_broker(1)
    port = cluster.port(1)
    cluster.close()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))


def test_a_cluster_is_started_again_on_its_ports(tmp_path: Path) -> None:
    cluster = LocalCluster(brokers=2, data=str(tmp_path), entry=FAKE)
    with cluster:
        ports = [cluster.port(broker) for broker in cluster.ids]
    with cluster:
        assert [cluster.port(broker) for broker in cluster.ids] == ports


def test_a_clean_stop_and_a_restart(cluster: LocalCluster) -> None:
    assert cluster.stop(2) == 0
    cluster.start_broker(2)
    cluster.restart(2)
    assert cluster.is_running(2)
    with pytest.raises(ClusterFailed, match="is already running"):
        cluster.start_broker(2)


def test_a_paused_broker_runs_and_does_not_respond(cluster: LocalCluster) -> None:
    cluster.pause(1)
    eventually(lambda: Path(f"/proc/{cluster.pid(1)}/stat").read_text().split()[2] == "T")
    with pytest.raises(ProbeFailed):
        metadata_probe.ask_metadata("localhost", cluster.port(1), 0.2, [])
    assert cluster.is_running(1)
    cluster.wait_ready()  # the others
    cluster.resume(1)
    cluster.wait_ready()
    cluster.pause(2)
    cluster.close()  # ends paused ones too
    assert cluster.exit_code(2) == 0


def test_all_brokers_in_one_process() -> None:
    with LocalCluster(brokers=3, one_process=True, entry=FAKE) as cluster:
        assert len({cluster.pid(broker) for broker in cluster.ids}) == 1
        assert len({cluster.port(broker) for broker in cluster.ids}) == 3
        cluster.kill(2)
        assert not cluster.is_running(1)
        cluster.start_broker(1)
        assert cluster.is_running(3)


@pytest.mark.parametrize(
    ("rack", "reason"),
    [("fails", "the rack says so"), ("raises", "RuntimeError: the rack says so")],
)
def test_a_broker_that_does_not_start_is_reported_with_its_reason(rack: str, reason: str) -> None:
    cluster = LocalCluster(brokers=2, racks=["", rack], entry=FAKE)
    with pytest.raises(ClusterFailed, match=rf"broker 2 ended: {reason}"):
        cluster.start()
    assert not cluster.is_running(1)
    assert not os.path.exists(cluster.data)


def test_settings_are_not_in_the_process_list() -> None:
    """All users of a machine can read the words of a command."""
    with LocalCluster(brokers=1, settings={"ssl.key.password": "of-the-key"}) as cluster:
        words = subprocess.run(
            ["ps", "-ww", "-o", "args=", "-p", str(cluster.pid(1))],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert "broker_child" in words
        assert "of-the-key" not in words
        assert "ssl.key.password" not in words
        process = Path("/proc", str(cluster.pid(1)))
        if process.exists():
            assert b"of-the-key" not in (process / "environ").read_bytes()


def test_a_broker_starts_although_another_process_holds_its_pipe_open(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that another thread forks at this moment gets a copy of each open pipe."""
    cluster.stop(1)
    pipe = os.pipe
    copies: list[int] = []

    def copied_pipe() -> tuple[int, int]:
        ends = pipe()
        copies.append(os.dup(ends[1]))
        return ends

    with monkeypatch.context() as patch:
        patch.setattr(os, "pipe", copied_pipe)
        cluster.start_broker(1, wait=False)
    reports, settings = copies
    os.close(reports)  # by these the test sees that the broker has ended
    try:
        cluster.wait_ready(PATIENCE_S, [1])
    finally:
        os.close(settings)


def test_no_broker_outlives_its_starter(tmp_path: Path) -> None:
    code = (
        "import time\n"
        "from tidelog.shell.supervisor.cluster import LocalCluster\n"
        f"cluster = LocalCluster(brokers=2, data={str(tmp_path)!r}, entry={FAKE!r})\n"
        "cluster.start()\n"
        "print(cluster.pid(1), cluster.pid(2), flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as starter:
        assert starter.stdout
        pids = [int(word) for word in starter.stdout.readline().split()]
        assert all(process_identity.started(pid) for pid in pids)
        starter.kill()
    eventually(lambda: not any(process_identity.started(pid) for pid in pids))
    assert "stopped cleanly" in (tmp_path / "broker-1.log").read_text()


ANSWER = bytes.fromhex(
    "00000001"  # correlation
    "00000001 00000007 0004 68 6f 73 74 00002384 0001 61"  # broker 7 at host:9092, rack a
    "00000007"  # controller
    "00000001 0000 0001 74 00"  # topic t
    "00000002"
    "0000 00000000 00000007 00000002 00000007 00000008 00000001 00000007"
    "0005 00000001 ffffffff 00000000 00000000"
)


def serve_once(answer: bytes) -> tuple[int, threading.Thread]:
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with server, server.accept()[0] as connection:
            connection.recv(4096)
            connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    return server.getsockname()[1], thread


def test_metadata_is_read_as_kafka_writes_it() -> None:
    port, thread = serve_once(len(ANSWER).to_bytes(4, "big") + ANSWER)
    view = metadata_probe.ask_metadata("127.0.0.1", port, PATIENCE_S, ["t"])
    thread.join()
    assert view.brokers == {7: ("host", 9092)}
    assert view.controller_id == 7
    assert view.topics == {
        "t": {0: PartitionView(7, (7, 8), (7,)), 1: PartitionView(-1, (), ())},
    }


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\0\0",
        b"\xff\xff\xff\xff",
        len(ANSWER).to_bytes(4, "big") + ANSWER[:-9],
        b"\0\0\0\5abcde",
    ],
    ids=["nothing", "half a size", "no size", "half an answer", "another answer"],
)
def test_any_invalid_response_is_a_failed_probe(answer: bytes) -> None:
    port, thread = serve_once(answer)
    with pytest.raises(ProbeFailed):
        metadata_probe.ask_metadata("127.0.0.1", port, PATIENCE_S)
    thread.join()


def test_private_calls_carry_json_each_way() -> None:
    document = b'{"ok": true}'
    body = (1).to_bytes(4, "big") + len(document).to_bytes(4, "big") + document
    port, thread = serve_once(len(body).to_bytes(4, "big") + body)
    assert metadata_probe.call_private("127.0.0.1", port, 32003, {"a": 1}, PATIENCE_S) == {
        "ok": True
    }
    thread.join()


@pytest.mark.parametrize(
    ("said", "level", "text"),
    [
        (
            {
                "event": "recovering",
                "broker": 1,
                "partition": "orders-0",
                "number": 3,
                "of": 9,
                "clean": False,
            },
            "INFO",
            "broker 1: recovering orders-0 (3 of 9) after an unclean stop",
        ),
        ({"event": "acting", "broker": 2}, "INFO", "broker 2: part of the cluster"),
        (
            {"event": "detached", "broker": 2},
            "WARN",
            "broker 2: serves without the metadata store, only acks=all",
        ),
        ({"event": "stopping", "broker": 2}, "INFO", "broker 2: stopping"),
        (
            {"event": "stopped", "broker": 2, "clean": False, "reason": "disk full"},
            "ERROR",
            "broker 2: stopped: disk full",
        ),
        (
            {"event": "crashed", "reason": "KeyError: 7"},
            "ERROR",
            "brokers: crashed, a bug in Tidelog (see above): KeyError: 7",
        ),
        ({"event": "log", "level": "WARN", "text": "a\nb"}, "WARN", "a b"),
    ],
)
def test_reports_are_lines(said: dict[str, object], level: str, text: str) -> None:
    assert describe(said) == (level, text)
    assert log_line(said).endswith(f" {level:<5} {text}")
