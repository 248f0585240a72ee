"""The client of a SQLite metadata store: a thread that carries out a broker's calls.

Invariants: every call is answered once, through `deliver`, in the order of the calls. A call that
can't access the file within a second is answered Unavailable. A watch delivers each revision once
and in order.

The thread sleeps until a call, another process's commit (which sends a datagram) or the end of a
session wakes it. Once a second it checks by itself, in case a datagram was lost or a broker died
unnoticed.
"""

import _thread
import select
import socket
import sqlite3
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from signal import SIG_BLOCK, SIG_SETMASK, SIGCHLD, SIGHUP, SIGINT, SIGTERM, pthread_sigmask
from typing import Any, NamedTuple

from tidelog.core.controller.metadata.metadata_store import (
    Batch,
    Compacted,
    Guard,
    Operation,
    OutcomeUnknown,
    Revision,
    SessionExpired,
    SessionId,
    TxnAnswer,
    Unavailable,
    check_limits,
)
from tidelog.shell.clock import boot_ms
from tidelog.shell.store.cluster_file import unusable
from tidelog.shell.store.metadata_store_client import (
    Opened,
    ReadAnswered,
    RenewalAnswered,
    Renewed,
    SessionGrant,
    Transacted,
)
from tidelog.shell.store.proof_of_death import Probed, ProofOfDeath
from tidelog.shell.store.sqlite_store import CommitUnknown, SqliteStore, StoreBusy
from tidelog.shell.store.store_backend import StoreError
from tidelog.shell.store.write_transaction import WriteTransaction

PATIENCE_S = 1.0
"""How long a call waits for the file, including its time in the queue."""
STUCK_AFTER_MS = 9_000
_LOOK_EVERY_MS = 1_000
_LOOK_EVERY_S = _LOOK_EVERY_MS / 1000
_RETRY_S = 0.2
"""The interval of retries while writes are blocked, and the time limit of each."""
_JOIN_S = 3.0
_FAILURES = (StoreBusy, StoreError, sqlite3.Error, OSError)


class _Call(NamedTuple):
    """A call in the queue of the thread."""

    give_up_s: float
    act: Callable[[float], object]
    answered: Callable[[Any], None]
    unknown: object
    """The answer if it is unknown whether the commit succeeded."""


class _Watch(NamedTuple):
    number: int
    after: Revision
    changed: Callable[[Batch], None]
    lost: Callable[[], None]


class SqliteStoreClient:
    """A MetadataStoreClient and DeathProbe on one SQLite file, for the host's thread."""

    def __init__(
        self,
        path: str,
        proof: ProofOfDeath,
        now_ms: Callable[[], int],
        deliver: Callable[[Callable[[], None]], None],
        *,
        stuck_after_ms: int = STUCK_AFTER_MS,
        patience_s: float = PATIENCE_S,
        report: Callable[[str], None] | None = None,
    ) -> None:
        self._proof = proof
        self._now_ms = now_ms
        self._deliver = deliver
        self._report = report
        self._patience_s = patience_s
        self._calls: deque[_Call | _Watch] = deque()
        self._signalled = False
        self._closing = False
        self._watch_number = 0
        self._watch: _Watch | None = None
        self._stale = True
        self._next_expiry_ms: int | None = None
        self._probe_s = 0.0
        self._wake = WakeSocket()
        self._failures = StoreFailureLog(path, self._warn)
        self._store = SqliteStore(path, proof, self._wake.port, stuck_after_ms, self._warn)
        self._ended = _thread.allocate_lock()  # cheaper to import than threading
        self._ended.acquire()
        # A signal that the kernel gave to this thread would not wake the host's.
        before = pthread_sigmask(SIG_BLOCK, (SIGHUP, SIGINT, SIGTERM, SIGCHLD))
        _thread.start_new_thread(self._run, ())
        pthread_sigmask(SIG_SETMASK, before)

    # -- the host's thread -----------------------------------------------------------------

    def open_session(self, ttl_ms: int, answered: Opened) -> None:
        """Open a session; an earlier one with the same life sign ends."""
        act = partial(self._open_session, ttl_ms, self._now_ms())
        self._submit(act, answered)

    def renew_session(self, session: SessionId, answered: RenewalAnswered) -> None:
        """Restart the session's time to live."""
        self._submit(partial(self._renew_session, session, self._now_ms()), answered)

    def close_session(self, session: SessionId, done: Callable[[], None] | None = None) -> None:
        """End the session and its keys."""
        self._submit(partial(self._end_session, session), _ignoring(done))

    def read(self, earlier: Revision, answered: ReadAnswered) -> None:
        """Read all keys, and the checksum of the history at `earlier`."""
        self._submit(partial(self._store.snapshot, earlier=earlier), answered)

    def watch(
        self, after: Revision, changed: Callable[[Batch], None], lost: Callable[[], None]
    ) -> None:
        """Watch every revision after this one; replaces an earlier watch."""
        self._watch_number += 1
        self._post(_Watch(self._watch_number, after, changed, lost))

    def transact(
        self, guards: tuple[Guard, ...], ops: tuple[Operation, ...], answered: Transacted
    ) -> None:
        """Apply all operations at one revision if every guard holds."""
        check_limits(guards, ops)
        self._submit(partial(self._transact, guards, ops), answered, OutcomeUnknown())

    def probe_deaths(self, answered: Probed | None = None) -> None:
        """End the sessions of brokers that are proved dead."""
        self._submit(self._probe_deaths, answered or _ignoring(None))

    def compact(self, rev: Revision, done: Callable[[], None] | None = None) -> None:
        """Delete the changes up to a revision."""
        act = partial(self._store.write, body=lambda tx: tx.compact(rev))
        self._submit(act, _ignoring(done))

    def close(self) -> None:
        """Answer the pending calls, then stop the thread."""
        self._closing = True
        self._wake.wake(self._wake.port)
        if self._ended.acquire(timeout=_JOIN_S):
            self._ended.release()

    def _submit(
        self,
        act: Callable[[float], object],
        answered: Callable[[Any], None],
        unknown: object = Unavailable(),
    ) -> None:
        self._post(_Call(time.monotonic() + self._patience_s, act, answered, unknown))

    def _post(self, call: _Call | _Watch) -> None:
        self._calls.append(call)
        if self._closing:
            self._refuse_all()
        elif not self._signalled:
            self._signalled = True
            self._wake.wake(self._wake.port)

    def _refuse_all(self) -> None:
        with suppress(IndexError):
            while True:
                self._refuse(self._calls.popleft())

    def _refuse(self, call: _Call | _Watch) -> None:
        if isinstance(call, _Call):
            self._deliver(partial(call.answered, Unavailable()))

    def _notify(self, watch: _Watch, news: Batch | None) -> None:
        """On the host's thread: call a watch, unless it was replaced meanwhile."""
        if watch.number == self._watch_number:
            if news is None:
                watch.lost()
            else:
                watch.changed(news)

    # -- the store's thread ----------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._closing:
                self._wake.wait(self._sleep_s())
                self._serve()
                self._look()
            self._serve()
        except Exception as error:  # noqa: BLE001 - a broker without a store must stop
            self._deliver(partial(_fail, error))
        finally:
            self._closing = True
            try:
                self._refuse_all()
            finally:
                self._store.close()
                self._wake.close()
                self._ended.release()

    def _sleep_s(self) -> float:
        if self._store.blocked_ms is not None:
            return _RETRY_S
        if self._next_expiry_ms is None:
            return _LOOK_EVERY_S
        return min(_LOOK_EVERY_S, (self._next_expiry_ms - boot_ms()) / 1000)

    def _serve(self) -> None:
        self._signalled = False
        while self._calls:
            call = self._calls.popleft()
            if isinstance(call, _Watch):
                self._watch = call
                self._stale = True
            else:
                self._deliver(partial(call.answered, self._answer(call)))

    def _answer(self, call: _Call) -> object:
        try:
            answer = call.act(call.give_up_s)
        except CommitUnknown as error:
            self._failures.failed(error.__cause__)
            return call.unknown
        except _FAILURES as error:
            self._failures.failed(error)
            return Unavailable()
        if self._store.committed:
            self._failures.over()
        self._wake_others()
        return answer

    def _wake_others(self) -> None:
        for port in self._store.to_wake:
            self._wake.wake(port)
        self._store.to_wake = []

    def _look(self) -> None:
        """Work without a call: end expired sessions, pass changes to the watch."""
        try:
            self._end_dead_sessions()
        except (CommitUnknown, *_FAILURES) as error:
            self._failures.failed(error.__cause__ if isinstance(error, CommitUnknown) else error)
            self._next_expiry_ms = boot_ms() + _LOOK_EVERY_MS
        try:
            if self._store.changed_by_others() or self._store.committed or self._stale:
                self._stale = self._store.committed = False
                self._next_expiry_ms = self._store.next_expiry_ms()
                self._pull()
        except _FAILURES as error:
            self._failures.failed(error)
            self._stale = True

    def _end_dead_sessions(self) -> None:
        unused = self._watch is None and not self._store.registered
        if unused and self._store.blocked_ms is None:
            return  # this broker has not accepted the store yet (store_follower.py)
        now_s = time.monotonic()
        give_up_s = now_s + _RETRY_S
        if self._store.blocked_ms is not None:
            self._sweep(give_up_s)
            self._probe_s = 0.0  # the process that blocks the file may be dead
        elif self._watch is not None and not self._store.registered:
            self._sweep(give_up_s)  # a first write registers the wake-up port
        if now_s >= self._probe_s:
            self._probe_s = now_s + _LOOK_EVERY_S
            self._probe_deaths(give_up_s)
        if self._is_session_over():
            self._next_expiry_ms = self._store.next_expiry_ms()  # it may have been renewed
            if self._is_session_over():
                self._sweep(give_up_s)

    def _is_session_over(self) -> bool:
        return self._next_expiry_ms is not None and self._next_expiry_ms <= boot_ms()

    def _sweep(self, give_up_s: float) -> None:
        """End expired sessions, as every write transaction does."""
        self._store.write(give_up_s, lambda _transaction: None)
        self._wake_others()

    def _pull(self) -> None:
        """Pass new revisions to the watch."""
        if self._watch is None:
            return
        news = self._store.changes_after(self._watch.after, time.monotonic())
        if isinstance(news, Compacted):
            self._deliver(partial(self._notify, self._watch, None))
            self._watch = None
            return
        for batch in news:
            self._deliver(partial(self._notify, self._watch, batch))
        if news:
            self._watch = self._watch._replace(after=news[-1].rev)

    # -- the calls ---------------------------------------------------------------------

    def _open_session(self, ttl_ms: int, sent_ms: int, give_up_s: float) -> SessionGrant:
        sign = self._proof.own()
        session = self._store.write(give_up_s, lambda tx: tx.open_session(ttl_ms, *sign))
        return SessionGrant(session, sent_ms)

    def _renew_session(
        self, session: SessionId, sent_ms: int, give_up_s: float
    ) -> Renewed | SessionExpired:
        alive = self._store.write(give_up_s, lambda tx: tx.renew_session(session))
        return Renewed(sent_ms) if alive else SessionExpired()

    def _end_session(self, session: SessionId, give_up_s: float) -> None:
        self._store.write(give_up_s, lambda tx: tx.end_session(session))

    def _transact(
        self, guards: tuple[Guard, ...], ops: tuple[Operation, ...], give_up_s: float
    ) -> TxnAnswer:
        return self._store.write(give_up_s, lambda tx: tx.transact(guards, ops))

    def _probe_deaths(self, give_up_s: float) -> Revision:
        dead = self._store.dead()
        if not dead:
            return self._store.revision(give_up_s)

        def end_sessions(transaction: WriteTransaction) -> Revision:
            for session, lock in dead:
                transaction.end_session(session)
                transaction.forget_clients(lock)
            return transaction.rev

        revision = self._store.write(give_up_s, end_sessions)
        self._wake_others()
        return revision

    def _warn(self, text: str) -> None:
        if self._report is not None:
            self._deliver(partial(self._report, text))


def _fail(error: Exception) -> None:
    """On the host's thread, where the error ends the process and is logged."""
    raise RuntimeError("the metadata store's thread failed") from error


def _ignoring(done: Callable[[], None] | None) -> Callable[[object], None]:
    """A callback that ignores the answer."""
    return lambda _answer: None if done is None else done()


class WakeSocket:
    """A datagram socket on loopback by which other threads and processes wake this thread.

    A datagram has no content. A lost one costs only time, because the thread also checks by itself.
    """

    __slots__ = ("_poll", "_socket", "port")

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)

    def wait(self, timeout_s: float) -> None:
        """Sleep until a datagram arrives or the time is over."""
        if self._poll.poll(max(0.0, timeout_s * 1000)):
            with suppress(BlockingIOError):
                while True:
                    self._socket.recv(1)

    def wake(self, port: int) -> None:
        """Wake the client at that port, if there is one."""
        with suppress(OSError):
            self._socket.sendto(b"", ("127.0.0.1", port))

    def close(self) -> None:
        self._socket.close()


AGAIN_S = 60.0


class StoreFailureLog:
    """Logs a failing store: each cause once a minute, not at every retry.

    A broker retries several times a second. A store that is only locked is not logged here
    (write_lock_holder.py).
    """

    __slots__ = ("_failing", "_logged", "_path", "_warn")

    def __init__(self, path: str, warn: Callable[[str], None]) -> None:
        self._path = path
        self._warn = warn
        self._logged: dict[str, float] = {}
        """When each line was last logged: two causes may alternate."""
        self._failing = False

    def failed(self, error: BaseException | None) -> None:
        """Log a failed call. Only failures of the file itself are logged."""
        if isinstance(error, OSError | sqlite3.Error):
            error = unusable(self._path, error)
        if not isinstance(error, StoreError):
            return
        text, now = str(error), time.monotonic()
        self._failing = True
        self._logged = {cause: at for cause, at in self._logged.items() if now - at < AGAIN_S}
        if text not in self._logged:
            self._logged[text] = now
            self._warn(f"{text}; retrying; leaders without followers stop when the session ends")

    def over(self) -> None:
        """A write succeeded."""
        if self._failing:
            self._failing = False
            self._warn(f"metadata store {self._path}: works again")
