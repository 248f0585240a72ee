"""Access control is off: each refusal says so."""

import pytest
from api_cluster import (
    CREATE_ACLS,
    DELETE_ACLS,
    ApiCluster,
)
from test_every_version import ACL, ACL_FILTER

from tidelog.core.errors import ErrorCode


@pytest.fixture(scope="module")
def cluster() -> ApiCluster:
    return ApiCluster(brokers=(1,)).start_all()


def test_each_acl_is_refused_separately(cluster: ApiCluster) -> None:
    results = cluster.request(1, CREATE_ACLS, {"creations": [ACL, ACL]})["results"]
    deleted = cluster.request(1, DELETE_ACLS, {"filters": [ACL_FILTER] * 3})["filter_results"]
    assert (len(results), len(deleted)) == (2, 3)
    assert {result["error_code"] for result in results + deleted} == {ErrorCode.SECURITY_DISABLED}
    assert all("no access control" in result["error_message"] for result in results + deleted)
