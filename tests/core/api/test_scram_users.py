"""AlterUserScramCredentials and DescribeUserScramCredentials, compared with Kafka's rules."""

from typing import Any

import pytest
from api_cluster import ALTER_USER_SCRAM_CREDENTIALS as ALTER
from api_cluster import DESCRIBE_USER_SCRAM_CREDENTIALS as DESCRIBE
from api_cluster import ApiCluster

from tidelog.core.controller.events import UpgradeType
from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata.features import SCRAM, TIDELOG_VERSION
from tidelog.core.controller.metadata.registrations import decode_scram, encode_scram
from tidelog.core.errors import ErrorCode
from tidelog.core.sasl.credential import ScramCredential
from tidelog.core.sasl.mechanism import SCRAM_SHA_256, SCRAM_SHA_512
from tidelog.core.sasl.scram import credential_of
from tidelog.core.wire.controller_calls import decode_call, encode_call

SHA_256, SHA_512 = 1, 2
UNACCEPTABLE = ErrorCode.UNACCEPTABLE_CREDENTIAL


@pytest.fixture
def cluster() -> ApiCluster:
    return ApiCluster(brokers=(1, 2)).start_all()


def upsertion(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "mechanism": SHA_256,
        "iterations": 4096,
        "salt": b"salt",
        "salted_password": b"password",
        **fields,
    }


def alter(
    cluster: ApiCluster, *upsertions: dict[str, Any], delete: tuple[tuple[str, int], ...] = ()
) -> dict[str, tuple[ErrorCode, str | None]]:
    deletions = [{"name": name, "mechanism": mechanism} for name, mechanism in delete]
    request = {"deletions": deletions, "upsertions": list(upsertions)}
    results = cluster.request(2, ALTER, request)["results"]
    cluster.settle()
    return {
        result["user"]: (ErrorCode(result["error_code"]), result["error_message"])
        for result in results
    }


def describe(cluster: ApiCluster, *names: str) -> dict[str, Any]:
    users = [{"name": name} for name in names] or None
    response = cluster.request(1, DESCRIBE, {"users": users})
    assert response["error_code"] == ErrorCode.NONE
    return {
        result["user"]: result["credential_infos"] or ErrorCode(result["error_code"])
        for result in response["results"]
    }


def info(mechanism: int, iterations: int = 4096) -> dict[str, int]:
    return {"mechanism": mechanism, "iterations": iterations}


def test_users_are_stored_and_described_without_their_keys(cluster: ApiCluster) -> None:
    assert describe(cluster) == {}
    assert alter(cluster, upsertion("alice"), upsertion("名前, =/", iterations=16384)) == {
        "alice": (ErrorCode.NONE, None),
        "名前, =/": (ErrorCode.NONE, None),
    }
    alter(cluster, upsertion("alice", mechanism=SHA_512, iterations=5000))
    expected = {
        "alice": [info(SHA_256), info(SHA_512, 5000)],
        "名前, =/": [info(SHA_256, 16384)],
    }
    assert describe(cluster) == expected
    assert describe(cluster, "alice") == {"alice": expected["alice"]}
    for node in cluster.nodes.values():
        assert node.image.scram[SCRAM_SHA_256, "alice"] == credential_of(
            SCRAM_SHA_256, b"password", b"salt", 4096
        )


def test_a_user_is_changed_and_deleted(cluster: ApiCluster) -> None:
    alter(cluster, upsertion("alice"))
    alter(cluster, upsertion("alice", iterations=8192))
    assert describe(cluster) == {"alice": [info(SHA_256, 8192)]}
    message = "Attempt to delete a user credential that does not exist"
    assert alter(cluster, delete=(("alice", SHA_512), ("bob", SHA_256))) == {
        "alice": (ErrorCode.RESOURCE_NOT_FOUND, message),
        "bob": (ErrorCode.RESOURCE_NOT_FOUND, message),
    }
    assert alter(cluster, delete=(("alice", SHA_256),)) == {"alice": (ErrorCode.NONE, None)}
    assert describe(cluster) == {}


def test_users_that_cant_be_described(cluster: ApiCluster) -> None:
    alter(cluster, upsertion("alice"))
    assert describe(cluster, "nobody", "alice", "alice") == {
        "alice": ErrorCode.DUPLICATE_RESOURCE,
        "nobody": ErrorCode.RESOURCE_NOT_FOUND,
    }


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"name": ""}, UNACCEPTABLE, "Username must not be empty"),
        ({"name": "x" * 201}, UNACCEPTABLE, "Username must not exceed 200 bytes"),
        ({"mechanism": 0}, ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        ({"mechanism": 3}, ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        ({"iterations": 4095}, UNACCEPTABLE, "Too few iterations"),
        ({"iterations": 16385}, UNACCEPTABLE, "Too many iterations"),
        ({"salt": b""}, UNACCEPTABLE, "Salt and salted password must not be empty"),
        ({"salted_password": b""}, UNACCEPTABLE, "Salt and salted password must not be empty"),
    ],
)
def test_a_credential_is_refused_as_by_kafka(
    cluster: ApiCluster, fields: dict[str, Any], error: ErrorCode, message: str
) -> None:
    wrong = upsertion(**{"name": "alice", **fields})
    results = alter(cluster, wrong, upsertion("bob"))
    assert results == {wrong["name"]: (error, message), "bob": (ErrorCode.NONE, None)}
    assert list(describe(cluster)) == ["bob"]


def test_a_user_may_occur_once_in_a_request(cluster: ApiCluster) -> None:
    alter(cluster, upsertion("carol"))
    twice = (
        ErrorCode.DUPLICATE_RESOURCE,
        "A user credential cannot be altered twice in the same request",
    )
    results = alter(
        cluster,
        upsertion("alice"),
        upsertion("alice", mechanism=SHA_512),
        upsertion("carol"),
        delete=(("carol", SHA_256), ("dave", SHA_256), ("dave", SHA_256)),
    )
    missing = (
        ErrorCode.RESOURCE_NOT_FOUND,
        "Attempt to delete a user credential that does not exist",
    )
    assert results == {"alice": twice, "carol": twice, "dave": missing}
    assert list(describe(cluster)) == ["carol"]


def test_a_lower_level_has_no_users() -> None:
    cluster = ApiCluster(brokers=(1,)).start_all()

    def level(wanted: int, upgrade_type: int) -> ErrorCode:
        one = {
            "feature": TIDELOG_VERSION,
            "max_version_level": wanted,
            "allow_downgrade": True,
            "upgrade_type": upgrade_type,
        }
        request = {"timeout_ms": 1000, "feature_updates": [one], "validate_only": False}
        response = cluster.request(1, 57, request)
        cluster.settle()
        return ErrorCode(response["error_code"])

    request = {"deletions": [], "upsertions": [upsertion("alice")]}
    assert cluster.request(1, ALTER, request)["results"][0]["error_code"] == ErrorCode.NONE
    cluster.settle()
    safe, unsafe = UpgradeType.SAFE_DOWNGRADE.value, UpgradeType.UNSAFE_DOWNGRADE.value
    assert level(SCRAM - 1, safe) is ErrorCode.INVALID_UPDATE_VERSION
    assert level(SCRAM - 1, unsafe) is ErrorCode.NONE
    image = cluster.nodes[1].image
    assert not image.scram
    assert not [key for key in image.mod_revs if key.startswith(keys.SCRAM)]
    [result] = cluster.request(1, ALTER, request)["results"]
    assert result["error_code"] == ErrorCode.UNSUPPORTED_VERSION
    assert "features upgrade" in result["error_message"]


def test_a_credential_in_the_store_and_between_brokers() -> None:
    credential = ScramCredential(b"salt", b"stored", b"server", 4096)
    assert decode_scram(encode_scram("alice", credential)) == credential
    assert decode_call(encode_call(credential)) == credential
    for user in ("alice", "a/b", "名前"):
        assert keys.parse_scram(keys.scram(SCRAM_SHA_512, user)) == (SCRAM_SHA_512, user)
