"""Parse the URL of a store on etcd, and check how its nodes may be reached.

    etcd://HOST:PORT,HOST:PORT,.../PREFIX     plain HTTP: on this machine only, unless allowed
    etcds://USER@HOST:PORT,.../PREFIX         TLS

The prefix separates clusters that share an etcd; without one it is `/tidelog/`. Passwords are never
part of a URL, because URLs are printed.
"""

from typing import TYPE_CHECKING, NamedTuple

from tidelog.shell.store.etcd.http_connection import Endpoint
from tidelog.shell.store.store_backend import StoreAccess, StoreUnusable

if TYPE_CHECKING:
    from ssl import SSLContext

PORT = 2379
PREFIX = "tidelog"
_SETTING = "tidelog.metadata.store"
_LOOPBACK = ("localhost", "::1")
_OWN_NAMES = ("data", "live", "past")
"""Where a store keeps its keys below its prefix (`records.py`)."""


class EtcdAddress(NamedTuple):
    """The nodes of an etcd cluster, the place of one store in it, and how to log in."""

    url: str
    endpoints: tuple[Endpoint, ...]
    prefix: str
    """Begins and ends with a slash."""
    secure: bool
    access: StoreAccess

    def allows(self, endpoint: Endpoint) -> bool:
        """Whether the node may be used: plain HTTP is for this machine only."""
        return self.secure or self.access.allow_plaintext or is_loopback(endpoint.host)

    def check_secret(self) -> None:
        """Raise StoreUnusable if the cluster's secret would be sent over a network unencrypted."""
        remote = not all(is_loopback(endpoint.host) for endpoint in self.endpoints)
        if remote and not self.secure and not self.access.secret_file:
            raise StoreUnusable(
                f"{self.url} is not encrypted, so the cluster's secret must not be kept there;"
                " write one to a file (head -c 32 /dev/urandom | base64), copy it to every machine,"
                " and name it with tidelog.cluster.secret.file or `tidelog up --secret-file`; or"
                " use etcds:"
            )

    def password(self) -> str:
        """The user's password, from its file. Raises StoreUnusable."""
        path = self.access.password_file
        if not path:
            raise StoreUnusable(
                f"{self.url}: the user {self.access.user} needs a password; name its file with"
                f" {_SETTING}.password.file"
            )
        try:
            with open(path, encoding="utf-8") as file:
                return file.readline().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8"
            raise StoreUnusable(f"can't read {_SETTING}.password.file {path}: {reason}") from error

    def tls(self) -> "SSLContext | None":
        """The context of TLS connections; None for plain HTTP. Raises StoreUnusable."""
        if not self.secure:
            return None
        import ssl

        access = self.access
        try:
            context = ssl.create_default_context(cafile=access.ca_file or None)
            if access.certificate_file:
                context.load_cert_chain(access.certificate_file, access.key_file or None)
        except (OSError, ssl.SSLError) as error:
            named = [
                f"{_SETTING}.{name}={path}"
                for name, path in (
                    ("ca.file", access.ca_file),
                    ("certificate.file", access.certificate_file),
                    ("key.file", access.key_file),
                )
                if path
            ]
            reason = getattr(error, "strerror", None) or str(error)
            raise StoreUnusable(
                f"can't use the TLS files of {self.url} ({', '.join(named)}): {reason}"
            ) from error
        return context


def parse_address(url: str, access: StoreAccess) -> EtcdAddress:
    """Parse a URL. Raises StoreUnusable."""
    scheme, _, rest = url.partition(":")
    hosts, _, prefix = rest.removeprefix("//").partition("/")
    user, at, hosts = hosts.rpartition("@")
    if ":" in user:
        raise StoreUnusable(
            f"{scheme}://…: a password must not be in the URL; put it in a file and name the file"
            f" with {_SETTING}.password.file"
        )
    if at:
        access = access._replace(user=user)
    if not rest.startswith("//") or not hosts:
        raise StoreUnusable(f"{_SETTING}={url} names no node; use {scheme}://HOST:PORT/PREFIX")
    endpoints = tuple(parse_endpoint(text, url) for text in hosts.split(","))
    stem = prefix.strip("/") or PREFIX
    for name in stem.split("/")[1:]:
        if name in _OWN_NAMES:
            raise StoreUnusable(
                f"{_SETTING}={url}: the prefix {stem} may contain another store's keys, because"
                f" stores use the name {name!r}; choose a prefix without it"
            )
    address = EtcdAddress(url, endpoints, f"/{stem}/", scheme == "etcds", access)
    for endpoint in endpoints:
        if not address.allows(endpoint):
            raise StoreUnusable(
                f"{_SETTING}={url}: {endpoint} is on another machine, and etcd: sends passwords and"
                f" metadata without encryption; use etcds:, or set {_SETTING}.allow.plaintext=true"
            )
    return address


def parse_endpoint(text: str, url: str) -> Endpoint:
    """Parse HOST, HOST:PORT or [IPV6]:PORT. Raises StoreUnusable."""
    text = text.strip()
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise StoreUnusable(f"{_SETTING}={url}: {text!r} is not HOST:PORT")
    return Endpoint(host, int(port))


def is_loopback(host: str) -> bool:
    """Whether the host is this machine by its address or name."""
    if host in _LOOPBACK:
        return True
    return host.startswith("127.") and host.replace(".", "").isdecimal()
