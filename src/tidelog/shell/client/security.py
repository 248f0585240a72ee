"""How a client protects its connections: `security.protocol` and the settings of TLS.

The names are those of Kafka's clients, as in the file of `--command-config`.
"""

import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from tidelog.core.settings.listeners import PLAINTEXT, SSL, SUPPORTED
from tidelog.core.settings.setting import Value, WrongValue, parse
from tidelog.core.settings.tls import TLS_KEYS, read_tls

if TYPE_CHECKING:
    from ssl import SSLContext

PROTOCOL = "security.protocol"
_OTHERS = ("sasl.", "ssl.")
"""Settings that would weaken or change the protection if they were ignored."""


class ClientSecurity(NamedTuple):
    """Protects the connections of one client."""

    context: "Callable[[], SSLContext]"

    def protect(self, sock: socket.socket, host: str) -> socket.socket:
        """Begin TLS on a connected socket. Raises OSError, with the reason as its text."""
        import ssl

        from tidelog.shell.net.tls_transport import reason
        from tidelog.shell.net.transport import TransportFailed

        try:
            return self.context().wrap_socket(sock, server_hostname=host)
        except ssl.SSLError as error:
            raise TransportFailed(reason(error)) from None


def read_security(texts: Mapping[str, str]) -> ClientSecurity | None:
    """Read the settings of a client; None: connections are not protected. Raises WrongValue."""
    protocol = texts.get(PROTOCOL, PLAINTEXT).strip().upper()
    if protocol not in SUPPORTED:
        raise WrongValue(f"{PROTOCOL}={protocol} must be one of {', '.join(SUPPORTED)}")
    for name in texts:
        if name.startswith(_OTHERS) and name not in TLS_KEYS:
            raise WrongValue(f"{name} is not supported; remove it")
    if protocol != SSL:
        return None
    from tidelog.shell.net.tls_context import client_context

    def get(name: str) -> Value:
        row = TLS_KEYS[name]
        return parse(row, texts[name]) if name in texts else row.default

    context = client_context(read_tls(get))
    return ClientSecurity(lambda: context)
