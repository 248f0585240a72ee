"""FindCoordinator and InitProducerId while there are no coordinators: ids, and honest refusals."""

from typing import Any

import pytest
from api_cluster import FIND_COORDINATOR, INIT_PRODUCER_ID, ApiCluster

from tidelog.core.errors import ErrorCode

GROUP, TRANSACTION = 0, 1


@pytest.fixture
def cluster() -> ApiCluster:
    return ApiCluster().start_all()


def init(cluster: ApiCluster, broker: int = 1, version: int = 5, **request: Any) -> Any:
    asked = {"transactional_id": None, "transaction_timeout_ms": 1000, **request}
    return cluster.request(broker, INIT_PRODUCER_ID, asked, version)


def test_no_two_producers_have_the_same_id(cluster: ApiCluster) -> None:
    answers = [init(cluster, broker) for broker in (1, 2, 3) for _ in range(5)]
    assert {answer["error_code"] for answer in answers} == {ErrorCode.NONE}
    assert {answer["producer_epoch"] for answer in answers} == {0}
    assert len({answer["producer_id"] for answer in answers}) == 15


def test_a_producer_that_had_an_id_gets_a_new_one(cluster: ApiCluster) -> None:
    first = init(cluster)["producer_id"]
    again = init(cluster, producer_id=first, producer_epoch=3)
    assert again["error_code"] == ErrorCode.NONE
    assert (again["producer_id"], again["producer_epoch"]) == (first + 1, 0)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        ({"producer_id": 5, "producer_epoch": -1}, ErrorCode.INVALID_REQUEST),
        ({"producer_id": -1, "producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": "t"}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
def test_no_id(cluster: ApiCluster, request_: dict[str, Any], error: ErrorCode) -> None:
    answer = init(cluster, **request_)
    assert answer["error_code"] == error
    assert (answer["producer_id"], answer["producer_epoch"]) == (-1, -1)


def test_without_a_controller_producers_are_to_come_again(cluster: ApiCluster) -> None:
    """Clients retry on COORDINATOR_LOAD_IN_PROGRESS; NOT_CONTROLLER would be the end."""
    controller = cluster.controller()
    asked = next(broker for broker in cluster.brokers if broker != controller)
    cluster.cut |= {(asked, controller), (controller, asked)}
    assert init(cluster, asked)["error_code"] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize(
    ("key_type", "error"),
    [
        (GROUP, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (TRANSACTION, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
def test_librdkafka_is_told_what_it_can_live_with(
    cluster: ApiCluster, key_type: int, error: ErrorCode
) -> None:
    """It looks for a group's coordinator even if it never needs one."""
    answer = cluster.request(1, FIND_COORDINATOR, {"key": "a", "key_type": key_type}, 2)
    assert answer["error_code"] == error
    assert (answer["node_id"], answer["host"], answer["port"]) == (-1, "", -1)
    assert "yet" in answer["error_message"]


@pytest.mark.parametrize("key_type", [GROUP, TRANSACTION])
@pytest.mark.parametrize("version", [1, 3])
def test_others_are_told_not_to_try_again(cluster: ApiCluster, key_type: int, version: int) -> None:
    """They ask when they need one, and would wait for it for ever."""
    answer = cluster.request(1, FIND_COORDINATOR, {"key": "a", "key_type": key_type}, version)
    assert answer["error_code"] == ErrorCode.UNSUPPORTED_VERSION
    assert "yet" in answer["error_message"]


def test_nobody_coordinates_any_of_several(cluster: ApiCluster) -> None:
    asked = {"key_type": GROUP, "coordinator_keys": ["a", "b"]}
    found = cluster.request(1, FIND_COORDINATOR, asked, 6)["coordinators"]
    assert [one["key"] for one in found] == ["a", "b"]
    assert {one["error_code"] for one in found} == {ErrorCode.UNSUPPORTED_VERSION}
    assert all("no consumer groups yet" in one["error_message"] for one in found)


def test_version_0_asks_for_groups(cluster: ApiCluster) -> None:
    answer = cluster.request(1, FIND_COORDINATOR, {"key": "a"}, 0)
    assert answer["error_code"] == ErrorCode.UNSUPPORTED_VERSION
