"""InitProducerId: ids, and refused requests."""

from typing import Any

import pytest
from api_cluster import INIT_PRODUCER_ID, ApiCluster

from tidelog.core.errors import ErrorCode


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


def test_producer_with_an_id_gets_a_new_one(cluster: ApiCluster) -> None:
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
    ],
)
def test_refused_requests_get_no_producer_id(
    cluster: ApiCluster, request_: dict[str, Any], error: ErrorCode
) -> None:
    answer = init(cluster, **request_)
    assert answer["error_code"] == error
    assert (answer["producer_id"], answer["producer_epoch"]) == (-1, -1)


def test_init_producer_id_without_a_controller_is_retriable(cluster: ApiCluster) -> None:
    """Clients retry on COORDINATOR_LOAD_IN_PROGRESS, but not on NOT_CONTROLLER."""
    controller = cluster.controller()
    asked = next(broker for broker in cluster.brokers if broker != controller)
    cluster.cut |= {(asked, controller), (controller, asked)}
    assert init(cluster, asked)["error_code"] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
