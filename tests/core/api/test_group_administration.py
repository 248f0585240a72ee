"""DescribeGroups, ListGroups, DeleteGroups and FindCoordinator, from bytes and back."""

import pytest
from group_requests import Image, ask, code, versions

from tidelog.core.api.handlers.coordinators import find_coordinator
from tidelog.core.api.handlers.groups import (
    GROUP_OPERATIONS,
    delete_groups,
    describe_groups,
    list_groups,
)
from tidelog.core.coordinator.lookup import (
    CoordinatorType,
    FindCoordinator,
    FindCoordinatorResponse,
)
from tidelog.core.errors import ErrorCode
from tidelog.core.groups.messages import (
    DeleteGroup,
    DeleteGroupResponse,
    DescribedMember,
    DescribeGroup,
    DescribeGroupResponse,
    ListedGroup,
    ListGroups,
    ListGroupsResponse,
)

FIND, DESCRIBE, LIST, DELETE = 10, 15, 16, 42
GROUP, TRANSACTION, SHARE = 0, 1, 2
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
UNSUPPORTED_VERSION = ErrorCode.UNSUPPORTED_VERSION
NOT_ASKED_FOR = -(2**31)
STABLE = DescribeGroupResponse(
    ErrorCode.NONE,
    "readers",
    "Stable",
    "consumer",
    "range",
    (DescribedMember("app-1", "first", "app", "/127.0.0.1", b"topics", b"all"),),
)


@pytest.mark.parametrize("version", versions(DESCRIBE))
def test_describing(version: int) -> None:
    asked = {"groups": ["readers", "others"], "include_authorized_operations": version >= 3}
    elsewhere = DescribeGroupResponse(ErrorCode.NOT_COORDINATOR, error_message="Not here.")
    response, coordinator = ask(describe_groups, DESCRIBE, version, asked, STABLE, elsewhere)
    assert coordinator.asked == [
        DescribeGroup("readers", version),
        DescribeGroup("others", version),
    ]
    first, second = response["groups"]
    assert (first["group_id"], first["group_state"], code(first)) == ("readers", "Stable", 0)
    assert (first["protocol_type"], first["protocol_data"]) == ("consumer", "range")
    [member] = first["members"]
    assert member.pop("group_instance_id", None) == ("first" if version >= 4 else None)
    assert member == {
        "member_id": "app-1",
        "client_id": "app",
        "client_host": "/127.0.0.1",
        "member_metadata": b"topics",
        "member_assignment": b"all",
    }
    assert (second["group_id"], code(second)) == ("others", ErrorCode.NOT_COORDINATOR)
    assert (second["group_state"], second["members"]) == ("", [])
    assert second.get("error_message") == ("Not here." if version >= 6 else None)
    if version >= 3:
        assert first["authorized_operations"] == GROUP_OPERATIONS
        assert second["authorized_operations"] == NOT_ASKED_FOR


def test_group_requested_twice_is_described_once() -> None:
    asked = {"groups": ["readers"] * 1_000, "include_authorized_operations": False}
    response, coordinator = ask(describe_groups, DESCRIBE, 5, asked, STABLE)
    assert coordinator.only == DescribeGroup("readers", 5)
    assert len(response["groups"]) == 1


def test_authorized_operations_are_omitted_unless_requested() -> None:
    response, _ = ask(describe_groups, DESCRIBE, 6, {"groups": ["readers"]}, STABLE)
    assert response["groups"][0]["authorized_operations"] == NOT_ASKED_FOR


@pytest.mark.parametrize("version", versions(LIST))
def test_listing(version: int) -> None:
    asked = {"states_filter": ["Stable"], "types_filter": ["Classic"]}
    listed = ListGroupsResponse(
        ErrorCode.NONE, (ListedGroup("readers", "consumer", "Stable", "classic"),)
    )
    response, coordinator = ask(list_groups, LIST, version, asked, listed)
    states = ["Stable"] if version >= 4 else []
    types = ["Classic"] if version >= 5 else []
    assert coordinator.only == ListGroups(states, types)
    assert code(response) is ErrorCode.NONE
    [group] = response["groups"]
    assert (group["group_id"], group["protocol_type"]) == ("readers", "consumer")
    assert group.get("group_state") == ("Stable" if version >= 4 else None)
    assert group.get("group_type") == ("classic" if version >= 5 else None)


def test_list_groups_while_a_coordinator_is_loading() -> None:
    loading = ListGroupsResponse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    response, _ = ask(list_groups, LIST, 5, {}, loading)
    assert code(response) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert response["groups"] == []


@pytest.mark.parametrize("version", versions(DELETE))
def test_deleting(version: int) -> None:
    asked = {"groups_names": ["readers", "others", "readers"]}
    answers = DeleteGroupResponse(ErrorCode.NONE), DeleteGroupResponse(ErrorCode.NON_EMPTY_GROUP)
    response, coordinator = ask(delete_groups, DELETE, version, asked, *answers)
    assert coordinator.asked == [DeleteGroup("readers"), DeleteGroup("others")]
    assert [(one["group_id"], code(one)) for one in response["results"]] == [
        ("readers", ErrorCode.NONE),
        ("others", ErrorCode.NON_EMPTY_GROUP),
    ]


# -- who coordinates -----------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_the_coordinator_of_one_group(version: int) -> None:
    """Kafka returns NONE as the error message if there is no error."""
    answer = FindCoordinatorResponse(ErrorCode.NONE, 2, "localhost", 9092)
    response, coordinator = ask(find_coordinator, FIND, version, {"key": "readers"}, answer)
    assert coordinator.only == FindCoordinator("readers")
    assert (response["node_id"], response["host"], response["port"]) == (2, "localhost", 9092)
    assert code(response) is ErrorCode.NONE
    assert response.get("error_message") == ("NONE" if version >= 1 else None)


@pytest.mark.parametrize("version", [4, 5, 6])
def test_the_coordinators_of_many(version: int) -> None:
    answers = (
        FindCoordinatorResponse(ErrorCode.NONE, 2, "localhost", 9092),
        FindCoordinatorResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE, error_message="Wait."),
    )
    asked = {"key_type": GROUP, "coordinator_keys": ["readers", ""]}
    response, coordinator = ask(find_coordinator, FIND, version, asked, *answers)
    assert coordinator.asked == [FindCoordinator("readers"), FindCoordinator("")]
    assert response["coordinators"] == [
        {
            "key": "readers",
            "node_id": 2,
            "host": "localhost",
            "port": 9092,
            "error_code": 0,
            "error_message": "",
        },
        {
            "key": "",
            "node_id": -1,
            "host": "",
            "port": -1,
            "error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE,
            "error_message": "Wait.",
        },
    ]


@pytest.mark.parametrize("version", [1, 3])
def test_the_coordinator_of_a_transactional_id(version: int) -> None:
    answer = FindCoordinatorResponse(ErrorCode.NONE, 2, "localhost", 9092)
    asked = {"key": "t", "key_type": TRANSACTION}
    response, coordinator = ask(find_coordinator, FIND, version, asked, answer)
    assert coordinator.only == FindCoordinator("t", CoordinatorType.TRANSACTION)
    assert response["node_id"] == 2


@pytest.mark.parametrize("version", [1, 6])
@pytest.mark.parametrize(
    ("software", "error"),
    [
        ("confluent-kafka-python 2.5.0-rdkafka-2.5.0", TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ("apache-kafka-java 4.3.1", UNSUPPORTED_VERSION),
    ],
)
def test_transactions_are_refused_at_once_below_their_feature_level(
    version: int, software: str, error: ErrorCode
) -> None:
    """Older brokers may be in the cluster, or come back. Clients must not retry for ever."""
    asked: dict[str, object] = {"key_type": TRANSACTION}
    asked |= {"coordinator_keys": ["t"]} if version >= 4 else {"key": "t"}
    image = Image(tidelog_version=2)
    response, coordinator = ask(
        find_coordinator, FIND, version, asked, image=image, software=software
    )
    assert coordinator.asked == []
    found = response["coordinators"][0] if version >= 4 else response
    assert code(found) is error
    assert "tidelog features upgrade --feature tidelog.version=3" in found["error_message"]


@pytest.mark.parametrize("key_type", [SHARE, 3, -1])
def test_unknown_coordinator_types_are_refused(key_type: int) -> None:
    asked = {"key_type": key_type, "coordinator_keys": ["a", "b"]}
    response, coordinator = ask(find_coordinator, FIND, 6, asked)
    assert coordinator.asked == []
    assert {code(one) for one in response["coordinators"]} == {ErrorCode.INVALID_REQUEST}
    assert [one["key"] for one in response["coordinators"]] == ["a", "b"]
    single, _ = ask(find_coordinator, FIND, 3, {"key": "a", "key_type": key_type})
    assert code(single) is ErrorCode.INVALID_REQUEST
