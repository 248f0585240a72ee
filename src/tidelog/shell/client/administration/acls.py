"""Create, list and delete ACLs."""

from collections.abc import Sequence

from tidelog.core.api_table import CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS
from tidelog.core.authorization.acl import (
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from tidelog.core.errors import ErrorCode
from tidelog.core.wire.codec import Struct
from tidelog.shell.client.administration.topics import Outcome
from tidelog.shell.client.client_errors import BrokerError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.connection import KafkaConnection


def acl_text(acl: Acl) -> str:
    """Write an ACL as a sentence: `User:alice may READ topic orders`."""
    verb = "may" if acl.permission is Permission.ALLOW else "may not"
    named = "with prefix " if acl.pattern_type is PatternType.PREFIXED else ""
    kind = acl.resource_type.name.lower().replace("_", " ")
    where = "" if acl.host == "*" else f" from {acl.host}"
    return f"{acl.principal} {verb} {acl.operation.name} {kind} {named}{acl.resource_name}{where}"


def create_acls(cluster: Cluster, acls: Sequence[Acl]) -> list[Outcome]:
    """Create ACLs; those that exist stay. Return the result of each."""
    creations = [
        {
            "resource_type": acl.resource_type,
            "resource_name": acl.resource_name,
            "resource_pattern_type": acl.pattern_type,
            "principal": acl.principal,
            "host": acl.host,
            "operation": acl.operation,
            "permission_type": acl.permission,
        }
        for acl in acls
    ]

    def ask(controller: KafkaConnection) -> list[Outcome]:
        results = controller.call(CREATE_ACLS, {"creations": creations})["results"]
        _check_controller("creating ACLs", results)
        return [
            Outcome(acl_text(acl), each["error_code"], each["error_message"])
            for acl, each in zip(acls, results, strict=True)
        ]

    return cluster.ask_controller(ask)


def list_acls(cluster: Cluster, wanted: AclFilter) -> list[Acl]:
    """Return the ACLs that a filter selects. Raises BrokerError."""
    answer = cluster.ask_any(lambda broker: broker.call(DESCRIBE_ACLS, _fields(wanted)))
    if answer["error_code"]:
        raise BrokerError("listing ACLs", answer["error_code"], answer["error_message"] or "")
    return sorted(
        _acl({**resource, **entry})
        for resource in answer["resources"]
        for entry in resource["acls"]
    )


def delete_acls(cluster: Cluster, wanted: AclFilter) -> list[Acl]:
    """Delete the ACLs that a filter selects, and return them. Raises BrokerError."""

    def ask(controller: KafkaConnection) -> list[Acl]:
        [result] = controller.call(DELETE_ACLS, {"filters": [_fields(wanted)]})["filter_results"]
        if result["error_code"]:
            message = result["error_message"] or ""
            raise BrokerError("deleting ACLs", result["error_code"], message)
        return sorted(_acl(each) for each in result["matching_acls"])

    return cluster.ask_controller(ask)


def _check_controller(doing: str, results: Sequence[Struct]) -> None:
    if any(each["error_code"] == ErrorCode.NOT_CONTROLLER for each in results):
        raise BrokerError(doing, ErrorCode.NOT_CONTROLLER)


def _fields(wanted: AclFilter) -> Struct:
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.resource_name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def _acl(fields: Struct) -> Acl:
    return Acl(
        ResourceType(fields["resource_type"]),
        fields["resource_name"],
        PatternType(fields["pattern_type"]),
        fields["principal"],
        fields["host"],
        Operation(fields["operation"]),
        Permission(fields["permission_type"]),
    )
