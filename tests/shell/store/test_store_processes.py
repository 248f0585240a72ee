"""The store shared by processes, some of which are killed or stopped while they use it."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import pytest
from blocking_store import GIVE_UP_S, PATIENCE_S, LocalClient
from worker_process import Start, Worker

from tidelog.core.controller.metadata.metadata_store import (
    Batch,
    Put,
    TxnResult,
    Unavailable,
)
from tidelog.shell.store import cluster_file, sqlite_store_client
from tidelog.shell.store.log_dir_lock import LogDirLock
from tidelog.shell.store.sqlite_store_client import WakeSocket
from tidelog.shell.store.write_lock_holder import Process, holds_write_lock, this_process

T = TypeVar("T")
linux_only = pytest.mark.skipif(
    not Path("/proc/self/fdinfo").exists(), reason="only Linux says who holds a lock"
)


@pytest.fixture
def start() -> Iterator[Start]:
    """Provide a function that starts workers; all are ended with the test."""
    workers: list[Worker] = []

    def start(*words: object) -> Worker:
        workers.append(Worker(*words))
        return workers[-1]

    yield start
    for worker in workers:
        worker.end()


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "cluster.db")
    cluster_file.prepare(path)
    return path


@pytest.fixture
def client(path: str, tmp_path: Path) -> Iterator[LocalClient]:
    """It takes no writer for stuck that only got no CPU."""
    with closing(LocalClient(path, stuck_after_ms=600_000)) as client:
        yield client


@pytest.fixture
def strict_client(path: str) -> Iterator[LocalClient]:
    """A client that kills a writer which is stuck for a second, and whose calls give up."""
    with closing(LocalClient(path, stuck_after_ms=900, patience_s=GIVE_UP_S)) as client:
        yield client


def available(call: Callable[[], T | Unavailable]) -> T:
    """The answer to a call that is repeated if its thread got no CPU for a second."""
    give_up = time.monotonic() + PATIENCE_S
    while isinstance(answer := call(), Unavailable):
        assert time.monotonic() < give_up
    return answer


def keys(client: LocalClient) -> set[str]:
    return {kv.key for kv in client.read().kvs}


def log_dir(tmp_path: Path, name: str) -> Path:
    (tmp_path / name).mkdir()
    return tmp_path / name


def test_no_change_is_lost_or_duplicated_when_a_writer_is_killed(
    start: Start, path: str, client: LocalClient, tmp_path: Path
) -> None:
    before = client.read()
    seen = client.watch(before.rev)
    members = [
        start("member", path, log_dir(tmp_path, f"b{n}"), 60_000, writes)
        for n, writes in enumerate((150, 150, 1_000_000))
    ]
    victim = members.pop()
    assert victim.said() == "ready"
    assert client.until(lambda: any(f"rows/{victim.process.pid}/" in str(b) for b in seen.batches))
    victim.kill()
    client.client.probe_deaths()
    assert client.until(lambda: victim.key in _deleted(seen.batches))
    for member in members:
        assert (member.said(), member.said()) == ("ready", "done")
    after = client.read()
    assert client.until(lambda: seen.batches[-1].rev == after.rev)
    revisions = [batch.rev for batch in seen.batches]
    assert revisions == list(range(before.rev + 1, after.rev + 1))
    assert seen.image(before) == {kv.key: kv for kv in after.kvs}
    rows = [kv.key for kv in after.kvs if kv.key.startswith("rows/")]
    counted = [c.kv for b in seen.batches for c in b.changes if c.key == "counter" and c.kv]
    assert len(rows) >= 300
    assert int(counted[-1].value) == len(counted) == len(rows)
    assert keys(client) >= {member.key for member in members}


def _deleted(batches: list[Batch]) -> set[str]:
    return {c.key for b in batches for c in b.changes if c.kv is None}


def test_a_free_lock_ends_a_session_at_once(
    start: Start, path: str, client: LocalClient, tmp_path: Path
) -> None:
    member = start("member", path, log_dir(tmp_path, "b1"), 60_000, 0)
    assert member.said() == "ready"
    before = client.read().rev
    assert client.probe() == before
    assert member.key in keys(client)
    seen = client.watch(before)
    member.kill()
    killed = time.monotonic()
    assert client.probe() == client.read().rev == before + 1
    assert client.until(lambda: seen.batches)
    assert time.monotonic() - killed < 45  # and not the sixty of the session
    assert member.key not in keys(client)


def test_a_death_without_a_probe_is_detected_before_the_session_ends(
    start: Start, path: str, client: LocalClient, tmp_path: Path
) -> None:
    member = start("member", path, log_dir(tmp_path, "b1"), 60_000, 0)
    assert member.said() == "ready"
    seen = client.watch(client.read().rev)
    member.kill()
    assert client.until(lambda: member.key in _deleted(seen.batches), 45)  # its session: 60 s


def test_a_new_file_at_the_locks_place_proves_nothing(
    start: Start, path: str, client: LocalClient, tmp_path: Path
) -> None:
    folder = log_dir(tmp_path, "b1")
    member = start("member", path, folder, 60_000, 0)
    assert member.said() == "ready"
    (folder / ".lock").unlink()
    (folder / ".lock").touch()
    client.client.probe_deaths()
    assert member.key in keys(client)
    lock = LogDirLock.acquire(str(folder))
    with closing(LocalClient(path, lock.path)) as second:
        second.open_session()
        assert member.key in keys(client)
    lock.release()


def test_a_broker_started_again_ends_its_earlier_session(
    start: Start, path: str, client: LocalClient, tmp_path: Path
) -> None:
    folder = log_dir(tmp_path, "b1")
    member = start("member", path, folder, 60_000, 0)
    assert member.said() == "ready"
    member.kill()
    lock = LogDirLock.acquire(str(folder))
    with closing(LocalClient(path, lock.path)) as again:
        session = again.open_session()
        assert member.key not in keys(client)
        again.close_session(session)
    lock.release()


def test_without_a_lock_a_dead_broker_is_removed_when_its_session_expires(
    start: Start, path: str, client: LocalClient
) -> None:
    seen = client.watch(client.read().rev)
    began = time.monotonic()
    member = start("member", path, "", 2_000, 0)
    assert member.said() == "ready"
    member.kill()
    client.client.probe_deaths()
    assert client.until(lambda: _deleted(seen.batches))
    assert _deleted(seen.batches) == {member.key}
    assert time.monotonic() - began >= 2


def test_a_change_by_another_process_is_noticed_without_polling(
    start: Start, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a datagram can wake this client in time."""
    monkeypatch.setattr(sqlite_store_client, "_LOOK_EVERY_S", 60.0)
    with closing(LocalClient(path)) as client:
        seen = client.watch(client.read().rev)
        member = start("member", path, "", 60_000, 50)
        assert (member.said(), member.said()) == ("ready", "done")
        assert client.until(lambda: len(seen.batches) == 51, 45)


def test_a_lost_datagram_costs_a_second(
    path: str, client: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    wake = WakeSocket.wake

    def wake_only_oneself(socket: WakeSocket, port: int) -> None:
        if port == socket.port:
            wake(socket, port)

    monkeypatch.setattr(WakeSocket, "wake", wake_only_oneself)
    with closing(LocalClient(path)) as other:
        seen = other.watch(other.read().rev)
        assert not other.until(lambda: seen.batches, 0.1)
        client.transact((), (Put("a", b""),))
        assert other.until(lambda: seen.batches)


def test_a_writer_killed_inside_a_transaction_does_not_matter(
    start: Start, path: str, client: LocalClient
) -> None:
    holder = start("holder", path, "hung")
    assert holder.said() == "ready"
    holder.kill()
    assert isinstance(client.transact((), (Put("a", b""),)), TxnResult)
    assert "half" not in keys(client)


@linux_only
def test_a_holder_stopped_in_a_transaction_is_killed(
    start: Start, path: str, strict_client: LocalClient
) -> None:
    client = strict_client
    holder = start("holder", path, "stopped")
    assert holder.said() == "ready"
    began = time.monotonic()
    while not isinstance(client.transact((), (Put("a", b""),)), TxnResult):
        assert time.monotonic() - began < PATIENCE_S
    assert time.monotonic() - began > 0.25
    assert holder.process.wait(PATIENCE_S) == -signal.SIGKILL
    found = available(client.try_read)
    assert {kv.key for kv in found.kvs} == {"meta/cluster", "a"}
    assert client.until(lambda: client.reports)
    assert f"killed process {holder.process.pid}" in client.reports[0]


@linux_only
def test_a_holder_that_hangs_in_a_transaction_is_killed_later(
    start: Start, path: str, tmp_path: Path
) -> None:
    """The call is answered in time, and the client frees the store later."""
    with closing(LocalClient(path, stuck_after_ms=1_500, patience_s=GIVE_UP_S)) as client:
        holder = start("holder", path, "hung")
        assert holder.said() == "ready"
        began = time.monotonic()
        assert client.transact((), (Put("a", b""),)) == Unavailable()
        assert time.monotonic() - began > 0.9
        assert client.until(lambda: client.reports)
        assert time.monotonic() - began > 1.5
        assert holder.process.wait(PATIENCE_S) == -signal.SIGKILL
        assert isinstance(available(lambda: client.transact((), (Put("a", b""),))), TxnResult)


@linux_only
def test_a_stranger_is_reported_and_left_alone(
    start: Start, path: str, client: LocalClient, strict_client: LocalClient
) -> None:
    holder = start("holder", path, "stranger")
    assert holder.said() == "ready"
    assert strict_client.transact((), (Put("a", b""),)) == Unavailable()
    assert strict_client.until(lambda: strict_client.reports)
    assert "not a known broker" in strict_client.reports[0]
    assert holder.process.poll() is None
    assert available(client.try_read).rev == 1  # who reads is not blocked
    holder.kill()
    assert isinstance(available(lambda: client.transact((), (Put("a", b""),))), TxnResult)


@linux_only
def test_only_the_same_process_counts_as_the_holder(start: Start, path: str) -> None:
    holder = start("holder", path, "hung")
    assert holder.said() == "ready"
    pid = holder.process.pid
    assert holds_write_lock(Process(pid, _started(pid)), path)
    assert not holds_write_lock(Process(pid, "12345"), path)
    assert not holds_write_lock(Process(pid, ""), path)
    assert not holds_write_lock(Process(os.getppid(), _started(os.getppid())), path)
    assert not holds_write_lock(this_process(), path)
    assert not holds_write_lock(Process(pid, _started(pid)), path + "-other")


def test_sessions_survive_a_time_in_which_no_client_could_renew(
    path: str,
) -> None:
    with (
        closing(LocalClient(path, stuck_after_ms=600_000, patience_s=GIVE_UP_S)) as client,
        closing(cluster_file.connect(path, 0.0)) as holder,
    ):
        session = client.open_session(4_000)
        expires_s = time.monotonic() + 4
        available(lambda: client.transact((), (Put("mine", b"", session),)))
        holder.execute("BEGIN IMMEDIATE")
        assert client.renew(session) == Unavailable()
        # Must stay: the blocked store shows nothing while the session's time passes.
        time.sleep(max(0.0, expires_s - time.monotonic()))
        holder.execute("ROLLBACK")
        available(lambda: client.renew(session))
        assert "mine" in keys(client)


def test_three_brokers_may_prepare_the_store_at_once(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "new" / "cluster.db"
    moment = time.time() + 0.4
    preparers = [start("preparer", path, moment) for _ in range(3)]
    answers = {preparer.said() for preparer in preparers}
    assert len(answers) == 1
    identity = cluster_file.prepare(str(path))
    assert answers == {f"{identity.cluster_id} {identity.secret}"}
    assert [entry.name for entry in path.parent.iterdir()] == ["cluster.db"]


def _started(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
