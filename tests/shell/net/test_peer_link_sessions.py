"""A fetch session continues on a new connection, and so do the ids of its topics."""

import socket
from pathlib import Path

from link_peer import LinkStage

from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import (
    NEW_SESSION,
    Fetch,
    FetchPartition,
    FetchPartitionResponse,
    FetchResponse,
)
from tidelog.core.types import TopicPartition
from tidelog.core.wire.fetch_request import FOLLOWER_VERSION, decode_fetch
from tidelog.core.wire.fetch_response import encode_fetch_response
from tidelog.core.wire.frames import parse_request_header
from tidelog.shell.net.frame_buffer import PREFIX

ID, OTHER_ID = b"1" * 16, b"2" * 16
NAMES = {ID: "a", OTHER_ID: "b"}
SESSION = 7


def fetch(epoch: int, *asked: tuple[str, bytes], forgotten: tuple[str, ...] = ()) -> Fetch:
    partitions = [FetchPartition(TopicPartition(name, 0), id_, 5, 1000, 1) for name, id_ in asked]
    session = SESSION if epoch else 0
    left = [TopicPartition(name, 0) for name in forgotten]
    return Fetch(2, 55, 500, 1, 10_000, partitions, session, epoch, left)


def answer(number: int, topic: str, topic_id: bytes) -> bytes:
    told = FetchPartitionResponse(
        TopicPartition(topic, 0), topic_id, ErrorCode.NONE, 9, 9, 0, None, None
    )
    chunks = encode_fetch_response(
        FOLLOWER_VERSION, number, FetchResponse(ErrorCode.NONE, SESSION, [told])
    )
    return b"".join(chunk for chunk in chunks if isinstance(chunk, bytes))


class Leader(LinkStage):
    """The other end of a link, and its event loop."""

    def ask(self, correlation: int, request: Fetch) -> socket.socket:
        """Send a request over a new connection."""
        self.link.send(correlation, request)
        sock = self.accept()
        self.prove(sock)
        self.until(lambda: not self.link._outbox)
        return sock


def heard(sock: socket.socket) -> tuple[int, Fetch]:
    with sock.makefile("rb") as stream:
        frame = stream.read(PREFIX.unpack(stream.read(PREFIX.size))[0])
    header = parse_request_header(frame)
    return header.correlation_id, decode_fetch(FOLLOWER_VERSION, frame, header.position, NAMES)


def test_a_fetch_session_continues_on_another_connection(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    with leader.ask(1, fetch(NEW_SESSION, ("a", ID), ("b", OTHER_ID))) as first:
        number, _ = heard(first)
        first.sendall(answer(number, "a", ID))
        leader.until(lambda: len(leader.answered) == 1)
    # Nothing is asked when the connection ends, so nobody is told that his request failed.
    leader.until(lambda: leader.link._transport is None)
    assert not leader.failed
    with leader.ask(2, fetch(1, forgotten=("a",))) as second:
        number, request = heard(second)
        assert request.forgotten == [TopicPartition("a", 0)]
        second.sendall(answer(number, "b", OTHER_ID))
        leader.until(lambda: len(leader.answered) == 2)
        response = leader.answered[1]
        assert isinstance(response, FetchResponse)
        [told] = response.partitions
        assert told.topic_partition == TopicPartition("b", 0)
        leader.close()


def test_a_new_session_begins_with_no_ids(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    with leader.ask(1, fetch(NEW_SESSION, ("a", ID))) as sock:
        leader.link.send(2, fetch(NEW_SESSION, ("b", OTHER_ID)))
        leader.until(lambda: not leader.link._outbox)
        heard(sock)
        assert set(leader.link._fetches._names) == {OTHER_ID}
        leader.close()
