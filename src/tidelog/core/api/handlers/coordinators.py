"""FindCoordinator 0-6: which broker coordinates a group or a transactional id."""

from collections.abc import Generator
from typing import Any

from tidelog.core.api.context import BrokerContext, Handling, Struct
from tidelog.core.api.handlers.refusals import error_text
from tidelog.core.controller.effects import TopicAnswer
from tidelog.core.controller.events import CreateTopicReceived
from tidelog.core.controller.metadata.features import TIDELOG_VERSION, TRANSACTIONS
from tidelog.core.coordinator.lookup import (
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    CoordinatorType,
    FindCoordinator,
    FindCoordinatorResponse,
)
from tidelog.core.errors import ErrorCode

_MANY_KEYS = 4
_THERE = TopicAnswer(ErrorCode.TOPIC_ALREADY_EXISTS)
_CREATED = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
_TOPICS = {
    CoordinatorType.GROUP: OFFSETS_TOPIC,
    CoordinatorType.TRANSACTION: TRANSACTIONS_TOPIC,
}


def find_coordinator(broker: BrokerContext, request: Struct) -> Handling:
    """Find one coordinator up to version 3, many from version 4 on; create their internal topic.

    An empty group id has a coordinator like any other: clients may commit offsets for it.
    """
    many = broker.version >= _MANY_KEYS
    keys = request["coordinator_keys"] if many else [request["key"]]
    key_type = request.get("key_type", CoordinatorType.GROUP)
    topic = _TOPICS.get(key_type)
    if topic is None:
        message = f"Coordinator type {key_type} is unknown; groups are 0, transactional ids are 1."
        refusal = FindCoordinatorResponse(ErrorCode.INVALID_REQUEST, error_message=message)
        answers = [refusal] * len(keys)
    elif topic == TRANSACTIONS_TOPIC and broker.node.image.tidelog_version < TRANSACTIONS:
        answers = [_no_transactions(broker)] * len(keys)
    else:
        created = yield from internal_topic(broker, topic)
        if created.error in _CREATED:
            kind = CoordinatorType(key_type)
            answers = yield [FindCoordinator(key, kind, broker.listener) for key in keys]
        else:
            answers = [_not_created(topic, created)] * len(keys)
    if many:
        found = [
            {"key": key, **_coordinator(answer, "")}
            for key, answer in zip(keys, answers, strict=True)
        ]
        return {"throttle_time_ms": 0, "coordinators": found}
    return {"throttle_time_ms": 0, **_coordinator(answers[0], answers[0].error_code.name)}


def internal_topic(
    broker: BrokerContext, topic: str
) -> Generator[list[object], list[Any], TopicAnswer]:
    """Create an internal topic, unless it exists."""
    if topic in broker.node.image.topics:
        return _THERE
    create = _offsets_topic if topic == OFFSETS_TOPIC else _transactions_topic
    [created] = yield [create(broker)]
    answer: TopicAnswer = created
    return answer


def _no_transactions(broker: BrokerContext) -> FindCoordinatorResponse:
    """Refuse transactions with an error that is not retried: only an operator can raise the
    level."""
    message = (
        f"This cluster has no transactions yet: {TIDELOG_VERSION} is"
        f" {broker.node.image.tidelog_version}. Upgrade all brokers, then run"
        f" tidelog features upgrade --feature {TIDELOG_VERSION}={TRANSACTIONS}"
    )
    return FindCoordinatorResponse(broker.no_transactions, error_message=message)


def _not_created(topic: str, answer: TopicAnswer) -> FindCoordinatorResponse:
    """Return the response if the internal topic can't be created. Clients retry: brokers may
    join."""
    message = f"{topic} cannot be created: {answer.message or answer.error.name}"
    return FindCoordinatorResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE, error_message=message)


def _coordinator(answer: FindCoordinatorResponse, otherwise: str) -> Struct:
    return {
        "node_id": answer.node_id,
        "host": answer.host,
        "port": answer.port,
        "error_code": answer.error_code,
        "error_message": error_text(answer.error_message) or otherwise,
    }


def _offsets_topic(broker: BrokerContext) -> CreateTopicReceived:
    """Return the request that creates `__consumer_offsets`. It is compacted: only the last offset
    counts."""
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


def _transactions_topic(broker: BrokerContext) -> CreateTopicReceived:
    """Return the request that creates `__transaction_state`, with Kafka's settings. Only the last
    state of a transactional id counts; no decided outcome may be lost in an election."""
    settings = broker.settings
    return CreateTopicReceived(
        0,
        TRANSACTIONS_TOPIC,
        broker.new_topic_id(),
        settings.get("transaction.state.log.num.partitions"),
        settings.get("transaction.state.log.replication.factor"),
        {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(settings.get("transaction.state.log.min.isr")),
            "segment.bytes": str(settings.get("transaction.state.log.segment.bytes")),
            "unclean.leader.election.enable": "false",
        },
        start_index=broker.start_index(),
    )
