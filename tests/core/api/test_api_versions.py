"""ApiVersions: the response, and what clients infer from it."""

import pytest
from api_cluster import API_VERSIONS, ApiCluster

from tidelog.core.api.handlers.api_versions import unsupported_version
from tidelog.core.errors import ErrorCode
from tidelog.core.wire.codec import decode_response, encode_response


@pytest.fixture(scope="module")
def cluster() -> ApiCluster:
    return ApiCluster(brokers=(1,)).start_all()


def ranges(cluster: ApiCluster, version: int) -> dict[int, tuple[int, int]]:
    asked = {"client_software_name": "test", "client_software_version": "1"}
    answer = cluster.request(1, API_VERSIONS, asked, version)
    assert answer["error_code"] == ErrorCode.NONE
    return {api["api_key"]: (api["min_version"], api["max_version"]) for api in answer["api_keys"]}


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_every_api_is_named_once_in_every_version(cluster: ApiCluster, version: int) -> None:
    told = ranges(cluster, version)
    assert told[18] == (0, 4)
    assert told[0] == (0, 13), "older librdkafka compresses only where Produce begins at 0"
    assert told[1] == (4, 18)
    assert told[3] == (0, 13)
    assert 10 in told, "librdkafka compresses with lz4 only where FindCoordinator is offered"
    assert told[22][0] == 0, "librdkafka's idempotence needs InitProducerId"
    assert told[23][0] <= 2 <= told[23][1], "librdkafka speaks version 2 only"


@pytest.mark.parametrize("version", [3, 4])
def test_features_are_kafkas_supported_ones_and_our_own(cluster: ApiCluster, version: int) -> None:
    asked = {"client_software_name": "apache-kafka-java", "client_software_version": "4.3.1"}
    answer = cluster.request(1, API_VERSIONS, asked, version)
    supported = {
        feature["name"]: (feature["min_version"], feature["max_version"])
        for feature in answer["supported_features"]
    }
    off = dict.fromkeys(("group.version", "share.version", "streams.version"), (0, 0))
    assert supported == {
        "metadata.version": (30, 30),
        "eligible.leader.replicas.version": (1, 1),
        "tidelog.version": (1, 5),
        **({**off, "transaction.version": (0, 2)} if version >= 4 else {}),
    }, "before version 4 a client refuses a feature whose lowest level is 0"
    finalised = {one["name"]: one["max_version_level"] for one in answer["finalized_features"]}
    assert finalised == {
        "metadata.version": 30,
        "eligible.leader.replicas.version": 1,
        "tidelog.version": 5,
        "transaction.version": 2,
    }, "a new cluster starts at the newest levels"
    assert answer["finalized_features_epoch"] > 0
    assert answer["zk_migration_ready"] is False


def test_tools_do_not_take_the_cluster_for_an_old_kafka(cluster: ApiCluster) -> None:
    """kcl and kminion search the first release that has a key which is missing here: without
    24 that is 0.11, without 38 it is 1.1, without 65 it is 3.0, without 68 it is 3.7."""
    assert {24, 25, 26, 28, 38, 39, 40, 41, 65, 66, 68, 69} <= set(ranges(cluster, 0))


@pytest.mark.parametrize(
    ("name", "software_version", "error"),
    [
        ("librdkafka", "2.16.0", ErrorCode.NONE),
        ("a", "1-b.c", ErrorCode.NONE),
        ("", "1", ErrorCode.INVALID_REQUEST),
        ("java", "", ErrorCode.INVALID_REQUEST),
        ("-java", "1", ErrorCode.INVALID_REQUEST),
        ("java", "1.", ErrorCode.INVALID_REQUEST),
        ("my client", "1", ErrorCode.INVALID_REQUEST),
    ],
)
def test_clients_name_themselves(
    cluster: ApiCluster, name: str, software_version: str, error: ErrorCode
) -> None:
    asked = {"client_software_name": name, "client_software_version": software_version}
    answer = cluster.request(1, API_VERSIONS, asked)
    assert answer["error_code"] == error
    assert bool(answer["api_keys"]) == (error is ErrorCode.NONE)


def test_too_new_api_versions_request_gets_a_version_0_response() -> None:
    frame = encode_response(API_VERSIONS, 0, 3, unsupported_version())
    assert decode_response(API_VERSIONS, 0, frame[4:]) == (
        3,
        {
            "error_code": ErrorCode.UNSUPPORTED_VERSION,
            "api_keys": [{"api_key": 18, "min_version": 0, "max_version": 4}],
        },
    )
