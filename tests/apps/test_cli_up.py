"""`tidelog up`, `status`, `down`: processes, signals and exit codes, with fake brokers."""

import fcntl
import json
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tidelog.shell.supervisor import process_identity, up_file
from tidelog.shell.supervisor.up_file import UpFile

FAKES = Path(__file__).parents[1] / "shell"
TIDELOG = [sys.executable, str(FAKES / "fake_up.py")]
PATIENCE_S = 120.0


def eventually(what: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < until, "it never came true"
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "tidelog-data"


def tidelog(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*TIDELOG, *words], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )


def states() -> list[str]:
    """The states that `tidelog status` shows; a broker that is held up may not respond in time."""
    shown = json.loads(tidelog("status", "--format", "json").stdout)
    return [broker["state"] for broker in shown["brokers"]]


def all_up() -> bool:
    return tidelog("status").returncode == 0


class Up:
    """A `tidelog up` that runs in the foreground."""

    def __init__(self, data: Path, *words: str) -> None:
        self.data = data
        self.announced = ""
        self.process = subprocess.Popen(
            [*TIDELOG, "up", "--port", "0", "--wait", str(PATIENCE_S), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ready(self) -> UpFile:
        assert self.process.stdout
        while not self.announced.endswith("producer.flush()\n"):
            line = self.process.stdout.readline()
            assert line, "it ended"
            self.announced += line
        return self.now()

    def now(self) -> UpFile:
        up = up_file.read(str(self.data))
        assert up
        return up

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, out, err


@pytest.fixture
def up(data: Path) -> Iterator[Callable[..., Up]]:
    started: list[Up] = []

    def start(*words: str) -> Up:
        started.append(Up(data, *words))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.communicate()


def pids(up: UpFile) -> list[int]:
    return [entry.pid for entry in up.brokers]


def all_gone(up: UpFile) -> bool:
    return not any(process_identity.started(pid) for pid in pids(up))


# -- a command ---------------------------------------------------------------------------------

SHOW = "import os; print(os.environ['KAFKA_BOOTSTRAP_SERVERS'], os.environ['TIDELOG_DATA'])"


def test_a_command_gets_the_address_and_gives_its_exit_code(tmp_path: Path) -> None:
    code = f"{SHOW}; raise SystemExit(7)"
    ran = tidelog("up", "--ephemeral", "--port", "0", "--", sys.executable, "-c", code)
    assert ran.returncode == 7
    bootstrap, folder = ran.stdout.split()
    assert len(bootstrap.split(",")) == 3
    assert ran.stderr.startswith(f"tidelog: 3 brokers at {bootstrap} after ")
    assert not os.path.exists(folder)
    assert list(tmp_path.iterdir()) == [], "the temporary folder is gone"


def test_command_that_is_killed_by_a_signal(data: Path) -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    ran = tidelog("up", "--port", "0", "--brokers", "1", "--", sys.executable, "-c", code)
    assert ran.returncode == 128 + signal.SIGKILL
    assert (data / "cluster.db").exists(), "this data is kept"
    assert not (data / "up.json").exists()


def test_command_receives_sigterm(up: Callable[..., Up]) -> None:
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
        "print('here', flush=True); time.sleep(600)"
    )
    running = up("--", sys.executable, "-c", code)
    assert running.process.stdout
    assert running.process.stdout.readline() == "here\n"
    found = running.now()
    running.process.terminate()
    assert running.end()[0] == 5
    assert all_gone(found)


def test_missing_program_is_reported_before_brokers_start(data: Path) -> None:
    ran = tidelog("up", "--", "no-such-program")
    assert ran.returncode == 1
    assert ran.stderr.startswith("tidelog: can't run 'no-such-program': not found")
    assert not data.exists()


# -- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--set", "num.partitions=many"], 2, "num.partitions=many"),
        (["--set", "num.partitions"], 2, "must be key=value"),
        (["--set", "node.id=3"], 2, "can't be set for all brokers"),
        (["--data", "nowhere/x", "--ephemeral"], 2, "can't be combined"),
        (["--log-dir", "disk", "--ephemeral"], 2, "can't be combined"),
        (["--detach", "--", "true"], 2, "can't be combined with a COMMAND"),
        (["--brokers", "0"], 2, "1<=x<=100"),
        (["--port", "65535"], 1, "above 65535"),
        (["--log-dir", "/dev/null/disk"], 1, "/dev/null is not a folder"),
        (["--log-dir", "tidelog-data"], 1, "is in use already"),
        (["--data", "a,b"], 2, "has a comma"),
        (["--log-dir", "a,b"], 2, "has a comma"),
        (["--log-dir", "disk "], 2, "ends with a blank"),
        (["--log-dir", "a\nb"], 2, "has a line end"),
        (["--log-dir", b"disk\xff"], 2, "is not UTF-8"),
        (["--data", b"data\xff"], 2, "is not UTF-8"),
    ],
)
def test_refusals_are_one_line_and_touch_nothing(
    words: list[str | bytes], code: int, message: str, tmp_path: Path
) -> None:
    ran = tidelog("up", *map(os.fsdecode, words))
    assert ran.returncode == code
    assert ran.stdout == ""
    assert ran.stderr.startswith("tidelog: ")
    assert ran.stderr.count("\n") == 1
    assert message in ran.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_port_in_use_is_named_with_its_owner(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        ran = tidelog("up", "--port", str(port), "--brokers", "1")
    assert ran.returncode == 1
    assert f"port {port} is in use" in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_foreign_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    ran = tidelog("up", "--port", "0", "--data", ".")
    assert ran.returncode == 1
    assert "it contains thesis.tex" in ran.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_disk_of_another_cluster_is_not_noted(tmp_path: Path) -> None:
    """The next start would use it too."""
    disk, other = str(tmp_path / "disk"), tmp_path / "other"
    folder = Path(disk) / "broker-1"
    folder.mkdir(parents=True)
    properties = folder / "meta.properties"
    properties.write_text("version=1\nnode.id=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n")
    words = ("up", "--port", "0", "--brokers", "1", "--data", str(other), "--log-dir", disk)
    ran = tidelog(*words)
    assert ran.returncode == 1
    assert f"{folder} has data of another cluster" in ran.stderr
    properties.unlink()
    lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    ran = tidelog(*words)
    os.close(lock)
    assert ran.returncode == 1
    assert f"{folder} is locked by" in ran.stderr
    assert not other.exists()


def test_a_list_of_disks_that_cant_be_read_is_refused(data: Path) -> None:
    """A broker without one of its log directories would count the records in it as lost."""
    data.mkdir()
    (data / "log-dirs").write_bytes(b"/disk2\n\xff\n")
    before = (data / "log-dirs").read_bytes()
    for words in (["up", "--port", "0"], ["broker", "--set", "node.id=1", "--data", str(data)]):
        ran = tidelog(*words)
        assert ran.returncode in (1, 2)
        assert ran.stderr.count("\n") == 1
        assert f"can't read {data / 'log-dirs'}" in ran.stderr
        assert "not UTF-8" in ran.stderr
    assert [p.name for p in data.iterdir()] == ["log-dirs"]
    assert (data / "log-dirs").read_bytes() == before


def test_a_second_cluster_in_the_folder_is_refused(up: Callable[..., Up]) -> None:
    found = up("--brokers", "1").ready()
    ran = tidelog("up", "--port", "0")
    assert ran.returncode == 1
    assert f"a cluster is up there (pid {found.pid})" in ran.stderr


def test_a_broker_that_fails_ends_all_with_its_reason(up: Callable[..., Up]) -> None:
    code, out, err = up("--racks", "a,fails").end()
    assert code == 1
    assert out == ""
    assert err == "tidelog: broker 2 did not start: the rack says so\n"


def test_startup_fails_if_a_broker_is_not_ready_in_time(up: Callable[..., Up]) -> None:
    code, _, err = up("--brokers", "1", "--racks", "silent", "--wait", "0.2").end()
    assert code == 1
    assert err.startswith("tidelog: not ready after 0.2 s: broker 1 does not listen yet; see ")
    log = err.partition("; see ")[2].partition(";")[0]
    assert Path(log).is_file()


def test_startup_failure_of_an_ephemeral_cluster_names_no_deleted_log(tmp_path: Path) -> None:
    words = ("--brokers", "1", "--racks", "silent", "--wait", "0.2")
    ran = tidelog("up", "--ephemeral", "--port", "0", *words)
    assert ran.returncode == 1
    missing = "broker 1 does not listen yet; its log is empty"
    assert ran.stderr == f"tidelog: not ready after 0.2 s: {missing}\n"
    assert list(tmp_path.iterdir()) == []


def test_more_replicas_than_brokers_are_refused() -> None:
    words = ("--brokers", "2", "--set", "default.replication.factor=3")
    ran = tidelog("up", "--ephemeral", "--port", "0", *words, "--", "true")
    assert ran.returncode == 0
    told = "default.replication.factor is 3, but there are only 2 brokers"
    assert ran.stderr.startswith(
        f"tidelog: {told}: creating a topic without a replication factor will fail\n"
    )


# -- in the foreground -------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_stop_the_cluster_cleanly(up: Callable[..., Up], number: int, data: Path) -> None:
    running = up()
    found = running.ready()
    assert [entry.state for entry in found.brokers] == ["up"] * 3
    running.process.send_signal(number)
    assert running.end() == (0, "", "")
    out = running.announced
    assert out.startswith("Tidelog is up: 3 brokers, ready after ")
    assert f"bootstrap  {found.bootstrap}" in out
    assert f"kcat -b {found.bootstrap} -t greetings" in out
    assert f"tidelog consume greetings -e -b {found.bootstrap}\n" in out
    assert f'"bootstrap.servers": "{found.bootstrap}"' in out
    assert all_gone(found)
    assert not (data / "up.json").exists()
    assert "stopped cleanly" in (data / "broker-3.log").read_text()


def test_second_signal_kills_brokers_that_do_not_stop(up: Callable[..., Up]) -> None:
    running = up("--brokers", "2", "--racks", "a,deaf")
    found = running.ready()
    running.process.send_signal(signal.SIGINT)
    eventually(lambda: not process_identity.started(pids(found)[0]))
    assert process_identity.started(pids(found)[1])
    running.process.send_signal(signal.SIGINT)
    code, _, err = running.end()
    assert code == 1
    assert "not all brokers stopped cleanly" in err
    assert all_gone(found)


def test_a_terminals_ctrl_c_reaches_no_broker(up: Callable[..., Up]) -> None:
    found = up("--brokers", "1").ready()
    assert os.getsid(found.brokers[0].pid) == found.brokers[0].pid
    assert os.getpgid(found.brokers[0].pid) != os.getpgid(found.pid)


def test_dead_broker_is_reported_and_others_continue(up: Callable[..., Up]) -> None:
    running = up()
    found = running.ready()
    os.kill(pids(found)[1], signal.SIGKILL)
    eventually(lambda: running.now().brokers[1].state == "dead")
    assert [entry.is_running() for entry in running.now().brokers] == [True, False, True]
    eventually(lambda: "2 of 3 brokers up" in tidelog("status").stdout)
    ran = tidelog("status")
    assert ran.returncode == 1
    assert f"logs: {found.brokers[0].log}, broker-2.log, broker-3.log\n" in ran.stdout
    assert ran.stdout.endswith("to restart dead brokers: tidelog broker start 2\n")
    running.process.send_signal(signal.SIGINT)
    code, _, err = running.end()
    assert code == 0
    died = f"tidelog: broker 2 (pid {pids(found)[1]}) died: killed by SIGKILL"
    assert err == f"{died}; to restart it: tidelog broker start 2\n"


def test_brokers_that_hang_are_waited_for_together(up: Callable[..., Up]) -> None:
    running = up("--brokers", "100", "--one-process")
    pid = running.ready().brokers[0].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        assert states() == ["no answer"] * 100
        assert time.monotonic() - began < 100, "one after another they would take 200 seconds"
    finally:
        os.kill(pid, signal.SIGCONT)


def test_brokers_of_one_process_die_together(up: Callable[..., Up]) -> None:
    running = up("--brokers", "2", "--one-process")
    pid = pids(running.ready())[0]
    os.kill(pid, signal.SIGKILL)
    code, _, err = running.end()
    assert code == 1
    died = f"tidelog: brokers 1, 2 (pid {pid}) died: killed by SIGKILL"
    assert err.startswith(f"{died}\ntidelog: all brokers have ended; to restart the cluster: ")


def test_up_ends_when_no_broker_is_left(up: Callable[..., Up]) -> None:
    running = up("--brokers", "1")
    os.kill(pids(running.ready())[0], signal.SIGKILL)
    code, _, err = running.end()
    assert code == 1
    assert err.endswith("all brokers have ended; to restart the cluster: tidelog up\n")


def test_supervised_broker_restarts_on_its_port(up: Callable[..., Up]) -> None:
    running = up("--supervise")
    found = running.ready()
    os.kill(pids(found)[1], signal.SIGKILL)
    eventually(
        lambda: (
            running.now().brokers[1].pid != pids(found)[1]
            and running.now().brokers[1].state == "up"
        )
    )
    assert running.now().bootstrap == found.bootstrap
    eventually(all_up)
    running.process.send_signal(signal.SIGINT)
    code, _, err = running.end()
    assert code == 0
    assert "died: killed by SIGKILL; restarting it in 0.5 s" in err
    assert "broker 2 restarted (pid " in err


@pytest.mark.parametrize("options", [(), ("--supervise",)], ids=["plain", "supervised"])
def test_broker_is_restarted_on_request(up: Callable[..., Up], options: tuple[str, ...]) -> None:
    running = up(*options)
    found = running.ready()
    refused = tidelog("broker", "start", "2")
    assert refused.returncode == 1
    assert refused.stderr == f"tidelog: broker 2 is already running (pid {pids(found)[1]})\n"
    killed = tidelog("broker", "kill", "2")
    assert killed.stdout == f"✓ killed broker 2 (pid {pids(found)[1]})\n"
    if not options:
        again = tidelog("broker", "start", "2", "--format", "json")
        assert again.returncode == 0, again.stderr
        assert json.loads(again.stdout)["brokers"] == [
            {"name": "2", "error": None, "message": None}
        ]
    eventually(
        lambda: (
            running.now().brokers[1].pid != pids(found)[1]
            and running.now().brokers[1].state == "up"
        )
    )
    assert running.now().brokers[1].port == found.brokers[1].port
    eventually(all_up)
    running.process.send_signal(signal.SIGINT)
    code, _, err = running.end()
    assert code == 0
    assert "broker 2 restarted (pid " in err
    assert not (running.data / "up.control").exists()


def test_brokers_of_one_process_are_started_together(up: Callable[..., Up]) -> None:
    running = up("--brokers", "2", "--one-process", "--supervise")
    found = running.ready()
    os.kill(pids(found)[0], signal.SIGKILL)
    eventually(lambda: pids(found)[0] not in pids(running.now()))
    eventually(lambda: [entry.state for entry in running.now().brokers] == ["up", "up"])
    assert len(set(pids(running.now()))) == 1


def test_failed_restart_is_reported_with_its_log(up: Callable[..., Up], data: Path) -> None:
    running = up("--racks", "a,b,c")
    found = running.ready()
    tidelog("broker", "kill", "3")
    eventually(lambda: running.now().brokers[2].state == "dead")
    with socket.create_server(("127.0.0.1", found.brokers[2].port)):
        ran = tidelog("broker", "start", "3")
    assert ran.returncode == 1
    assert ran.stderr == f"tidelog: broker 3 did not start; see {data / 'broker-3.log'}\n"


def test_a_paused_broker_runs_again_or_is_stopped(up: Callable[..., Up]) -> None:
    running = up()
    found = running.ready()
    assert tidelog("broker", "pause", "2", "3").returncode == 0
    eventually(lambda: states() == ["up", "no answer", "no answer"])
    assert tidelog("broker", "resume", "2").returncode == 0
    eventually(lambda: states() == ["up", "up", "no answer"])
    ended = tidelog("down")
    assert ended.returncode == 0, ended.stdout
    assert all_gone(found)
    assert running.end()[0] == 0


def test_commands_for_one_broker_name_what_is_missing(up: Callable[..., Up], data: Path) -> None:
    nothing = tidelog("broker", "start", "1")
    assert nothing.returncode == 1
    assert nothing.stderr.startswith(f"tidelog: no cluster is up in {data}; start all its brokers")
    up("--brokers", "2").ready()
    assert "no broker 7 in the cluster of" in tidelog("broker", "kill", "7").stderr
    tidelog("broker", "kill", "2")
    gone = tidelog("broker", "pause", "2")
    assert gone.returncode == 1
    assert gone.stderr == "tidelog: broker 2 is not running; to start it: tidelog broker start 2\n"
    behind = tidelog("broker", "--data", "x", "start", "2")
    assert behind.returncode == 2
    assert "options of 'start' must come after the word 'start'" in behind.stderr


def test_no_broker_outlives_a_killed_supervisor(up: Callable[..., Up], data: Path) -> None:
    running = up()
    found = running.ready()
    running.process.kill()
    eventually(lambda: all_gone(found))
    assert "stopped cleanly" in (data / "broker-2.log").read_text()
    stale = tidelog("status")
    assert stale.returncode == 1
    assert f"the supervisor (pid {found.pid}) has ended" in stale.stdout
    assert up("--brokers", "3").ready().pid != found.pid, "a stale file is no obstacle"


LINE = "3 of 3 brokers up · controller 1 · 0 topics, 0 partitions · 0 under-replicated"
"""The line of a terminal. On a busy machine it may say `no response` at first."""


def test_a_terminal_sees_the_cluster_in_one_line(data: Path) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
    with subprocess.Popen(
        [*TIDELOG, "up", "--port", "0"], stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        shown = b""
        try:
            while LINE.encode() not in shown:
                shown += os.read(ours, 4096)
        finally:
            process.send_signal(signal.SIGINT)
        with suppress(OSError):  # so Linux says that the other end is closed
            while part := os.read(ours, 4096):
                shown += part
        assert process.wait() == 0
    os.close(ours)
    assert "tidelog: stopped" in shown.decode()


def test_a_terminal_without_a_width_gets_the_whole_line(data: Path) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*TIDELOG, "up", "--port", "0"], stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        shown = b""
        asked = False
        with suppress(OSError):
            while part := os.read(ours, 4096):
                shown += part
                if b"under-replicate" in shown and not asked:
                    asked = True  # a second signal would mean: at once
                    process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
    os.close(ours)
    assert "0 partitions · 0 under-replicated\r" in shown.decode()


def test_death_report_does_not_mix_with_the_status_line(data: Path) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 30, 0, 0))
    with subprocess.Popen(
        [*TIDELOG, "up", "--port", "0"], stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        shown = b""
        killed = asked = False
        with suppress(OSError):
            while part := os.read(ours, 4096):
                shown += part
                if "3 of 3 brokers up · controlle\r".encode() in shown and not killed:
                    found = up_file.read(str(data))
                    assert found
                    os.kill(pids(found)[1], signal.SIGKILL)
                    killed = True
                if b"died" in shown and not asked:
                    asked = True
                    process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
    os.close(ours)
    text = shown.decode()
    assert re.search(r"\r\x1b\[Ktidelog: broker 2 \(pid \d+\) died", text)
    assert "\r\x1b[K3 of 3 brokers up · controlle\r" in text
    assert "topic" not in text, "the line is cut at the terminal's width"


def test_fewer_brokers_than_data_folders_are_reported(up: Callable[..., Up], data: Path) -> None:
    first = up()
    first.ready()
    first.process.send_signal(signal.SIGINT)
    first.end()
    second = up("--brokers", "1")
    assert len(second.ready().brokers) == 1
    second.process.send_signal(signal.SIGINT)
    assert (
        second.end()[2]
        == "tidelog: not started, although the folder has their data: brokers 2, 3\n"
    )


def test_json_is_one_object_when_it_is_ready(up: Callable[..., Up]) -> None:
    running = up("--brokers", "2", "--format", "json", "--one-process")
    assert running.process.stdout
    lines = ""
    while not lines.endswith("\n}\n"):
        lines += running.process.stdout.readline()
    found: dict[str, Any] = json.loads(lines)
    assert found["holds"] is True
    assert found["one_process"] is True
    assert len({broker["pid"] for broker in found["brokers"]}) == 1
    assert found["bootstrap"] == ",".join(f"localhost:{b['port']}" for b in found["brokers"])
    running.process.send_signal(signal.SIGINT)
    assert running.end() == (0, "", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a full device")
def test_an_announcement_that_cant_be_written_stops_the_cluster(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        ran = subprocess.run(
            [*TIDELOG, "up", "--port", "0", "--ephemeral"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
    assert ran.returncode != 0
    assert ran.stderr.startswith("tidelog: can't write the result: No space left on device\n")
    assert list(tmp_path.iterdir()) == []


def test_closed_standard_streams_are_not_an_error(tmp_path: Path) -> None:
    words = " ".join([*TIDELOG, "up", "--port", "0", "--ephemeral", "--", "true"])
    ran = subprocess.run(["sh", "-c", f"{words} <&- >&-"], check=False, timeout=PATIENCE_S)
    assert ran.returncode == 0
    assert list(tmp_path.iterdir()) == []


# -- in the background -------------------------------------------------------------------------


def test_a_relative_store_is_in_the_current_folder(data: Path, tmp_path: Path) -> None:
    """The detached supervisor runs in the root folder."""
    words = ("up", "--detach", "--port", "0", "--brokers", "1", "--store", "sqlite:own.db")
    began = tidelog(*words)
    try:
        assert began.returncode == 0, began.stderr
        assert (tmp_path / "own.db").exists()
        assert (data / "store-url").read_text() == f"sqlite:{tmp_path / 'own.db'}\n"
    finally:
        tidelog("down")


def test_detached_cluster_continues_after_the_command_returns(data: Path) -> None:
    began = tidelog("up", "--detach", "--port", "0", "--brokers", "2")
    assert began.returncode == 0, began.stderr
    assert "stop       tidelog down\n" in began.stdout
    found = up_file.read(str(data))
    assert found
    try:
        assert found.alive()
        assert os.getsid(found.pid) == found.pid
        told: list[dict[str, Any]] = []

        def seen() -> bool:
            shown = tidelog("status", "--format", "json")
            told[:] = json.loads(shown.stdout)["brokers"]
            return shown.returncode == 0

        eventually(seen)
        assert [b["state"] for b in told] == ["up", "up"]
        assert [b["controller"] for b in told] == [True, False]
    finally:
        ended = tidelog("down")
    assert ended.returncode == 0
    assert "stopped 2 brokers" in ended.stdout
    assert all_gone(found)
    again = tidelog("down")
    assert again.returncode == 0
    assert "nothing is up" in again.stdout


def test_detached_ephemeral_cluster_leaves_no_files(tmp_path: Path) -> None:
    began = tidelog(
        "up", "--detach", "--port", "0", "--ephemeral", "--brokers", "1", "--format", "json"
    )
    assert began.returncode == 0, began.stderr
    folder = json.loads(began.stdout)["data"]
    assert tidelog("down", "--data", folder).returncode == 0
    eventually(lambda: list(tmp_path.iterdir()) == [])


def test_down_removes_files_of_a_killed_supervisor(tmp_path: Path) -> None:
    words = ("--detach", "--port", "0", "--ephemeral", "--brokers", "1", "--format", "json")
    folder = json.loads(tidelog("up", *words).stdout)["data"]
    found = up_file.read(folder)
    assert found
    os.kill(found.pid, signal.SIGKILL)
    eventually(lambda: all_gone(found))
    assert tidelog("down", "--data", folder).returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_failure_of_a_detached_start_is_reported(tmp_path: Path) -> None:
    began = tidelog("up", "--detach", "--port", "0", "--ephemeral", "--racks", "a,b,fails")
    assert began.returncode == 1
    assert began.stderr == "tidelog: broker 3 did not start: the rack says so\n"
    assert list(tmp_path.iterdir()) == []


def test_down_kills_brokers_that_do_not_stop(up: Callable[..., Up]) -> None:
    running = up("--brokers", "2", "--racks", "a,deaf")
    found = running.ready()
    ended = tidelog("down", "--wait", "0.5", "--format", "json")
    assert ended.returncode == 1
    assert pids(found)[1] in json.loads(ended.stdout)["killed"]
    assert all_gone(found)
    assert running.end()[0] == -signal.SIGKILL


def test_status_and_down_without_a_running_cluster(tmp_path: Path) -> None:
    here = tidelog("status")
    assert here.returncode == 1
    assert re.search(r"tidelog-data; start one: tidelog up[;\n]", here.stdout)
    there = tidelog("status", "--data", "other").stdout
    assert f"start one: tidelog up --data {tmp_path / 'other'}" in there
    missing = tidelog("down")
    assert missing.returncode == 2
    assert "folder tidelog-data does not exist" in missing.stderr
