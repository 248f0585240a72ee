"""A connection's data is sent whole and in order, however little the socket accepts."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.core.storage.disk import DiskError, Region
from tidelog.shell.net.outbox import JOINED_MAX, SENDFILE_MIN, Outbox
from tidelog.shell.net.transport import SocketTransport
from tidelog.shell.os_disk import OsDisk


@pytest.fixture
def pair() -> Iterator[tuple[SocketTransport, socket.socket]]:
    here, there = socket.socketpair()
    here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    here.setblocking(False)
    there.setblocking(False)
    with here, there:
        yield SocketTransport(here), there


def received(there: socket.socket) -> bytes:
    try:
        return there.recv(1 << 20)
    except BlockingIOError:
        return b""


@pytest.mark.parametrize("sizes", [[1], [5, 7, 9], [3000] * 5, [JOINED_MAX, 1], [40_000, 3, 50]])
def test_bytes_are_sent_completely_and_in_order(
    tmp_path: Path, pair: tuple[SocketTransport, socket.socket], sizes: list[int]
) -> None:
    here, there = pair
    outbox = Outbox(OsDisk(str(tmp_path)))
    chunks = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    outbox.put([chunks[0]])
    outbox.put([b"", *chunks[1:]])
    assert outbox.size == sum(sizes)
    got = b""
    for _ in range(1000):
        done = outbox.send(here)
        assert done == (not outbox)
        got += received(there)
        if done:
            break
    assert got + received(there) == b"".join(chunks)
    assert outbox.size == 0


def test_unsent_bytes_wait_for_a_full_socket(
    tmp_path: Path, pair: tuple[SocketTransport, socket.socket]
) -> None:
    here, there = pair
    outbox = Outbox(OsDisk(str(tmp_path)))
    sent = 0
    while True:
        outbox.put([b"x" * 1000])
        sent += 1000
        if not outbox.send(here):
            break
    outbox.put([b"y" * 10])
    waits = outbox.size
    assert not outbox.send(here)
    assert outbox.size == waits
    got = b""
    while outbox or len(got) < sent + 10:
        got += received(there)
        outbox.send(here)
    assert got == b"x" * sent + b"y" * 10


def test_two_readers_of_one_region_get_the_same_bytes(
    tmp_path: Path, pair: tuple[SocketTransport, socket.socket]
) -> None:
    """Even if the file was replaced before the second one is served."""
    here, there = pair
    disk = OsDisk(str(tmp_path))
    disk.append("log", [b"0123456789"])
    one, other = Outbox(disk), Outbox(disk)
    region = Region("log", 2, 5)
    one.put([b"<", region, b">"])
    disk.truncate("log", 2)
    disk.append("log", [b"another one"])
    other.put([region])
    anew = Outbox(disk)
    anew.put([Region("log", 2, 5)])
    for outbox in (one, other, anew):
        assert outbox.send(here)
    assert received(there) == b"<23456>" + b"23456" + b"anoth"
    disk.close()


def test_long_stretches_are_sent_from_the_file(
    tmp_path: Path, pair: tuple[SocketTransport, socket.socket]
) -> None:
    here, there = pair
    disk = OsDisk(str(tmp_path))
    records = bytes(range(256)) * (SENDFILE_MIN // 128)
    disk.append("log", [records])
    outbox = Outbox(disk)
    outbox.put([b"head", Region("log", 0, len(records)), b"tail"])
    assert outbox.in_files == len(records)
    disk.delete("log")
    got = b""
    while outbox:
        outbox.send(here)
        got += received(there)
    assert got + received(there) == b"head" + records + b"tail"
    with pytest.raises(DiskError):
        outbox.put([Region("log", 0, 3)])
    disk.close()


def test_a_lone_response_is_sent_at_once_or_queued(
    tmp_path: Path, pair: tuple[SocketTransport, socket.socket]
) -> None:
    here, there = pair
    outbox = Outbox(OsDisk(str(tmp_path)))
    sent = b""
    while not outbox:
        answer = bytes([len(sent) % 251]) * JOINED_MAX
        if not outbox.send_lone(here, [answer]):
            assert not outbox, "nothing of it was sent"
            outbox.put([answer])
        sent += answer
    assert not outbox.send_lone(here, [b"z"]), "something waits before it"
    got = b""
    while outbox or len(got) < len(sent):
        got += received(there)
        outbox.send(here)
    assert got == sent


@pytest.mark.parametrize(
    "chunks", [None, [], [b"a", b"b"], [bytearray(1)], [bytes(JOINED_MAX + 1)]]
)
def test_only_small_responses_of_one_piece_are_sent_at_once(
    tmp_path: Path, pair: tuple[SocketTransport, socket.socket], chunks: list[bytes] | None
) -> None:
    here, there = pair
    outbox = Outbox(OsDisk(str(tmp_path)))
    assert not outbox.send_lone(here, chunks)
    assert received(there) == b""


@pytest.mark.parametrize("length", [100, SENDFILE_MIN])
@pytest.mark.parametrize("fault", ["cut", "deleted"])
def test_a_file_that_cant_be_sent_is_named(
    tmp_path: Path, pair: tuple[SocketTransport, socket.socket], length: int, fault: str
) -> None:
    here, _ = pair
    disk = OsDisk(str(tmp_path))
    named: list[str] = []
    disk.on_unreadable = named.append
    if fault == "cut":
        disk.write("f", bytes(length - 1))
    outbox = Outbox(disk)

    def send() -> None:
        outbox.put([Region("f", 0, length)])
        while not outbox.send(here):
            received(pair[1])

    with pytest.raises((OSError, DiskError)):
        send()
    assert named == ["f"]
    outbox.close()
    disk.close()


def test_a_closed_connection_does_not_report_a_file(
    tmp_path: Path, pair: tuple[SocketTransport, socket.socket]
) -> None:
    here, there = pair
    disk = OsDisk(str(tmp_path))
    named: list[str] = []
    disk.on_unreadable = named.append
    disk.write("f", bytes(SENDFILE_MIN))
    outbox = Outbox(disk)
    outbox.put([Region("f", 0, SENDFILE_MIN)])
    there.close()
    with pytest.raises(OSError, match="pipe"):
        outbox.send(here)
    assert named == []
    outbox.close()
    disk.close()
