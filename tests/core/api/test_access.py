"""Access control, authentication and quotas do not exist: each refusal says so."""

from typing import Any

import pytest
from api_cluster import (
    ALTER_CLIENT_QUOTAS,
    ALTER_USER_SCRAM_CREDENTIALS,
    CREATE_ACLS,
    DELETE_ACLS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
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


def results_of(cluster: ApiCluster, api_key: int, request: dict[str, Any]) -> Any:
    results = cluster.request(1, api_key, request)["results"]
    assert all(result["error_message"] for result in results)
    return [(result["user"], ErrorCode(result["error_code"])) for result in results]


def test_no_user_has_scram_credentials(cluster: ApiCluster) -> None:
    assert results_of(cluster, DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": None}) == []
    assert results_of(cluster, DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": []}) == []
    asked = {"users": [{"name": name} for name in ("u", "v", "v")]}
    assert results_of(cluster, DESCRIBE_USER_SCRAM_CREDENTIALS, asked) == [
        ("u", ErrorCode.RESOURCE_NOT_FOUND),
        ("v", ErrorCode.DUPLICATE_RESOURCE),
    ]


def test_scram_credentials_can_not_be_created(cluster: ApiCluster) -> None:
    def upsertion(name: str) -> dict[str, Any]:
        return {
            "name": name,
            "mechanism": 1,
            "iterations": 4096,
            "salt": b"s",
            "salted_password": b"p",
        }

    asked = {
        "deletions": [{"name": name, "mechanism": 1} for name in ("gone", "both")],
        "upsertions": [upsertion(name) for name in ("new", "both")],
    }
    assert results_of(cluster, ALTER_USER_SCRAM_CREDENTIALS, asked) == [
        ("new", ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ("both", ErrorCode.RESOURCE_NOT_FOUND),
        ("gone", ErrorCode.RESOURCE_NOT_FOUND),
    ]
