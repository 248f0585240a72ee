"""FindCoordinator 0-6: the broker that coordinates a group.

There is no transaction coordinator yet. Clients that need one must fail at once, and do so on
UNSUPPORTED_VERSION: Java's client, kafka-python and aiokafka would retry
COORDINATOR_NOT_AVAILABLE forever, and Java's transactional producers show the error text.
librdkafka stops only on TRANSACTIONAL_ID_AUTHORIZATION_FAILED, and shows the text; on other
clients this code suggests a missing ACL. kafkajs turns every error into "Failed to find group
coordinator": it gets this broker as coordinator, which refuses its InitProducerId.

An empty group id has a coordinator like any other: clients may commit offsets for it.
"""

from tidelog.core.api.context import BrokerContext, Handling, Struct
from tidelog.core.api.handlers.refusals import error_text
from tidelog.core.controller.effects import TopicAnswer
from tidelog.core.controller.events import CreateTopicReceived
from tidelog.core.coordinator.lookup import (
    OFFSETS_TOPIC,
    CoordinatorType,
    FindCoordinator,
    FindCoordinatorResponse,
)
from tidelog.core.errors import ErrorCode

_KAFKAJS = 2
"""The version that kafkajs uses; librdkafka too, and hardly any other client."""
_MANY_KEYS = 4
_THERE = TopicAnswer(ErrorCode.TOPIC_ALREADY_EXISTS)


def find_coordinator(broker: BrokerContext, request: Struct) -> Handling:
    """Find one coordinator up to version 3, many from version 4 on; create the offsets topic."""
    many = broker.version >= _MANY_KEYS
    keys = request["coordinator_keys"] if many else [request["key"]]
    refusal = _refusal(broker, request.get("key_type", CoordinatorType.GROUP))
    if refusal is not None:
        answers = [refusal] * len(keys)
    else:
        created = _THERE
        if OFFSETS_TOPIC not in broker.node.image.topics:
            [created] = yield [offsets_topic(broker)]
        if created.error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            answers = yield [FindCoordinator(key) for key in keys]
        else:
            answers = [_not_created(created)] * len(keys)
    if many:
        found = [
            {"key": key, **_coordinator(answer, "")}
            for key, answer in zip(keys, answers, strict=True)
        ]
        return {"throttle_time_ms": 0, "coordinators": found}
    return {"throttle_time_ms": 0, **_coordinator(answers[0], answers[0].error_code.name)}


def _not_created(answer: TopicAnswer) -> FindCoordinatorResponse:
    """The offsets topic could not be created. Clients retry: more brokers may join."""
    message = f"{OFFSETS_TOPIC} cannot be created: {answer.message or answer.error.name}"
    return FindCoordinatorResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE, error_message=message)


def _refusal(broker: BrokerContext, key_type: int) -> FindCoordinatorResponse | None:
    """The response for a key type other than GROUP."""
    if key_type == CoordinatorType.GROUP:
        return None
    if key_type != CoordinatorType.TRANSACTION:
        message = f"Coordinator type {key_type} is unknown; groups are type 0."
        return FindCoordinatorResponse(ErrorCode.INVALID_REQUEST, error_message=message)
    error = broker.no_transactions
    if broker.version == _KAFKAJS and error is ErrorCode.UNSUPPORTED_VERSION:
        return _this_broker(broker)
    message = "This cluster has no transactions yet; leave transactional.id out."
    return FindCoordinatorResponse(error, error_message=message)


def _this_broker(broker: BrokerContext) -> FindCoordinatorResponse:
    node_id = broker.node.config.broker_id
    known = broker.node.image.brokers.get(node_id)
    for listener, host, port in known.endpoints if known is not None else ():
        if listener == broker.listener:
            return FindCoordinatorResponse(ErrorCode.NONE, node_id, host, port)
    return FindCoordinatorResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _coordinator(answer: FindCoordinatorResponse, otherwise: str) -> Struct:
    return {
        "node_id": answer.node_id,
        "host": answer.host,
        "port": answer.port,
        "error_code": answer.error_code,
        "error_message": error_text(answer.error_message) or otherwise,
    }


def offsets_topic(broker: BrokerContext) -> CreateTopicReceived:
    """The request that creates `__consumer_offsets`. Compacted: only the last offset counts."""
    settings = broker.settings
    return CreateTopicReceived(
        0,
        OFFSETS_TOPIC,
        broker.new_topic_id(),
        settings.get("offsets.topic.num.partitions"),
        settings.get("offsets.topic.replication.factor"),
        {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(settings.get("offsets.topic.segment.bytes")),
        },
        start_index=broker.start_index(),
    )
