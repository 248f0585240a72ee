"""Listeners as Kafka spells them: NAME://host:port, several between commas.

Tidelog opens one for clients. Those meant for Kafka's controllers are left out, so that
Kafka's own files can be used as they are.
"""

from typing import NamedTuple

from tidelog.core.settings.setting import INT_MAX, WrongValue

PLAINTEXT = "PLAINTEXT"
_PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_EVERYWHERE = ("", "0.0.0.0", "::")


class Listener(NamedTuple):
    """An empty host is every address of the machine; port 0 a free one."""

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
    """host:port, with an IPv6 host in brackets."""
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port[:6]) > 65535:
        raise WrongValue(f"{text!r} must end in :port, a number up to 65535")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host or "/" in host or "[" in host:
        raise WrongValue(f"{host!r} is no host; an IPv6 address goes in brackets, as [::1]:9092")
    return host, int(port)


def parse_listener(text: str) -> Listener:
    """One listener; its name may be in any case."""
    name, separator, address = text.partition("://")
    if not separator or not name:
        raise WrongValue(f"{text!r} must look like {PLAINTEXT}://host:port")
    return Listener(name.upper(), *parse_address(address))


def parse_overrides(text: str) -> dict[str, int]:
    """host:count between commas; an IPv6 address needs no brackets here."""
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
    """The one that clients use; raises WrongValue where there is none, or more."""
    left_out = {name.upper() for name in for_controllers}
    found = [one for text in listeners if (one := parse_listener(text)).name not in left_out]
    if not found:
        raise WrongValue(f"names no listener for clients; add {PLAINTEXT}://:9092")
    if len(found) > 1:
        names = ", ".join(one.name for one in found)
        raise WrongValue(
            f"names several listeners for clients ({names}); keep one, and put those of"
            " controllers into controller.listener.names"
        )
    spoken = parse_protocols(protocols)
    for name in (found[0].name, *(parse_listener(text).name for text in listeners)):
        protocol = spoken.get(name, name)
        if protocol in _PROTOCOLS and protocol != PLAINTEXT:
            raise WrongValue(f"{name} uses {protocol}; Tidelog supports only {PLAINTEXT} so far")
    return found[0]


def parse_protocols(texts: tuple[str, ...]) -> dict[str, str]:
    """NAME:PROTOCOL pairs."""
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
    """What clients are told: what is configured, else the host that is listened on."""
    for text in advertised:
        told = parse_listener(text)
        if told.name == listener.name:
            return told._replace(port=told.port or bound_port)
    host = hostname if listener.everywhere else listener.host
    return Listener(listener.name, host, bound_port)


def check_advertised(listener: Listener, advertised: tuple[str, ...]) -> None:
    """Raises WrongValue where clients would be sent astray."""
    told = [one for text in advertised if (one := parse_listener(text)).name == listener.name]
    if advertised and not told:
        raise WrongValue(f"must name the listener {listener.name}")
    if told and told[0].everywhere:
        raise WrongValue(f"{told[0]} must have a host that clients can reach")
