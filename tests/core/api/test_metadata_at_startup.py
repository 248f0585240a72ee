"""Metadata requests to a broker that has started and has not read the store yet."""

import pytest
from api_cluster import DESCRIBE_TOPIC_PARTITIONS, FIRST_PORT, METADATA
from dispatch_cluster import PROBE_MS, DispatchCluster, Line

from tidelog.core.errors import ErrorCode
from tidelog.core.wire.codec import decode_response, encode_request

NAMED = {"topics": [{"name": "orders"}], "allow_auto_topic_creation": False}
ALL = {"topics": None, "allow_auto_topic_creation": False}
DESCRIBED = {"topics": [{"name": "orders"}], "response_partition_limit": 10, "cursor": None}


@pytest.fixture
def cluster() -> DispatchCluster:
    cluster = DispatchCluster()
    cluster.start_all()
    cluster.create("orders", 1, 3)
    cluster.crash(1)
    return cluster


def send(cluster: DispatchCluster, api_key: int, version: int, request: object) -> Line:
    cluster.start(1, port=FIRST_PORT + 1)
    assert cluster.nodes[1].image.revision == 0
    line = Line()
    frame = encode_request(api_key, version, 5, "test", request)  # type: ignore[arg-type]
    cluster.send(cluster.dispatch(1), line, frame[4:])
    return line


@pytest.mark.parametrize("request_", [NAMED, ALL], ids=["named", "all"])
def test_a_request_waits_for_the_first_image(cluster: DispatchCluster, request_: object) -> None:
    line = send(cluster, METADATA, 12, request_)
    assert [answer.frame for answer in line.answers] == [None]
    [answer] = line.answers
    cluster.run_until(lambda: answer.frame is not None)
    assert answer.frame is not None
    _, response = decode_response(METADATA, 12, answer.frame[4:])
    assert [topic["name"] for topic in response["topics"]] == ["orders"]
    assert response["topics"][0]["error_code"] == ErrorCode.NONE


@pytest.mark.parametrize(
    ("api_key", "version", "request_"),
    [(METADATA, 12, NAMED), (METADATA, 12, ALL), (DESCRIBE_TOPIC_PARTITIONS, 0, DESCRIBED)],
    ids=["named", "all", "described"],
)
def test_no_topic_is_called_unknown_while_the_store_does_not_respond(
    cluster: DispatchCluster, api_key: int, version: int, request_: object
) -> None:
    cluster.storeless.add(1)
    line = send(cluster, api_key, version, request_)
    cluster.run(PROBE_MS + 1)
    assert line.closed == "this broker has not read the metadata store yet"
    assert line.answers[0].frame is None
