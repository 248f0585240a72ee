"""Classic consumer groups: membership (JoinGroup 0-9, SyncGroup 0-5, Heartbeat 0-4, LeaveGroup 0-5)
and administration (DescribeGroups 0-6, ListGroups 0-5, DeleteGroups 0-2).

Requests go to the group's coordinator as they were received; errors that need no coordinator are
found here. Large fields are removed from the request (`pop`): a join may wait for the whole group,
and only the group decides whether to keep them.
"""

from tidelog.core.api.context import BrokerContext, Handling, Struct
from tidelog.core.api.handlers.brokers import NOT_REQUESTED
from tidelog.core.api.handlers.refusals import error_text
from tidelog.core.errors import ErrorCode
from tidelog.core.groups.messages import (
    DeleteGroup,
    DescribeGroup,
    DescribeGroupResponse,
    Heartbeat,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    SyncGroup,
    SyncGroupResponse,
)
from tidelog.core.types import TopicId

# -- membership -------------------------------------------------------------------------------

_UUID_TEXT_SIZE = 36
NAME_BYTES_MAX = 0x7FFF - 1 - _UUID_TEXT_SIZE
"""Longest client id or instance id: with a UUID appended, it must fit into a string field."""
_NULL_PROTOCOL_NAME = 7
"""The first version of JoinGroup whose response can have a null protocol."""
_PROTOCOL_IN_SYNC = 5
_MANY_LEAVE = 3


def join_group(broker: BrokerContext, request: Struct) -> Handling:
    """Join; respond when the whole group has joined, or when a new member has its id."""
    member_id, instance = request["member_id"], request.get("group_instance_id")
    client_id = broker.client_id or ""
    if not request["group_id"]:
        return _joined(broker, JoinGroupResponse(ErrorCode.INVALID_GROUP_ID, member_id))
    if any(len(name.encode()) > NAME_BYTES_MAX for name in (client_id, instance or "")):
        return _joined(broker, JoinGroupResponse(ErrorCode.INVALID_REQUEST, member_id))
    [answer] = yield [
        JoinGroup(
            request["group_id"],
            request["session_timeout_ms"],
            request.get("rebalance_timeout_ms"),
            member_id,
            instance,
            request["protocol_type"],
            [(one["name"], one["metadata"]) for one in request.pop("protocols")],
            client_id,
            f"/{broker.client_host}",
            _uuid_text(broker.new_topic_id()),
            broker.version,
            request.get("reason"),
        )
    ]
    return _joined(broker, answer)


def _uuid_text(random: TopicId) -> str:
    digits = random.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _joined(broker: BrokerContext, answer: JoinGroupResponse) -> Struct:
    protocol_name = answer.protocol_name
    if protocol_name is None and broker.version < _NULL_PROTOCOL_NAME:
        protocol_name = ""
    return {
        "throttle_time_ms": 0,
        "error_code": answer.error_code,
        "generation_id": answer.generation_id,
        "protocol_type": answer.protocol_type,
        "protocol_name": protocol_name,
        "leader": answer.leader,
        "skip_assignment": answer.skip_assignment,
        "member_id": answer.member_id,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "metadata": member.metadata,
            }
            for member in answer.members
        ],
    }


def sync_group(broker: BrokerContext, request: Struct) -> Handling:
    """Respond with the member's assignment when the group's leader has sent it."""
    protocol_type, protocol_name = request.get("protocol_type"), request.get("protocol_name")
    if not request["group_id"]:
        return _synced(SyncGroupResponse(ErrorCode.INVALID_GROUP_ID))
    if broker.version >= _PROTOCOL_IN_SYNC and None in (protocol_type, protocol_name):
        return _synced(SyncGroupResponse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    [answer] = yield [
        SyncGroup(
            request["group_id"],
            request["generation_id"],
            request["member_id"],
            request.get("group_instance_id"),
            protocol_type,
            protocol_name,
            [(one["member_id"], one["assignment"]) for one in request.pop("assignments")],
        )
    ]
    return _synced(answer)


def _synced(answer: SyncGroupResponse) -> Struct:
    return {
        "throttle_time_ms": 0,
        "error_code": answer.error_code,
        "protocol_type": answer.protocol_type,
        "protocol_name": answer.protocol_name,
        "assignment": answer.assignment,
    }


def heartbeat(_broker: BrokerContext, request: Struct) -> Handling:
    """Extend a member's session. While its new coordinator loads the group, it stays a member."""
    if not request["group_id"]:
        return {"throttle_time_ms": 0, "error_code": ErrorCode.INVALID_GROUP_ID}
    [answer] = yield [
        Heartbeat(
            request["group_id"],
            request["generation_id"],
            request["member_id"],
            request.get("group_instance_id"),
        )
    ]
    error = answer.error_code
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        error = ErrorCode.NONE
    return {"throttle_time_ms": 0, "error_code": error}


def leave_group(broker: BrokerContext, request: Struct) -> Handling:
    """Remove one member up to version 2, many members from version 3 on."""
    if not request["group_id"]:
        return {"throttle_time_ms": 0, "error_code": ErrorCode.INVALID_GROUP_ID, "members": []}
    if broker.version < _MANY_LEAVE:
        [answer] = yield [LeaveGroup(request["group_id"], [LeavingMember(request["member_id"])])]
        return {"throttle_time_ms": 0, "error_code": answer.single_error}
    leaving = [
        LeavingMember(one["member_id"], one["group_instance_id"], one.get("reason"))
        for one in request["members"]
    ]
    [answer] = yield [LeaveGroup(request["group_id"], leaving)]
    return {
        "throttle_time_ms": 0,
        "error_code": answer.error_code,
        "members": [member._asdict() for member in answer.members],
    }


# -- administration: a broker lists only the groups that it coordinates -----------------------

GROUP_OPERATIONS = 0b1101_0100_1000
"""Read, delete, describe, describe and alter configs."""


def describe_groups(broker: BrokerContext, request: Struct) -> Handling:
    """Return state, protocol and members of each group. A repeated name is described once:
    members may take a megabyte."""
    operations = request.get("include_authorized_operations", False)
    names = list(dict.fromkeys(request["groups"]))
    answers = yield [DescribeGroup(name, broker.version) for name in names]
    described = [
        _described(name, answer, operations) for name, answer in zip(names, answers, strict=True)
    ]
    return {"throttle_time_ms": 0, "groups": described}


def _described(name: str, answer: DescribeGroupResponse, operations: bool) -> Struct:
    allowed = operations and answer.error_code is ErrorCode.NONE
    return {
        "error_code": answer.error_code,
        "error_message": error_text(answer.error_message),
        "group_id": name,
        "group_state": answer.group_state,
        "protocol_type": answer.protocol_type,
        "protocol_data": answer.protocol_data,
        "members": [member._asdict() for member in answer.members],
        "authorized_operations": GROUP_OPERATIONS if allowed else NOT_REQUESTED,
    }


def list_groups(_broker: BrokerContext, request: Struct) -> Handling:
    """List the groups of this broker, filtered by state and type if the request says so."""
    states, types = request.get("states_filter", []), request.get("types_filter", [])
    [answer] = yield [ListGroups(states, types)]
    return {
        "throttle_time_ms": 0,
        "error_code": answer.error_code,
        "groups": [group._asdict() for group in answer.groups],
    }


def delete_groups(_broker: BrokerContext, request: Struct) -> Handling:
    """Delete groups without members, and their offsets. A repeated name counts once."""
    names = list(dict.fromkeys(request["groups_names"]))
    answers = yield [DeleteGroup(name) for name in names]
    results = [
        {"group_id": name, "error_code": answer.error_code}
        for name, answer in zip(names, answers, strict=True)
    ]
    return {"throttle_time_ms": 0, "results": results}


# -- consumer protocol (KIP-848): not supported yet ------------------------------------------
# The response is that of a Kafka whose `group.version` is 0. If the APIs were not advertised,
# librdkafka with `group.protocol=consumer` would wait forever without an error.

_REFUSED = {
    "error_code": ErrorCode.UNSUPPORTED_VERSION,
    "error_message": "This cluster has no groups of the consumer protocol (KIP-848) yet; "
    "use group.protocol=classic.",
}


def consumer_group_heartbeat(_broker: BrokerContext, _request: Struct) -> Struct:
    """ConsumerGroupHeartbeat 0-1: refuse."""
    return {"throttle_time_ms": 0, **_REFUSED}


def consumer_group_describe(_broker: BrokerContext, request: Struct) -> Struct:
    """ConsumerGroupDescribe 0-1: refuse. Java's admin client then describes a classic group."""
    groups = [{**_REFUSED, "group_id": group_id} for group_id in request["group_ids"]]
    return {"throttle_time_ms": 0, "groups": groups}
