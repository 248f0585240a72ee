"""Missing features: each client library gets an error that it understands."""

import pytest
from api_cluster import (
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    CREATE_DELEGATION_TOKEN,
    ApiCluster,
)

from tidelog.core.errors import ErrorCode


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
