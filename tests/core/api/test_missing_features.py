"""Missing features: each client library gets an error that it understands."""

import pytest
from api_cluster import (
    API_VERSIONS,
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    CREATE_DELEGATION_TOKEN,
    DESCRIBE_TRANSACTIONS,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_TRANSACTIONS,
    ApiCluster,
)
from dispatch_cluster import DispatchCluster, Line

from tidelog.core.errors import ErrorCode

TRANSACTIONAL = {
    "transactional_id": "t",
    "transaction_timeout_ms": 1000,
    "producer_id": -1,
    "producer_epoch": -1,
}


@pytest.fixture(scope="module")
def cluster() -> ApiCluster:
    return ApiCluster(brokers=(1,)).start_all()


def test_consumer_protocol_is_refused_as_by_kafka_with_group_version_0(
    cluster: ApiCluster,
) -> None:
    asked = {"group_id": "g", "member_id": "m", "member_epoch": 0}
    answer = cluster.request(1, CONSUMER_GROUP_HEARTBEAT, asked)
    assert answer["error_code"] == ErrorCode.UNSUPPORTED_VERSION
    assert "group.protocol=classic" in answer["error_message"]
    groups = {"group_ids": ["g", "h"], "include_authorized_operations": False}
    found = cluster.request(1, CONSUMER_GROUP_DESCRIBE, groups)["groups"]
    assert [(one["group_id"], one["error_code"]) for one in found] == [
        ("g", ErrorCode.UNSUPPORTED_VERSION),
        ("h", ErrorCode.UNSUPPORTED_VERSION),
    ]


def test_there_is_no_transaction_to_list_or_describe(cluster: ApiCluster) -> None:
    asked = {"state_filters": ["Ongoing", "Odd"], "producer_id_filters": []}
    listed = cluster.request(1, LIST_TRANSACTIONS, asked)
    assert listed["error_code"] == ErrorCode.NONE
    assert (listed["transaction_states"], listed["unknown_state_filters"]) == ([], ["Odd"])
    described = cluster.request(1, DESCRIBE_TRANSACTIONS, {"transactional_ids": ["t"]})
    [state] = described["transaction_states"]
    assert state["error_code"] == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert state["transactional_id"] == "t"


def test_refused_token_names_the_requested_owner(cluster: ApiCluster) -> None:
    asked = {
        "owner_principal_type": "User",
        "owner_principal_name": "alice",
        "renewers": [],
        "max_lifetime_ms": 1,
    }
    answer = cluster.request(1, CREATE_DELEGATION_TOKEN, asked)
    assert answer["error_code"] == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert (answer["principal_name"], answer["token_requester_principal_name"]) == (
        "alice",
        "ANONYMOUS",
    )


def test_kafkajs_gets_the_error_from_init_producer_id(cluster: ApiCluster) -> None:
    """It turns every error of FindCoordinator into "Failed to find group coordinator"."""
    found = cluster.request(1, FIND_COORDINATOR, {"key": "t", "key_type": 1}, 2)
    assert found["error_code"] == ErrorCode.NONE
    assert found["node_id"] == 1
    assert found["port"] == 9091
    answer = cluster.request(1, INIT_PRODUCER_ID, TRANSACTIONAL, 1)
    assert answer["error_code"] == ErrorCode.UNSUPPORTED_VERSION


def test_a_client_library_is_known_by_the_name_it_gave_on_its_connection() -> None:
    cluster = DispatchCluster(brokers=(1,))
    cluster.start_all()
    dispatch, line = cluster.dispatch(1), Line()
    asked = {"key": "t", "key_type": 1}
    before = cluster.exchange(dispatch, FIND_COORDINATOR, 1, asked, line)
    assert before["error_code"] == ErrorCode.UNSUPPORTED_VERSION
    named = {"client_software_name": "librdkafka", "client_software_version": "2.0.2"}
    cluster.exchange(dispatch, API_VERSIONS, 3, named, line)
    after = cluster.exchange(dispatch, FIND_COORDINATOR, 2, asked, line)
    assert after["error_code"] == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    answer = cluster.exchange(dispatch, INIT_PRODUCER_ID, 4, TRANSACTIONAL, line)
    assert answer["error_code"] == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
