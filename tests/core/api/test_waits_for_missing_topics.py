"""Requests that name a topic that another broker has just created."""

from collections.abc import Callable
from typing import Any

import pytest
from dispatch_cluster import DispatchCluster, Line

from tidelog.core.api_table import ALTER_PARTITION_REASSIGNMENTS, ELECT_LEADERS
from tidelog.core.errors import ErrorCode
from tidelog.core.wire.codec import decode_response, encode_request


class Behind(DispatchCluster):
    """No broker knows the contents of the store until it is notified."""

    def __init__(self) -> None:
        super().__init__(brokers=(1, 2))
        self.held: list[Callable[[], None]] = []

    def _when_settled(self, act: Callable[[], None], unsettled: Callable[[], bool]) -> None:
        assert not unsettled()
        self.held.append(act)


MOVE = {
    "timeout_ms": 1000,
    "allow_replication_factor_change": True,
    "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "replicas": [1]}]}],
}
ELECT = {
    "election_type": 0,
    "timeout_ms": 1000,
    "topic_partitions": [{"topic": "orders", "partitions": [0]}],
}


def frames(line: Line) -> list[bytes | None]:
    return [answer.frame for answer in line.answers]


def moved(answer: Any) -> int:
    return int(answer["responses"][0]["partitions"][0]["error_code"])


def elected(answer: Any) -> int:
    return int(answer["replica_election_results"][0]["partition_result"][0]["error_code"])


@pytest.mark.parametrize(
    ("key", "version", "request_", "error", "wanted"),
    [
        (ALTER_PARTITION_REASSIGNMENTS, 1, MOVE, moved, ErrorCode.NONE),
        (ELECT_LEADERS, 2, ELECT, elected, ErrorCode.ELECTION_NOT_NEEDED),
    ],
    ids=["reassign", "elect"],
)
def test_request_waits_for_a_topic_that_the_image_lacks(
    key: int, version: int, request_: Any, error: Callable[[Any], int], wanted: ErrorCode
) -> None:
    cluster = Behind()
    cluster.start_all()
    line = Line()
    frame = bytes(encode_request(key, version, 7, "test", request_))[4:]
    cluster.dispatch(2).frame(line, memoryview(bytearray(frame)))
    cluster.create("orders", partitions=1, replication_factor=2)
    assert frames(line) == [None], "it has not looked yet"
    [act] = cluster.held
    act()
    cluster.run(100)
    [found] = frames(line)
    assert found is not None
    assert error(decode_response(key, version, found[4:])[1]) == wanted
