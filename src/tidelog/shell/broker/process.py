"""Run one or more brokers in this process, from their settings to their end.

A broker checks what it owns before it changes anything: it locks the log directory, checks which
broker and cluster the directory belongs to, binds the ports, and then opens the logs.
"""

import os
import signal
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from tidelog.core.controller.metadata.history import WAY_OUT
from tidelog.core.node import effects as do
from tidelog.core.node.config import node_config
from tidelog.core.node.node import Node
from tidelog.core.sasl.mechanism import OAUTHBEARER
from tidelog.core.settings.broker_settings import BrokerSettings
from tidelog.core.settings.listeners import PLAINTEXT, uses_sasl, uses_tls
from tidelog.core.settings.listeners import Listener as ListenerAddress
from tidelog.core.settings.setting import WrongValue
from tidelog.core.storage.checkpoint import (
    CheckpointError,
    DamagedProperties,
    MetaProperties,
    read_properties,
)
from tidelog.core.storage.disk import DiskError
from tidelog.core.storage.log_directories import LogDisk
from tidelog.core.storage.log_directory import RecoveryProgress
from tidelog.core.wall_clock import ClockReading
from tidelog.shell.broker.host import BrokerHost, FaultyDisk
from tidelog.shell.clock import Clock, boot_id, boot_ms
from tidelog.shell.metrics.endpoint import MetricsEndpoint
from tidelog.shell.net.event_loop import EventLoop
from tidelog.shell.net.listener import (
    NEVER,
    CannotListen,
    Limits,
    Listener,
    NewTransport,
    UnprovenLimits,
    bind,
)
from tidelog.shell.net.same_host import listen_beside
from tidelog.shell.net.shared_limits import (
    UNLIMITED,
    Admission,
    AnswerMemory,
    ConnectionLimits,
    CreationRate,
    RequestMemory,
    Shares,
)
from tidelog.shell.net.transport import SocketTransport
from tidelog.shell.os_disk import OsDisk, make_folders, warning_if_open
from tidelog.shell.store.log_dir_lock import LockProof, LogDirInUse, LogDirLock
from tidelog.shell.store.open_store import store_of
from tidelog.shell.store.store_backend import BrokerSide, ClusterIdentity, StoreError

if TYPE_CHECKING:
    from tidelog.shell.broker.tls_listeners import TlsListeners
    from tidelog.shell.broker.token_listeners import TokenListeners

READ_WALL_CLOCK_MS = 1000
INTERNAL_FRAME_MAX = 100 * 1024 * 1024
UNPROVEN = UnprovenLimits(frame_max=16 * 1024, connections_max=64, deadline_ms=5000)
"""The frame is larger than any message of the handshake."""
STRANGERS = UnprovenLimits(frame_max=0, connections_max=1000, deadline_ms=30_000)
"""Of clients that are not authenticated; `sasl.server.max.receive.size` limits their frames."""
DESCRIPTORS_MAX = 1 << 16
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

Report: TypeAlias = Callable[[dict[str, object]], None]


class CannotStart(Exception):
    """A broker can't start. Its text is one line."""


class BrokerRun:
    """One broker of this process, from start to end."""

    def __init__(self, loop: EventLoop, settings: BrokerSettings, report: Report) -> None:
        self.id = settings.node_id
        self.halt: do.Halt | None = None
        self.done: Callable[[BrokerRun], None] = lambda _: None
        self._loop = loop
        self._settings = settings
        self._report = report
        self._listeners: list[Listener] = []
        self._said = "not acting"
        self._stopping = False
        self._warned = 0
        self._locks: list[LogDirLock] = []
        self._directories = [self._log_disk(path) for path in settings.log_dirs]
        if not self._disks:
            raise CannotStart("; ".join(f"{path}: {why}" for path, _, why in self._directories))
        descriptors = _descriptors()
        for disk in self._disks.values():
            share = descriptors // 4 // len(self._disks)
            disk.max_open_files = min(disk.max_open_files, share)
            disk.lease_descriptor_max = descriptors * 7 // 8
        self._connection_descriptors = descriptors // 2
        store = store_of(settings)
        properties = {number: self._properties_of(number) for number in list(self._disks)}
        known = [
            p.values["cluster.id"] for p in properties.values() if p and "cluster.id" in p.values
        ]
        identity = store.prepare(known[0] if known else None)
        for private in (*(disk.root for disk in self._disks.values()), *store.files):
            if (warning := warning_if_open(private)) is not None:
                self._note("WARN", warning)
        self._check_properties(properties, identity, store.place)
        self._tls = self._open_tls()
        tokens = self._open_tokens()
        clients, internal = self._bind()
        self._metrics = self._open_metrics()
        self._node = self._open_node([sockets[0] for sockets in clients], internal[0])
        self._warn()
        for number, one in properties.items():
            if one is None:
                self._node.directory.write_properties(self._new_properties(identity), number)
        self._store = store.open(
            BrokerSide(
                proof=LockProof(self._locks[0].path),
                now_ms=loop.clock.now_ms,
                deliver=loop.call_from_thread,
                session_timeout_ms=settings.get("broker.session.timeout.ms"),
                report=lambda text: self._note("WARN", text),
            )
        )
        self._host = BrokerHost(
            loop,
            self._node,
            [self._disks.get(number) for number in range(len(settings.log_dirs))],
            settings,
            identity,
            self._store,
            self._halted,
            self._note,
            self._tls,
            tokens,
        )
        self._listen(clients, internal)
        counts = (self._connections, self._ended)
        self._metrics.open(
            self._node,
            self._host.times,
            *counts,
            identity.cluster_id,
            self._host.metrics_refused,
        )
        config = self._node.config
        self._emit(
            "listening",
            host=config.host,
            port=config.port,
            internal_port=config.internal_port,
            listeners=[str(one) for one in config.listeners],
            metrics=self._metrics.address,
        )

    def _log_disk(self, path: str) -> LogDisk:
        """Lock a log directory and return its disk. With several, one that fails is left out."""
        try:
            make_folders(path)
            self._locks.append(LogDirLock.acquire(path))
            faulty = self._settings.get("tidelog.fault.switches")
            disk = FaultyDisk(path) if faulty else OsDisk(path)
        except OSError as error:
            if len(self._settings.log_dirs) == 1:
                raise
            return LogDisk(path, None, error.strerror or str(error))
        return LogDisk(path, disk)

    @property
    def _disks(self) -> dict[int, OsDisk]:
        """The disks of the log directories that can be used, by number."""
        disks = enumerate(one.disk for one in self._directories)
        return {number: disk for number, disk in disks if isinstance(disk, OsDisk)}

    def _properties_of(self, number: int) -> MetaProperties | None:
        """Return the identity of a log directory; None if it has none or can't be read."""
        try:
            return _properties_or_none(self._disks[number])
        except DiskError as error:
            if len(self._settings.log_dirs) == 1:
                raise
            one = self._directories[number]
            self._directories[number] = one._replace(disk=None, problem=str(error))
            return None

    def _check_properties(
        self,
        properties: dict[int, MetaProperties | None],
        identity: ClusterIdentity,
        place: str,
    ) -> None:
        paths: dict[str, str] = {}
        for number, one in properties.items():
            path = self._directories[number].path
            problem = one and one.mismatch(identity.cluster_id, self.id)
            if problem is not None:
                raise CannotStart(
                    f"{path} belongs to another broker or cluster: {problem}"
                    f" (metadata store {place}); use the store of its own cluster, or if that is"
                    f" lost, {WAY_OUT}"
                )
            directory_id = "" if one is None else one.values.get("directory.id", "")
            if directory_id in paths:
                raise CannotStart(
                    f"{path} and {paths[directory_id]} have the same directory.id: one is a copy"
                    " of the other; remove the copy from log.dirs"
                )
            if directory_id:
                paths[directory_id] = path

    def _new_properties(self, identity: ClusterIdentity) -> MetaProperties:
        return MetaProperties(
            {
                "version": "1",
                "cluster.id": identity.cluster_id,
                "node.id": str(self.id),
                "directory.id": _directory_id(),
            }
        )

    def _open_tls(self) -> "TlsListeners | None":
        """Read keys and certificates, if a listener uses them. Raises CannotStart."""
        settings = self._settings
        every = (*settings.listeners.clients, settings.internal_listener)
        if not any(uses_tls(settings.protocol(one)) for one in every) and (
            not settings.metrics_use_tls
        ):
            return None
        from tidelog.shell.broker.tls_listeners import TlsListeners

        try:
            return TlsListeners(self._loop, settings, lambda text: self._note("WARN", text))
        except WrongValue as wrong:
            raise CannotStart(str(wrong)) from None

    def _open_metrics(self) -> MetricsEndpoint:
        """Bind the listener for Prometheus, if there is one. Raises CannotStart, CannotListen."""
        settings = self._settings
        path = settings.get("tidelog.metrics.credentials.file")
        credentials = None
        if path and settings.metrics_listener is not None:
            from tidelog.shell.metrics.credentials import UnusableCredentials, read_credentials

            try:
                credentials = read_credentials(path)
            except UnusableCredentials as unusable:
                raise CannotStart(str(unusable)) from None
            if (warning := warning_if_open(path)) is not None:
                self._note("WARN", warning)
        new_transport = None if self._tls is None else self._tls.metrics_transport()
        return MetricsEndpoint(self._loop, settings.metrics_listener, new_transport, credentials)

    def _open_tokens(self) -> "TokenListeners | None":
        """Prepare the check of access tokens, if a listener uses them. Raises CannotStart."""
        settings = self._settings
        every = (*settings.listeners.clients, settings.internal_listener)
        with_sasl = [one for one in every if uses_sasl(settings.protocol(one))]
        if not any(OAUTHBEARER in settings.sasl(one).mechanisms for one in with_sasl):
            return None
        from tidelog.shell.broker.token_listeners import TokenListeners

        try:
            return TokenListeners(self._loop, settings, lambda text: self._note("WARN", text))
        except WrongValue as wrong:
            raise CannotStart(str(wrong)) from None

    def _bind(self) -> tuple[list[list[socket.socket]], list[socket.socket]]:
        """Open the listeners: the sockets of each client listener, and those for brokers."""
        internal = self._settings.internal_listener
        backlog = self._settings.get("socket.listen.backlog.size")
        clients = [
            bind(listener.host, listener.port, backlog)
            for listener in self._settings.listeners.clients
        ]
        between_brokers = bind(internal.host, internal.port, backlog)
        secure = self._settings.protocol(internal) != PLAINTEXT
        beside = [] if secure else [listen_beside(sock, backlog) for sock in between_brokers]
        return clients, between_brokers + [sock for sock in beside if sock is not None]

    def _open_node(self, clients: list[socket.socket], internal: socket.socket) -> Node:
        settings = self._settings
        hostname = socket.gethostname()
        listeners = tuple(
            settings.advertised(listener, sock.getsockname()[1], hostname)
            for listener, sock in zip(settings.listeners.clients, clients, strict=True)
        )
        bound_host, bound_port = internal.getsockname()[:2]
        between_brokers = settings.advertised_internal(bound_host, bound_port, hostname)
        if hostname in [*(one.host for one in listeners), between_brokers[0]]:
            _check_resolves(hostname)
        first = listeners[0]
        config = node_config(settings, first.host, first.port, *between_brokers, listeners)
        incarnation = int.from_bytes(os.urandom(4), "big") >> 1
        clock = self._loop.clock
        reading = ClockReading(clock.wall_ms(), boot_id(), boot_ms())
        return Node(
            config,
            self._directories,
            incarnation,
            clock.now_ms(),
            progress=self._recovering,
            clock=reading,
        )

    def _listen(self, clients: list[list[socket.socket]], internal: list[socket.socket]) -> None:
        get = self._settings.get
        limits = Limits(
            get("socket.request.max.bytes"),
            get("connections.max.idle.ms"),
            get("tidelog.request.receive.timeout.ms"),
            get("tidelog.max.in.flight.requests.per.connection"),
            get("socket.send.buffer.bytes"),
            get("socket.receive.buffer.bytes"),
            self._connection_descriptors,
        )
        # A broker that can't connect counts as dead, so proved brokers have no limit, and client
        # connections do not count. Unproven peers have tight limits.
        between_brokers = limits._replace(
            frame_max=INTERNAL_FRAME_MAX,
            receive_timeout_ms=NEVER,
            descriptor_max=DESCRIPTORS_MAX,
            unproven=UNPROVEN,
            is_for_brokers=True,
        )
        self._admission = Admission(
            self._connection_limits(), self._node.client_quotas.connection_wait_ms
        )
        shares = Shares(
            self._admission,
            RequestMemory(_bytes_or_unlimited(get("queued.max.request.bytes"))),
            AnswerMemory(_bytes_or_unlimited(get("tidelog.queued.max.response.bytes"))),
            CreationRate(),
        )
        rates = {
            one.name: CreationRate(self._settings.connection_rate(one))
            for one in self._node.config.listeners
        }
        unlimited = Shares.unlimited()
        self._host.listeners = self._listeners
        files = self._host.files
        services = zip(self._node.config.listeners, self._host.clients, clients, strict=True)
        self._by_name = {
            one.name: [
                Listener(
                    self._loop,
                    sock,
                    files,
                    service,
                    limits._replace(unproven=self._strangers_of(one)),
                    shares._replace(creation_rate=rates[one.name]),
                    self._transport_of(one),
                )
                for sock in sockets
            ]
            for one, service, sockets in services
        }
        for listeners in self._by_name.values():
            self._listeners += listeners
        self._listeners += [
            Listener(
                self._loop,
                sock,
                files,
                self._host.brokers,
                between_brokers,
                unlimited,
                self._transport_of(self._settings.internal_listener),
            )
            for sock in internal
        ]

    def _strangers_of(self, listener: ListenerAddress) -> UnprovenLimits | None:
        """Return the limits of clients that are not authenticated yet; None without SASL."""
        if not uses_sasl(self._settings.protocol(listener)):
            return None
        return STRANGERS._replace(frame_max=self._settings.sasl(listener).frame_max)

    def _transport_of(self, listener: ListenerAddress) -> NewTransport:
        secure = None if self._tls is None else self._tls.new_transport(listener)
        return secure or SocketTransport

    def _connection_limits(self) -> ConnectionLimits:
        get = self._settings.get
        overrides: dict[str, int] = {}
        for host, count in self._settings.connection_overrides.items():
            try:
                found = socket.getaddrinfo(host, None, 0, socket.SOCK_STREAM)
            except OSError as error:
                raise CannotStart(
                    f"can't resolve {host} in max.connections.per.ip.overrides: {error.strerror};"
                    " correct the name or remove the entry"
                ) from error
            overrides.update((str(address[0]), count) for *_, address in found)
        return ConnectionLimits(
            get("max.connections"),
            get("max.connections.per.ip"),
            overrides,
            get("max.connection.creation.rate"),
        )

    def _connections(self) -> dict[str, int]:
        """The number of open connections by listener."""
        total = sum(len(one.connections) for one in self._listeners)
        counts = {
            name: sum(len(one.connections) for one in listeners)
            for name, listeners in self._by_name.items()
        }
        return {**counts, self._settings.internal_listener.name: total - sum(counts.values())}

    def _ended(self) -> dict[str, int]:
        return {**self._host.ended, "too many": self._admission.refused}

    # -- start and stop --------------------------------------------------------------------------

    def start(self) -> None:
        self._host.start()
        self._loop.add_ticker(self)

    def stop(self) -> None:
        if not self._stopping:
            self._stopping = True
            self._emit("stopping")
            self._host.stop()

    def read_wall_clock(self) -> None:
        self._host.read_wall_clock()

    def next_deadline_ms(self) -> int | None:
        """Log new events after each turn. None: a run has no deadline of its own."""
        if self._node.journal.notes:
            self._host.event_log.log_journal()
        state = "detached" if self._node.detached else "not acting"
        state = "acting" if self._node.acting else state
        if state != self._said:
            self._said = state
            self._emit(state)
        self._warn()
        return None

    def tick(self) -> None:
        pass

    def _halted(self, halt: do.Halt) -> None:
        self.halt = halt
        self._loop.remove_ticker(self)
        for listener in self._listeners:
            listener.close()
        self._metrics.close()
        self._host.event_log.log_journal()
        self._host.close()
        self._loop.at_end_of_turn(self._end)

    def _end(self) -> None:
        assert self.halt is not None
        self._store.client.close()
        for lock in self._locks:
            lock.release()
        self._emit("stopped", clean=self.halt.clean, reason=self.halt.reason)
        self.done(self)

    # -- reports and log lines ------------------------------------------------------------------

    def _recovering(self, progress: RecoveryProgress) -> None:
        if progress.report is None:
            return
        if not progress.clean:
            self._emit(
                "recovering",
                partition=str(progress.partition),
                number=progress.number,
                of=progress.total,
                clean=progress.clean,
            )
        topic, partition = progress.partition
        for severe, text in progress.report.findings():
            level = "WARN" if severe else "INFO"
            self._note(level, text, "recovered", topic=topic, partition=partition)

    def _warn(self) -> None:
        """Log each warning of the log directory once."""
        warnings = self._node.directory.warnings
        while self._warned < len(warnings):
            self._note("WARN", warnings[self._warned])
            self._warned += 1

    def _note(self, level: str, text: str, event: str = "note", **fields: object) -> None:
        """Write one line to the log."""
        text = f"broker {self.id}: {text}"
        self._emit("log", level=level, text=text, name=event, fields=fields)

    def _emit(self, event: str, **facts: object) -> None:
        self._report({"event": event, "broker": self.id, **facts})


def run_brokers(settings: list[BrokerSettings], report: Report) -> int:
    """Run the brokers until a signal stops them cleanly; return the exit code."""
    loop = EventLoop(Clock())
    runs: list[BrokerRun] = []
    left: set[BrokerRun] = set()

    def done(run: BrokerRun) -> None:
        left.discard(run)
        if not left:
            loop.stop()

    def stop() -> None:
        for run in list(left):
            run.stop()

    def read_wall_clock() -> None:
        for run in list(left):
            run.read_wall_clock()
        loop.after(READ_WALL_CLOCK_MS, read_wall_clock)

    # A signal may reach another thread, or arrive just before the loop waits: the fd wakes it.
    signal.set_wakeup_fd(loop.wakeup_fd, warn_on_full_buffer=False)
    for number in STOP_SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, lambda _number, _frame: loop.call_from_thread(stop))
    starting = settings[0].node_id
    loop.busy_poll.us = max(one.get("tidelog.busy.poll.us") for one in settings)
    try:
        for one in settings:
            starting = one.node_id
            runs.append(BrokerRun(loop, one, report))
            left.add(runs[-1])
    except (
        CannotStart,
        CannotListen,
        LogDirInUse,
        StoreError,
        CheckpointError,
        DiskError,
        OSError,
    ) as error:
        report({"event": "failed", "broker": starting, "reason": str(error)})
        return 1
    for run in runs:
        run.done = done
        run.start()
    read_wall_clock()
    loop.run()
    signal.set_wakeup_fd(-1)
    loop.close()
    return 0 if all(run.halt is not None and run.halt.clean for run in runs) else 1


def _bytes_or_unlimited(count: int) -> int:
    return UNLIMITED if count < 0 else count


def _descriptors() -> int:
    """Raise the limit for open files and sockets as far as the system allows; return it."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return DESCRIPTORS_MAX if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        return soft
    return wanted


def _check_resolves(hostname: str) -> None:
    """Raise CannotStart if this machine's name, which clients and brokers get, has no address."""
    try:
        socket.getaddrinfo(hostname, None, 0, socket.SOCK_STREAM)
    except OSError as error:
        raise CannotStart(
            f"can't resolve this machine's name {hostname}: {error.strerror}; set"
            " advertised.listeners to a host that clients and brokers can reach"
        ) from error


def _properties_or_none(disk: OsDisk) -> MetaProperties | None:
    """Return None for a missing or damaged file; `LogDirectory.open` warns of a damaged one."""
    try:
        return read_properties(disk)
    except DamagedProperties:
        return None


def _directory_id() -> str:
    """Sixteen random bytes in Kafka's encoding of ids."""
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(os.urandom(16)).rstrip(b"=").decode()
