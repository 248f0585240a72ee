"""Repeated Metadata requests: the response is encoded once, and never out of date."""

from typing import Any

import pytest
from api_cluster import DESCRIBE_TOPIC_PARTITIONS, METADATA
from dispatch_cluster import DispatchCluster, Line

from tidelog.core.api import dispatch as dispatching
from tidelog.core.api import handlers
from tidelog.core.errors import ErrorCode
from tidelog.core.wire.codec import decode_response, encode_request

ALL = {"topics": None, "allow_auto_topic_creation": False}
PARTITIONS = 60


@pytest.fixture
def cluster() -> DispatchCluster:
    cluster = DispatchCluster()
    cluster.start_all()
    cluster.create("large", PARTITIONS, 3)
    return cluster


class Counted:
    """A handler that counts its calls."""

    def __init__(self, api_key: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        self._handler = handlers.handler_of(api_key)
        monkeypatch.setitem(handlers._imported, api_key, self)

    def __call__(self, context: Any, request: Any) -> Any:
        self.calls += 1
        return self._handler(context, request)


@pytest.fixture
def spelled(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(METADATA, monkeypatch)


def test_equal_requests_share_a_response(cluster: DispatchCluster, spelled: Counted) -> None:
    dispatch, line = cluster.dispatch(1), Line()
    for correlation_id in range(100, 110):
        frame = encode_request(METADATA, 13, correlation_id, f"client-{correlation_id}", ALL)
        cluster.send(dispatch, line, frame[4:])
    answers = [answer.frame for answer in line.answers]
    assert spelled.calls == 1
    found = []
    for correlation_id, answer in enumerate(answers, 100):
        assert answer is not None
        assert int.from_bytes(answer[:4], "big") == len(answer) - 4
        told, response = decode_response(METADATA, 13, answer[4:])
        assert told == correlation_id
        found.append(response)
    assert all(response == found[0] for response in found)
    assert len(found[0]["topics"][0]["partitions"]) == PARTITIONS


def test_different_requests_have_their_own_response(
    cluster: DispatchCluster, spelled: Counted
) -> None:
    dispatch = cluster.dispatch(1)
    one = {"topics": [{"name": "large", "topic_id": bytes(16)}]}
    asked = [
        (13, ALL),
        (12, ALL),
        (13, {**ALL, "include_topic_authorized_operations": True}),
        (13, one),
        (8, ALL),
        (8, {**ALL, "include_cluster_authorized_operations": True}),
    ]
    first = [cluster.exchange(dispatch, METADATA, version, request) for version, request in asked]
    assert spelled.calls == len(asked)
    again = [cluster.exchange(dispatch, METADATA, version, request) for version, request in asked]
    assert spelled.calls == len(asked)
    assert again == first


def test_changes_are_visible_at_once(cluster: DispatchCluster, spelled: Counted) -> None:
    dispatch = cluster.dispatch(1)

    def topics() -> set[str]:
        answer = cluster.exchange(dispatch, METADATA, 13, ALL)
        return {topic["name"] for topic in answer["topics"]}

    assert topics() == {"large"}
    cluster.create("more")
    assert topics() == {"large", "more"}
    assert topics() == {"large", "more"}
    assert spelled.calls == 2


def test_departed_broker_is_listed_for_a_moment(cluster: DispatchCluster, spelled: Counted) -> None:
    dispatch = cluster.dispatch(1)
    image = cluster.nodes[1].image

    def brokers() -> list[int]:
        answer = cluster.exchange(dispatch, METADATA, 13, ALL)
        return [broker["node_id"] for broker in answer["brokers"]]

    cluster.departed.note(image, cluster.now_ms)
    other = next(b for b in (2, 3) if b != cluster.controller())
    cluster.crash(other, proof=True)
    cluster.run_until(lambda: image.brokers[other].fenced)
    cluster.settle()
    cluster.departed.note(image, cluster.now_ms)
    assert brokers() == [1, 2, 3]
    cluster.run(1500)
    assert brokers() == sorted({1, 2, 3} - {other})


def test_missing_topics_are_not_cached(cluster: DispatchCluster, spelled: Counted) -> None:
    cluster.texts["auto.create.topics.enable"] = "false"
    dispatch = cluster.dispatch(1)
    asked = {"topics": [{"name": name, "topic_id": bytes(16)} for name in ("large", "nowhere")]}
    for _ in range(3):
        topics = cluster.exchange(dispatch, METADATA, 13, asked)["topics"]
        assert [ErrorCode(topic["error_code"]) for topic in topics] == [
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
    assert spelled.calls == 3


def test_pages_of_partitions_are_cached(
    cluster: DispatchCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = Counted(DESCRIBE_TOPIC_PARTITIONS, monkeypatch)
    dispatch = cluster.dispatch(1)
    first = cluster.exchange(dispatch, DESCRIBE_TOPIC_PARTITIONS, 0, {"topics": []})
    assert cluster.exchange(dispatch, DESCRIBE_TOPIC_PARTITIONS, 0, {"topics": []}) == first
    assert described.calls == 1


def test_cache_size_is_limited(
    cluster: DispatchCluster, spelled: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatching, "CACHE_BYTES_MAX", 10_000)
    dispatch = cluster.dispatch(1)
    for _ in range(5):
        cluster.exchange(dispatch, METADATA, 13, ALL)
        for version in range(9, 13):
            cluster.exchange(dispatch, METADATA, version, ALL)
        cached = dispatch._cache._responses
        assert sum(map(len, cached.values())) <= 10_000
    assert spelled.calls > 5


def test_long_requests_are_not_cached(cluster: DispatchCluster) -> None:
    dispatch = cluster.dispatch(1)
    asked = {"topics": [{"name": "large", "topic_id": bytes(16)}] * 100}
    cluster.exchange(dispatch, METADATA, 13, asked)
    assert not dispatch._cache._responses
