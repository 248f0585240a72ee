"""Guards of the requests about consumer groups, and of FindCoordinator."""

from tidelog.core.api.access_control import Access
from tidelog.core.api.context import BrokerContext, Handling, Struct
from tidelog.core.api.guards import Serve, run
from tidelog.core.api.handlers.brokers import NOT_REQUESTED
from tidelog.core.authorization.acl import Operation, ResourceType
from tidelog.core.coordinator.lookup import CoordinatorType
from tidelog.core.errors import ErrorCode

_REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED
_NO_NODE = -1
_MANY_KEYS = 4
_NULL_PROTOCOL_NAME = 7
_PROTOCOL_IN_SYNC = 5
_COORDINATORS = {
    CoordinatorType.GROUP: (ResourceType.GROUP, _REFUSED),
    CoordinatorType.TRANSACTION: (
        ResourceType.TRANSACTIONAL_ID,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
}


def _may(access: Access, operation: Operation, group: str, *, log: bool = True) -> bool:
    return access.may(operation, ResourceType.GROUP, group, log=log)


def find_coordinator(
    access: Access, broker: BrokerContext, request: Struct, serve: Serve
) -> Handling:
    """DESCRIBE each group or transactional id."""
    kind = _COORDINATORS.get(request.get("key_type", CoordinatorType.GROUP))
    many = broker.version >= _MANY_KEYS
    keys = request["coordinator_keys"] if many else [request["key"]]
    if kind is None:
        return (yield from run(serve(request)))
    resource_type, error = kind
    may = {key: access.may(Operation.DESCRIBE, resource_type, key) for key in dict.fromkeys(keys)}
    refused = {"node_id": _NO_NODE, "host": "", "port": _NO_NODE, "error_code": error}
    if not many:
        if may[request["key"]]:
            return (yield from run(serve(request)))
        return {"throttle_time_ms": 0, **refused, "error_message": error.name}
    allowed = [key for key in keys if may[key]]
    found: list[Struct] = []
    if allowed:
        response = yield from run(serve({**request, "coordinator_keys": allowed}))
        found = response["coordinators"]
    answers = iter(found)
    return {
        "throttle_time_ms": 0,
        "coordinators": [
            next(answers) if may[key] else {"key": key, **refused, "error_message": ""}
            for key in keys
        ],
    }


def join_group(access: Access, broker: BrokerContext, request: Struct, serve: Serve) -> Handling:
    """READ the group."""
    if _may(access, Operation.READ, request["group_id"]):
        return (yield from run(serve(request)))
    return {
        "throttle_time_ms": 0,
        "error_code": _REFUSED,
        "generation_id": -1,
        "protocol_type": None,
        "protocol_name": None if broker.version >= _NULL_PROTOCOL_NAME else "",
        "leader": "",
        "skip_assignment": False,
        "member_id": "",
        "members": [],
    }


def sync_group(access: Access, broker: BrokerContext, request: Struct, serve: Serve) -> Handling:
    """READ the group; a request without protocol is an error of its own."""
    protocol = request.get("protocol_type"), request.get("protocol_name")
    incomplete = broker.version >= _PROTOCOL_IN_SYNC and None in protocol
    if incomplete or _may(access, Operation.READ, request["group_id"]):
        return (yield from run(serve(request)))
    return {
        "throttle_time_ms": 0,
        "error_code": _REFUSED,
        "protocol_type": None,
        "protocol_name": None,
        "assignment": b"",
    }


def heartbeat(access: Access, _broker: BrokerContext, request: Struct, serve: Serve) -> Handling:
    """READ the group."""
    if _may(access, Operation.READ, request["group_id"]):
        return (yield from run(serve(request)))
    return {"throttle_time_ms": 0, "error_code": _REFUSED}


def leave_group(access: Access, _broker: BrokerContext, request: Struct, serve: Serve) -> Handling:
    """READ the group."""
    if _may(access, Operation.READ, request["group_id"]):
        return (yield from run(serve(request)))
    return {"throttle_time_ms": 0, "error_code": _REFUSED, "members": []}


def describe_groups(
    access: Access, _broker: BrokerContext, request: Struct, serve: Serve
) -> Handling:
    """DESCRIBE each group."""
    names = list(dict.fromkeys(request["groups"]))
    allowed = [name for name in names if _may(access, Operation.DESCRIBE, name)]
    response = yield from run(serve({**request, "groups": allowed}))
    for group in response["groups"]:
        if group["authorized_operations"] != NOT_REQUESTED:
            operations = access.operations(ResourceType.GROUP, group["group_id"])
            group["authorized_operations"] = operations
    refused = [
        {
            "error_code": _REFUSED,
            "error_message": None,
            "group_id": name,
            "group_state": "",
            "protocol_type": "",
            "protocol_data": "",
            "members": [],
            "authorized_operations": NOT_REQUESTED,
        }
        for name in names
        if name not in allowed
    ]
    response["groups"] = refused + response["groups"]
    return response


def list_groups(access: Access, _broker: BrokerContext, request: Struct, serve: Serve) -> Handling:
    """DESCRIBE the cluster to see all groups, or each group to see that one."""
    response = yield from run(serve(request))
    if not access.may_on_cluster(Operation.DESCRIBE, log=False):
        response["groups"] = [
            group
            for group in response["groups"]
            if _may(access, Operation.DESCRIBE, group["group_id"], log=False)
        ]
    return response


def delete_groups(
    access: Access, _broker: BrokerContext, request: Struct, serve: Serve
) -> Handling:
    """DELETE each group."""
    names = list(dict.fromkeys(request["groups_names"]))
    allowed = [name for name in names if _may(access, Operation.DELETE, name)]
    response = yield from run(serve({**request, "groups_names": allowed}))
    response["results"] += [
        {"group_id": name, "error_code": _REFUSED} for name in names if name not in allowed
    ]
    return response
