"""Frames through real sockets into a real broker process.

Many connections at once, each with a few frames: whole ones in any pieces, frames whose
length is wrong, requests pipelined, connections closed in the middle. Now and then an honest
client asks; in the end memory and descriptors are what they were.
"""

import os
import select
import socket
import time
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from tidelog.core.api_table import API_VERSIONS, CREATE_PARTITIONS, CREATE_TOPICS
from tidelog.core.wire.codec import decode_response, encode_request
from tidelog.lab.fuzz.mutators import mutate
from tidelog.lab.fuzz.requests import RequestMaker, World, spare_brokers
from tidelog.shell.client.admin import create_topic
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.supervisor.cluster import LocalCluster

CREATING = (CREATE_TOPICS, CREATE_PARTITIONS)
AT_ONCE = 48
QUIET_S = 0.03
"""When nothing has come for so long after the first answer, the rest are long polls."""
ANSWER_S = 1.0
HONEST_EVERY = 40
HONEST_S = 10.0
GROWTH_KB_MAX = 200_000
SETTLE_S = 30.0
STOCK = 3000
TOPICS = ("orders", "prey")


class Report(NamedTuple):
    """What became of the frames, and of the broker."""

    frames: int
    answered: int
    slowest_honest_s: float
    grown_kb: int
    sockets_left: int
    faults: list[str]


def run(
    seed: int, frames: int, seconds: float, seeds: list[bytes], progress: Callable[[int], None]
) -> Report:
    with LocalCluster(brokers=1, settings={"auto.create.topics.enable": "false"}) as cluster:
        with Cluster(cluster.bootstrap) as client:
            for topic in TOPICS:
                create_topic(client, topic, 2, 1)
            known = client.refresh(list(TOPICS)).topics
            world = World(TOPICS, tuple(known[topic].id for topic in TOPICS))
        return _Assault(seed, cluster, world, seeds).run(frames, seconds, progress)


class _Assault:
    def __init__(self, seed: int, cluster: LocalCluster, world: World, seeds: list[bytes]) -> None:
        self._random = Random(seed)
        self._cluster = cluster
        self._port = cluster.port(1)
        self._pid = cluster.pid(1)
        maker = RequestMaker(self._random, world)
        self._stock = [*seeds, *(maker.any() for _ in range(STOCK - len(seeds)))]
        self._answered = 0
        self._slowest_s = 0.0
        self._faults: list[str] = []

    def run(self, frames: int, seconds: float, progress: Callable[[int], None]) -> Report:
        until_s = time.monotonic() + seconds
        sent = rounds = 0
        self._ask_honestly()
        sockets, before_kb = open_sockets(self._pid), resident_kb(self._pid)
        while sent < frames and time.monotonic() < until_s and not self._faults:
            sent += self._round()
            rounds += 1
            if rounds % HONEST_EVERY == 0:
                self._ask_honestly()
            progress(sent)
        self._ask_honestly()
        left = self._settled(sockets)
        grown_kb = resident_kb(self._pid) - before_kb if not self._faults else 0
        if left > 0:
            self._faults.append(f"{left} sockets are still open")
        if grown_kb > GROWTH_KB_MAX:
            self._faults.append(f"memory grew by {grown_kb} KB")
        return Report(sent, self._answered, self._slowest_s, grown_kb, left, self._faults)

    def _round(self) -> int:
        """Some connections at once; how many frames were sent."""
        sent = 0
        peers: dict[int, socket.socket] = {}
        try:
            for _ in range(AT_ONCE):
                peer = socket.create_connection(("127.0.0.1", self._port), timeout=5)
                peers[peer.fileno()] = peer
                peer.setblocking(False)
                count = self._random.choice((1, 1, 1, 2, 5))
                self._send(peer, b"".join(self._framed() for _ in range(count)))
                sent += count
            self._receive(peers)
        except OSError as error:
            self._faults.append(f"no connection: {error}")
        finally:
            for peer in peers.values():
                peer.close()
        return sent

    def _framed(self) -> bytes:
        random, stock = self._random, self._stock
        frame = stock[int(random.random() * len(stock))]
        if random.random() < 0.8:
            frame = mutate(random, frame, stock)
        if int.from_bytes(frame[:2], "big") in CREATING and random.random() < 0.9:
            frame = frame[:8]  # a few topics do
        frame = spare_brokers(frame)
        length = len(frame)
        if random.random() < 0.03:
            length = random.choice((0, 1, length - 1, length + 1, 2**31 - 1, -1, 1 << 20))
        return length.to_bytes(4, "big", signed=True) + frame

    def _send(self, peer: socket.socket, data: bytes) -> None:
        """Sometimes in pieces, sometimes not to the end."""
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

    def _ask_honestly(self) -> None:
        """A client that does everything right is served."""
        if not self._cluster.is_running(1):
            self._faults.append("the broker is gone")
            return
        began = time.monotonic()
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=HONEST_S) as peer:
                peer.sendall(encode_request(API_VERSIONS, 0, 7, "honest", {}))
                answer = b""
                while len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
                    more = peer.recv(1 << 16)
                    if not more:
                        raise ConnectionError("it hung up")
                    answer += more
            number, told = decode_response(API_VERSIONS, 0, answer[4:])
            if (number, told["error_code"]) != (7, 0):
                self._faults.append(f"an honest client was told {number}, {told}")
        except OSError as error:
            self._faults.append(f"an honest client was not served: {error}")
        self._slowest_s = max(self._slowest_s, time.monotonic() - began)

    def _settled(self, before: int) -> int:
        """How many sockets more than before, once the broker has seen its peers go."""
        until_s = time.monotonic() + SETTLE_S
        while not self._faults and time.monotonic() < until_s:
            left = open_sockets(self._pid) - before
            if left <= 0:
                return left
            time.sleep(0.05)
        return open_sockets(self._pid) - before if not self._faults else 0


def open_sockets(pid: int) -> int:
    found = 0
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found += os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:")
        except FileNotFoundError:
            continue
    return found


def resident_kb(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024
