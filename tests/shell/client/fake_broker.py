"""A broker on a real socket that sends the responses of a test."""

import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from struct import unpack
from typing import Any

from tidelog.core.api_table import API_VERSIONS, APIS
from tidelog.core.wire.codec import Struct, decode_request, encode_response
from tidelog.core.wire.frames import RequestHeader, parse_request_header

METADATA = 3
PATIENCE_S = 120.0
UNSUPPORTED_VERSION = 35
HANG_UP = object()
"""Instead of an answer: close the connection."""
SILENCE = object()
"""Instead of an answer: nothing."""

Answer = Callable[[int, Struct], Any]
"""From version and request to a response, bytes to send as they are, or one of the above."""


class FakeBroker:
    """Listens on a free port; each connection has a thread."""

    def __init__(self, host: str = "127.0.0.1", broker_id: int = 1) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family)
        self.host = host
        self.id = broker_id
        self.port: int = self._listener.getsockname()[1]
        self.address = f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"
        self.answers: dict[int, Answer] = {}
        self.offered = {key: (api.first, api.last) for key, api in APIS.items() if key < 32000}
        self.newest_api_versions = 4
        self.asked: list[tuple[int, int, Struct]] = []
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        """Stop listening and close every connection; may be called twice."""
        if self._listener.fileno() < 0:
            return
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()
        for thread in self._threads:
            thread.join(timeout=PATIENCE_S)
            assert not thread.is_alive()

    def hang_up(self) -> None:
        """Close every connection."""
        for connection in self._connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def requests(self, api_key: int) -> list[Struct]:
        return [request for key, _, request in self.asked if key == api_key]

    def versions(self, api_key: int) -> list[int]:
        return [version for key, version, _ in self.asked if key == api_key]

    # -- the server -------------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while (frame := _receive_frame(connection)) is not None:
                    answer = self._answer(parse_request_header(frame), frame)
                    if answer is HANG_UP:
                        return
                    if answer is not SILENCE:
                        connection.sendall(answer)
            except OSError:
                return

    def _answer(self, header: RequestHeader, frame: bytes) -> Any:
        key, version, correlation = header[:3]
        if key == API_VERSIONS:
            return self._answer_versions(version, correlation)
        if key not in self.answers:
            return HANG_UP
        request = decode_request(key, version, frame, header.position)
        self.asked.append((key, version, request))
        answer = self.answers[key](version, request)
        if isinstance(answer, dict):
            return encode_response(key, version, correlation, answer)
        return answer

    def _answer_versions(self, version: int, correlation: int) -> bytes:
        self.asked.append((API_VERSIONS, version, {}))
        known = version <= self.newest_api_versions
        keys = [
            {"api_key": key, "min_version": first, "max_version": last}
            for key, (first, last) in self.offered.items()
        ]
        answer = {"error_code": 0 if known else UNSUPPORTED_VERSION, "api_keys": keys}
        return encode_response(API_VERSIONS, version if known else 0, correlation, answer)

    # -- answers that many tests want -------------------------------------------------------

    def tell_metadata(
        self,
        brokers: "Sequence[FakeBroker]",
        leaders: Mapping[str, Sequence[int]],
        controller: int = 1,
        ids: bool = True,
    ) -> None:
        """Respond to Metadata with these topics; `leaders` can be changed later."""

        def answer(_version: int, request: Struct) -> Struct:
            wanted = request["topics"]
            names = [*leaders] if wanted is None else [topic["name"] for topic in wanted]
            return {
                "brokers": [{"node_id": b.id, "host": b.host, "port": b.port} for b in brokers],
                "cluster_id": "fake",
                "controller_id": controller,
                "topics": [topic_answer(name, leaders.get(name), brokers, ids) for name in names],
            }

        self.answers[METADATA] = answer


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b".")


def topic_answer(
    name: str, leaders: Sequence[int] | None, brokers: Sequence[FakeBroker], ids: bool
) -> Struct:
    if leaders is None:
        return {"name": name, "error_code": 3, "partitions": []}
    everybody = [broker.id for broker in brokers]
    partitions = [
        {
            "partition_index": number,
            "error_code": 5 if leader < 0 else 0,
            "leader_id": leader,
            "leader_epoch": 7,
            "replica_nodes": everybody,
            "isr_nodes": everybody,
        }
        for number, leader in enumerate(leaders)
    ]
    found = {"name": name, "error_code": 0, "partitions": partitions}
    return {**found, "topic_id": topic_id(name)} if ids else found


def _receive_frame(connection: socket.socket) -> bytes | None:
    head = _receive(connection, 4)
    return None if head is None else _receive(connection, unpack(">i", head)[0])


def _receive(connection: socket.socket, length: int) -> bytes | None:
    data = b""
    while len(data) < length:
        part = connection.recv(length - len(data))
        if not part:
            return None
        data += part
    return data


@contextmanager
def fake_brokers(count: int, host: str = "127.0.0.1") -> Iterator[list[FakeBroker]]:
    """Start brokers 1 to `count`, and close them at the end."""
    brokers: list[FakeBroker] = []
    try:
        brokers.extend(FakeBroker(host, number + 1) for number in range(count))
        yield brokers
    finally:
        for broker in brokers:
            broker.close()
