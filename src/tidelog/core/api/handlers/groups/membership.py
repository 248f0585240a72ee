"""JoinGroup 0-9, SyncGroup 0-5, Heartbeat 0-4 and LeaveGroup 0-5: how a group is kept together.

What a member says about itself goes to the coordinator as it came; only what no coordinator is
needed for is refused here. What may be large is taken out of the request: it may wait for the
whole group, and only the group decides whether to keep that.
"""

from tidelog.core.api.context import BrokerContext, Handling, Struct
from tidelog.core.errors import ErrorCode
from tidelog.core.groups.messages import (
    Heartbeat,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeavingMember,
    SyncGroup,
    SyncGroupResponse,
)
from tidelog.core.types import TopicId

_UUID_TEXT_SIZE = 36
NAME_BYTES_MAX = 0x7FFF - 1 - _UUID_TEXT_SIZE
"""Of a client or an instance: with a UUID behind it, it still has to fit into a field."""
_NULL_PROTOCOL_NAME = 7
"""The first version of JoinGroup that can say that there is no protocol."""
_PROTOCOL_IN_SYNC = 5
_MANY_LEAVE = 3


def join_group(broker: BrokerContext, request: Struct) -> Handling:
    """Answered when the whole group has joined, or when a new member was given its id."""
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
    """Answered when the leader has said who gets what."""
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
    """Nobody loses its place because its new coordinator still has to read up on the group."""
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
    """One member up to version 2, many from version 3 on."""
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
