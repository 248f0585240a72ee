"""Invalid and hostile input on the sockets: the brokers survive and serve other clients."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from random import Random

import pytest
from real_cluster import (
    PATIENCE_S,
    await_isr,
    leader_of,
    make_topic,
    resident_mb,
    said,
    send_all,
    state_of,
)

from tidelog.core.api_table import OFFERED
from tidelog.core.record.compression import Codec
from tidelog.core.record.encoder import encode_batch
from tidelog.core.record.record import Record
from tidelog.core.wire.codec import decode_response, encode_request
from tidelog.lab.fuzz.mutators import mutate
from tidelog.lab.fuzz.requests import RequestMaker, World, spare_brokers
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.connection import KafkaConnection
from tidelog.shell.client.consumer import Reader
from tidelog.shell.client.producer import Producer
from tidelog.shell.supervisor.cluster import LocalCluster

PRODUCE, LIST_OFFSETS = 0, 2
API_VERSIONS, FETCH, METADATA, CREATE_TOPICS = 18, 1, 3, 19
DESCRIBE_STATE, HELLO, CONTROLLER_CALL, SET_FAULTS = 32000, 32001, 32002, 32003
UNSUPPORTED_VERSION = 35
GROWTH_MAX_MB = 150
ROUNDS = 600


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        make_topic(cluster.bootstrap, "victim", 2)
        make_topic(cluster.bootstrap, "bystander")
        send_all(cluster.bootstrap, "victim", [b"precious"])
        yield cluster


@pytest.fixture(autouse=True)
def unharmed(cluster: LocalCluster) -> Iterator[None]:
    """Check after every test that all brokers run, use little memory, and serve clients."""
    before = {broker: resident_mb(cluster.pid(broker)) for broker in cluster.ids}
    yield
    for broker in cluster.ids:
        assert cluster.is_running(broker), said(cluster, broker)[-2000:]
        assert resident_mb(cluster.pid(broker)) < before[broker] + GROWTH_MAX_MB
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        records = Reader(client).fetch("victim", 0, 0).records
        assert [record.value for record in records] == [b"precious"]
        now = Record(None, b"served", int(time.time() * 1000), ())
        Producer(client, idempotent=False).append("bystander", 0, [now])


def connect(port: int) -> socket.socket:
    return socket.create_connection(("localhost", port), timeout=PATIENCE_S)


def ask(sock: socket.socket, frame: bytes) -> bytes:
    """Send a frame; return the response without its length, b"" if the broker disconnects."""
    try:
        sock.sendall(frame)
    except (ConnectionResetError, BrokenPipeError):
        return b""
    return answer(sock)


def answer(sock: socket.socket) -> bytes:
    try:
        length = int.from_bytes(received(sock, 4), "big")
        return received(sock, length)
    except (ConnectionError, EOFError):
        return b""


def received(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = sock.recv(count - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def ports(cluster: LocalCluster) -> list[int]:
    """The ports of the first broker: for clients and for brokers."""
    return [cluster.port(1), cluster.internal_port(1)]


def test_random_bytes(cluster: LocalCluster) -> None:
    random = Random(7)
    for port in ports(cluster):
        for number in range(80):
            data = random.randbytes(random.choice((1, 3, 4, 8, 14, 60, 3000)))
            if number % 2:
                data = len(data).to_bytes(4, "big") + data
            with connect(port) as sock:
                sock.sendall(data)


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 104_857_601])
def test_impossible_lengths(cluster: LocalCluster, length: int) -> None:
    for port in ports(cluster):
        with connect(port) as sock:
            assert ask(sock, length.to_bytes(4, "big", signed=True) + b"abc") == b""


def test_frames_that_never_end(cluster: LocalCluster) -> None:
    """A frame announces many bytes and few arrive: the broker uses neither time nor memory."""
    with ExitStack() as open_sockets:
        for port in ports(cluster):
            for _ in range(30):
                sock = open_sockets.enter_context(connect(port))
                sock.sendall((100 << 20).to_bytes(4, "big") + b"\0" * 100)
        send_all(cluster.bootstrap, "bystander", [b"meanwhile"])
        for port in ports(cluster):
            assert resident_mb(cluster.pid(1)) < 250, port


@pytest.mark.parametrize(
    ("key", "version"),
    [(99, 0), (-1, 0), (32767, 0), (METADATA, 99), (METADATA, -1), (0, 2), (FETCH, 3)],
)
def test_an_unknown_api_or_version_closes_the_connection(
    cluster: LocalCluster, key: int, version: int
) -> None:
    header = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True)
    body = header + b"\0\0\0\7" + b"\0\1x" + b"\0" * 20
    for port in ports(cluster):
        with connect(port) as sock:
            assert ask(sock, len(body).to_bytes(4, "big") + body) == b""


def test_api_versions_of_the_future(cluster: LocalCluster) -> None:
    """The broker responds in version 0 with the offered versions, and keeps the connection."""
    frame = (
        b"\0\x12" + b"\0\x63" + b"\0\0\0\7" + b"\0\1x" + b"\0" + b"some day this means something"
    )
    with connect(cluster.port(1)) as sock:
        number, told = decode_response(
            API_VERSIONS, 0, ask(sock, len(frame).to_bytes(4, "big") + frame)
        )
        assert (number, told["error_code"]) == (7, UNSUPPORTED_VERSION)
        assert {"api_key": 18, "min_version": 0, "max_version": 4} in told["api_keys"]
        who = {"client_software_name": "test", "client_software_version": "1"}
        again = ask(sock, encode_request(API_VERSIONS, 3, 8, "x", who))
        assert decode_response(API_VERSIONS, 3, again)[1]["error_code"] == 0


def test_absurd_requests_of_every_api(cluster: LocalCluster) -> None:
    """Send well-formed, truncated and damaged requests to all brokers in turn."""
    make_topic(cluster.bootstrap, "prey", 2)  # it may be deleted by one of them
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        topic_id = client.refresh(["prey"]).topics["prey"].id
    random = Random(11)
    maker = RequestMaker(random, World(("prey",), (topic_id,)))
    whole = [
        maker.of(key, random.randint(OFFERED[key].first, OFFERED[key].last))
        for key in sorted(OFFERED) * (ROUNDS // len(OFFERED))
    ]
    damaged = [mutate(random, frame, whole) for frame in whole]

    def answers(requests: list[bytes], wait_s: float) -> int:
        """Send the requests; return how many were answered within `wait_s`."""
        answered = 0
        for number, request in enumerate(requests):
            body = spare_brokers(request, cluster.ids)
            frame = len(body).to_bytes(4, "big") + body
            broker = cluster.ids[number % 3]
            with connect(cluster.port(broker)) as sock:
                sock.sendall(frame)
                sock.settimeout(wait_s)  # a long poll may have no answer for weeks
                try:
                    answered += bool(sock.recv(4))
                except (TimeoutError, ConnectionError):
                    continue
        return answered

    wait_s = 0.01
    answered = answers(whole + damaged, wait_s)
    while answered <= ROUNDS / 2 and wait_s < 10:  # the brokers get little CPU
        wait_s *= 10
        answered = answers(whole, wait_s)
    assert answered > ROUNDS / 2


@pytest.mark.parametrize("key", sorted(OFFERED))
def test_bodies_cut_anywhere(cluster: LocalCluster, key: int) -> None:
    whole = RequestMaker(Random(key), World(("prey",), (bytes(16),))).of(key, OFFERED[key].last)
    for end in range(0, len(whole), max(len(whole) // 40, 1)):
        with connect(cluster.port(1)) as sock:
            sock.sendall(end.to_bytes(4, "big") + whole[:end])


@pytest.mark.parametrize("count", [2**31 - 1, 10_000_001])
def test_a_topic_of_two_billion_partitions(cluster: LocalCluster, count: int) -> None:
    topic = {"name": "vast", "num_partitions": count, "replication_factor": 1}
    with KafkaConnection("localhost", cluster.port(1), timeout_s=PATIENCE_S) as connection:
        told = connection.call(CREATE_TOPICS, {"topics": [topic], "timeout_ms": 60_000})
    assert told["topics"][0]["error_code"] != 0
    assert told["topics"][0]["error_message"]


def test_many_connections_opened_and_left(cluster: LocalCluster) -> None:
    with ExitStack() as open_sockets:
        for number in range(400):
            open_sockets.enter_context(connect(ports(cluster)[number % 2]))
        send_all(cluster.bootstrap, "bystander", [b"among many"])


def test_a_client_that_never_reads(cluster: LocalCluster) -> None:
    """The client sends the same request for a large response repeatedly."""
    topic = make_topic(cluster.bootstrap, "large")
    send_all(cluster.bootstrap, topic, [bytes([n]) * 900_000 for n in range(10)])
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        topic_id = client.refresh([topic]).topics[topic].id
    leader = leader_of(cluster, topic)
    before = resident_mb(cluster.pid(leader))
    place = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 50 << 20}
    request = {
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 50 << 20,
        "session_epoch": -1,
        "topics": [{"topic_id": topic_id, "partitions": [place]}],
    }
    with ExitStack() as open_sockets:
        for _ in range(5):
            sock = open_sockets.enter_context(connect(cluster.port(leader)))
            sock.setblocking(False)
            frames = b"".join(encode_request(FETCH, 13, n, "x", request) for n in range(3000))
            try:
                while frames:
                    frames = frames[sock.send(frames) :]
            except BlockingIOError:
                continue
        for _ in range(5):
            send_all(cluster.bootstrap, "bystander", [b"meanwhile"])
        assert resident_mb(cluster.pid(leader)) < before + GROWTH_MAX_MB


def test_a_client_that_never_reads_metadata(cluster: LocalCluster) -> None:
    """Only responses that are not sent from files take memory."""
    before = resident_mb(cluster.pid(1))
    request = encode_request(METADATA, 9, 1, "x", {"topics": None})
    with connect(cluster.port(1)) as sock:
        sock.setblocking(False)
        sent = 0
        for _ in range(200_000):
            try:
                sent += sock.send(request)
            except BlockingIOError:
                break
        send_all(cluster.bootstrap, "bystander", [b"meanwhile"])
        assert sent > 0
        assert resident_mb(cluster.pid(1)) < before + GROWTH_MAX_MB


def test_a_client_cannot_fetch_as_a_replica(cluster: LocalCluster) -> None:
    """A client that claims to be a follower far ahead is not counted as one and not served."""
    topic = make_topic(cluster.bootstrap, "guarded")
    send_all(cluster.bootstrap, topic, [b"one"], conf={"acks": "all"})
    leader = leader_of(cluster, topic)
    follower = next(broker for broker in cluster.ids if broker != leader)
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        topic_id = client.refresh([topic]).topics[topic].id
    place = {"partition": 0, "fetch_offset": 1000, "partition_max_bytes": 1000}
    request = {
        "replica_id": follower,
        "replica_state": {"replica_id": follower, "replica_epoch": -1},
        "max_wait_ms": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "topic_id": topic_id, "partitions": [place]}],
    }
    for version in (4, 12, 13, 15, 18):
        with connect(cluster.port(leader)) as sock:
            assert ask(sock, encode_request(FETCH, version, 1, "broker-2", request)) == b""
    state = state_of(cluster, leader, topic)
    assert state["high_watermark"] == 1
    assert all(one["log_end_offset"] <= 1 for one in state["followers"])


@pytest.mark.parametrize(
    "document",
    [
        b"{}",
        b"[]",
        b"null",
        b"\xff",
        b"[" * 100_000,
        b'{"from": 2}',
        b'{"from": 2, "to": 1, "nonce": null}',
        b'{"from": 2, "to": 1, "cluster": "\\ud800"}',
        b'{"proof": "guess"}',
    ],
)
def test_requests_after_a_failed_handshake(cluster: LocalCluster, document: bytes) -> None:
    with connect(cluster.internal_port(1)) as sock:
        sock.sendall(encode_request(HELLO, 1, 1, "broker-2", {"document": document}))
        request = {"replica_state": {"replica_id": 2}, "max_wait_ms": 0, "session_epoch": -1}
        assert ask(sock, encode_request(FETCH, 18, 2, "broker-2", request)) == b""


@pytest.mark.parametrize("key", [CONTROLLER_CALL, SET_FAULTS, DESCRIBE_STATE])
def test_private_requests_need_a_handshake(cluster: LocalCluster, key: int) -> None:
    frame = encode_request(key, 0, 1, "x", {"document": b'{"isolate": true}'})
    with connect(cluster.internal_port(1)) as sock:
        assert ask(sock, frame) == b""
    if key != DESCRIBE_STATE:
        with connect(cluster.port(1)) as sock:
            assert ask(sock, frame) == b""


@pytest.mark.parametrize(
    "document",
    [
        b"[]",
        b"\xff",
        b"[" * 100_000,
        b'{"topic": []}',
        b'{"partition": {}}',
        b'{"topic": "\\ud800"}',
    ],
)
def test_absurd_describe_state_requests_are_refused(cluster: LocalCluster, document: bytes) -> None:
    with connect(cluster.port(1)) as sock:
        ask(sock, encode_request(DESCRIBE_STATE, 0, 1, "x", {"document": document}))


def test_batches_that_unpack_to_much(cluster: LocalCluster) -> None:
    """One request makes the broker decompress much data, and a search by time pauses."""
    for topic, policy in (("keyed", "compact"), ("timed", "delete")):
        # The records are old: without this, retention may delete them before they are found.
        configs = {"cleanup.policy": policy, "retention.ms": "-1"}
        make_topic(cluster.bootstrap, topic, 30, 1, configs)
    bomb = bytes(encode_batch([Record(b"k", bytes(30_000_000), 1000)], attributes=Codec.ZSTD))
    for topic in ("keyed", "timed"):
        for broker in cluster.ids:
            data = [{"index": number, "records": bomb} for number in range(30)]
            topics = [{"name": topic, "partition_data": data}]
            body = {"transactional_id": None, "acks": 1, "timeout_ms": 9000, "topic_data": topics}
            with connect(cluster.port(broker)) as sock:
                sock.settimeout(PATIENCE_S)
                assert ask(sock, encode_request(PRODUCE, 9, 1, "bombs", body))
    search = [
        {"partition_index": number, "current_leader_epoch": -1, "timestamp": 5}
        for number in range(30)
    ]
    body = {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": "timed", "partitions": search}],
        "timeout_ms": 9000,
    }
    found = []
    for broker in cluster.ids:
        with connect(cluster.port(broker)) as sock:
            sock.settimeout(PATIENCE_S)
            told = ask(sock, encode_request(LIST_OFFSETS, 7, 1, "bombs", body))
        [topic] = decode_response(LIST_OFFSETS, 7, told)[1]["topics"]
        found += [one for one in topic["partitions"] if one["error_code"] == 0]
    assert [(one["offset"], one["timestamp"]) for one in found] == [(0, 1000)] * 30


def test_a_flood_of_one_byte_packets(cluster: LocalCluster) -> None:
    frame = encode_request(API_VERSIONS, 3, 5, "slow", {})
    with connect(cluster.port(1)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in frame:
            sock.sendall(bytes([byte]))
        assert decode_response(API_VERSIONS, 3, answer(sock))[0] == 5


def test_answers_keep_the_order_of_their_requests(cluster: LocalCluster) -> None:
    """Requests after a long poll are handled at once; their responses are sent after it."""
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        topic = client.refresh(["victim"]).topics["victim"]
    leader = leader_of(cluster, "victim")
    place = {"partition": 0, "fetch_offset": 1, "partition_max_bytes": 1000}
    poll = {
        "max_wait_ms": 400,
        "min_bytes": 1,
        "max_bytes": 1000,
        "session_epoch": -1,
        "topics": [{"topic_id": topic.id, "partitions": [place]}],
    }
    with connect(cluster.port(leader)) as sock:
        sock.sendall(encode_request(FETCH, 13, 1, "x", poll))
        sock.sendall(encode_request(METADATA, 9, 2, "x", {"topics": []}))
        sock.sendall(encode_request(API_VERSIONS, 3, 3, "x", {}))
        numbers = [int.from_bytes(answer(sock)[:4], "big") for _ in range(3)]
    assert numbers == [1, 2, 3]


@pytest.mark.parametrize("topic", ["victim", "bystander"])
def test_all_brokers_are_in_the_isr_afterwards(cluster: LocalCluster, topic: str) -> None:
    await_isr(cluster, topic, cluster.ids)
