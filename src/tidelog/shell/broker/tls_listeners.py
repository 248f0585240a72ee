"""The TLS side of one broker: transports for its listeners and for its links to other brokers.

Imported only if a listener uses SSL: OpenSSL takes 4 MB of a broker's memory.
"""

import ssl
from collections.abc import Callable

from tidelog.core.authorization.distinguished_name import subject_of
from tidelog.core.authorization.ssl_names import SslPrincipalNames
from tidelog.core.principal import USER, Principal
from tidelog.core.settings.broker_settings import BrokerSettings
from tidelog.core.settings.listeners import SSL, Listener, uses_tls
from tidelog.core.settings.tls import TlsSettings
from tidelog.shell.net.connection import Connection
from tidelog.shell.net.event_loop import EventLoop, SocketHandler
from tidelog.shell.net.listener import NewTransport
from tidelog.shell.net.tls_context import RenewedContext, client_context, server_context
from tidelog.shell.net.tls_transport import Handshakes, Proof, TlsTransport
from tidelog.shell.net.transport import Address, Transport, connect_by_tcp

RENEW_MS = 5000
"""How often certificate files are checked."""


class TlsListeners:
    """The contexts of all listeners with TLS."""

    def __init__(
        self, loop: EventLoop, settings: BrokerSettings, report: Callable[[str], None]
    ) -> None:
        """Raises WrongValue if a key or a certificate can't be used."""
        self._loop = loop
        self._report = report
        self._handshakes = Handshakes(loop)
        self._renewed: dict[tuple[TlsSettings, bool], RenewedContext] = {}
        self._servers: dict[str, RenewedContext] = {}
        self._clients: dict[str, RenewedContext] = {}
        self._proofs: dict[str, Proof] = {}
        for listener in (*settings.listeners.clients, settings.internal_listener):
            if uses_tls(settings.protocol(listener)):
                own = settings.tls(listener)
                self._servers[listener.name] = self._follow(own, is_server=True)
                self._clients[listener.name] = self._follow(own, is_server=False)
                plain_tls = settings.protocol(listener) == SSL  # with SASL, users are principals
                if plain_tls and listener != settings.internal_listener:
                    self._proofs[listener.name] = names_principals(own.principal_rules)
        self._metrics: RenewedContext | None = None
        listener_of_metrics = settings.metrics_listener
        if listener_of_metrics is not None and settings.metrics_use_tls:
            self._metrics = self._follow(settings.tls(listener_of_metrics), is_server=True)
        loop.after(RENEW_MS, self._renew)

    def metrics_transport(self) -> NewTransport | None:
        """Return the factory of transports for the metrics; None without TLS."""
        context = self._metrics
        if context is None:
            return None
        return lambda sock: TlsTransport(sock, context(), self._handshakes)

    def new_transport(self, listener: Listener) -> NewTransport | None:
        """Return the factory of transports for a listener's connections; None without TLS."""
        context = self._servers.get(listener.name)
        if context is None:
            return None
        proof = self._proofs.get(listener.name)
        return lambda sock: TlsTransport(sock, context(), self._handshakes, None, proof)

    def connect_to(self, listener: Listener) -> Callable[[Address], Transport | None] | None:
        """Return the function that connects to this listener of another broker; None without
        TLS."""
        context = self._clients.get(listener.name)
        if context is None:
            return None

        def connect(address: Address) -> Transport | None:
            sock = connect_by_tcp(address)
            if sock is None:
                return None
            return TlsTransport(sock, context(), self._handshakes, address[0])

        return connect

    def client(self, listener: Listener) -> Callable[[], ssl.SSLContext] | None:
        """Return the context of this broker as a client of such a listener; None without TLS."""
        return self._clients.get(listener.name)

    def _follow(self, settings: TlsSettings, *, is_server: bool) -> RenewedContext:
        """Return the context of these settings; only that of servers reports its renewal."""
        key = settings, is_server
        if key not in self._renewed:
            make = server_context if is_server else client_context
            report = self._report if is_server else lambda _text: None
            self._renewed[key] = RenewedContext(settings, make, report)
        return self._renewed[key]

    def _renew(self) -> None:
        for context in self._renewed.values():
            context.renew()
        self._loop.after(RENEW_MS, self._renew)


def names_principals(rules: str) -> Proof:
    """Return the function that gives a connection the principal of its certificate, by the rules of
    `ssl.principal.mapping.rules`. A client without a certificate stays anonymous."""
    names = SslPrincipalNames(rules)

    def prove(connection: SocketHandler, certificate: bytes) -> None:
        assert isinstance(connection, Connection), "the owner of an accepted connection"
        connection.session.principal = Principal(USER, names.name_of(subject_of(certificate)))

    return prove
