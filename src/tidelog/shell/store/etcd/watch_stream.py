"""Follow the changes of a store on etcd: a stream from one node, replaced when the node fails.

A frozen node or one without a quorum keeps the connection open and sends nothing. So while the
stream is silent, the same node is asked for the history record once a second; this read needs a
quorum. After two failures, or if the record is newer than the stream for three seconds, the stream
is opened again on another node, after the last revision that was delivered.

Invariant: each revision is delivered once, whole and in order. Transactions are numbered in the
history record. If a number is missing, nothing of that revision is delivered: the broker reads the
store again.
"""

import _thread
import json
import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import groupby
from typing import NamedTuple

from tidelog.core.controller.metadata.history import NO_CHECKSUM
from tidelog.core.controller.metadata.metadata_store import Batch, Change, Revision, SessionId
from tidelog.shell.store.etcd.etcd_store import EtcdStore, RevisionCompacted
from tidelog.shell.store.etcd.gateway import EtcdError, Gateway, NodesUnavailable, error_of
from tidelog.shell.store.etcd.http_connection import Endpoint, HttpConnection, NoAnswer
from tidelog.shell.store.etcd.records import (
    Found,
    HistoryRecord,
    as_kv,
    parse_found,
    parse_history,
    range_of,
)
from tidelog.shell.store.store_backend import StoreError

UNKNOWN = -1
"""The number of the history record before the first change that is followed."""
PROBE_S = 1.0
"""How long a stream may be silent before its node is probed."""
_PROBES_FAILED_MAX = 2
_PROBES_BEHIND_MAX = 3
_RETRY_S = 0.2


class Watch(NamedTuple):
    """A request of the broker to follow the store."""

    number: int
    after: Revision
    changed: Callable[[Batch], None]
    lost: Callable[[], None]

    def notify(self, news: Batch | None) -> None:
        """Pass on a revision, or that the revisions in between were deleted (None)."""
        if news is None:
            self.lost()
        else:
            self.changed(news)


class SignChange(NamedTuple):
    """A session was opened with a life sign or renewed, or has ended (None)."""

    session: SessionId
    value: bytes | None
    revision: int
    """etcd's."""


class ChangesMissing(Exception):
    """The stream skipped a transaction."""


class WatchEvents(NamedTuple):
    """What the watch calls, on its own thread."""

    changed: Callable[[Watch, Batch | None, list[SignChange]], None]
    """No batch: sessions were renewed, and nothing else happened."""
    lost: Callable[[Watch], None]
    failed: Callable[[BaseException], None]
    idle: Callable[[], None]
    """Called at least once a second."""


class WatchStream:
    """The body of the thread that follows the store."""

    def __init__(self, gateway: Gateway, events: WatchEvents) -> None:
        self._gateway = gateway
        self._store = EtcdStore(gateway)
        self._events = events
        self._lock = _thread.allocate_lock()
        self._wanted: Watch | None = None
        self._closing = False
        self._waking, self._wake = socket.socketpair()
        self._waking.setblocking(False)
        self._wake.setblocking(False)
        self._after = 0
        """etcd's revision up to which changes were delivered."""
        self._history = HistoryRecord(0, UNKNOWN, NO_CHECKSUM)

    # -- any thread ------------------------------------------------------------------------

    def follow(self, watch: Watch) -> None:
        """Follow the store after a revision, in place of an earlier watch."""
        with self._lock:
            self._wanted = watch
        self._signal()

    def stop(self) -> None:
        """Let the thread end."""
        self._closing = True
        self._signal()

    def _signal(self) -> None:
        with suppress(OSError):
            self._wake.send(b"!")

    # -- its own thread --------------------------------------------------------------------

    def run(self) -> None:
        """Follow the store until `stop`."""
        try:
            while not self._closing:
                watch = self._wanted
                if watch is None:
                    self._sleep(PROBE_S)
                else:
                    self._follow(watch)
        finally:
            self._gateway.close()
            self._waking.close()
            self._wake.close()

    def _follow(self, watch: Watch) -> None:
        node = self._gateway.nodes.current()
        stream: HttpConnection | None = None
        try:
            self._start(watch, node)
            stream = self._open(node)
            self._read(stream, node, watch.number)
        except RevisionCompacted:
            self._give_up(watch)
        except ChangesMissing as error:
            self._gateway.nodes.failed(node)
            self._events.failed(error)
            self._give_up(watch)
        except (NodesUnavailable, NoAnswer) as error:
            self._gateway.nodes.failed(node)
            self._events.failed(error)
            self._sleep(_RETRY_S)
        except (EtcdError, StoreError) as error:
            self._events.failed(error)
            self._sleep(_RETRY_S)
        finally:
            if stream is not None:
                stream.close()

    def _give_up(self, watch: Watch) -> None:
        """Let the broker read the store again: the changes can't be delivered."""
        with self._lock:
            if self._wanted is not None and self._wanted.number == watch.number:
                self._wanted = None
        self._events.lost(watch)

    def _start(self, watch: Watch, node: Endpoint) -> None:
        """Read the history record at the revision to start after; this also finds a compaction."""
        now = self._store.history_at(node, 0)
        self._after = watch.after - now.base
        if self._after < 0 < watch.after:
            raise RevisionCompacted  # a revision of the store that was copied here
        if self._after > 0:
            self._history = self._store.history_at(node, self._after)
        else:
            self._after = 0  # etcd would understand a start at revision 0 or less as "from now on"
            self._history = now._replace(checksum=NO_CHECKSUM, number=UNKNOWN)

    def _open(self, node: Endpoint) -> HttpConnection:
        layout = self._store.layout
        request = range_of(layout.history, layout.end, start_revision=self._after + 1)
        return self._gateway.open_stream(node, "/v3/watch", {"create_request": request})

    def _read(self, stream: HttpConnection, node: Endpoint, number: int) -> None:
        """Pass changes on until the watch is replaced. Raises when the node fails."""
        failed = behind = 0
        silent_since = time.monotonic()
        lines = stream.read_lines()  # some may have come with the header
        while (watch := self._wanted) is not None and watch.number == number and not self._closing:
            if lines:
                for line in lines:
                    self._line(line, watch)
                failed = behind = 0
                silent_since = time.monotonic()
            left = silent_since + PROBE_S - time.monotonic()
            lines = stream.read_lines() if self._wait(max(0.0, left), stream) else []
            self._events.idle()
            if lines or time.monotonic() - silent_since < PROBE_S:
                continue
            silent_since = time.monotonic()
            try:
                newest = self._store.history_at(node, 0).mod_rev
            except NodesUnavailable:
                failed += 1
                if failed >= _PROBES_FAILED_MAX:
                    raise
                continue
            failed = 0
            behind = behind + 1 if newest > self._after else 0
            if behind >= _PROBES_BEHIND_MAX:
                raise NodesUnavailable("the stream is silent although the store changed")

    def _line(self, line: bytes, watch: Watch) -> None:
        try:
            reply = json.loads(line)
        except ValueError as error:
            raise NodesUnavailable("the stream is not JSON") from error
        failure = error_of(reply)
        if failure is not None:
            raise NodesUnavailable(failure.message)
        result = reply.get("result") or {}
        self._gateway.nodes.check_answer(result.get("header") or {})
        if result.get("canceled"):
            if int(result.get("compact_revision", 0)):
                raise RevisionCompacted
            raise NodesUnavailable(str(result.get("cancel_reason") or "the node ended the watch"))
        events = [
            (parse_found(event.get("kv") or {}), event.get("type") == "DELETE")
            for event in result.get("events") or ()
        ]
        for rev, changes in groupby(events, key=lambda event: event[0].mod_rev):
            if rev > self._after:
                self._pass_on(rev, list(changes), watch)

    def _pass_on(self, rev: int, events: list[tuple[Found, bool]], watch: Watch) -> None:
        layout = self._store.layout
        if not any(layout.owns(found.key) for found, _ in events):
            return  # keys of another store
        changes: list[Change] = []
        signs: list[SignChange] = []
        renewals = 0
        for found, deleted in events:
            if found.key.startswith(layout.data):
                kv = as_kv(layout, found, self._history.base)
                changes.append(Change(kv.key, None if deleted else kv))
            elif found.key.startswith(layout.live):
                session = int(found.key[len(layout.live) :], 16)
                signs.append(SignChange(session, None if deleted else found.value, rev))
                renewals += not deleted and found.create_rev != rev
            elif found.key == layout.history and not deleted:
                self._follow_history(parse_history(found.value, found.mod_rev, self._store.place))
        batch = Batch(rev + self._history.base, tuple(changes), self._history.checksum)
        self._after = rev
        with self._lock:
            if self._wanted is not None and self._wanted.number == watch.number:
                self._wanted = self._wanted._replace(after=batch.rev)
        self._events.changed(watch, None if renewals == len(events) else batch, signs)

    def _follow_history(self, record: HistoryRecord) -> None:
        """Check that the record is the next one. A store that is marked as moved keeps its
        number."""
        before = self._history.number
        if before != UNKNOWN and record.number not in (before, before + 1):
            raise ChangesMissing(
                f"the watch of {self._store.place} skipped from transaction {before} to"
                f" {record.number}; the store is read again"
            )
        self._history = record

    # -- waiting ---------------------------------------------------------------------------

    def _sleep(self, timeout_s: float) -> None:
        """Wait for a signal or the time."""
        self._wait(timeout_s, None)
        self._events.idle()

    def _wait(self, timeout_s: float, stream: HttpConnection | None) -> bool:
        """Wait for the stream, a signal or the time; return whether the stream has something."""
        poll = select.poll()
        poll.register(self._waking, select.POLLIN)
        if stream is not None:
            poll.register(stream.fileno(), select.POLLIN)
        ready = {fd for fd, _ in poll.poll(timeout_s * 1000)}
        if self._waking.fileno() in ready:
            with suppress(BlockingIOError):
                while self._waking.recv(64):
                    pass
        return stream is not None and stream.fileno() in ready
