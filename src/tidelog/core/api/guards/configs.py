"""Guards of DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources."""

from collections import Counter

from tidelog.core.api.access_control import Access
from tidelog.core.api.context import BrokerContext, Handling, Struct
from tidelog.core.api.guards import Serve, run
from tidelog.core.api.handlers.configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from tidelog.core.authorization.acl import CLUSTER_NAME, Operation, ResourceType
from tidelog.core.errors import ErrorCode

_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_ERRORS = {
    ResourceType.CLUSTER: _CLUSTER,
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
}


def _resource(kind: int, name: str) -> tuple[ResourceType, str] | None:
    """The resource whose settings these are; None for a kind that Kafka does not have."""
    if kind in (BROKER, BROKER_LOGGER, CLIENT_METRICS):
        return ResourceType.CLUSTER, CLUSTER_NAME
    if kind == TOPIC:
        return ResourceType.TOPIC, name
    return (ResourceType.GROUP, name) if kind == GROUP else None


def _refusals(
    access: Access, operation: Operation, resources: list[Struct]
) -> dict[tuple[int, str], Struct]:
    """The refused resources, by kind and name."""
    refused = {}
    identities = Counter(_identity(each) for each in resources)
    for kind, name in identities:
        of = _resource(kind, name)
        if of is None or access.may(operation, *of):
            continue
        refused[kind, name] = {
            "error_code": _ERRORS[of[0]],
            "error_message": f"{operation.name} on {of[0].name.lower()} {of[1]} is needed.",
            "resource_type": kind,
            "resource_name": name,
        }
    return refused


def _identity(resource: Struct) -> tuple[int, str]:
    return resource["resource_type"], resource["resource_name"]


def describe_configs(
    access: Access, _broker: BrokerContext, request: Struct, serve: Serve
) -> Handling:
    """DESCRIBE_CONFIGS on each topic or group, for brokers on the cluster."""
    resources = request["resources"]
    refused = _refusals(access, Operation.DESCRIBE_CONFIGS, resources)
    rest = [each for each in resources if _identity(each) not in refused]
    response = yield from run(serve({**request, "resources": rest}))
    response["results"] += [{**each, "configs": []} for each in refused.values()]
    return response


def alter_configs(
    access: Access, _broker: BrokerContext, request: Struct, serve: Serve
) -> Handling:
    """ALTER_CONFIGS on each topic or group, for brokers on the cluster. A resource that is given
    twice is an error of its own."""
    resources = request["resources"]
    times = Counter(_identity(each) for each in resources)
    once = [each for each in resources if times[_identity(each)] == 1]
    refused = _refusals(access, Operation.ALTER_CONFIGS, once)
    rest = [each for each in resources if _identity(each) not in refused]
    response = yield from run(serve({**request, "resources": rest}))
    response["responses"] += refused.values()
    return response


def list_config_resources(
    access: Access, _broker: BrokerContext, request: Struct, serve: Serve
) -> Handling:
    """DESCRIBE_CONFIGS on the cluster."""
    if access.may_on_cluster(Operation.DESCRIBE_CONFIGS):
        return (yield from run(serve(request)))
    return {"throttle_time_ms": 0, "error_code": _CLUSTER, "config_resources": []}
