"""ListConfigResources 0-1: what settings can be shown of."""

from tidelog.core.api.context import BrokerContext, Struct
from tidelog.core.api.handlers.cluster.brokers import alive_brokers
from tidelog.core.api.handlers.configs.described_configs import BROKER, TOPIC
from tidelog.core.errors import ErrorCode

BROKER_LOGGER = 8
CLIENT_METRICS = 16
GROUP = 32

_KINDS = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)
"""All that clients know. Of the last three there are none here."""


def list_config_resources(broker: BrokerContext, request: Struct) -> Struct:
    """Of the kinds asked for, or of all; version 0 asks for client metrics only."""
    asked = [CLIENT_METRICS] if broker.version == 0 else request["resource_types"] or _KINDS
    if not set(asked) <= set(_KINDS):
        error = ErrorCode.UNSUPPORTED_VERSION
        return {"throttle_time_ms": 0, "error_code": error, "config_resources": []}
    image = broker.node.image
    names = {
        BROKER: [str(known) for known in sorted(alive_brokers(image, broker.listener))],
        TOPIC: sorted(image.topics),
    }
    return {
        "throttle_time_ms": 0,
        "error_code": ErrorCode.NONE,
        "config_resources": [
            {"resource_name": name, "resource_type": kind}
            for kind in names
            if kind in asked
            for name in names[kind]
        ],
    }
