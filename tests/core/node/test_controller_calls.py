"""Requests of clients to the controller, sent to any broker."""

from typing import Any

import pytest
from node_cluster import Cluster

from tidelog.core.controller.effects import (
    PartitionErrorsAnswer,
    ReassignmentsAnswer,
    TopicAnswer,
)
from tidelog.core.controller.events import (
    AlterConfigReceived,
    AlterPartitionReceived,
    AlterReassignmentsReceived,
    CreatePartitionsReceived,
    CreateTopicReceived,
    DeleteTopicReceived,
    ElectionType,
    ElectLeadersReceived,
    HeartbeatReceived,
    ListReassignmentsReceived,
)
from tidelog.core.controller.metadata.registrations import Endpoint, PartitionKey
from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import Forwarded
from tidelog.core.slotted import replace

NOT_CONTROLLER = ErrorCode.NOT_CONTROLLER


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.start()
    cluster.create_topic()
    return cluster


def others(cluster: Cluster) -> list[int]:
    return sorted(set(cluster.nodes) - {cluster.controller()})


def new_topic(name: str = "more") -> CreateTopicReceived:
    return CreateTopicReceived(0, name, name.encode().ljust(16, b"."), 1, 3)


CLIENT_REQUESTS = [
    new_topic(),
    CreatePartitionsReceived(0, "orders", 2),
    AlterConfigReceived(0, "orders", {"retention.ms": "1000"}),
    ElectLeadersReceived(0, ElectionType.PREFERRED),
    AlterReassignmentsReceived(0, {PartitionKey(b"t" * 16, 0): (3, 2, 1)}),
    ListReassignmentsReceived(0),
    DeleteTopicReceived(0, "orders"),
]


def test_registration_has_client_and_internal_addresses() -> None:
    cluster = Cluster((1,))
    cluster.start(host="example.org", port=9, internal_host="127.0.0.1", internal_port=19)
    cluster.run_until(lambda: cluster.nodes[1].acting)
    assert cluster.nodes[1].image.brokers[1].endpoints == (
        Endpoint("CLIENT", "example.org", 9),
        Endpoint("INTERNAL", "127.0.0.1", 19),
    )


def test_brokers_without_an_internal_listener_use_the_clients() -> None:
    cluster = Cluster((1,))
    cluster.start()
    cluster.run_until(lambda: cluster.nodes[1].acting)
    assert cluster.nodes[1].image.brokers[1].endpoints == (Endpoint("CLIENT", "localhost", 9092),)


@pytest.mark.parametrize("request_", CLIENT_REQUESTS, ids=lambda r: type(r).__name__)
def test_any_broker_forwards_a_request_to_the_controller(cluster: Cluster, request_: Any) -> None:
    other = others(cluster)[0]
    answer = cluster.call(other, request_)
    assert answer.error is ErrorCode.NONE
    sent = [r for sender, target, r in cluster.sent if isinstance(r, Forwarded)]
    assert sent == [Forwarded(request_)]


def test_forwarded_request_is_carried_out(cluster: Cluster) -> None:
    assert cluster.call(others(cluster)[1], new_topic()).topic_id == b"more" + b"." * 12
    cluster.run(100)
    assert all("more" in node.image.topics for node in cluster.nodes.values())


def test_next_request_sees_the_result_of_the_last(cluster: Cluster) -> None:
    """A topic is created, grown, deleted and recreated, each request right after a response."""
    for turn in range(3):
        made = replace(new_topic(), topic_id=bytes([turn + 1]) * 16)
        for request in (
            made,
            CreatePartitionsReceived(0, "more", 2),
            DeleteTopicReceived(0, "more"),
        ):
            assert cluster.call(cluster.controller(), request).error is ErrorCode.NONE
            known = "more" in cluster.nodes[cluster.controller()].image.topics
            assert known is not isinstance(request, DeleteTopicReceived)


def test_a_brokers_own_requests_are_not_forwarded(cluster: Cluster) -> None:
    other = others(cluster)[0]
    cluster.sent.clear()
    for request in (HeartbeatReceived(0, 1, 1, 0, 0), AlterPartitionReceived(0, 1, 1, ())):
        assert cluster.call(other, request).error is NOT_CONTROLLER
    assert not any(isinstance(r, Forwarded) for _, _, r in cluster.sent)


@pytest.mark.parametrize(
    ("request_", "refused"),
    [
        (new_topic(), TopicAnswer(NOT_CONTROLLER)),
        (ElectLeadersReceived(0, ElectionType.PREFERRED), PartitionErrorsAnswer(NOT_CONTROLLER)),
        (ListReassignmentsReceived(0), ReassignmentsAnswer(NOT_CONTROLLER)),
    ],
)
def test_a_dead_controller_refuses(cluster: Cluster, request_: Any, refused: Any) -> None:
    other = others(cluster)[0]
    cluster.crash(cluster.controller())
    assert cluster.call(other, request_, within_ms=10) == refused


def test_request_to_a_silent_controller_times_out(cluster: Cluster) -> None:
    other = others(cluster)[0]
    cluster.nodes[other]._controller._forward_timeout_ms = 1500
    cluster.cut.add((cluster.controller(), other))
    asked = cluster.now_ms
    assert cluster.call(other, new_topic()) == TopicAnswer(NOT_CONTROLLER)
    assert cluster.now_ms == asked + 1500


def test_request_to_a_hung_controller_ends_when_it_is_replaced(cluster: Cluster) -> None:
    hanging, other = cluster.controller(), others(cluster)[0]
    cluster.cut |= {(hanging, other), (other, hanging)}
    cluster.storeless.add(hanging)
    asked = cluster.now_ms
    assert cluster.call(other, new_topic()) == TopicAnswer(NOT_CONTROLLER)
    assert cluster.now_ms - asked < 12_000, "a session's time, not request.timeout.ms"
    cluster.run(1000)
    assert cluster.controller() != hanging
    two_replicas = replace(new_topic(), replication_factor=2)
    assert cluster.call(other, two_replicas).error is ErrorCode.NONE


def test_without_a_controller_no_request_is_sent() -> None:
    cluster = Cluster()
    cluster.start(1)
    assert cluster.call(1, new_topic(), within_ms=0) == TopicAnswer(NOT_CONTROLLER)
    assert not cluster.sent


def test_forwarded_request_is_not_forwarded_again(cluster: Cluster) -> None:
    """Two brokers that consider each other the controller would forward it forever."""
    one, two = others(cluster)
    answer = cluster.call(one, Forwarded(new_topic()))
    assert answer == TopicAnswer(NOT_CONTROLLER)
    assert not [r for _, _, r in cluster.sent if isinstance(r, Forwarded)]
    assert two in cluster.nodes


def test_new_controller_keeps_a_request_until_it_has_seen_its_election(cluster: Cluster) -> None:
    """The image still names the previous controller; a request to that one would fail."""
    old = cluster.controller()
    node = cluster.nodes[others(cluster)[0]]
    claim = node.image.controller
    assert claim is not None
    assert claim.broker == old
    cluster.crash(old)
    node.controller.candidacy.token = node.image.revision + 100
    asked = cluster.ask(node.config.broker_id, new_topic())
    assert asked not in cluster.answers
    assert not [r for _, _, r in cluster.sent if isinstance(r, Forwarded)]
