"""Other processes that use a store in tests: `python store_worker.py ROLE PATH ...`.

Each prints "ready" on its standard output when it has reached the state that the test waits for.
"""

import os
import pickle
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path

from blocking_store import PATIENCE_S, BlockingStore, LocalClient

from tidelog.core.controller.metadata.metadata_store import (
    Delete,
    Guard,
    OutcomeUnknown,
    Put,
    TxnResult,
)
from tidelog.shell.store import cluster_file
from tidelog.shell.store.log_dir_lock import LockProof, LogDirLock
from tidelog.shell.store.sqlite_store import SqliteStore
from tidelog.shell.store.write_transaction import WriteTransaction


def ready(text: str = "ready") -> None:
    print(text, flush=True)  # noqa: T201


def member(path: str, log_dir: str, ttl_ms: str, writes: str) -> None:
    """Act as a broker: take a lock, open a session, write a key, count, then wait."""
    lock = LogDirLock.acquire(log_dir) if log_dir else None
    client = LocalClient(path, lock.path if lock else "")
    name = f"ids/{os.getpid()}"
    session = client.open_session(int(ttl_ms))
    client.transact((Guard(name, 0),), (Put(name, b"", session),))
    ready()
    count(client, int(writes))
    ready("done")
    sys.stdin.read()
    client.close()


def count(client: LocalClient, writes: int) -> None:
    """Raise the counter and add a row for it, each time in one guarded transaction."""
    rev, value = 0, 0
    for number in range(writes):
        row = f"rows/{os.getpid()}/{number:06d}"
        while True:
            ops = (Put("counter", b"%d" % (value + 1)), Put(row, b""))
            answer = client.transact((Guard("counter", rev),), ops)
            assert not isinstance(answer, OutcomeUnknown)
            if isinstance(answer, TxnResult) and answer.ok:
                rev, value = answer.rev, value + 1
                break
            if isinstance(answer, TxnResult):
                kv = answer.now("counter")
                rev, value = (0, 0) if kv is None else (kv.mod_rev, int(kv.value))


def holder(path: str, manner: str) -> None:
    """Hold the write lock in a transaction: stopped, hung, or as another program."""
    if manner == "stranger":
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        ready()
        sys.stdin.read()
        return
    store = SqliteStore(path, LockProof(), 9, 9_000, lambda _text: None)
    store.write(time.monotonic() + PATIENCE_S, lambda _tx: None)  # now the store knows this process

    def keep(transaction: WriteTransaction) -> None:
        transaction.transact((), (Put("half", b"done"),))
        ready()
        if manner == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        sys.stdin.read()

    store.write(time.monotonic() + PATIENCE_S, keep)
    store.close()
    ready("went on")


def server() -> None:
    """Carry out pickled calls of the test, and return pickled results."""
    store: BlockingStore | None = None
    while True:
        try:
            name, args = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        if name == "open":
            store, answer = BlockingStore(Path(args[0]), clients=1), None
        elif name == "die":
            answer = None
            die_in_a_transaction(*args)
        else:
            try:
                answer = getattr(store, name)(*args)
            except ValueError as error:
                answer = error
        pickle.dump(answer, sys.stdout.buffer)
        sys.stdout.buffer.flush()


def die_in_a_transaction(path: str) -> None:
    """Start a process that is killed in the middle of a transaction."""
    hear, tell = os.pipe()
    child = os.fork()
    if child == 0:
        store = SqliteStore(path, LockProof(), 9, 9_000, lambda _text: None)

        def half(transaction: WriteTransaction) -> None:
            transaction.transact((), (Put("half", b"x" * 10_000), Delete("", prefix=True)))
            os.write(tell, b"!")
            time.sleep(600)

        try:
            store.write(time.monotonic() + PATIENCE_S, half)
        finally:
            os._exit(1)
    os.close(tell)
    begun = os.read(hear, 1)
    os.close(hear)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert begun == b"!"


def preparer(path: str, start_at: str) -> None:
    """Call prepare at a given moment."""
    time.sleep(max(0.0, float(start_at) - time.time()))
    ready(" ".join(cluster_file.prepare(path)))


if __name__ == "__main__":
    roles: dict[str, Callable[..., None]] = {
        "member": member,
        "holder": holder,
        "preparer": preparer,
        "server": server,
    }
    roles[sys.argv[1]](*sys.argv[2:])
