"""ConsumerGroupHeartbeat 0-1 and ConsumerGroupDescribe 0-1: KIP-848 is not supported yet.

Answered as by a Kafka whose `group.version` is 0. If the APIs were not advertised, librdkafka
with `group.protocol=consumer` would wait forever without an error.
"""

from tidelog.core.api.context import BrokerContext, Struct
from tidelog.core.errors import ErrorCode

_REFUSED = {
    "error_code": ErrorCode.UNSUPPORTED_VERSION,
    "error_message": "This cluster has no groups of the consumer protocol (KIP-848) yet; "
    "use group.protocol=classic.",
}


def consumer_group_heartbeat(_broker: BrokerContext, _request: Struct) -> Struct:
    return {"throttle_time_ms": 0, **_REFUSED}


def consumer_group_describe(_broker: BrokerContext, request: Struct) -> Struct:
    """Refuse every group. Kafka's admin client then describes a classic group of that name."""
    groups = [{**_REFUSED, "group_id": group_id} for group_id in request["group_ids"]]
    return {"throttle_time_ms": 0, "groups": groups}
