"""Topics and configuration: created, extended, changed, deleted."""

import pytest
from cluster_driver import KEY, TOPIC, Cluster

from tidelog.core.controller import events as on
from tidelog.core.controller.effects import StoreTransaction, TopicAnswer
from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata.metadata_store import Delete, OutcomeUnknown, TxnAnswer
from tidelog.core.controller.metadata.registrations import PartitionKey
from tidelog.core.errors import ErrorCode

OTHER = b"\x0b" * 16
THROTTLED = "leader.replication.throttled.replicas"
MANY = ",".join(f"{partition}:1" for partition in range(150_000))


def ask(cluster: Cluster, event: on.Request) -> TopicAnswer:
    answer = cluster.request(event)
    assert isinstance(answer, TopicAnswer)
    return answer


def create(
    name: str = "t",
    partitions: int = 1,
    factor: int = 1,
    *assignment: tuple[int, ...],
    **configs: str,
) -> on.CreateTopicReceived:
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    return on.CreateTopicReceived(900, name, TOPIC, partitions, factor, settings, assignment)


def created(partitions: int, factor: int) -> TopicAnswer:
    return TopicAnswer(ErrorCode.NONE, "", TOPIC, partitions, factor)


def test_a_topic_is_placed_written_and_named_in_one_revision() -> None:
    cluster = Cluster(1, 2, 3)
    answer = ask(cluster, create(partitions=3, factor=2, min_insync_replicas="2"))
    assert answer == created(3, 2)
    image = cluster.leader.image
    topic = image.topics["t"]
    assert topic.partition_count == 3
    assert [image.partitions[PartitionKey(TOPIC, n)].replicas for n in range(3)] == [
        (1, 2), (2, 3), (3, 1),
    ]  # fmt: skip
    first = image.partition("t", 0)
    assert first is not None
    assert (first.isr, first.leader, first.leader_epoch, first.partition_epoch) == ((1, 2), 1, 0, 0)
    assert image.min_insync_replicas(TOPIC) == 2
    written = {kv.mod_rev for kv in cluster.store.range("").kvs if TOPIC.hex() in kv.key}
    assert written == {image.mod_rev(keys.topic_name("t"))}


def test_replicas_on_inactive_brokers_are_not_in_sync() -> None:
    cluster = Cluster(1, 2)
    cluster.start(3)
    ask(cluster, create(factor=3))
    assert cluster.partition().replicas == (1, 2, 3)
    assert cluster.partition().isr == (1, 2)


@pytest.mark.parametrize(
    ("event", "error"),
    [
        pytest.param(create("taken"), ErrorCode.TOPIC_ALREADY_EXISTS, id="exists"),
        pytest.param(create(""), ErrorCode.INVALID_TOPIC_EXCEPTION, id="no name"),
        pytest.param(create(".."), ErrorCode.INVALID_TOPIC_EXCEPTION, id="dots"),
        pytest.param(create("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION, id="slash"),
        pytest.param(create("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION, id="long name"),
        pytest.param(create(partitions=0), ErrorCode.INVALID_PARTITIONS, id="no partitions"),
        pytest.param(create(factor=0), ErrorCode.INVALID_REPLICATION_FACTOR, id="no replicas"),
        pytest.param(create(factor=4), ErrorCode.INVALID_REPLICATION_FACTOR, id="few brokers"),
        pytest.param(
            create("t", 1, 1, (1, 1)), ErrorCode.INVALID_REPLICA_ASSIGNMENT, id="doubled replica"
        ),
        pytest.param(
            create("t", 1, 1, ()), ErrorCode.INVALID_REPLICA_ASSIGNMENT, id="empty replicas"
        ),
        pytest.param(
            create("t", 1, 1, (1, 9)), ErrorCode.INVALID_REPLICA_ASSIGNMENT, id="unknown broker"
        ),
        pytest.param(
            create("t", 1, 1, (1, 2), (2,)), ErrorCode.INVALID_REPLICA_ASSIGNMENT, id="uneven"
        ),
        pytest.param(
            create("t", 1, 1, (3,)), ErrorCode.INVALID_REPLICA_ASSIGNMENT, id="all fenced"
        ),
        pytest.param(create(min_insync_replicas="0"), ErrorCode.INVALID_CONFIG, id="min ISR 0"),
        pytest.param(
            create(min_insync_replicas="x"), ErrorCode.INVALID_CONFIG, id="min ISR no number"
        ),
        pytest.param(
            create(unclean_leader_election_enable="yes"), ErrorCode.INVALID_CONFIG, id="no boolean"
        ),
        pytest.param(
            on.DeleteTopicReceived(900, "u"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, id="delete"
        ),
        pytest.param(
            on.CreatePartitionsReceived(900, "u", 2),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            id="grow what is not there",
        ),
        pytest.param(
            on.CreatePartitionsReceived(900, "taken", 1), ErrorCode.INVALID_PARTITIONS, id="no more"
        ),
        pytest.param(
            on.CreatePartitionsReceived(900, "taken", 3, ((1,),)),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            id="assignment for one of two",
        ),
        pytest.param(
            on.CreatePartitionsReceived(900, "taken", 2, ((9,),)),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            id="assigned to nobody",
        ),
        pytest.param(
            on.AlterConfigReceived(900, "u", {}),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            id="configure what is not there",
        ),
        pytest.param(create(retention_ms="soon"), ErrorCode.INVALID_CONFIG, id="no number"),
        pytest.param(
            on.AlterConfigReceived(900, "taken", {"segment.bytes": "0"}),
            ErrorCode.INVALID_CONFIG,
            id="too small",
        ),
        pytest.param(
            on.AlterConfigReceived(900, "taken", {"min.insync.replicas": "-1"}),
            ErrorCode.INVALID_CONFIG,
            id="illegal value",
        ),
        pytest.param(
            on.AlterConfigReceived(900, "taken", {THROTTLED: MANY}),
            ErrorCode.INVALID_CONFIG,
            id="more than the store takes",
        ),
        pytest.param(
            on.CreateTopicReceived(900, "u", OTHER, 1, 1, configs={THROTTLED: MANY}),
            ErrorCode.INVALID_CONFIG,
            id="more than the store takes, at once",
        ),
    ],
)
def test_invalid_requests_are_refused(event: on.Request, error: ErrorCode) -> None:
    cluster = Cluster(1, 2)
    cluster.start(3)
    ask(cluster, on.CreateTopicReceived(1000, "taken", OTHER, 1, 1))
    before = cluster.store.freeze()
    answer = ask(cluster, event)
    assert answer.error is error
    assert answer.message
    assert cluster.store.freeze() == before


def test_a_large_topic_is_visible_only_when_all_partitions_are_written() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.step(1, create(partitions=250, factor=3, min_insync_replicas="2"))
    steps = 0
    while cluster.hosts[1].queue:
        assert "t" not in cluster.leader.image.topics
        assert 900 not in cluster.leader.answers
        cluster.carry_out(1)
        cluster.watch(1)
        steps += 1
    assert steps == 4
    assert len(cluster.leader.image.partitions) == 250
    assert cluster.leader.answers[900] == created(250, 3)
    assert list(cluster.leader.image.uncommitted()) == []


def die_in_the_middle(cluster: Cluster, event: on.Request, *, for_good: bool = False) -> None:
    """Let broker 3 die after the first step, before the controller notices.

    With `for_good` its registration is deleted too.
    """
    cluster.step(1, event)
    cluster.carry_out(1)
    cluster.deaf.add(1)
    session = cluster.hosts[3].session
    cluster.stop(3)
    cluster.store.expire(session)
    if for_good:
        cluster.store.txn((), (Delete(keys.broker_state(3)),))
    cluster.run()
    assert event.request not in cluster.leader.answers
    cluster.deaf.clear()
    cluster.run()


def test_a_large_creation_restarts_when_a_broker_dies() -> None:
    cluster = Cluster(1, 2, 3)
    die_in_the_middle(cluster, create(partitions=150, factor=2))
    assert cluster.leader.answers[900] == created(150, 2)
    image = cluster.leader.image
    assert len(image.partitions) == image.topics["t"].partition_count == 150
    assert all(set(partition.isr) == {1, 2} for partition in image.partitions.values())


@pytest.mark.parametrize("grow", [False, True], ids=["create", "grow"])
def test_nothing_is_left_of_a_large_creation_that_fails(grow: bool) -> None:
    cluster = Cluster(1, 2, 3)
    event: on.Request = create("t", partitions=150, factor=3)
    if grow:
        cluster.create((1, 2, 3))
        event = on.CreatePartitionsReceived(900, "t", 151)
    die_in_the_middle(cluster, event, for_good=True)
    answer = cluster.leader.answers[900]
    assert isinstance(answer, TopicAnswer)
    assert answer.error is ErrorCode.INVALID_REPLICATION_FACTOR
    assert len(cluster.leader.image.partitions) == grow
    assert not cluster.leader.controller.transactions.busy


def test_two_creations_of_one_name_leave_one_topic() -> None:
    cluster = Cluster(1)
    cluster.step(1, create())
    cluster.step(1, on.CreateTopicReceived(901, "t", OTHER, 1, 1))
    cluster.run()
    assert cluster.leader.answers[900] == created(1, 1)
    second = cluster.leader.answers[901]
    assert isinstance(second, TopicAnswer)
    assert second.error is ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_creation_whose_answer_was_lost_is_not_made_twice() -> None:
    cluster = Cluster(1)
    lost: list[StoreTransaction] = []

    def lose(stage: str, transaction: StoreTransaction) -> TxnAnswer | None:
        if stage == "after" and not lost:
            lost.append(transaction)
            return OutcomeUnknown()
        return None

    cluster.fault = lose
    cluster.step(1, create())
    cluster.run()
    assert 900 not in cluster.leader.answers
    cluster.tick(500)
    assert cluster.leader.answers[900] == created(1, 1)


def test_partitions_are_added_at_the_end() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create((3, 1))
    ask(cluster, on.CreatePartitionsReceived(901, "t", 3, start_index=2))
    ask(cluster, on.CreatePartitionsReceived(902, "t", 4, ((2, 3),)))
    image = cluster.leader.image
    assert [image.partitions[PartitionKey(TOPIC, n)].replicas for n in range(4)] == [
        (3, 1), (1, 3), (2, 1), (2, 3),
    ]  # fmt: skip
    assert image.topics["t"].partition_count == 4
    refused = ask(cluster, on.CreatePartitionsReceived(903, "t", 5, ((3, 3),)))
    assert refused.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_nothing_is_left_of_a_deleted_topic() -> None:
    cluster = Cluster(1, 2)
    cluster.create((1, 2), (2, 1), min_insync_replicas="2")
    answer = ask(cluster, on.DeleteTopicReceived(901, "t"))
    assert answer == TopicAnswer(ErrorCode.NONE, topic_id=TOPIC)
    left = [kv.key for kv in cluster.store.range("").kvs]
    assert not [key for key in left if key.startswith(("topics/", "config/"))]


def test_an_isr_change_of_a_topic_that_is_deleted_meanwhile() -> None:
    cluster = Cluster(1, 2)
    cluster.create((1, 2))
    event = cluster.proposal(1)
    cluster.step(1, on.DeleteTopicReceived(901, "t"), event)
    cluster.run()
    answer = cluster.leader.answers[event.request]
    assert answer.results[KEY].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # type: ignore[union-attr]


def test_settings_are_merged_and_unset() -> None:
    cluster = Cluster(1)
    cluster.create((1,), retention_ms="5")
    ask(cluster, on.AlterConfigReceived(901, "t", {"cleanup.policy": "compact"}))
    ask(cluster, on.AlterConfigReceived(902, "t", {"retention.ms": None}))
    assert cluster.leader.image.configs[keys.topic_config("t")] == {"cleanup.policy": "compact"}
    ask(cluster, on.AlterConfigReceived(903, None, {"log.retention.ms": "7"}))
    assert cluster.leader.image.topic_config(TOPIC, "retention.ms") == "7"


@pytest.mark.parametrize("topic", ["t", None], ids=["of the topic", "of the cluster"])
@pytest.mark.parametrize(
    ("minimum", "elr"), [("1", ()), ("2", (2,)), (None, ())], ids=["lowered", "same", "unset"]
)
def test_a_lower_minimum_ends_eligibility_in_the_same_revision(
    topic: str | None, minimum: str | None, elr: tuple[int, ...]
) -> None:
    """If a leader may commit alone, no other replica may stay eligible."""
    cluster = Cluster(1, 2)
    cluster.create((1, 2))
    ask(cluster, on.AlterConfigReceived(901, topic, {"min.insync.replicas": "2"}))
    cluster.alter(1)
    assert cluster.partition().elr == (2,)
    ask(cluster, on.AlterConfigReceived(902, topic, {"min.insync.replicas": minimum}))
    assert cluster.partition().elr == elr
    if not elr:
        key = keys.DEFAULT_CONFIG if topic is None else keys.topic_config(topic)
        config, partition = cluster.store.get(key)[0], cluster.store.get(keys.partition(*KEY))[0]
        assert config is not None
        assert partition is not None
        assert config.mod_rev == partition.mod_rev


def test_partitions_do_not_change_while_a_minimum_is_lowered_in_steps() -> None:
    cluster = Cluster(1, 2)
    cluster.create(*[(1, 2)] * 150, min_insync_replicas="2")
    cluster.crash(2)
    assert all(p.elr == (2,) for p in cluster.leader.image.partitions.values())
    cluster.start(2, previous_epoch=2)
    cluster.heartbeat(2)
    cluster.step(1, on.AlterConfigReceived(901, "t", {"min.insync.replicas": "1"}))
    cluster.step(1, cluster.proposal(1, 2))
    assert len(cluster.hosts[1].queue) == 1
    cluster.run()
    image = cluster.leader.image
    assert all((p.elr, p.last_known_elr) == ((), ()) for p in image.partitions.values())
    assert cluster.partition().isr == (1,), "the proposal was about an older partition epoch"
    assert cluster.alter(1, 2).error is ErrorCode.NONE
    assert cluster.partition().isr == (1, 2)


def test_a_write_names_its_controller() -> None:
    cluster = Cluster(1, 2)
    cluster.create((1, 2))
    assert cluster.partition().controller_epoch == 1
    cluster.crash(1)
    assert cluster.partition().controller_epoch == 2
