"""The simulated metadata store: the specification (`Mvcc`) behind an unreliable network.

A request can get lost: the answer is Unavailable if it certainly did not arrive, OutcomeUnknown if
the broker can't know. The response can get lost after the store applied the request. The store can
also apply a request long after the broker received OutcomeUnknown. A session expires by the
store's clock, counted from the last renewal that reached the store. A watch can lag, be cut, and
fall behind compaction, but it never skips a revision or delivers half of one.

The store can go back in time, as if an operator had restored an old copy. For a while it shows an
earlier revision and accepts no writes; then it shows the right state again.

The store can have an outage, like an etcd without a quorum: it responds to no broker and
ends no session. When it is back, every session has its full time-to-live again; brokers end those
that were silent before (renewals.py). A change of etcd's leader is a short outage.

This module also does the work of the host, which is the same for every host. It renews the session
every third of its time-to-live, and counts the deadline from before it sent the renewal.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from tidelog.core.controller.effects import StoreTransaction
from tidelog.core.controller.metadata.metadata_store import (
    Compacted,
    OutcomeUnknown,
    Revision,
    SessionId,
    Snapshot,
    TxnAnswer,
    Unavailable,
)
from tidelog.core.controller.metadata.mvcc import Mvcc
from tidelog.core.controller.metadata.silent_sessions import Renewal
from tidelog.core.node import events as on
from tidelog.core.types import BrokerId
from tidelog.lab.sim.machine.network import STORE, Network
from tidelog.lab.sim.machine.renewals import Renewals, Watcher
from tidelog.lab.sim.world import World

CALL_TIMEOUT_MS = 400
LATE_MAX_MS = 1_500

Receive: TypeAlias = Callable[..., None]
"""Passes an event's class and its fields, except the time, to a broker."""


@dataclass(slots=True)
class StoreFaults:
    """The probabilities of the store's faults for each request."""

    unavailable: float = 0.0
    unknown: float = 0.0


@dataclass(slots=True, eq=False)
class StoreClient:
    """The store's view of one incarnation of a broker: its session and its watch."""

    broker: BrokerId
    receive: Receive
    clock: Callable[[], int]
    ttl_ms: int = 0
    session: SessionId | None = None
    watching: int = 0
    """The number of watches opened or cut so far; only the newest watch is served."""
    seen: Revision = 0
    frozen: bool = False
    """Whether the process is paused; it then renews no session."""
    dead: bool = False
    watcher: Watcher = field(init=False)

    def __post_init__(self) -> None:
        self.watcher = Watcher(self.broker, self.clock)


class SimStore:
    """The store, the expiry of its sessions, and its messages to and from brokers."""

    def __init__(self, world: World, network: Network, faults: StoreFaults) -> None:
        self.world = world
        self.network = network
        self.faults = faults
        self.mvcc = Mvcc()
        self.on_change: Callable[[], None]
        """Called after every change, before any broker receives the change."""
        self.on_early_end: Callable[[BrokerId], None]
        """Called when a session is ended on which a broker still counts."""
        self.renewals = Renewals(world, self._end)
        self.renewals.reachable = self._reachable
        self.renewals.on_early_end = self._ended_early
        self._random = world.random("store")
        self._clients: list[StoreClient] = []
        self._expires_ms: dict[SessionId, int] = {}
        self._away = 0
        """The number of outages that have not ended yet."""
        self._lags: dict[BrokerId, int] = {}
        """By broker: until when its watch delivers nothing."""
        self._notified: Revision = 0
        self._earlier: list[Snapshot] = [self.mvcc.range("")]
        """A snapshot of the store at each revision."""
        self._shown: Snapshot | None = None
        """The earlier snapshot that the store shows while it is back in time, else None."""

    def join(self, client: StoreClient) -> None:
        for earlier in self._clients:
            if earlier.broker == client.broker:
                self.renewals.died(earlier.watcher)
        self._clients = [c for c in self._clients if c.broker != client.broker]
        self._clients.append(client)

    # -- transactions and reads ----------------------------------------------------------

    def transact(self, client: StoreClient, effect: StoreTransaction) -> None:
        """Apply a transaction and send the response, unless a fault prevents either."""
        fate = 1.0 if self.network.calm else self._random.random()
        if self._shown is not None or fate < self.faults.unavailable:
            self.world.count("store unavailable")
            self._answer(client, on.TransactionAnswered, effect.tag, Unavailable())
        elif fate < self.faults.unavailable + self.faults.unknown:
            self._leave_unknown(client, effect)
        elif self._away or not self.network.send(client.broker, STORE, self._apply, client, effect):
            self._time_out(client, effect.tag)

    def _leave_unknown(self, client: StoreClient, effect: StoreTransaction) -> None:
        kind = self._random.randrange(3)
        if kind == 0:
            self.world.count("outcome unknown, not applied")
        elif kind == 1:
            self.world.count("outcome unknown, applied")
            self.world.after(2, self._commit_unanswered, effect)
        else:
            self.world.count("outcome unknown, applied late")
            self.world.after(self._random.randint(1, LATE_MAX_MS), self._commit_unanswered, effect)
        self._time_out(client, effect.tag)

    def _time_out(self, client: StoreClient, tag: int) -> None:
        answer = OutcomeUnknown()
        self.world.after(
            CALL_TIMEOUT_MS, self._deliver, client, on.TransactionAnswered, tag, answer
        )

    def _apply(self, client: StoreClient, effect: StoreTransaction) -> None:
        self._answer(client, on.TransactionAnswered, effect.tag, self._commit(effect))

    def _commit_unanswered(self, effect: StoreTransaction) -> None:
        self._commit(effect)

    def _commit(self, effect: StoreTransaction) -> TxnAnswer:
        if self._away:
            return OutcomeUnknown()
        answer = self.mvcc.txn(effect.guards, effect.ops)
        self._changed()
        return answer

    def read(self, client: StoreClient, earlier: Revision) -> None:
        """Send a snapshot of all keys, with the history's checksum at revision `earlier`."""
        lost = not self.network.calm and self._random.random() < self.faults.unavailable
        lost = lost or bool(self._away)
        if lost or not self.network.send(client.broker, STORE, self._snapshot, client, earlier):
            self.world.count("store unavailable")
            answer = Unavailable()
            self.world.after(CALL_TIMEOUT_MS, self._deliver, client, on.StoreRead, answer)

    def _snapshot(self, client: StoreClient, earlier: Revision) -> None:
        snapshot = self.mvcc.range("", earlier)
        if self._shown is not None:
            known = earlier <= self._shown.rev
            snapshot = self._shown._replace(earlier=snapshot.earlier if known else None)
        self._answer(client, on.StoreRead, snapshot)

    def go_away(self, duration_ms: int, fault: str = "store away") -> None:
        """Respond to no broker for a while."""
        self.world.count(fault)
        self._away += 1
        self.world.after(duration_ms, self._return)

    def _return(self) -> None:
        self._away -= 1
        if not self._away:
            for client in self._clients:
                if client.session in self._expires_ms:
                    self._expires_ms[client.session] = self.world.now_ms + client.ttl_ms

    def _client(self, broker: BrokerId) -> StoreClient:
        return next(client for client in self._clients if client.broker == broker)

    def _reachable(self, broker: BrokerId) -> bool:
        """Whether a broker's process runs, and the store and it reach each other."""
        client = self._client(broker)
        cuts = self.network.link(broker, STORE).cuts + self.network.link(STORE, broker).cuts
        here = not self._away and self._shown is None and not cuts
        return here and not client.dead and not client.frozen and self._lag_ms(broker) <= 0

    def _ended_early(self, broker: BrokerId) -> None:
        if not self._client(broker).dead:
            self.on_early_end(broker)

    def ended_session(self, broker: BrokerId) -> bool:
        """Whether the store has ended the session of a broker that may not know it yet."""
        return any(
            client.broker == broker
            and client.session is not None
            and client.session not in self._expires_ms
            for client in self._clients
        )

    def go_back(self, by: int, duration_ms: int) -> None:
        """Show the state of `by` revisions ago, or the empty store, for a while."""
        if self._shown is None:
            self.world.count("store went back")
            self._shown = self._earlier[max(0, len(self._earlier) - 1 - by)]
            self.world.after(duration_ms, self._show_newest)

    def _show_newest(self) -> None:
        self._shown = None
        for client in self._clients:
            if client.watching and not client.dead:
                self._pull_soon(client)

    def _answer(self, client: StoreClient, kind: type, *fields: object) -> None:
        if self.network.send(STORE, client.broker, self._deliver, client, kind, *fields):
            return
        if kind is on.TransactionAnswered:
            self._time_out(client, fields[0])  # type: ignore[arg-type]
        elif kind is on.StoreRead:
            self.world.after(CALL_TIMEOUT_MS, self._deliver, client, kind, Unavailable())

    def _deliver(self, client: StoreClient, kind: type, *fields: object) -> None:
        if not client.dead:
            client.receive(kind, *fields)

    # -- sessions --------------------------------------------------------------------------

    def open_session(self, client: StoreClient, ttl_ms: int) -> None:
        client.ttl_ms = ttl_ms
        client.session = None
        self.renewals.lost(client.watcher)
        sent = client.clock()
        if not self.network.send(client.broker, STORE, self._opened, client, sent):
            self.world.after(CALL_TIMEOUT_MS, self._deliver, client, on.SessionLost)

    def _opened(self, client: StoreClient, sent_ms: int) -> None:
        if client.dead or client.session is not None:
            return
        if self._away or self._shown is not None:
            self.world.after(CALL_TIMEOUT_MS, self._deliver, client, on.SessionLost)
            return
        session = client.session = self.mvcc.open_session()
        self._expires_ms[session] = self.world.now_ms + client.ttl_ms
        self.world.after(client.ttl_ms, self._expire_due, session)
        self.renewals.write(session, Renewal(client.ttl_ms, sent_ms))
        deadline = sent_ms + client.ttl_ms
        if self.network.send(
            STORE, client.broker, self._deliver_opening, client, session, deadline
        ):
            self.world.after(client.ttl_ms // 3, self._renew, client, session)
        else:
            self.world.after(CALL_TIMEOUT_MS, self._lost, client, session)

    def _deliver_opening(self, client: StoreClient, session: SessionId, deadline_ms: int) -> None:
        if not client.dead and client.session == session:
            self.renewals.opened(client.watcher, session, client.ttl_ms, deadline_ms)
        self._deliver(client, on.SessionOpened, session, deadline_ms)

    def _renew(self, client: StoreClient, session: SessionId) -> None:
        if client.dead or client.session != session:
            return
        if not client.frozen:
            sent = client.clock()
            self.network.send(client.broker, STORE, self._renewed, client, session, sent)
        self.world.after(client.ttl_ms // 3, self._renew, client, session)

    def _renewed(self, client: StoreClient, session: SessionId, sent_ms: int) -> None:
        if self._away:
            return
        if session in self._expires_ms:
            self._expires_ms[session] = self.world.now_ms + client.ttl_ms
            self.renewals.write(session, Renewal(client.ttl_ms, sent_ms))
            deadline = sent_ms + client.ttl_ms
            self._reply(client, self._deliver_renewal, session, deadline)
        else:
            self._reply(client, self._lost, session)

    def _reply(self, client: StoreClient, deliver: Callable[..., None], *fields: object) -> None:
        self.network.send(STORE, client.broker, deliver, client, *fields)

    def _deliver_renewal(self, client: StoreClient, session: SessionId, deadline_ms: int) -> None:
        if client.session == session:
            self.renewals.renewed(client.watcher, deadline_ms)
            self._deliver(client, on.SessionRenewed, deadline_ms)

    def _lost(self, client: StoreClient, session: SessionId) -> None:
        if client.session == session:
            client.session = None
            self.renewals.lost(client.watcher)
            self._deliver(client, on.SessionLost)

    def _expire_due(self, session: SessionId) -> None:
        expires = self._expires_ms.get(session)
        if expires is None:
            return
        if self._away:
            self.world.after(CALL_TIMEOUT_MS, self._expire_due, session)
        elif expires > self.world.now_ms:
            self.world.at(expires, self._expire_due, session)
        else:
            self.world.count("session expired")
            self._end(session)

    def close_session(self, client: StoreClient) -> None:
        if client.session is not None:
            self.network.send(client.broker, STORE, self._end, client.session)
            client.session = None
            self.renewals.lost(client.watcher)

    def _end(self, session: SessionId) -> None:
        if self._expires_ms.pop(session, None) is not None:
            self.renewals.ended(session)
            self.mvcc.expire(session)
            self._changed()

    # -- watches ---------------------------------------------------------------------------

    def watch(self, client: StoreClient, after: Revision) -> None:
        client.watching += 1
        client.seen = after
        self._pull_soon(client)

    def cut_watch(self, broker: BrokerId) -> None:
        for client in self._clients:
            if client.broker == broker and client.watching and not client.dead:
                self.world.count("watch cut")
                client.watching += 1
                self._deliver(client, on.WatchLost)

    def lag_watch(self, broker: BrokerId, duration_ms: int) -> None:
        """Deliver no changes to a broker for a while."""
        self.world.count("watch lagged")
        self._lags[broker] = self.world.now_ms + duration_ms

    def _lag_ms(self, broker: BrokerId) -> int:
        return self._lags.get(broker, 0) - self.world.now_ms

    def heal(self) -> None:
        """Let no watch lag any more."""
        self._lags.clear()

    def compact(self, keep: int) -> None:
        """Compact the store's history except for the last `keep` revisions."""
        self.world.count("store compacted")
        self.mvcc.compact(self.mvcc.revision - keep)

    def _changed(self) -> None:
        if self.mvcc.revision != self._notified:
            self._notified = self.mvcc.revision
            self._earlier.append(self.mvcc.range(""))
            self.on_change()
            for client in self._clients:
                if client.watching and not client.dead:
                    self._pull_soon(client)

    def _pull_soon(self, client: StoreClient) -> None:
        pull = (self._pull, client, client.watching)
        lag_ms = self._lag_ms(client.broker)
        if lag_ms > 0:
            self.world.after(lag_ms, self._pull_again, client, client.watching)
        elif self._away or not self.network.send(STORE, client.broker, *pull):
            self.world.after(CALL_TIMEOUT_MS, self._pull_again, client, client.watching)

    def _pull_again(self, client: StoreClient, watching: int) -> None:
        if client.watching == watching and not client.dead:
            self._pull_soon(client)

    def _pull(self, client: StoreClient, watching: int) -> None:
        """Deliver, in order, all changes that the watch has not delivered yet."""
        if client.watching != watching or client.dead or self._shown is not None:
            return
        if self._away:
            self._pull_soon(client)
            return
        batches = self.mvcc.watch("", client.seen)
        if isinstance(batches, Compacted):
            client.watching += 1
            self._deliver(client, on.WatchLost)
            return
        for batch in batches:
            client.seen = batch.rev
            self._deliver(client, on.StoreChanged, batch)
            if client.watching != watching or client.dead:
                return
