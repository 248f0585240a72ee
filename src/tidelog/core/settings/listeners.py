"""Listeners in Kafka's form: NAME://host:port, several separated by commas.

Tidelog opens one for clients. Listeners for Kafka's controllers are ignored, so that Kafka's own
files can be used unchanged.
"""

from typing import NamedTuple

from tidelog.core.settings.setting import INT_MAX, WrongValue

PLAINTEXT = "PLAINTEXT"
_PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_EVERYWHERE = ("", "0.0.0.0", "::")


class Listener(NamedTuple):
    """A listener. An empty host means all addresses of the machine; port 0 means a free port."""

    name: str
    host: str
    port: int

    @property
    def everywhere(self) -> bool:
        return self.host in _EVERYWHERE

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


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


def client_listener(
    listeners: tuple[str, ...],
    for_controllers: tuple[str, ...],
    protocols: tuple[str, ...],
) -> Listener:
    """The listener for clients. Raises WrongValue if there is none or more than one."""
    ignored = {name.upper() for name in for_controllers}
    found = [one for text in listeners if (one := parse_listener(text)).name not in ignored]
    if not found:
        raise WrongValue(f"has no listener for clients; add {PLAINTEXT}://:9092")
    if len(found) > 1:
        names = ", ".join(one.name for one in found)
        raise WrongValue(
            f"has several listeners for clients ({names}); keep one, and list those of"
            " controllers in controller.listener.names"
        )
    by_name = parse_protocols(protocols)
    for name in (found[0].name, *(parse_listener(text).name for text in listeners)):
        protocol = by_name.get(name, name)
        if protocol in _PROTOCOLS and protocol != PLAINTEXT:
            raise WrongValue(f"{name} uses {protocol}; Tidelog supports only {PLAINTEXT} so far")
    return found[0]


def parse_protocols(texts: tuple[str, ...]) -> dict[str, str]:
    """Parse NAME:PROTOCOL pairs. Raises WrongValue."""
    protocols = {}
    for text in texts:
        name, _, protocol = text.upper().partition(":")
        if protocol not in _PROTOCOLS:
            raise WrongValue(f"{text!r} must be NAME:PROTOCOL with one of {', '.join(_PROTOCOLS)}")
        protocols[name] = protocol
    return protocols


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


def check_advertised(listener: Listener, advertised: tuple[str, ...]) -> None:
    """Raise WrongValue if clients would get an address that they cannot reach."""
    named = [one for text in advertised if (one := parse_listener(text)).name == listener.name]
    if advertised and not named:
        raise WrongValue(f"must name the listener {listener.name}")
    if named and named[0].everywhere:
        raise WrongValue(f"{named[0]} must have a host that clients can reach")
