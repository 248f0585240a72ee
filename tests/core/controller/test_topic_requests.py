"""Requests with validate_only, colliding topic names, and configuration of brokers."""

import pytest
from cluster_driver import KEY, TOPIC, Cluster

from tidelog.core.controller import events as on
from tidelog.core.controller.effects import TopicAnswer
from tidelog.core.controller.metadata import keys
from tidelog.core.errors import ErrorCode

OTHER = b"\x08" * 16


def ask(cluster: Cluster, event: on.Request) -> TopicAnswer:
    answer = cluster.request(event)
    assert isinstance(answer, TopicAnswer)
    return answer


def new(name: str, topic_id: bytes = OTHER, factor: int = 1, number: int = 900) -> on.Request:
    return on.CreateTopicReceived(number, name, topic_id, 2, factor)


@pytest.mark.parametrize(
    ("event", "answer"),
    [
        (
            on.CreateTopicReceived(900, "u", OTHER, 3, 2, validate_only=True),
            TopicAnswer(ErrorCode.NONE, "", OTHER, 3, 2),
        ),
        (
            on.CreateTopicReceived(900, "u", OTHER, -1, -1, {}, ((1, 2),), validate_only=True),
            TopicAnswer(ErrorCode.NONE, "", OTHER, 1, 2),
        ),
        (
            on.CreateTopicReceived(900, "t", OTHER, 3, 2, validate_only=True),
            TopicAnswer(ErrorCode.TOPIC_ALREADY_EXISTS, "Topic t exists."),
        ),
        (
            on.CreatePartitionsReceived(900, "t", 4, validate_only=True),
            TopicAnswer(ErrorCode.NONE, "", TOPIC),
        ),
        (
            on.CreatePartitionsReceived(900, "t", 1, validate_only=True),
            TopicAnswer(
                ErrorCode.INVALID_PARTITIONS, "Topic t has 1 partitions; it can only grow."
            ),
        ),
        (
            on.AlterConfigReceived(900, "t", {"retention.ms": "1"}, validate_only=True),
            TopicAnswer(ErrorCode.NONE),
        ),
        (
            on.AlterConfigReceived(900, "t", {"min.insync.replicas": "1"}, validate_only=True),
            TopicAnswer(ErrorCode.NONE),
        ),
    ],
)
def test_validate_only_changes_nothing(event: on.Request, answer: TopicAnswer) -> None:
    cluster = Cluster(1, 2)
    cluster.create((1, 2))
    before = cluster.store.revision
    assert ask(cluster, event) == answer
    assert cluster.store.revision == before
    assert not cluster.leader.controller.transactions.busy


def test_validate_only_is_refused_like_a_real_change() -> None:
    cluster = Cluster(1)
    cluster.create((1,))
    event = on.AlterConfigReceived(900, "t", {"retention.ms": "soon"}, validate_only=True)
    assert ask(cluster, event).error is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("there", "wanted", "collide"),
    [
        ("a.b", "a_b", True),
        ("a_b", "a.b", True),
        ("a.b_c", "a_b.c", True),
        ("a.b", "a.c", False),
        ("a.b", "ab", False),
        ("a-b", "a_b", False),
    ],
)
def test_names_that_differ_only_in_dots_and_underscores(
    there: str, wanted: str, collide: bool
) -> None:
    cluster = Cluster(1)
    cluster.create((1,), name=there)
    answer = ask(cluster, new(wanted))
    assert (answer.error is ErrorCode.INVALID_TOPIC_EXCEPTION) is collide
    assert (there in answer.message) is collide


def test_two_colliding_names_at_once_leave_one_topic() -> None:
    cluster = Cluster(1)
    cluster.step(1, new("a.b", TOPIC), new("a_b", number=901))
    cluster.run()
    first, second = cluster.leader.answers[900], cluster.leader.answers[901]
    assert isinstance(first, TopicAnswer)
    assert isinstance(second, TopicAnswer)
    assert first.error is ErrorCode.NONE
    assert second.error is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert set(cluster.leader.image.topics) == {"a.b"}


def test_a_broker_has_settings_of_its_own() -> None:
    cluster = Cluster(1, 2)
    cluster.create((1, 2))
    ask(cluster, on.AlterConfigReceived(901, None, {"log.retention.ms": "7"}))
    ask(cluster, on.AlterConfigReceived(902, None, {"log.retention.ms": "8"}, broker=2))
    image = cluster.leader.image
    assert image.configs[keys.broker_config(2)] == {"log.retention.ms": "8"}
    assert image.topic_config(TOPIC, "retention.ms", 1) == "7"
    assert image.topic_config(TOPIC, "retention.ms", 2) == "8"
    assert image.topic_config(TOPIC, "retention.ms") == "7"
    ask(cluster, on.AlterConfigReceived(903, "t", {"retention.ms": "9"}))
    assert image.topic_config(TOPIC, "retention.ms", 2) == "9"
    ask(cluster, on.AlterConfigReceived(904, None, {"log.retention.ms": None}, broker=2))
    ask(cluster, on.AlterConfigReceived(905, "t", {"retention.ms": None}))
    assert image.topic_config(TOPIC, "retention.ms", 2) == "7"


@pytest.mark.parametrize(
    ("broker", "changes", "error"),
    [
        (9, {"log.retention.ms": "7"}, ErrorCode.BROKER_ID_NOT_REGISTERED),
        (1, {"log.retention.ms": "soon"}, ErrorCode.INVALID_CONFIG),
        (None, {"log.retention.ms": "soon"}, ErrorCode.INVALID_CONFIG),
        (1, {"min.insync.replicas": "2"}, ErrorCode.INVALID_CONFIG),
        (1, {"min.insync.replicas": None}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_invalid_broker_settings_are_refused(
    broker: int | None, changes: dict[str, str | None], error: ErrorCode
) -> None:
    cluster = Cluster(1, 2)
    answer = ask(cluster, on.AlterConfigReceived(901, None, changes, broker=broker))
    assert answer.error is error
    assert answer.message


def test_a_minimum_for_all_brokers_does_not_change_topics_with_their_own() -> None:
    cluster = Cluster(1, 2)
    cluster.create((1, 2), min_insync_replicas="2")
    cluster.alter(1)
    ask(cluster, on.AlterConfigReceived(901, None, {"min.insync.replicas": "1"}))
    assert cluster.partition(KEY).elr == (2,)
