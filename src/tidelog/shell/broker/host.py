"""Runs one node: passes events to it and carries out its effects.

Sockets, the store, the clock and the flusher produce events; each is one step of the node.
Effects are carried out in the order in which the node returned them. If an effect leads to another
step, the effects of that step are carried out afterwards.

The host decides nothing. It adds the proof of death (`DeathDetector`).
"""

import os
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, TypeAlias

from tidelog.core.api.access_control import broker_authorizer
from tidelog.core.api.context import Broker, DepartedBrokers
from tidelog.core.api.dispatch import Dispatch
from tidelog.core.api.exchange import CloseCode
from tidelog.core.api.handshake import (
    NONCE_BYTES,
    ConnectingHandshake,
    ListeningHandshake,
    Member,
)
from tidelog.core.api.internal_dispatch import InternalDispatch
from tidelog.core.api_table import SET_FAULTS
from tidelog.core.controller.effects import StoreTransaction
from tidelog.core.controller.metadata.registrations import endpoint_name
from tidelog.core.node import effects as do
from tidelog.core.node import events as on
from tidelog.core.node.measuring.request_times import RequestTimes
from tidelog.core.node.node import Node
from tidelog.core.principal import ANONYMOUS
from tidelog.core.record.crc32c import Buffer
from tidelog.core.settings.broker_settings import BrokerSettings
from tidelog.core.settings.listeners import Listener as ListenerAddress
from tidelog.core.settings.listeners import uses_sasl
from tidelog.core.storage import layout
from tidelog.core.storage.cleaning.plan import CleaningMessage
from tidelog.core.storage.disk import DiskError, DiskFull
from tidelog.core.types import INTERNAL_LISTENER, BrokerId
from tidelog.shell.broker.background_work import Cleaner, Flusher
from tidelog.shell.broker.event_log import EventLog, WriteLine
from tidelog.shell.broker.loss_publisher import LossPublisher
from tidelog.shell.broker.store_session import DeathDetector, StoreSession
from tidelog.shell.net.connection import Connection
from tidelog.shell.net.event_loop import EventLoop
from tidelog.shell.net.listener import Listener
from tidelog.shell.net.peer_link import LinkEvents, PeerLink
from tidelog.shell.net.transport import connect
from tidelog.shell.os_disk import FileSource, OsDisk, OsDisks, disk_space
from tidelog.shell.store.store_backend import ClusterIdentity, OpenedStore

if TYPE_CHECKING:
    from tidelog.core.api.sasl_gate import Frame
    from tidelog.core.api.sasl_login import SaslLogin
    from tidelog.shell.broker.tls_listeners import TlsListeners
    from tidelog.shell.broker.token_listeners import TokenListeners
    from tidelog.shell.client.security import ClientSecurity

Halted: TypeAlias = Callable[[do.Halt], None]

CLOCKS_APART_MS = 20
"""Tolerance: two clocks can't be read at once, and a busy machine adds milliseconds."""


class BrokerHost:
    """The host of one node."""

    def __init__(
        self,
        loop: EventLoop,
        node: Node,
        disks: Sequence[OsDisk | None],
        settings: BrokerSettings,
        identity: ClusterIdentity,
        store: OpenedStore,
        halted: Halted,
        write_line: WriteLine,
        tls: "TlsListeners | None" = None,
        tokens: "TokenListeners | None" = None,
    ) -> None:
        self.node = node
        self._loop = loop
        self._disks = [disk for disk in disks if disk is not None]
        self.files = files = file_source(disks, node)
        """The files of all log directories, to send them."""
        files.on_unreadable = node.distrust
        self._halted = halted
        self._client_id = f"broker-{node.config.broker_id}"
        self._member = Member(identity.cluster_id, node.config.broker_id, identity.secret)
        self._links: dict[BrokerId, PeerLink] = {}
        self._silent = False
        self._effects: deque[do.Effect] = deque()
        self._working = False
        self._wall_ahead_ms = 0  # ahead of the monotonic clock, as last passed to the node
        self._unsettled = False
        """The node received events in this turn that are not settled yet."""
        self._settle_soon = self._settle
        self._store_session = StoreSession(loop, store.client, self.step)
        self._flusher = Flusher(loop, disks, self.step)
        self._cleaner = Cleaner(loop, settings.log_dirs, self._cleaned)
        self.listeners: list[Listener] = []
        self._carry_out = self._table()
        now_ms = loop.clock.now_ms
        self.event_log = EventLog(loop, node, write_line)
        secure = tls.connect_to(settings.internal_listener) if tls is not None else None
        self._connect_to_peer = secure or connect
        self._publisher = self._loss_publisher(settings, write_line, tls)
        self.times = RequestTimes(perf_counter_ns, loop.turns)
        self.ended: dict[str, int] = {}
        """Connections that this broker closed, by reason."""
        self._departed = DepartedBrokers()
        broker = Broker(
            node,
            settings,
            identity.cluster_id,
            _new_topic_id,
            _start_index,
            self._departed,
            disk_space,
            broker_authorizer(settings, node.image, node.journal.note, now_ms),
        )
        faulty = [disk for disk in self._disks if isinstance(disk, FaultyDisk)]
        switches = FaultSwitches(faulty, self._isolate) if faulty else None
        self._deaths = DeathDetector(loop, node, store.deaths)
        settled, later, fault = self._deaths.when_settled, loop.next_turn, self.event_log.fault
        dispatches = [
            Dispatch(broker, self.take, now_ms, settled, later, self.times, fault, listener)
            for listener in [endpoint_name(one.name) for one in node.config.listeners]
        ]
        failed = self.authentication_failed
        gates = SaslGates(loop, settings, node, identity.secret, failed, fault, tokens)
        self.clients = [
            ClientService(self, gates.before(listener, dispatch.frame) or dispatch.frame)
            for listener, dispatch in zip(settings.listeners.clients, dispatches, strict=True)
        ]
        """The service of each client listener, in the order of `NodeConfig.listeners`."""
        self.internal_dispatch = InternalDispatch(
            dispatches[0],
            self._listening_handshake,
            node.image.topic_names,
            self.take,
            now_ms,
            switches.set if switches is not None else None,
        )
        self.brokers = BrokerService(self, gates)
        self._login = gates.login_of(self._client_id)

    def _loss_publisher(
        self,
        settings: BrokerSettings,
        write_line: WriteLine,
        tls: "TlsListeners | None",
    ) -> LossPublisher | None:
        if not settings.get("tidelog.loss.topic.enable"):
            return None

        def report(text: str) -> None:
            self._loop.call_from_thread(lambda: write_line("WARN", text))

        def security() -> "ClientSecurity | None":
            """Protect the thread's connections as the first client listener requires."""
            context = None if tls is None else tls.client(settings.listener)
            has_sasl = uses_sasl(settings.protocol(settings.listener))
            if context is None and not has_sasl:
                return None
            from tidelog.core.api.sasl_rules import cluster_login
            from tidelog.shell.client.security import ClientSecurity

            def login(client_id: str, address: str) -> "SaslLogin":
                return cluster_login(self._member.secret, client_id, address, os.urandom)

            return ClientSecurity(context, login if has_sasl else None)

        config = self.node.config
        return LossPublisher(
            settings.log_dirs,
            config.broker_id,
            (config.host, config.port),
            settings.get("offsets.topic.replication.factor"),
            report,
            security,
        )

    def _table(self) -> dict[type, Callable[[Any], None]]:
        return {
            do.Send: self._send,
            do.Close: _close,
            do.Flush: self._flusher.flush,
            do.CleanLog: self._cleaner.clean,
            do.StopCleaning: self._cleaner.stop,
            do.Halt: self._halt,
            do.OpenSession: self._store_session.open_session,
            do.CloseSession: self._store_session.close_session,
            do.ReadStore: self._store_session.read,
            do.WatchStore: self._store_session.watch,
            StoreTransaction: self._store_session.transact,
        }

    # -- the node --------------------------------------------------------------------------

    def start(self) -> None:
        self._loop.add_ticker(self)
        self.step(on.Started(self._loop.clock.now_ms()))

    def read_wall_clock(self) -> None:
        """Send the wall clock's time to the node if the clock was set or is not trusted yet."""
        clock = self._loop.clock
        now_ms, wall_ms = clock.now_ms(), clock.wall_ms()
        if self._publisher is not None:
            self._publisher.check(self.node.counters.losses_recorded)
        was_set = abs(wall_ms - now_ms - self._wall_ahead_ms) > CLOCKS_APART_MS
        if was_set or self.node.clock.doubt_ms:
            self._wall_ahead_ms = wall_ms - now_ms
            self.step(on.WallClockRead(wall_ms, now_ms))

    def stop(self) -> None:
        """Hand over leadership, then halt."""
        self.step(on.ShutdownRequested(self._loop.clock.now_ms()))

    def step(self, event: on.Event) -> None:
        """Run one step of the node and carry out its effects."""
        self._effects.extend(self.node.step(event))
        self._drain()
        if isinstance(event, on.StoreChanged | on.StoreRead):
            self._departed.note(self.node.image, event.now_ms)
            self.event_log.image_advanced()
            self._deaths.image_advanced()

    def _drain(self) -> None:
        if self._working:
            return
        effects = self._effects
        self._working = True
        try:
            while effects:
                effect = effects.popleft()
                if type(effect) is do.Respond:
                    # Nearly all effects are of this kind.
                    effect.peer.respond(  # type: ignore[attr-defined]
                        effect.correlation, effect.response
                    )
                else:
                    self._carry_out[type(effect)](effect)
        finally:
            self._working = False

    def take(self, event: on.Event) -> None:
        """Run the first half of a step; the second half runs at the end of the turn, once for all
        events of the turn."""
        self.node.take(event)
        if not self._unsettled:
            self._unsettled = True
            self._loop.at_end_of_turn(self._settle_soon)

    def _settle(self) -> None:
        answers = self.node.take_answers()
        if answers:
            # Responses are sent before the rest is settled: the next callback runs after the flush.
            self._effects.extend(answers)
            self._drain()
            self._loop.at_end_of_turn(self._settle_rest)
        else:
            self._settle_rest()

    def _settle_rest(self) -> None:
        self._unsettled = False
        self._effects.extend(self.node.settle())
        self._drain()

    def next_deadline_ms(self) -> int | None:
        return self.node.wake_ms()

    def tick(self) -> None:
        deadline_ms = self.node.next_deadline_ms()
        now_ms = self._loop.clock.now_ms()
        if deadline_ms is not None and deadline_ms <= now_ms:
            self.step(on.Ticked(now_ms))

    def close(self) -> None:
        """Close sockets, threads and files, after the node has halted."""
        self._loop.remove_ticker(self)
        if self._publisher is not None:
            self._publisher.close()
        self.event_log.close()
        for link in self._links.values():
            link.silent = True
            link.close()
        self._flusher.close()
        self._cleaner.close()
        for disk in self._disks:
            disk.close()

    def _cleaned(self, cleaning: int, message: CleaningMessage) -> None:
        """Pass a cleaner's message to the node, which may replace files by others of the same
        names. Pending responses from the old files are sent before, or keep them open."""
        self._settle_rest()
        for listener in self.listeners:
            for connection in list(listener.connections):
                connection.hold_files()
        self.step(on.LogCleaned(cleaning, message, self._loop.clock.now_ms()))

    def _halt(self, effect: do.Halt) -> None:
        self._halted(effect)

    # -- other brokers ---------------------------------------------------------------------

    def _send(self, effect: do.Send) -> None:
        link = self._links.get(effect.broker)
        if link is None:
            link = self._links[effect.broker] = self._link_to(effect.broker)
        link.send(effect.correlation, effect.request)

    def _link_to(self, broker: BrokerId) -> PeerLink:
        def address_of() -> tuple[str, int] | None:
            known = self.node.image.brokers.get(broker)
            for listener, host, port in known.endpoints if known and known.online else ():
                if listener == INTERNAL_LISTENER:
                    return host, port
            return None

        clock = self._loop.clock
        events = LinkEvents(
            lambda number, response: self.take(
                on.ResponseReceived(number, response, clock.now_ms())
            ),
            lambda number: self.step(on.RequestFailed(number, clock.now_ms())),
            self.peer_lost,
            lambda reason: self.event_log.peer_unproven(broker, address_of(), reason),
        )

        def handshake(address: tuple[str, int]) -> ConnectingHandshake:
            nonce = os.urandom(NONCE_BYTES)
            return ConnectingHandshake(self._member, broker, _address_text(*address), nonce)

        link = PeerLink(
            self._loop,
            self.files,
            self._client_id,
            handshake,
            address_of,
            events,
            self._connect_to_peer,
            self._login,
        )
        link.silent = self._silent
        return link

    def _listening_handshake(self) -> ListeningHandshake:
        config = self.node.config
        address = _address_text(config.internal_host, config.internal_port)
        return ListeningHandshake(self._member, address, os.urandom(NONCE_BYTES))

    def peer_lost(self) -> None:
        """Check whether another broker is dead: a connection to it broke."""
        if self.node.halted is not None:
            return
        self._deaths.peer_lost()

    def connection_ended(self, connection: Connection) -> None:
        """Count and log a connection that this broker closed."""
        if connection.close_code is not CloseCode.NOT_COUNTED:
            self._record_end(connection, connection.close_code, connection.broken_by)

    def authentication_failed(self, connection: Connection, why: str) -> None:
        """Count and log a failed authentication, before the connection is closed for it."""
        self._record_end(connection, CloseCode.AUTHENTICATION, why)

    def metrics_refused(self, peer: str) -> None:
        """Count and log a request for metrics with missing or wrong credentials."""
        code = CloseCode.AUTHENTICATION
        self.ended[code] = self.ended.get(code, 0) + 1
        self.event_log.metrics_refused(peer)

    def _record_end(self, connection: Connection, code: CloseCode, why: str) -> None:
        self.ended[code] = self.ended.get(code, 0) + 1
        self.event_log.connection_ended(connection.peer_name, code, why)

    def _isolate(self, isolated: bool) -> None:
        """A fault switch: drop all messages between this broker and the others."""
        self._silent = isolated
        self.brokers.isolate(isolated)
        for link in list(self._links.values()):
            if isolated:
                link.silent = True
            else:
                link.heal()


class SaslGates:
    """The gates of one broker's listeners with SASL, and its logins at other brokers."""

    def __init__(
        self,
        loop: EventLoop,
        settings: BrokerSettings,
        node: Node,
        secret: str,
        failed: Callable[[Connection, str], None],
        fault: Callable[[Exception], None],
        tokens: "TokenListeners | None",
    ) -> None:
        """`failed` is called with each authentication that fails, and the reason."""
        self._loop = loop
        self._settings = settings
        self._node = node
        self._secret = secret
        self._failed = failed
        self._fault = fault
        self._tokens = tokens

    def before(self, listener: ListenerAddress, serve: "Frame") -> "Frame | None":
        """Return the function for frames of a client listener; None without SASL."""
        return self._gate(listener, serve, Connection.set_proved)

    def before_brokers(self, serve: "Frame", entrance: "Frame") -> "Frame | None":
        """Return the function for frames of brokers that are not authenticated yet; None without
        SASL. Later frames go to `entrance`."""
        listener = self._settings.internal_listener
        return self._gate(listener, serve, lambda connection: connection.handle_by(entrance))

    def _gate(
        self,
        listener: ListenerAddress,
        serve: "Frame",
        authenticated: Callable[[Connection], None],
    ) -> "Frame | None":
        if not uses_sasl(self._settings.protocol(listener)):
            return None
        from tidelog.core.api.sasl_gate import SaslGate
        from tidelog.core.api.sasl_rules import sasl_rules

        sasl = self._settings.sasl(listener)
        own, address = None, ""
        if listener in self._settings.listeners.clients:
            named = [one for one in self._node.config.listeners if one.name == listener.name]
            address = named[0].address
        else:
            sasl = sasl._replace(max_reauth_ms={})  # a link between brokers is used without a pause
            own = self._settings.broker_login
        tokens = None if self._tokens is None else self._tokens.check(listener)
        rules = sasl_rules(sasl, self._node.image, self._secret, os.urandom, own, address, tokens)
        loop = self._loop
        return SaslGate(
            rules,
            serve,
            authenticated,
            self._failed,
            loop.clock.now_ms,
            loop.after,
            self._fault,
        ).frame

    def login_of(self, client_id: str) -> "Callable[[], SaslLogin] | None":
        """Return the function that makes logins at other brokers; None without SASL."""
        wanted = self._settings.broker_login
        if wanted is None:
            return None
        if wanted.token is not None:
            tokens = self._tokens
            assert tokens is not None, "a listener uses OAUTHBEARER"
            return lambda: tokens.login(client_id)
        from tidelog.core.api.sasl_rules import broker_login

        return lambda: broker_login(wanted, client_id, os.urandom)


class ClientService:
    """Handles the frames of one client listener."""

    def __init__(self, host: BrokerHost, frame: "Frame") -> None:
        self._host = host
        self.frame = frame

    def closed(self, connection: Connection) -> None:
        self._host.connection_ended(connection)


class BrokerService:
    """Handles the frames of the internal listener."""

    def __init__(self, host: BrokerHost, gates: "SaslGates") -> None:
        self._host = host
        self._isolated = False
        self._ignored: set[Connection] = set()
        self._authenticate = gates.before_brokers(self._frame, self._gated_frame)
        self.frame: Frame = self._frame if self._authenticate is None else self._gated_frame

    def _frame(self, connection: Connection, frame: memoryview) -> None:
        if not self._isolated or _is_set_faults(frame):
            self._host.internal_dispatch.frame(connection, frame)
            if connection.unproven and connection.session.broker is not None:
                connection.set_proved()
        else:
            self._ignored.add(connection)

    def _gated_frame(self, connection: Connection, frame: memoryview) -> None:
        """Handle a frame on a listener with SASL. Fault switches need no authentication."""
        gate = self._authenticate
        is_known = connection.session.principal is not ANONYMOUS
        if gate is None or is_known or self._isolated or _is_set_faults(frame):
            self._frame(connection, frame)
        else:
            gate(connection, frame)

    def isolate(self, isolated: bool) -> None:
        """A fault switch. At its end, connections whose requests were ignored are closed."""
        self._isolated = isolated
        if not isolated:
            for connection in list(self._ignored):
                connection.close("isolated by a fault switch")

    def closed(self, connection: Connection) -> None:
        self._ignored.discard(connection)
        if connection.session.broker is not None:
            self._host.peer_lost()
        elif connection.close_code in (CloseCode.NOT_A_BROKER, CloseCode.TLS):
            self._host.connection_ended(connection)


def _address_text(host: str, port: int) -> str:
    """An internal listener's address, as both brokers of a handshake know it."""
    return f"{host}:{port}"


def _is_set_faults(frame: memoryview) -> bool:
    return int.from_bytes(frame[:2], "big") == SET_FAULTS


def _close(effect: do.Close) -> None:
    effect.peer.refuse("a produce with acks=0 failed", CloseCode.FAILED_PRODUCE)  # type: ignore[attr-defined]


def _new_topic_id() -> bytes:
    while True:
        topic_id = os.urandom(16)
        # Kafka reserves ids with these bytes; base64 of 0xf8 begins with "-", like an option.
        if any(topic_id[:15]) and not topic_id.startswith(b"\xf8"):
            return topic_id


def _start_index() -> int:
    return int.from_bytes(os.urandom(4), "big")


def file_source(disks: Sequence[OsDisk | None], node: Node) -> FileSource:
    """Return the files of one log directory or of several."""
    if len(disks) == 1 and disks[0] is not None:
        return disks[0]

    def place_of(folder: str) -> int:
        partition = layout.parse_dir(folder)
        return 0 if partition is None else node.directory.place_of(partition)

    return OsDisks(disks, place_of)


class FaultyDisk(OsDisk):
    """A disk that fails writes while `full` is set, and writes, reads and syncs while `broken`
    is set."""

    full = False
    broken = False

    def append(self, path: str, buffers: Sequence[Buffer]) -> int:
        self._check(path)
        return super().append(path, buffers)

    def write(self, path: str, data: Buffer) -> None:
        self._check(path)
        super().write(path, data)

    def read(self, path: str, position: int, length: int) -> bytes:
        self._check_broken(path)
        return super().read(path, position, length)

    def sync(self, path: str) -> None:
        self._check_broken(path)
        super().sync(path)

    def sync_dir(self, path: str) -> None:
        self._check_broken(path)
        super().sync_dir(path)

    def _check_broken(self, path: str) -> None:
        if self.broken:
            raise DiskError("Input/output error (fault switch)", path)

    def _check(self, path: str) -> None:
        self._check_broken(path)
        if self.full:
            raise DiskFull("No space left on device (fault switch)", path)


class FaultSwitches:
    """Faults on request, for `tidelog verify` and tests: an isolated broker, a full disk, a broken
    disk of one log directory.

    A broker has them only if it was started with `tidelog.fault.switches=true`. They are set over
    its internal listener. Other faults (kill -9, SIGSTOP) need no support in the broker.
    """

    def __init__(self, disks: Sequence[FaultyDisk], isolate: Callable[[bool], None]) -> None:
        self._disks = disks
        self._isolate = isolate
        self._isolated = False

    def set(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """Set `isolate` (drop all messages between brokers), `disk_full`, and `broken` (the paths
        of log directories whose disk fails); return the states."""
        for disk in self._disks:
            if "disk_full" in wanted:
                disk.full = bool(wanted["disk_full"])
            if "broken" in wanted:
                disk.broken = disk.root in wanted["broken"]
        if "isolate" in wanted and bool(wanted["isolate"]) != self._isolated:
            self._isolated = bool(wanted["isolate"])
            self._isolate(self._isolated)
        full = any(disk.full for disk in self._disks)
        broken = [disk.root for disk in self._disks if disk.broken]
        return {"disk_full": full, "isolate": self._isolated, "broken": broken}
