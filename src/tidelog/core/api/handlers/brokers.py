"""DescribeCluster 0-2, UnregisterBroker 0, and the brokers that clients see.

A client sees the brokers that are not fenced, each at its endpoint on the client's own listener.
DescribeCluster 2 can list the fenced brokers too, including those that are down.
"""

from tidelog.core.api.context import BrokerContext, Handling, Struct
from tidelog.core.api.handlers.refusals import error_text
from tidelog.core.controller.events import UnregisterBrokerReceived
from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.controller.metadata.registrations import Endpoint
from tidelog.core.errors import ErrorCode
from tidelog.core.types import BrokerId

NOT_REQUESTED = -(2**31)
"""The value of `*_authorized_operations` if the request does not ask for them."""
CLUSTER_OPERATIONS = 0b1_1111_1010_0000
"""Create, alter, describe, cluster action, describe and alter configs, idempotent write."""
TOPIC_OPERATIONS = 0b1101_1111_1000
"""Read, write, create, delete, alter, describe, describe and alter configs."""

_NO_CONTROLLER = -1
_NO_PORT = -1
_BROKERS = 1
_CONTROLLERS = 2


def describe_cluster(broker: BrokerContext, request: Struct) -> Struct:
    """List the brokers. There are no separate controllers to describe."""
    endpoint_type = request.get("endpoint_type", _BROKERS)
    if endpoint_type == _CONTROLLERS:
        message = "This is a broker's listener; request brokers (endpoint type 1)."
        return _refusal(ErrorCode.MISMATCHED_ENDPOINT_TYPE, message)
    if endpoint_type != _BROKERS:
        message = f"Endpoint type {endpoint_type} is unknown; brokers are type 1."
        return _refusal(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, message)
    image = broker.node.image
    fenced_too = request.get("include_fenced_brokers", False)
    asked_operations = request["include_cluster_authorized_operations"]
    brokers = []
    for known in sorted(image.brokers.values(), key=lambda known: known.id):
        endpoint = known.endpoint(broker.listener)
        if not known.endpoints:
            # Registered by an older release and down since: its address is unknown.
            endpoint = Endpoint(broker.listener, "", _NO_PORT)
        if endpoint is not None and (fenced_too or not known.fenced):
            brokers.append(
                {
                    "broker_id": known.id,
                    "host": endpoint.host,
                    "port": endpoint.port,
                    "rack": known.rack,
                    "is_fenced": known.fenced,
                }
            )
    return {
        "throttle_time_ms": 0,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "endpoint_type": _BROKERS,
        "cluster_id": broker.cluster_id,
        "controller_id": controller_id(image, alive_brokers(image, broker.listener)),
        "brokers": brokers,
        "cluster_authorized_operations": CLUSTER_OPERATIONS if asked_operations else NOT_REQUESTED,
    }


def unregister_broker(_broker: BrokerContext, request: Struct) -> Handling:
    """Remove a broker's registration; the broker registers again when it is restarted."""
    [answer] = yield [UnregisterBrokerReceived(0, request["broker_id"])]
    return {
        "throttle_time_ms": 0,
        "error_code": answer.error,
        "error_message": error_text(answer.message) or "",
    }


def alive_brokers(image: ClusterImage, listener: str) -> dict[BrokerId, Endpoint]:
    """The brokers that are not fenced, with their endpoints on this listener."""
    alive = {}
    for known in image.brokers.values():
        endpoint = None if known.fenced else known.endpoint(listener)
        if endpoint is not None:
            alive[known.id] = endpoint
    return alive


def controller_id(image: ClusterImage, alive: dict[BrokerId, Endpoint]) -> BrokerId:
    """The broker that clients send controller requests to. Any broker forwards them."""
    claim = image.controller
    if claim is not None and claim.broker in alive:
        return claim.broker
    return min(alive, default=_NO_CONTROLLER)


def _refusal(error: ErrorCode, message: str) -> Struct:
    return {
        "throttle_time_ms": 0,
        "error_code": error,
        "error_message": message,
        "endpoint_type": _BROKERS,
        "cluster_id": "",
        "controller_id": _NO_CONTROLLER,
        "brokers": [],
        "cluster_authorized_operations": NOT_REQUESTED,
    }
