"""Send a Metadata v1 request without the client library, for readiness checks and `status`.

It imports nothing slow. Invariants: every call ends within its time-out and closes its socket;
every failure is a ProbeFailed.
"""

import socket
import struct
import time
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ssl import SSLContext

METADATA, METADATA_VERSION = 3, 1
CLIENT_ID = b"tidelog-up"
ANSWER_MAX = 1 << 28
"""Bytes; a longer response is not a broker's."""


class ProbeFailed(Exception):
    """The broker did not answer, or sent an invalid response. Its text is one line."""


class PartitionView(NamedTuple):
    """One partition in a Metadata response; leader -1 means none."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class MetadataView(NamedTuple):
    """One broker's Metadata response."""

    brokers: dict[int, tuple[str, int]]
    controller_id: int
    topics: dict[str, dict[int, PartitionView]]


def ask_metadata(
    host: str,
    port: int,
    timeout_s: float,
    topics: list[str] | None = None,
    tls: "SSLContext | None" = None,
) -> MetadataView:
    """Request Metadata of these topics; None means all. `tls`: the port requires TLS.

    Raises ProbeFailed.
    """
    if topics is None:
        body = struct.pack(">i", -1)
    else:
        names = [name.encode() for name in topics]
        body = struct.pack(">i", len(names))
        body += b"".join(struct.pack(">h", len(name)) + name for name in names)
    answer = _exchange(host, port, METADATA, METADATA_VERSION, body, timeout_s, tls)
    try:
        return _MetadataReader(answer).view()
    except (struct.error, UnicodeDecodeError) as error:
        raise ProbeFailed(f"{host}:{port} sent an invalid Metadata response") from error


def call_private(
    host: str,
    port: int,
    api_key: int,
    body: dict[str, Any],
    timeout_s: float,
    tls: "SSLContext | None" = None,
) -> dict[str, Any]:
    """Call one of Tidelog's own APIs, which exchange JSON documents. `tls`: the port requires TLS.

    Raises ProbeFailed.
    """
    import json

    document = json.dumps(body).encode()
    request = struct.pack(">i", len(document)) + document
    answer = _exchange(host, port, api_key, 0, request, timeout_s, tls)
    try:
        (length,) = struct.unpack_from(">i", answer)
        found = json.loads(answer[4 : 4 + length])
    except (struct.error, ValueError) as error:
        raise ProbeFailed(f"{host}:{port} returned invalid JSON") from error
    if not isinstance(found, dict):
        raise ProbeFailed(f"{host}:{port} returned {found!r}, not a JSON object")
    if set(found) == {"error"}:
        raise ProbeFailed(f"{host}:{port} refused: {found['error']}")
    return found


def _exchange(
    host: str,
    port: int,
    api_key: int,
    version: int,
    body: bytes,
    timeout_s: float,
    tls: "SSLContext | None" = None,
) -> bytes:
    """Exchange one request; return the response without its header.

    Request header v1, response header v0.
    """
    head = struct.pack(">hhih", api_key, version, 1, len(CLIENT_ID)) + CLIENT_ID
    until = time.monotonic() + timeout_s
    try:
        with _connect(host, port, timeout_s, tls) as connection:
            connection.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
            (size,) = struct.unpack(">i", _receive(connection, 4, until))
            if not 4 <= size <= ANSWER_MAX:
                raise ProbeFailed(f"{host}:{port} sent an invalid response")
            return _receive(connection, size, until)[4:]
    except OSError as error:
        raise ProbeFailed(f"can't query {host}:{port}: {error.strerror or error}") from error


def _connect(host: str, port: int, timeout_s: float, tls: "SSLContext | None") -> socket.socket:
    """Connect to the first address that accepts. The host is passed as bytes: for a str, Python
    imports a codec, which takes longer than the whole call."""
    refused: OSError = ConnectionRefusedError("no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(
        host.encode(), port, type=socket.SOCK_STREAM
    ):
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(timeout_s)
            connection.connect(address)
            return tls.wrap_socket(connection, server_hostname=host) if tls else connection
        except OSError as error:
            connection.close()
            refused = error
    raise refused


def _receive(connection: socket.socket, size: int, until: float) -> bytes:
    parts = []
    while size:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError("no response in time")
        connection.settimeout(left)
        part = connection.recv(min(size, 1 << 20))
        if not part:
            raise ConnectionResetError("connection closed before the response was complete")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


class _MetadataReader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def view(self) -> MetadataView:
        brokers = {}
        for _ in range(self._number(">i")):
            broker = self._number(">i")
            brokers[broker] = (self._string(), self._number(">i"))
            self._string()  # its rack
        controller = self._number(">i")
        topics = {}
        for _ in range(self._number(">i")):
            self._at += 2  # the topic's error
            name = self._string()
            self._at += 1  # whether it is internal
            topics[name] = dict(self._partition() for _ in range(self._number(">i")))
        return MetadataView(brokers, controller, topics)

    def _partition(self) -> tuple[int, PartitionView]:
        self._at += 2  # its error
        partition, leader = self._number(">i"), self._number(">i")
        return partition, PartitionView(leader, self._numbers(), self._numbers())

    def _number(self, form: str) -> int:
        (number,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return int(number)

    def _numbers(self) -> tuple[int, ...]:
        return tuple(self._number(">i") for _ in range(self._number(">i")))

    def _string(self) -> str:
        length = max(self._number(">h"), 0)
        text = self._data[self._at : self._at + length].decode()
        self._at += length
        return text
