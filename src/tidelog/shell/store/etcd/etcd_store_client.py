"""The client of a metadata store on etcd: four threads that carry out a broker's calls.

One thread reads and writes, one renews sessions, one ends the sessions of dead and silent
brokers, one follows the changes. Each has connections of its own, so nothing that waits for a
frozen node delays a renewal.

Invariants: every call is answered once, through `deliver`. Transactions and reads are answered in
the order of the calls. A session's deadline counts from before its renewal was sent.
"""

import _thread
import time
from _queue import Empty, SimpleQueue  # without `threading`, which costs time at the start
from collections.abc import Callable
from functools import partial
from signal import SIG_BLOCK, SIG_SETMASK, SIGCHLD, SIGHUP, SIGINT, SIGTERM, pthread_sigmask
from typing import Any, NamedTuple

from tidelog.core.controller.metadata.metadata_store import (
    Batch,
    Guard,
    Operation,
    OutcomeUnknown,
    Revision,
    SessionExpired,
    SessionId,
    Snapshot,
    TxnAnswer,
    Unavailable,
    check_limits,
)
from tidelog.core.controller.metadata.silent_sessions import SilentSessions
from tidelog.shell.clock import boot_id
from tidelog.shell.store.etcd.address import EtcdAddress
from tidelog.shell.store.etcd.etcd_store import EtcdStore
from tidelog.shell.store.etcd.gateway import (
    EtcdError,
    Gateway,
    Nodes,
    NodesUnavailable,
    OutcomeLost,
)
from tidelog.shell.store.etcd.records import decode_renewal, decode_sign
from tidelog.shell.store.etcd.watch_stream import SignChange, Watch, WatchEvents, WatchStream
from tidelog.shell.store.metadata_store_client import (
    Opened,
    ReadAnswered,
    RenewalAnswered,
    Renewed,
    SessionGrant,
    Transacted,
)
from tidelog.shell.store.proof_of_death import LifeSign, Probed, ProofOfDeath
from tidelog.shell.store.store_backend import StoreError

PATIENCE_S = 3.0
"""How long a call may take, including its time in the queue: an election takes a second or two."""
READ_S = 15.0
_LOOK_EVERY_S = 1.0
_MEMBERS_EVERY_S = 300.0
_PROBE_S = 1.0
"""How long a probe waits until the watch shows that a session has ended."""
_JOIN_S = 5.0
_FAILURES = (EtcdError, NodesUnavailable, StoreError)
_STOP_SIGNALS = (SIGHUP, SIGINT, SIGTERM, SIGCHLD)
AGAIN_S = 60.0


class _Call(NamedTuple):
    """A call in the queue of a thread."""

    give_up_s: float
    act: Callable[[float], object]
    answered: Callable[[Any], None]


class _Probe(NamedTuple):
    """A probe that waits until the watch has shown the end of these sessions."""

    sessions: frozenset[SessionId]
    answered: Probed
    give_up_s: float


class EtcdStoreClient:
    """A MetadataStoreClient and DeathProbe on etcd, for the host's thread."""

    def __init__(
        self,
        address: EtcdAddress,
        proof: ProofOfDeath,
        now_ms: Callable[[], int],
        deliver: Callable[[Callable[[], None]], None],
        *,
        report: Callable[[str], None] | None = None,
    ) -> None:
        self._proof = proof
        self._now_ms = now_ms
        self._deliver = deliver
        self._report = report
        self._boot = boot_id()
        self._nodes = Nodes(address)
        self._store = EtcdStore(Gateway(self._nodes))
        self._sessions = EtcdStore(Gateway(self._nodes))
        self._deaths = EtcdStore(Gateway(self._nodes))
        self._failures = FailureLog(address.url, self._warn)
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._session_calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._probes: SimpleQueue[_Call | None] = SimpleQueue()
        self._closing = False
        self._watch_number = 0
        self._delivered: Revision = 0
        self._lock = _thread.allocate_lock()
        """Guards the signs, the renewals and the waiting probes."""
        self._signs: dict[SessionId, LifeSign] = {}
        self._renewals = SilentSessions()
        self._condemned: set[SessionId] = set()
        """Silent sessions that can't be renewed any more and must be ended; of one thread."""
        self._waiting: list[_Probe] = []
        self._members_s = 0.0
        events = WatchEvents(self._changed, self._lost, self._failures.failed, self._end_probes)
        self._stream = WatchStream(Gateway(self._nodes), events)
        threads: tuple[Callable[[], None], ...] = (
            partial(self._run_calls, self._calls, self._store),
            partial(self._run_calls, self._session_calls, self._sessions),
            self._run_probes,
            self._stream.run,
        )
        self._ended = [_thread.allocate_lock() for _ in threads]
        # A signal that the kernel gave to one of these threads would not wake the host's.
        before = pthread_sigmask(SIG_BLOCK, _STOP_SIGNALS)
        for body, ended in zip(threads, self._ended, strict=True):
            ended.acquire()
            _thread.start_new_thread(self._run, (body, ended))
        pthread_sigmask(SIG_SETMASK, before)

    # -- the host's thread -----------------------------------------------------------------

    def open_session(self, ttl_ms: int, answered: Opened) -> None:
        """Open a session; an earlier one with the same life sign ends."""
        act = partial(self._open_session, ttl_ms, self._now_ms())
        self._submit(self._session_calls, act, answered)

    def renew_session(self, session: SessionId, answered: RenewalAnswered) -> None:
        """Restart the session's time to live."""
        self._submit(self._session_calls, partial(self._renew_session, session), answered)

    def close_session(self, session: SessionId, done: Callable[[], None] | None = None) -> None:
        """End the session and its keys."""
        with self._lock:
            self._renewals.closed()
        act = partial(self._sessions.end_session, session)
        self._submit(self._session_calls, act, _ignoring(done))

    def read(self, earlier: Revision, answered: ReadAnswered) -> None:
        """Read all keys, and the checksum of the history at `earlier`."""
        self._submit(self._calls, partial(self._read, earlier), answered, READ_S)

    def watch(
        self, after: Revision, changed: Callable[[Batch], None], lost: Callable[[], None]
    ) -> None:
        """Watch every revision after this one; replaces an earlier watch."""
        self._watch_number += 1
        self._stream.follow(Watch(self._watch_number, after, changed, lost))

    def transact(
        self, guards: tuple[Guard, ...], ops: tuple[Operation, ...], answered: Transacted
    ) -> None:
        """Apply all operations at one revision if every guard holds."""
        check_limits(guards, ops)
        self._submit(self._calls, partial(self._transact, guards, ops), answered)

    def probe_deaths(self, answered: Probed | None = None) -> None:
        """End the sessions of brokers that are proved dead."""
        act = partial(self._probe_deaths, answered or _ignoring(None))
        self._submit(self._probes, act, answered or _ignoring(None))

    def compact(self, rev: Revision, done: Callable[[], None] | None = None) -> None:
        """Delete the changes up to a revision, of all stores in this etcd."""
        self._submit(self._calls, partial(self._store.compact, rev), _ignoring(done))

    def close(self) -> None:
        """Answer the pending calls, then stop the threads."""
        self._stop()
        give_up_s = time.monotonic() + _JOIN_S
        for ended in self._ended:
            if ended.acquire(timeout=max(0.0, give_up_s - time.monotonic())):
                ended.release()
        self._refuse_all()

    def _stop(self) -> None:
        """Let all threads end after the pending calls."""
        if not self._closing:
            self._closing = True
            for queue in (self._calls, self._session_calls, self._probes):
                queue.put(None)
            self._stream.stop()

    def _submit(
        self,
        queue: "SimpleQueue[_Call | None]",
        act: Callable[[float], object],
        answered: Callable[[Any], None],
        patience_s: float = PATIENCE_S,
    ) -> None:
        if self._closing:
            self._deliver(partial(answered, Unavailable()))
        else:
            queue.put(_Call(time.monotonic() + patience_s, act, answered))

    def _refuse_all(self) -> None:
        for queue in (self._calls, self._session_calls, self._probes):
            while not queue.empty():
                call = queue.get()
                if call is not None:
                    self._deliver(partial(call.answered, Unavailable()))

    # -- the threads -----------------------------------------------------------------------

    def _run(self, body: Callable[[], None], ended: Any) -> None:
        try:
            body()
        except Exception as error:  # noqa: BLE001 - a broker without a store must stop
            self._stop()
            self._deliver(partial(_fail, error))
        finally:
            ended.release()

    def _run_calls(self, calls: "SimpleQueue[_Call | None]", store: EtcdStore) -> None:
        try:
            while (call := calls.get()) is not None:
                self._carry_out(call)
        finally:
            store.gateway.close()

    def _run_probes(self) -> None:
        """Carry out probes, look for silent sessions at their interval, and call `_look` once a
        second, even if probes never pause."""
        look_s = time.monotonic() + _LOOK_EVERY_S
        try:
            while True:
                interval_ms = self._renewals.interval_ms
                wait_s = look_s - time.monotonic()
                if interval_ms is not None:
                    wait_s = min(wait_s, interval_ms / 1000)
                try:
                    call = self._probes.get(timeout=max(0.0, wait_s))
                except Empty:
                    pass
                else:
                    if call is None:
                        return
                    self._carry_out(call)
                self._end_silent_sessions()
                if time.monotonic() >= look_s:
                    self._look()
                    look_s = time.monotonic() + _LOOK_EVERY_S
        finally:
            self._deaths.gateway.close()

    def _carry_out(self, call: _Call) -> None:
        answer = self._answer(call)
        if answer is not _LATER:
            self._deliver(partial(call.answered, answer))

    def _answer(self, call: _Call) -> object:
        try:
            answer = call.act(call.give_up_s)
        except OutcomeLost as error:
            self._failures.failed(error)
            return OutcomeUnknown()
        except _FAILURES as error:
            self._failures.failed(error)
            return Unavailable()
        if answer is not _LATER:  # a probe without a dead broker sends nothing
            self._failures.over()
        return answer

    def _look(self) -> None:
        """Work without a call: find dead brokers, learn the nodes' addresses."""
        now_s = time.monotonic()
        try:
            self._probe_deaths(_ignoring(None), now_s + PATIENCE_S)
            if now_s >= self._members_s:
                self._members_s = now_s + _MEMBERS_EVERY_S
                self._deaths.refresh_nodes(now_s + PATIENCE_S)
        except _FAILURES as error:
            self._failures.failed(error)

    def _end_silent_sessions(self) -> None:
        """End the sessions that their brokers have not renewed in time. Like probes, not before
        this broker has accepted the store."""
        with self._lock:
            silent = self._renewals.silent(self._now_ms()) if self._watch_number else []
        if not silent and not self._condemned:
            return
        give_up_s = time.monotonic() + PATIENCE_S
        try:
            for session, revision in silent:
                if self._deaths.condemn(session, revision, give_up_s):
                    self._condemned.add(session)
            for session in list(self._condemned):
                self._deaths.end_session(session, give_up_s)
                self._condemned.remove(session)
                with self._lock:
                    self._renewals.ended(session)
        except _FAILURES as error:
            self._failures.failed(error)

    # -- reading, writing ------------------------------------------------------------------

    def _read(self, earlier: Revision, give_up_s: float) -> Snapshot:
        contents = self._store.read(give_up_s, earlier)
        now_ms = self._now_ms()
        with self._lock:
            self._signs.clear()
            self._renewals.keep(contents.signs)
            for session, found in contents.signs.items():
                self._note_sign(SignChange(session, found.value, found.mod_rev), now_ms)
        return contents.snapshot

    def _transact(
        self, guards: tuple[Guard, ...], ops: tuple[Operation, ...], give_up_s: float
    ) -> TxnAnswer:
        return self._store.transact(guards, ops, give_up_s)

    # -- sessions --------------------------------------------------------------------------

    def _open_session(self, ttl_ms: int, sent_ms: int, give_up_s: float) -> SessionGrant:
        session = self._sessions.open_session(ttl_ms, self._proof.own(), give_up_s, sent_ms)
        with self._lock:
            self._renewals.opened(session, ttl_ms, self._now_ms())
        return SessionGrant(session, sent_ms)

    def _renew_session(self, session: SessionId, give_up_s: float) -> Renewed | SessionExpired:
        sent_ms = self._sessions.renew_session(session, give_up_s, self._now_ms)
        with self._lock:
            if sent_ms is None:
                self._renewals.closed()
            else:
                self._renewals.renewed(self._now_ms())
        return SessionExpired() if sent_ms is None else Renewed(sent_ms)

    def _probe_deaths(self, answered: Probed, give_up_s: float) -> object:
        """End dead brokers' sessions; the answer follows when the watch has shown it.

        Without a watch nothing is ended: this broker has not accepted the store yet
        (store_follower.py).
        """
        with self._lock:
            known = dict(self._signs) if self._watch_number else {}
        dead = frozenset(s for s, sign in known.items() if self._proof.is_dead(sign))
        if not dead:
            self._deliver(partial(answered, self._delivered))
            return _LATER
        for session in dead:
            self._deaths.end_session(session, give_up_s)
        with self._lock:
            self._waiting.append(_Probe(dead, answered, time.monotonic() + _PROBE_S))
        self._end_probes()
        return _LATER

    def _end_probes(self) -> None:
        """Answer the probes whose sessions have ended, and those that waited too long."""
        now_s = time.monotonic()
        with self._lock:
            if not self._waiting:
                return
            over = [p for p in self._waiting if now_s >= p.give_up_s or not self._known(p)]
            self._waiting = [probe for probe in self._waiting if probe not in over]
            answers = [(p, Unavailable() if self._known(p) else self._delivered) for p in over]
        for probe, answer in answers:
            self._deliver(partial(probe.answered, answer))

    def _known(self, probe: _Probe) -> bool:
        return any(session in self._signs for session in probe.sessions)

    # -- the watch -------------------------------------------------------------------------

    def _changed(self, watch: Watch, batch: Batch | None, signs: list[SignChange]) -> None:
        now_ms = self._now_ms()
        with self._lock:
            for change in signs:
                self._note_sign(change, now_ms)
            if batch is not None:
                self._delivered = batch.rev
        if batch is None:
            return
        self._deliver(partial(self._notify, watch, batch))
        if signs:
            self._end_probes()

    def _note_sign(self, change: SignChange, now_ms: int) -> None:
        """Note a life sign and the renewal in it, or that its session has ended."""
        session, value, revision = change
        sign = None if value is None else decode_sign(value, self._boot)
        renewal = None if value is None else decode_renewal(value)
        if sign is None:
            self._signs.pop(session, None)
        else:
            self._signs[session] = sign
        if renewal is None:
            self._renewals.ended(session)
        else:
            self._renewals.seen(session, renewal, revision, now_ms)

    def _lost(self, watch: Watch) -> None:
        self._deliver(partial(self._notify, watch, None))

    def _notify(self, watch: Watch, news: Batch | None) -> None:
        """On the host's thread: call a watch, unless it was replaced meanwhile."""
        if watch.number == self._watch_number:
            watch.notify(news)

    def _warn(self, text: str) -> None:
        if self._report is not None:
            self._deliver(partial(self._report, text))


_LATER = object()
"""The answer of a call that is answered elsewhere."""


def _fail(error: Exception) -> None:
    """On the host's thread, where the error ends the process and is logged."""
    raise RuntimeError("a thread of the metadata store failed") from error


def _ignoring(done: Callable[[], None] | None) -> Callable[[object], None]:
    """A callback that ignores the answer."""
    return lambda _answer: None if done is None else done()


class FailureLog:
    """Logs failing calls: each cause once a minute, not at every retry. Used by three threads."""

    __slots__ = ("_failing_s", "_lock", "_logged", "_place", "_warn")

    def __init__(self, place: str, warn: Callable[[str], None]) -> None:
        self._place = place
        self._warn = warn
        self._lock = _thread.allocate_lock()
        self._logged: dict[str, float] = {}
        self._failing_s: float | None = None

    def failed(self, error: BaseException) -> None:
        """Log a failed call, unless its cause was logged a moment ago."""
        text, now = str(error), time.monotonic()
        if not isinstance(error, StoreError):
            text = f"metadata store {self._place}: {text}"
        with self._lock:
            self._failing_s = now
            self._logged = {cause: at for cause, at in self._logged.items() if now - at < AGAIN_S}
            if text in self._logged:
                return
            self._logged[text] = now
        self._warn(f"{text}; retrying; leaders without followers stop when the session ends")

    def over(self) -> None:
        """A call succeeded."""
        with self._lock:
            if self._failing_s is None or time.monotonic() - self._failing_s < _LOOK_EVERY_S:
                return
            self._failing_s = None
        self._warn(f"metadata store {self._place}: works again")
