"""A whole broker in memory, without sockets, files or clocks.

The broker is its own controller, and its metadata store is a table in memory. Time passes only in
`pass_time`, so hours of waiting take no time.

Invariant: when `take` returns, all consequences of the frame have happened, except those that wait
for time; a response has the length that its first bytes state.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from tidelog.core.api.context import Broker, DepartedBrokers
from tidelog.core.api.dispatch import Dispatch
from tidelog.core.api.exchange import Chunks
from tidelog.core.api.handshake import NONCE_BYTES, ListeningHandshake, Member
from tidelog.core.api.internal_dispatch import InternalDispatch
from tidelog.core.api.peer_session import PeerSession
from tidelog.core.controller.effects import StoreTransaction
from tidelog.core.controller.metadata.metadata_store import Compacted
from tidelog.core.controller.metadata.mvcc import Mvcc
from tidelog.core.node import effects as do
from tidelog.core.node import events as on
from tidelog.core.node.config import node_config
from tidelog.core.node.node import Node
from tidelog.core.settings.broker_settings import settings_of
from tidelog.core.storage.disk import DiskError, Region, parent
from tidelog.lab.memory_disk import MemoryDisk

CLUSTER_ID = "RnV6ei10aGUtYnJva2Vyc"
MEMBER = Member(CLUSTER_ID, 1, "known to brokers")
ADDRESS = "localhost:1"
SESSION_MS = 9000
STEPS_MAX = 100_000
"""No frame causes this many events."""
SETTINGS = {
    "node.id": "1",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}


class BrokerHalted(AssertionError):
    """The broker halted, which no client may cause."""


class WrongAnswer(AssertionError):
    """The response is not a valid frame."""


class Answer:
    """The slot for one response."""

    __slots__ = ("_line",)

    def __init__(self, line: "Line") -> None:
        self._line = line

    @property
    def abandoned(self) -> bool:
        return self._line.refused is not None

    def fill(self, chunks: Chunks) -> None:
        self._line.answered(chunks)

    def refuse(self, reason: str, _code: object = None) -> None:
        self._line.refuse(reason)


class Line:
    """A connection for one frame."""

    __slots__ = ("answer", "filled", "refused", "reserved", "session")

    peer_host = "127.0.0.1"

    def __init__(self) -> None:
        self.reserved = False
        self.filled = False
        self.refused: str | None = None
        self.answer: Chunks = []
        self.session = PeerSession()

    def reserve(self) -> Answer:
        self.reserved = True
        return Answer(self)

    def mute(self, for_ms: int) -> None:
        """A client in memory waits for nothing."""

    def reserve_alone(self, _frame: memoryview) -> Answer:
        return self.reserve()

    def refuse(self, reason: str, _code: object = None) -> None:
        self.refused = reason

    def send_now(self, chunks: Chunks) -> None:
        """Send a response on the internal listener."""
        self.reserve().fill(chunks)

    def answered(self, chunks: Chunks) -> None:
        if self.filled:
            raise WrongAnswer("a second response to the same request")
        self.filled = True
        self.answer = chunks
        if not chunks:
            return
        size = sum(c.length if isinstance(c, Region) else len(c) for c in chunks)
        stated = -1 if isinstance(chunks[0], Region) else int.from_bytes(chunks[0][:4], "big")
        if stated != size - 4:
            raise WrongAnswer(f"response of {size - 4} bytes states a length of {stated}")

    @property
    def waits(self) -> bool:
        return self.reserved and not self.filled and self.refused is None


class MemoryBroker:
    """A started broker that accepts frames."""

    def __init__(self, texts: dict[str, str] | None = None) -> None:
        self.now_ms = 1_000_000
        self.disk = IndexedDisk()
        settings = settings_of({**SETTINGS, **(texts or {})})
        self.node = Node(node_config(settings, "localhost", 9092), self.disk, 1, self.now_ms)
        self._store = Mvcc()
        self._watched = -1
        self._session: int | None = None
        self._events: deque[Callable[[], on.Event]] = deque()
        self._later: list[tuple[int, Callable[[], None]]] = []
        self._next_turns: deque[Callable[[], None]] = deque()
        self.turn_ends: Callable[[], None] = _ignore
        """Called where a real event loop would serve other connections."""
        self._stepping = False
        self._made_ids = 0
        self._made_nonces = 0
        broker = Broker(
            self.node, settings, CLUSTER_ID, self._new_topic_id, lambda: 0, DepartedBrokers()
        )
        self._dispatch = Dispatch(
            broker, self._step, lambda: self.now_ms, self._when_settled, self._next_turns.append
        )
        self._internal = InternalDispatch(
            self._dispatch,
            lambda: ListeningHandshake(MEMBER, ADDRESS, self._new_nonce()),
            self.node.image.topic_names,
            self._step,
            lambda: self.now_ms,
        )
        self._step(on.Started(self.now_ms))
        while not self.node.acting:
            self.pass_time(100)

    def take(self, line: Line, frame: bytes) -> None:
        """Pass one frame, without its length, to the client listener."""
        self._dispatch.frame(line, memoryview(bytearray(frame)))
        self._run_consequences()

    def take_internal(self, line: Line, frame: bytes) -> None:
        """Pass one frame to the internal listener, on a connection without a handshake."""
        self._internal.frame(line, memoryview(bytearray(frame)))
        self._run_consequences()

    def pass_time(self, for_ms: int) -> None:
        """Advance the clock and run all timers that are due."""
        end_ms = self.now_ms + for_ms
        for _ in range(STEPS_MAX):
            deadline_ms = self.node.next_deadline_ms()
            if deadline_ms is None or deadline_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, deadline_ms)
            self._renew()
            self._step(on.Ticked(self.now_ms))
        else:
            raise AssertionError("the node's timers never stop firing")
        self.now_ms = end_ms
        due, self._later = self._later, []
        for act in (act for _, act in due):
            act()
        self._renew()
        self._run_consequences()

    def _renew(self) -> None:
        if self._session is not None:
            self._step(on.SessionRenewed(self.now_ms + SESSION_MS, self.now_ms))

    def _when_settled(self, act: Callable[[], None], unsettled: Callable[[], bool]) -> None:
        if unsettled():
            self._later.append((self.now_ms, act))
        else:
            act()

    def _new_nonce(self) -> bytes:
        self._made_nonces += 1
        return self._made_nonces.to_bytes(NONCE_BYTES, "big")

    def _new_topic_id(self) -> bytes:
        self._made_ids += 1
        return b"made" + self._made_ids.to_bytes(12, "big")

    # -- consequences ----------------------------------------------------------------------

    def _step(self, event: on.Event) -> None:
        for effect in self.node.step(event):
            self._carry_out(effect)
        self._run_consequences()

    def _run_consequences(self) -> None:
        if self._stepping:
            return
        self._stepping = True
        try:
            for _ in range(STEPS_MAX):
                if self._events:
                    self._step(self._events.popleft()())
                elif self._next_turns:
                    self.turn_ends()
                    self._next_turns.popleft()()
                else:
                    return
            raise AssertionError("one frame causes events that never end")
        finally:
            self._stepping = False

    def _carry_out(self, effect: do.Effect) -> None:
        match effect:
            case do.Respond(peer, correlation, response):
                if isinstance(peer, int):
                    self._events.append(
                        lambda: on.ResponseReceived(correlation, response, self.now_ms)
                    )
                else:
                    peer.respond(correlation, response)  # type: ignore[attr-defined]
            case do.Send(broker, correlation, request):
                self._events.append(
                    lambda: on.RequestReceived(broker, correlation, request, self.now_ms)
                )
            case do.Close(peer):
                peer.refuse("by the node")  # type: ignore[attr-defined]
            case do.Halt():
                raise BrokerHalted(effect.reason)
            case do.Flush(flush):
                self._events.append(lambda: on.FlushCompleted(flush, None, self.now_ms))
            case _:
                self._use_store(effect)

    def _use_store(self, effect: Any) -> None:
        match effect:
            case do.OpenSession():
                self._session = session = self._store.open_session()
                deadline_ms = self.now_ms + SESSION_MS
                self._events.append(lambda: on.SessionOpened(session, deadline_ms, self.now_ms))
            case do.ReadStore(earlier):
                snapshot = self._store.range("", earlier)
                self._events.append(lambda: on.StoreRead(snapshot, self.now_ms))
            case do.WatchStore(after):
                self._watched = after
                self._notify()
            case StoreTransaction(tag, guards, ops):
                answer = self._store.txn(guards, ops)
                self._events.append(lambda: on.TransactionAnswered(tag, answer, self.now_ms))
                self._notify()
            case _:
                raise AssertionError(f"unknown effect {effect}")

    def _notify(self) -> None:
        if self._watched < 0:
            return
        changes = self._store.watch("", self._watched)
        assert not isinstance(changes, Compacted)
        for batch in changes:
            self._watched = batch.rev
            self._events.append(lambda batch=batch: on.StoreChanged(batch, self.now_ms))  # type: ignore[misc]


def _ignore() -> None:
    """Ignore the end of the turn."""


class IndexedDisk(MemoryDisk):
    """A disk in memory with an index of its directories, which have one level.

    MemoryDisk searches all its files for the content of a directory. That takes longer than the
    broker when a request has created a topic of a thousand partitions.
    """

    def __init__(self) -> None:
        super().__init__()
        self._inside: dict[str, set[str]] = {"": set()}

    def list_dir(self, path: str) -> list[str]:
        return sorted(self._inside.get(path, ()))

    def make_dir(self, path: str) -> None:
        super().make_dir(path)
        self._inside.setdefault(path, set())
        if path:
            self._inside[parent(path)].add(_name(path))

    def delete(self, path: str) -> None:
        super().delete(path)
        self._inside[parent(path)].discard(_name(path))

    def delete_dir(self, path: str) -> None:
        for name in self._inside.pop(path, ()):
            del self.files[f"{path}/{name}"]
        self.directories.discard(path)
        self._inside[parent(path)].discard(_name(path))

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        if new in self.files:
            self._inside[parent(old)].discard(_name(old))
            self._inside[parent(new)].add(_name(new))

    def _rename_dir(self, old: str, new: str) -> None:
        if self._inside.get(new):
            raise DiskError("rename over a directory that is not empty", new)
        names = self._inside.pop(old)
        for name in names:
            self.files[f"{new}/{name}"] = self.files.pop(f"{old}/{name}")
        self._inside[new] = names
        self.directories.remove(old)
        self.directories.add(new)
        self._inside[parent(old)].discard(_name(old))
        self._inside[parent(new)].add(_name(new))

    def _created(self, path: str) -> bytearray:
        file = super()._created(path)
        self._inside[parent(path)].add(_name(path))
        return file


def _name(path: str) -> str:
    return path.rpartition("/")[2]
