"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup, from bytes to the coordinator and back."""

from typing import Any

import pytest
from group_requests import RANDOM_TEXT, ask, code, versions

from tidelog.core.api.handlers.groups import (
    NAME_BYTES_MAX,
    heartbeat,
    join_group,
    leave_group,
    sync_group,
)
from tidelog.core.errors import ErrorCode
from tidelog.core.groups.messages import (
    Heartbeat,
    HeartbeatResponse,
    JoinedMember,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    LeavingMember,
    LeftMember,
    SyncGroup,
    SyncGroupResponse,
)

JOIN, HEARTBEAT, LEAVE, SYNC = 11, 12, 13, 14
JOINING: dict[str, Any] = {
    "group_id": "readers",
    "session_timeout_ms": 45_000,
    "rebalance_timeout_ms": 300_000,
    "member_id": "",
    "group_instance_id": "first",
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": b"topics"}, {"name": "sticky", "metadata": b""}],
    "reason": "new",
}
SYNCING: dict[str, Any] = {
    "group_id": "readers",
    "generation_id": 3,
    "member_id": "app-1",
    "group_instance_id": "first",
    "protocol_type": "consumer",
    "protocol_name": "range",
    "assignments": [{"member_id": "app-1", "assignment": b"all"}],
}
BEATING = {"group_id": "readers", "generation_id": 3, "member_id": "app-1"}
LEAVING: dict[str, Any] = {
    "group_id": "readers",
    "member_id": "app-1",
    "members": [
        {"member_id": "app-1", "group_instance_id": None, "reason": "done"},
        {"member_id": "", "group_instance_id": "first", "reason": None},
    ],
}
EVERY_HANDLER: list[Any] = [
    (join_group, JOIN, JOINING),
    (sync_group, SYNC, SYNCING),
    (heartbeat, HEARTBEAT, BEATING),
    (leave_group, LEAVE, LEAVING),
]


@pytest.mark.parametrize("version", versions(JOIN))
def test_joining(version: int) -> None:
    joined = JoinGroupResponse(
        ErrorCode.NONE,
        "first-9",
        4,
        "consumer",
        "range",
        "first-9",
        skip_assignment=True,
        members=(JoinedMember("first-9", "first", b"topics"),),
    )
    response, coordinator = ask(join_group, JOIN, version, JOINING, joined)
    assert coordinator.only == JoinGroup(
        "readers",
        45_000,
        300_000 if version >= 1 else None,
        "",
        "first" if version >= 5 else None,
        "consumer",
        [("range", b"topics"), ("sticky", b"")],
        "app",
        "/127.0.0.1",
        RANDOM_TEXT,
        version,
        "new" if version >= 8 else None,
    )
    [member] = response["members"]
    assert (member["member_id"], member["metadata"]) == ("first-9", b"topics")
    assert member.get("group_instance_id") == ("first" if version >= 5 else None)
    assert code(response) is ErrorCode.NONE
    assert (response["generation_id"], response["member_id"]) == (4, "first-9")
    assert (response["protocol_name"], response["leader"]) == ("range", "first-9")
    assert response.get("protocol_type") == ("consumer" if version >= 7 else None)
    assert response.get("skip_assignment", False) == (version >= 9)


@pytest.mark.parametrize("version", versions(JOIN))
def test_a_new_member_gets_its_id(version: int) -> None:
    """There is no protocol yet; old versions encode that as an empty name."""
    given = JoinGroupResponse(ErrorCode.MEMBER_ID_REQUIRED, "app-1")
    response, _ = ask(join_group, JOIN, version, JOINING, given)
    assert code(response) is ErrorCode.MEMBER_ID_REQUIRED
    assert (response["member_id"], response["generation_id"]) == ("app-1", -1)
    assert response["protocol_name"] == (None if version >= 7 else "")


def test_a_client_without_a_name() -> None:
    joined = JoinGroupResponse(ErrorCode.NONE, "-1", 1, "consumer", "range", "-1")
    _, coordinator = ask(join_group, JOIN, 9, JOINING, joined, client_id=None)
    assert coordinator.only.client_id == ""


@pytest.mark.parametrize("field", ["client", "instance"])
def test_a_name_too_long_for_a_member_id(field: str) -> None:
    def join(length: int, *answers: object) -> ErrorCode:
        name = "n" * length
        asked = {**JOINING, "member_id": "app-1"}
        client_id = "app"
        if field == "client":
            client_id = name
        else:
            asked["group_instance_id"] = name
        response, _ = ask(join_group, JOIN, 9, asked, *answers, client_id=client_id)
        assert response["member_id"] == "app-1"
        return code(response)

    assert join(NAME_BYTES_MAX, JoinGroupResponse(ErrorCode.NONE, "app-1")) is ErrorCode.NONE
    assert join(NAME_BYTES_MAX + 1) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", versions(SYNC))
def test_syncing(version: int) -> None:
    synced = SyncGroupResponse(ErrorCode.NONE, "consumer", "range", b"all")
    response, coordinator = ask(sync_group, SYNC, version, SYNCING, synced)
    named = version >= 5
    assert coordinator.only == SyncGroup(
        "readers",
        3,
        "app-1",
        "first" if version >= 3 else None,
        "consumer" if named else None,
        "range" if named else None,
        [("app-1", b"all")],
    )
    assert code(response) is ErrorCode.NONE
    assert response["assignment"] == b"all"
    assert response.get("protocol_type") == ("consumer" if named else None)
    assert response.get("protocol_name") == ("range" if named else None)


@pytest.mark.parametrize("missing", ["protocol_type", "protocol_name"])
def test_sync_from_version_5_on_requires_the_protocol(missing: str) -> None:
    response, coordinator = ask(sync_group, SYNC, 5, {**SYNCING, missing: None})
    assert code(response) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert coordinator.asked == []


@pytest.mark.parametrize("version", versions(HEARTBEAT))
@pytest.mark.parametrize(
    ("said", "heard"),
    [
        (ErrorCode.NONE, ErrorCode.NONE),
        (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.REBALANCE_IN_PROGRESS),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE),
    ],
)
def test_heartbeats(version: int, said: ErrorCode, heard: ErrorCode) -> None:
    asked = {**BEATING, "group_instance_id": "first"}
    response, coordinator = ask(heartbeat, HEARTBEAT, version, asked, HeartbeatResponse(said))
    instance = "first" if version >= 3 else None
    assert coordinator.only == Heartbeat("readers", 3, "app-1", instance)
    assert code(response) is heard


@pytest.mark.parametrize("version", versions(LEAVE))
def test_leaving(version: int) -> None:
    left = LeaveGroupResponse(
        ErrorCode.NONE,
        (
            LeftMember("app-1", None, ErrorCode.UNKNOWN_MEMBER_ID),
            LeftMember("", "first", ErrorCode.NONE),
        ),
    )
    response, coordinator = ask(leave_group, LEAVE, version, LEAVING, left)
    if version < 3:
        assert coordinator.only == LeaveGroup("readers", [LeavingMember("app-1")])
        assert code(response) is ErrorCode.UNKNOWN_MEMBER_ID
        return
    reason = "done" if version >= 5 else None
    assert coordinator.only == LeaveGroup(
        "readers", [LeavingMember("app-1", None, reason), LeavingMember("", "first")]
    )
    assert code(response) is ErrorCode.NONE
    assert [(m["member_id"], m["group_instance_id"], code(m)) for m in response["members"]] == [
        ("app-1", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", "first", ErrorCode.NONE),
    ]


@pytest.mark.parametrize("version", versions(LEAVE))
def test_leaving_a_group_of_another_coordinator(version: int) -> None:
    elsewhere = LeaveGroupResponse(ErrorCode.NOT_COORDINATOR)
    response, _ = ask(leave_group, LEAVE, version, LEAVING, elsewhere)
    assert code(response) is ErrorCode.NOT_COORDINATOR
    assert response.get("members", []) == []


@pytest.mark.parametrize(("handler", "api_key", "request_"), EVERY_HANDLER)
def test_a_group_without_a_name(handler: Any, api_key: int, request_: dict[str, Any]) -> None:
    for version in versions(api_key):
        asked = {**request_, "group_id": "", "member_id": "app-1"}
        response, coordinator = ask(handler, api_key, version, asked)
        assert code(response) is ErrorCode.INVALID_GROUP_ID
        assert response.get("member_id", "app-1") == "app-1"
        assert coordinator.asked == []
