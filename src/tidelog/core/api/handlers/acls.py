"""DescribeAcls, CreateAcls and DeleteAcls 1-3.

A cluster without an authoriser refuses them, as Kafka does: ACLs would have no effect.
"""

from collections.abc import Iterator
from enum import IntEnum
from typing import TypeVar

from tidelog.core.api.context import BrokerContext, Handling, Struct
from tidelog.core.api.handlers.refusals import Refused, error_text
from tidelog.core.authorization.acl import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from tidelog.core.controller.effects import AclsDeleted, TopicAnswer
from tidelog.core.controller.events import CreateAclsReceived, DeleteAclsReceived
from tidelog.core.errors import ErrorCode

_Code = TypeVar("_Code", bound=IntEnum)
_DISABLED = {
    "error_code": ErrorCode.SECURITY_DISABLED,
    "error_message": "This cluster has no access control: any client may do everything. To use"
    " ACLs, set authorizer.class.name on all brokers.",
}
_OK = {"error_code": ErrorCode.NONE, "error_message": None}
_NAME_BYTES_MAX = 0x7FFF
"""The longest text of an ACL: as much as the versions before the flexible ones can hold."""


def describe_acls(broker: BrokerContext, request: Struct) -> Struct:
    """List the ACLs that a filter selects, by resource."""
    if broker.broker.authorizer is None:
        return {"throttle_time_ms": 0, **_DISABLED, "resources": []}
    wanted = _filter(request)
    if wanted.is_unknown:
        return {"throttle_time_ms": 0, **_unknown_filter(), "resources": []}
    resources: dict[tuple[object, ...], list[Struct]] = {}
    for acl in sorted(broker.node.image.acls.values()):
        if wanted.matches(acl):
            entry = {
                "principal": acl.principal,
                "host": acl.host,
                "operation": acl.operation,
                "permission_type": acl.permission,
            }
            resource = acl.resource_type, acl.resource_name, acl.pattern_type
            resources.setdefault(resource, []).append(entry)
    return {
        "throttle_time_ms": 0,
        **_OK,
        "resources": [
            {
                "resource_type": resource_type,
                "resource_name": name,
                "pattern_type": pattern_type,
                "acls": acls,
            }
            for (resource_type, name, pattern_type), acls in resources.items()
        ],
    }


def create_acls(broker: BrokerContext, request: Struct) -> Handling:
    """Create the valid ACLs of the request: each of the others fails on its own."""
    creations = request["creations"]
    if broker.broker.authorizer is None:
        return {"throttle_time_ms": 0, "results": [_DISABLED for _ in creations]}
    acls: list[Acl] = []
    refused: list[Struct | None] = []
    for creation in creations:
        try:
            acls.append(_acl(creation))
            refused.append(None)
        except Refused as refusal:
            refused.append(_error(refusal.error, refusal.message))
    created: Struct = _OK
    if acls:
        [answer] = yield [CreateAclsReceived(0, tuple(acls))]
        if answer.error:
            created = _error(answer.error, answer.message)
    return {"throttle_time_ms": 0, "results": [each or created for each in refused]}


def _acl(creation: Struct) -> Acl:
    """Return the ACL to create. Raises Refused."""
    acl = Acl(
        _code(ResourceType, creation["resource_type"]),
        creation["resource_name"],
        _code(PatternType, creation["resource_pattern_type"]),
        creation["principal"],
        creation["host"],
        _code(Operation, creation["operation"]),
        _code(Permission, creation["permission_type"]),
    )
    problem = _problem(acl)
    if problem is not None:
        raise Refused(ErrorCode.INVALID_REQUEST, problem)
    return acl


def _problem(acl: Acl) -> str | None:
    """What is wrong with an ACL; None if it may be created."""
    if acl.resource_type is ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        return f"The only cluster resource is {CLUSTER_NAME}."
    if not acl.resource_name:
        return "The resource name is empty."
    if acl.resource_type in (ResourceType.UNKNOWN, ResourceType.ANY):
        return "An ACL is for one type of resource."
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return "The pattern type of an ACL is LITERAL (3) or PREFIXED (4)."
    if acl.operation in (Operation.UNKNOWN, Operation.ANY):
        return "An ACL is for one operation, or for ALL (2)."
    if acl.permission not in (Permission.ALLOW, Permission.DENY):
        return "The permission type of an ACL is DENY (2) or ALLOW (3)."
    if ":" not in acl.principal:
        return f"The principal {acl.principal!r} has no type: write User:{acl.principal}."
    longest = max(len(text.encode()) for text in (acl.resource_name, acl.principal, acl.host))
    return "A name is too long." if longest > _NAME_BYTES_MAX else None


def delete_acls(broker: BrokerContext, request: Struct) -> Handling:
    """Delete the ACLs that the filters select, and list them."""
    filters = request["filters"]
    if broker.broker.authorizer is None:
        disabled = {**_DISABLED, "matching_acls": []}
        return {"throttle_time_ms": 0, "filter_results": [disabled for _ in filters]}
    wanted = [_filter(each) for each in filters]
    known = tuple(each for each in wanted if not each.is_unknown)
    results: Iterator[Struct] = iter(())
    if known:
        [answer] = yield [DeleteAclsReceived(0, known)]
        results = iter(_deleted(answer, len(known)))
    unknown = {**_unknown_filter(), "matching_acls": []}
    return {
        "throttle_time_ms": 0,
        "filter_results": [unknown if each.is_unknown else next(results) for each in wanted],
    }


def _deleted(answer: AclsDeleted | TopicAnswer, filters: int) -> list[Struct]:
    """The result of each filter."""
    if isinstance(answer, TopicAnswer):
        failed = _error(answer.error, answer.message)
        return [{**failed, "matching_acls": []}] * filters
    return [
        {
            **_OK,
            "matching_acls": [
                {
                    **_OK,
                    "resource_type": acl.resource_type,
                    "resource_name": acl.resource_name,
                    "pattern_type": acl.pattern_type,
                    "principal": acl.principal,
                    "host": acl.host,
                    "operation": acl.operation,
                    "permission_type": acl.permission,
                }
                for acl in sorted(deleted)
            ],
        }
        for deleted in answer.deleted
    ]


def _filter(fields: Struct) -> AclFilter:
    return AclFilter(
        _code(ResourceType, fields["resource_type_filter"]),
        fields["resource_name_filter"],
        _code(PatternType, fields["pattern_type_filter"]),
        fields["principal_filter"],
        fields["host_filter"],
        _code(Operation, fields["operation"]),
        _code(Permission, fields["permission_type"]),
    )


def _code(kind: type[_Code], code: int) -> _Code:
    """The value of a code; UNKNOWN (0) if this release does not know it."""
    try:
        return kind(code)
    except ValueError:
        return kind(0)


def _unknown_filter() -> Struct:
    return _error(ErrorCode.INVALID_REQUEST, "The filter has a code that this broker can't know.")


def _error(error: ErrorCode, message: str) -> Struct:
    return {"error_code": error, "error_message": error_text(message)}
