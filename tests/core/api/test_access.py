"""Access control and quotas do not exist: each refusal says so."""

from typing import Any

import pytest
from api_cluster import (
    ALTER_CLIENT_QUOTAS,
    CREATE_ACLS,
    DELETE_ACLS,
    DESCRIBE_CLIENT_QUOTAS,
    ApiCluster,
)
from test_every_version import ACL, ACL_FILTER

from tidelog.core.errors import ErrorCode

EXACT, ANY_NAME = 0, 2


@pytest.fixture(scope="module")
def cluster() -> ApiCluster:
    return ApiCluster(brokers=(1,)).start_all()


def test_each_acl_is_refused_separately(cluster: ApiCluster) -> None:
    results = cluster.request(1, CREATE_ACLS, {"creations": [ACL, ACL]})["results"]
    deleted = cluster.request(1, DELETE_ACLS, {"filters": [ACL_FILTER] * 3})["filter_results"]
    assert (len(results), len(deleted)) == (2, 3)
    assert {result["error_code"] for result in results + deleted} == {ErrorCode.SECURITY_DISABLED}
    assert all("no access control" in result["error_message"] for result in results + deleted)


def component(kind: str, match_type: int = EXACT, match: str | None = "x") -> dict[str, Any]:
    return {"entity_type": kind, "match_type": match_type, "match": match}


@pytest.mark.parametrize(
    ("components", "error"),
    [
        ([], ErrorCode.NONE),
        ([component("user"), component("client-id", ANY_NAME, None)], ErrorCode.NONE),
        ([component("ip")], ErrorCode.NONE),
        ([component("ip"), component("user")], ErrorCode.INVALID_REQUEST),
        ([component("user"), component("user")], ErrorCode.INVALID_REQUEST),
        ([component("user", match=None)], ErrorCode.INVALID_REQUEST),
        ([component("user", ANY_NAME)], ErrorCode.INVALID_REQUEST),
        ([component("user", 7)], ErrorCode.INVALID_REQUEST),
        ([component("")], ErrorCode.INVALID_REQUEST),
        ([component("planet")], ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_there_are_no_quotas(
    cluster: ApiCluster, components: list[dict[str, Any]], error: ErrorCode
) -> None:
    asked = {"components": components, "strict": False}
    answer = cluster.request(1, DESCRIBE_CLIENT_QUOTAS, asked)
    assert answer["error_code"] == error
    assert answer["entries"] == (None if error else [])
    assert bool(answer["error_message"]) == (error is not ErrorCode.NONE)


@pytest.mark.parametrize("validate_only", [False, True])
def test_each_quota_is_refused_separately(cluster: ApiCluster, validate_only: bool) -> None:
    entities = [[{"entity_type": "user", "entity_name": name}] for name in ("u", None)]
    ops = [{"key": "producer_byte_rate", "value": 1.5, "remove": False}]
    entries = [{"entity": entity, "ops": ops} for entity in entities]
    asked = {"entries": entries, "validate_only": validate_only}
    answer = cluster.request(1, ALTER_CLIENT_QUOTAS, asked)
    assert [entry["entity"] for entry in answer["entries"]] == entities
    assert {entry["error_code"] for entry in answer["entries"]} == {ErrorCode.UNSUPPORTED_VERSION}
    assert all("no client quotas" in entry["error_message"] for entry in answer["entries"])
