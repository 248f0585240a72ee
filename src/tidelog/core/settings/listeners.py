"""Listeners in Kafka's form: NAME://host:port, several separated by commas.

Each client listener has a name; a client gets the addresses of the listener that it connected to.
One listener is for brokers only: the one that `inter.broker.listener.name` names if clients have
another one, else `tidelog.internal.listener`. Listeners for Kafka's controllers are ignored, so
that Kafka's own files can be used unchanged.
"""

from collections.abc import Iterable
from typing import NamedTuple

from tidelog.core.settings.setting import INT_MAX, WrongValue

PLAINTEXT = "PLAINTEXT"
SSL = "SSL"
SASL_PLAINTEXT = "SASL_PLAINTEXT"
SASL_SSL = "SASL_SSL"
PROTOCOLS = (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL)
_WITHOUT_SASL = {SASL_PLAINTEXT: PLAINTEXT, SASL_SSL: SSL}
_ALL_ADDRESSES = ("0.0.0.0", "::")
_EVERYWHERE = ("", *_ALL_ADDRESSES)


def uses_tls(protocol: str) -> bool:
    """Whether connections of a protocol use TLS."""
    return protocol in (SSL, SASL_SSL)


def uses_sasl(protocol: str) -> bool:
    """Whether connections of a protocol begin with SASL."""
    return protocol in _WITHOUT_SASL


def without_sasl(protocol: str) -> str:
    """Return the protocol with the same encryption, without SASL."""
    return _WITHOUT_SASL.get(protocol, protocol)


class Listener(NamedTuple):
    """A listener. An empty host means all addresses of the machine; port 0 means a free port."""

    name: str
    host: str
    port: int

    @property
    def everywhere(self) -> bool:
        return self.host in _EVERYWHERE

    @property
    def address(self) -> str:
        """Host and port, with an IPv6 host in brackets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.name}://{self.address}"


def parse_address(text: str) -> tuple[str, int]:
    """Parse host:port, with an IPv6 host in brackets. Raises WrongValue."""
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port[:6]) > 65535:
        raise WrongValue(f"{text!r} must end in :port, a number up to 65535")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host or "/" in host or "[" in host:
        raise WrongValue(f"{host!r} is not a host; put an IPv6 address in brackets: [::1]:9092")
    return host, int(port)


def parse_listener(text: str) -> Listener:
    """Parse one listener; its name may be in any case. Raises WrongValue."""
    name, separator, address = text.partition("://")
    if not separator or not name:
        raise WrongValue(f"{text!r} must look like {PLAINTEXT}://host:port")
    return Listener(name.upper(), *parse_address(address))


def parse_overrides(text: str) -> dict[str, int]:
    """Parse host:count pairs; an IPv6 address needs no brackets. Raises WrongValue."""
    counts: dict[str, int] = {}
    for item in filter(None, (item.strip() for item in text.split(","))):
        host, _, count = item.rpartition(":")
        if not host or not (count.isascii() and count.isdigit()):
            raise WrongValue(f"{item!r} must look like host:count")
        counts[host.strip("[]")] = min(int(count[:10]), INT_MAX)
    return counts


class Listeners(NamedTuple):
    """The listeners in `listeners`, without those of controllers."""

    clients: tuple[Listener, ...]
    between_brokers: Listener | None
    """The listener that `inter.broker.listener.name` gives to brokers; None: none of these."""


def split_listeners(
    listeners: tuple[str, ...],
    for_controllers: tuple[str, ...],
    protocols: tuple[str, ...],
    inter_broker: str | None,
) -> Listeners:
    """The listeners for clients and the one for brokers. Raises WrongValue.

    If clients have no other listener than the one for brokers, it is for clients only: Kafka's own
    files name their one listener in `inter.broker.listener.name`.
    """
    every = [parse_listener(text) for text in listeners]
    _check_protocols(every, protocols)
    ignored = {name.upper() for name in for_controllers}
    found = [one for one in every if one.name not in ignored]
    if not found:
        raise WrongValue(f"has no listener for clients; add {PLAINTEXT}://:9092")
    _check_distinct(found)
    if inter_broker is None:
        return Listeners(tuple(found), None)
    name = inter_broker.upper()
    named = [one for one in found if one.name == name]
    if not named:
        names = ", ".join(one.name for one in found)
        raise WrongValue(f"inter.broker.listener.name={inter_broker} must be one of {names}")
    if len(found) == 1:
        return Listeners(tuple(found), None)
    return Listeners(tuple(one for one in found if one.name != name), named[0])


def _check_protocols(listeners: list[Listener], protocols: tuple[str, ...]) -> None:
    named = parse_protocols(protocols)
    for name in (one.name for one in listeners):
        if named and name not in named and name not in PROTOCOLS:
            raise WrongValue(
                f"{name} is not in listener.security.protocol.map: add {name}:{PLAINTEXT} or"
                f" {name}:{SSL}"
            )


def _check_distinct(listeners: list[Listener]) -> None:
    """Refuse listeners with equal names, and listeners that can't be open at the same time."""
    names = [one.name for one in listeners]
    for name in names:
        if names.count(name) > 1:
            raise WrongValue(f"has two listeners named {name}; give each listener its own name")
    places = [(one.host, one.port) for one in listeners if one.port]
    for place in places:
        if places.count(place) > 1:
            raise WrongValue(f"has two listeners on port {place[1]}; give each its own port")


def parse_protocols(texts: tuple[str, ...]) -> dict[str, str]:
    """Parse NAME:PROTOCOL pairs. Raises WrongValue."""
    protocols = {}
    for text in texts:
        name, _, protocol = text.upper().partition(":")
        if protocol not in PROTOCOLS:
            raise WrongValue(f"{text!r} must be NAME:PROTOCOL with one of {', '.join(PROTOCOLS)}")
        protocols[name] = protocol
    return protocols


def protocol_of(name: str, protocols: tuple[str, ...]) -> str:
    """The protocol of a listener; PLAINTEXT if it has none and is not named after one."""
    default = name if name in PROTOCOLS else PLAINTEXT
    return parse_protocols(protocols).get(name, default)


def advertised_listener(
    listener: Listener, advertised: tuple[str, ...], bound_port: int, hostname: str
) -> Listener:
    """The address for clients: the configured one, else the host that the broker listens on."""
    for text in advertised:
        one = parse_listener(text)
        if one.name == listener.name:
            return one._replace(port=one.port or bound_port)
    host = hostname if listener.everywhere else listener.host
    return Listener(listener.name, host, bound_port)


def check_advertised(listeners: Iterable[Listener], advertised: tuple[str, ...]) -> None:
    """Raise WrongValue if clients or brokers would get an address that they cannot reach."""
    by_name = {one.name: one for one in map(parse_listener, advertised)}
    for listener in listeners:
        named = by_name.get(listener.name)
        if advertised and named is None:
            raise WrongValue(
                f"must name the listener {listener.name}: add {listener.name}://HOST:PORT"
            )
        if named is not None and named.everywhere:
            raise WrongValue(
                f"{named} must have a host that clients can reach:"
                f" set {listener.name}://HOST:{named.port}"
            )
        if named is None and listener.host in _ALL_ADDRESSES:
            raise WrongValue(
                f"{listener} listens on all addresses: set advertised.listeners to"
                f" {listener.name}://HOST:{listener.port or 'PORT'} with a host that clients can"
                " reach"
            )


def is_loopback(host: str) -> bool:
    """Whether only processes of this machine can reach a host."""
    return host in ("localhost", "::1") or host.startswith("127.")
