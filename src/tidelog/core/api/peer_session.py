"""The peer of one connection: its identity, and the handshake that proves it.

Each connection has one session from the moment it is accepted. The handshake between brokers
(handshake.py) and SASL (sasl_gate.py) prove who the peer is.
"""

from typing import Any

from tidelog.core.principal import ANONYMOUS
from tidelog.core.types import BrokerId


class PeerSession:
    """The authentication state of one connection."""

    __slots__ = ("broker", "handshake", "principal", "sasl", "software")

    def __init__(self) -> None:
        self.broker: BrokerId | None = None
        """The broker that the peer has proved to be; None for clients and before the proof."""
        self.principal = ANONYMOUS
        """Whom the connection's requests are authorised as."""
        self.handshake: Any = None
        """The handshake in progress, if any."""
        self.sasl: Any = None
        """The state of SASL, on a listener that uses it (sasl_exchange.py)."""
        self.software = ""
        """The client library's name and version, as it sent them in ApiVersions."""
