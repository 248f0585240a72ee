"""Fuzz a real broker process through real sockets.

Many connections at once send a few frames each: whole frames in pieces of any size, frames with a
wrong length, pipelined requests, and incomplete frames. A well-behaved client sends a request
regularly. At the end, memory and open sockets must be as before.
"""

import os
import select
import socket
import time
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from tidelog.core.api_table import API_VERSIONS, CREATE_PARTITIONS, CREATE_TOPICS
from tidelog.core.sasl.mechanism import PASSWORD_MECHANISMS, PLAIN
from tidelog.core.settings.jaas import PLAIN_MODULE
from tidelog.core.wire.codec import decode_response, encode_request
from tidelog.lab.fuzz.mutators import mutate
from tidelog.lab.fuzz.requests import RequestMaker, World, spare_brokers
from tidelog.lab.fuzz.sasl_campaign import PASSWORD, USER, beginning, hostile_frame
from tidelog.shell.client.admin import create_topic
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.security import read_security
from tidelog.shell.supervisor.cluster import LocalCluster
from tidelog.shell.supervisor.metadata_probe import MetadataView

CREATING = (CREATE_TOPICS, CREATE_PARTITIONS)
AT_ONCE = 48
QUIET_S = 0.03
"""If no data arrives for this long after the first response, the other requests are long polls."""
ANSWER_S = 1.0
CHECK_EVERY = 40
CHECK_S = 10.0
GROWTH_KB_MAX = 200_000
SETTLE_S = 30.0
POOL = 3000
TOPICS = ("orders", "prey")


class Report(NamedTuple):
    """The results of a run, and the faults of the broker."""

    frames: int
    answered: int
    slowest_check_s: float
    grown_kb: int
    sockets_left: int
    faults: list[str]


class SaslBroker(LocalCluster):
    """A broker whose clients must authenticate."""

    def __init__(self, settings: dict[str, str]) -> None:
        jaas = f'{PLAIN_MODULE} required user_{USER}="{PASSWORD}";'
        sasl = {
            "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": ",".join(PASSWORD_MECHANISMS),
            "listener.name.plaintext.plain.sasl.jaas.config": jaas,
        }
        super().__init__(brokers=1, settings={**settings, **sasl})

    def metadata(self, broker: int, *_: object) -> MetadataView:
        """Return what a query would: one without a login gets no response."""
        return MetadataView({broker: (self.host(broker), self.port(broker))}, broker, {})


_LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": PLAIN,
    "sasl.username": USER,
    "sasl.password": PASSWORD,
}


def run(
    seed: int,
    frames: int,
    seconds: float,
    seeds: list[bytes],
    progress: Callable[[int], None],
    *,
    sasl: bool = False,
) -> Report:
    """Start a broker, send it frames, and report the results. `sasl`: as a stranger, on a listener
    that requires a login."""
    settings = {"auto.create.topics.enable": "false"}
    with SaslBroker(settings) if sasl else LocalCluster(brokers=1, settings=settings) as cluster:
        with Cluster(cluster.bootstrap, security=read_security(_LOGIN if sasl else {})) as client:
            for topic in TOPICS:
                create_topic(client, topic, 2, 1)
            known = client.refresh(list(TOPICS)).topics
            world = World(TOPICS, tuple(known[topic].id for topic in TOPICS))
        kind = _StrangersRun if sasl else _Run
        return kind(seed, cluster, world, seeds).run(frames, seconds, progress)


class _Run:
    """One run against one broker."""

    def __init__(self, seed: int, cluster: LocalCluster, world: World, seeds: list[bytes]) -> None:
        self._random = Random(seed)
        self._cluster = cluster
        self._port = cluster.port(1)
        self._pid = cluster.pid(1)
        maker = RequestMaker(self._random, world)
        self._pool = [*seeds, *(maker.any() for _ in range(POOL - len(seeds)))]
        self._answered = 0
        self._slowest_s = 0.0
        self._faults: list[str] = []

    def run(self, frames: int, seconds: float, progress: Callable[[int], None]) -> Report:
        until_s = time.monotonic() + seconds
        sent = rounds = 0
        self._check_service()
        sockets, before_kb = open_sockets(self._pid), resident_kb(self._pid)
        while sent < frames and time.monotonic() < until_s and not self._faults:
            sent += self._round()
            rounds += 1
            if rounds % CHECK_EVERY == 0:
                self._check_service()
            progress(sent)
        self._check_service()
        left = self._settled(sockets)
        grown_kb = resident_kb(self._pid) - before_kb if not self._faults else 0
        if left > 0:
            self._faults.append(f"{left} sockets are still open")
        if grown_kb > GROWTH_KB_MAX:
            self._faults.append(f"memory grew by {grown_kb} KB")
        return Report(sent, self._answered, self._slowest_s, grown_kb, left, self._faults)

    def _round(self) -> int:
        """Open some connections at once; return the number of sent frames."""
        sent = 0
        peers: dict[int, socket.socket] = {}
        try:
            for _ in range(AT_ONCE):
                peer = socket.create_connection(("127.0.0.1", self._port), timeout=CHECK_S)
                peers[peer.fileno()] = peer
                peer.setblocking(False)
                count = self._random.choice((1, 1, 1, 2, 5))
                self._send(
                    peer, b"".join([*self._first(), *(self._framed() for _ in range(count))])
                )
                sent += count
            self._receive(peers)
        except OSError as error:
            self._faults.append(f"cannot connect: {error}")
        finally:
            for peer in peers.values():
                peer.close()
        return sent

    def _first(self) -> list[bytes]:
        """What a connection sends before its hostile frames."""
        return []

    def _framed(self) -> bytes:
        random, pool = self._random, self._pool
        frame = pool[int(random.random() * len(pool))]
        if random.random() < 0.8:
            frame = mutate(random, frame, pool)
        if int.from_bytes(frame[:2], "big") in CREATING and random.random() < 0.9:
            frame = frame[:8]  # a few new topics are enough
        frame = spare_brokers(frame)
        length = len(frame)
        if random.random() < 0.03:
            length = random.choice((0, 1, length - 1, length + 1, 2**31 - 1, -1, 1 << 20))
        return length.to_bytes(4, "big", signed=True) + frame

    def _send(self, peer: socket.socket, data: bytes) -> None:
        """Send data, sometimes in pieces, sometimes incomplete."""
        random = self._random
        if random.random() < 0.1:
            data = data[: int(random.random() * len(data))]
        pieces = [data]
        if random.random() < 0.3:
            at = int(random.random() * len(data))
            pieces = [data[:at], data[at:]]
        for piece in pieces:
            try:
                peer.send(piece)
            except OSError:
                return

    def _receive(self, peers: dict[int, socket.socket]) -> None:
        poll = select.poll()
        for fd in peers:
            poll.register(fd, select.POLLIN)
        until_s = time.monotonic() + ANSWER_S
        waiting = len(peers)
        patience_s = ANSWER_S
        while waiting and time.monotonic() < until_s and (ready := poll.poll(patience_s * 1000)):
            patience_s = QUIET_S
            for fd, _ in ready:
                poll.unregister(fd)
                waiting -= 1
                try:
                    self._answered += bool(peers[fd].recv(1 << 16))
                except OSError:
                    continue

    def _check_service(self) -> None:
        """Check that a well-behaved client is served."""
        if not self._cluster.is_running(1):
            self._faults.append("the broker has stopped")
            return
        began = time.monotonic()
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=CHECK_S) as peer:
                peer.sendall(encode_request(API_VERSIONS, 0, 7, "check", {}))
                answer = b""
                while len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
                    more = peer.recv(1 << 16)
                    if not more:
                        raise ConnectionError("connection closed by the broker")
                    answer += more
            number, response = decode_response(API_VERSIONS, 0, answer[4:])
            if (number, response["error_code"]) != (7, 0):
                self._faults.append(f"wrong response to a valid request: {number}, {response}")
        except OSError as error:
            self._faults.append(f"a valid request was not answered: {error}")
        self._slowest_s = max(self._slowest_s, time.monotonic() - began)

    def _settled(self, before: int) -> int:
        """Wait until the broker has closed its clients' sockets; return the number still open."""
        until_s = time.monotonic() + SETTLE_S
        while not self._faults and time.monotonic() < until_s:
            left = open_sockets(self._pid) - before
            if left <= 0:
                return left
            time.sleep(0.05)
        return open_sockets(self._pid) - before if not self._faults else 0


class _StrangersRun(_Run):
    """A run before, and in the middle of, a login by SASL."""

    def __init__(self, seed: int, cluster: LocalCluster, world: World, seeds: list[bytes]) -> None:
        super().__init__(seed, cluster, world, seeds)
        maker = RequestMaker(self._random, world)
        self._pool = [hostile_frame(self._random, maker) for _ in range(POOL)]

    def _first(self) -> list[bytes]:
        return [len(frame).to_bytes(4, "big") + frame for frame in beginning(self._random)]


def open_sockets(pid: int) -> int:
    """Return the number of open sockets of a process."""
    found = 0
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found += os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:")
        except FileNotFoundError:
            continue
    return found


def resident_kb(pid: int) -> int:
    """Return the resident memory of a process in KB."""
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024
