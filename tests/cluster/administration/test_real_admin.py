"""Administration through librdkafka: topics, partitions, configs, records, leaders."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic
from real_cluster import (
    PATIENCE_S,
    admin_client,
    await_isr,
    await_members,
    consumer,
    ends,
    eventually,
    leader_of,
    make_topic,
    partition_dir,
    read,
    read_values,
    said,
    segment_bytes,
    send_all,
    state_of,
    take,
)

from tidelog.shell.client.cluster import Cluster
from tidelog.shell.supervisor.cluster import LocalCluster

ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS = 45, 46


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Four brokers, so that a partition can move."""
    with LocalCluster(4, settings={"log.retention.check.interval.ms": "300"}) as cluster:
        yield cluster


def error_of(future: Any) -> KafkaError:
    with pytest.raises(KafkaException) as caught:
        future.result(PATIENCE_S)
    error = caught.value.args[0]
    assert isinstance(error, KafkaError)
    return error


def test_create_with_settings(cluster: LocalCluster, name: str) -> None:
    admin = admin_client(cluster.bootstrap)
    topic = NewTopic(name, 4, 3, config={"retention.ms": "60000", "cleanup.policy": "compact"})
    admin.create_topics([topic])[name].result(PATIENCE_S)
    make_topic(cluster.bootstrap, name)  # exists: waits until it is on all brokers
    found = admin.list_topics(name, timeout=PATIENCE_S).topics[name]
    assert sorted(found.partitions) == [0, 1, 2, 3]
    assert all(len(p.replicas) == 3 for p in found.partitions.values())
    preferred = [p.replicas[0] for p in found.partitions.values()]
    assert len(set(preferred)) == 4  # spread over the brokers
    for partition, replicas in found.partitions.items():
        first = replicas.replicas[0]
        eventually(lambda p=partition, b=first: leader_of(cluster, name, p) == b, "leads")  # type: ignore[misc]
    values = configs_of(cluster, name)
    assert (values["retention.ms"], values["cleanup.policy"]) == ("60000", "compact")
    again = error_of(admin.create_topics([topic])[name])
    assert again.code() == KafkaError.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize(
    ("wrong", "code", "hint"),
    [
        ({"config": {"retention.ms": "soon"}}, KafkaError.INVALID_CONFIG, "retention.ms"),
        ({"config": {"no.such.key": "1"}}, KafkaError.INVALID_CONFIG, "no.such.key"),
        ({"num_partitions": 0}, KafkaError.INVALID_PARTITIONS, "partition"),
        ({"replication_factor": 5}, KafkaError.INVALID_REPLICATION_FACTOR, ""),
        ({"replica_assignment": [[1, 1]]}, 39, ""),
        ({"replica_assignment": [[1, 17]]}, 39, "17"),
    ],
)
def test_an_invalid_topic_is_refused_with_the_reason(
    cluster: LocalCluster, name: str, wrong: dict[str, Any], code: int, hint: str
) -> None:
    admin = admin_client(cluster.bootstrap)
    wanted: dict[str, Any] = {"num_partitions": 1, "replication_factor": 1}
    if "replica_assignment" in wrong:
        wanted = {"num_partitions": 1}
    error = error_of(admin.create_topics([NewTopic("wrong", **{**wanted, **wrong})])["wrong"])
    assert error.code() == code
    assert hint in error.str()
    assert "wrong" not in admin.list_topics(timeout=PATIENCE_S).topics


@pytest.mark.parametrize("bad", [".", "..", "with space", "ü", "x" * 250])
def test_bad_names(cluster: LocalCluster, bad: str) -> None:
    admin = admin_client(cluster.bootstrap)
    error = error_of(admin.create_topics([NewTopic(bad, 1, 1)])[bad])
    assert error.code() == KafkaError.TOPIC_EXCEPTION


def test_validate_only(cluster: LocalCluster, name: str) -> None:
    admin = admin_client(cluster.bootstrap)
    admin.create_topics([NewTopic(name, 1, 3)], validate_only=True)[name].result(PATIENCE_S)
    assert name not in admin.list_topics(timeout=PATIENCE_S).topics


def test_a_recreated_topic_is_another_topic(cluster: LocalCluster, name: str) -> None:
    """A recreated topic contains no record of the old topic, in no replica's files either."""
    admin = admin_client(cluster.bootstrap)
    seen = set()

    def is_gone(broker: int) -> bool:
        listed = name in cluster.metadata(broker).topics
        return not listed and not partition_dir(cluster, broker, name).exists()

    for turn in range(3):
        make_topic(cluster.bootstrap, name, partitions=2)
        with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
            seen.add(client.refresh([name]).topics[name].id)
        values = [b"%d/%d" % (turn, number) for number in range(200)]
        send_all(cluster.bootstrap, name, values, conf={"acks": "all"})
        assert read_values(cluster.bootstrap, name) == values
        admin.delete_topics([name])[name].result(PATIENCE_S)
        eventually(lambda: all(map(is_gone, cluster.ids)), "no broker lists it or has its folder")
    assert len(seen) == 3
    error = error_of(admin.delete_topics([name])[name])
    assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_deleted_topic_can_be_recreated_at_once(cluster: LocalCluster, name: str) -> None:
    """Recreate a topic while a broker is down; the broker restarts with the old topic's files."""
    admin = admin_client(cluster.bootstrap)
    make_topic(cluster.bootstrap, name, replicas=4)
    send_all(cluster.bootstrap, name, [b"old %d" % n for n in range(100)], conf={"acks": "all"})
    away = next(b for b in cluster.ids if b != leader_of(cluster, name))
    cluster.kill(away)

    def others_know() -> bool:
        """librdkafka waits for the controller of its last metadata, and asks for no newer ones."""
        listed = admin.list_topics(timeout=PATIENCE_S)
        return away not in listed.brokers and listed.controller_id in listed.brokers

    eventually(others_know, "the others know")
    admin.delete_topics([name])[name].result(PATIENCE_S)
    admin.create_topics([NewTopic(name, 1, 3)])[name].result(PATIENCE_S)
    make_topic(cluster.bootstrap, name)  # exists: waits until no broker takes it for the old one
    send_all(cluster.bootstrap, name, [b"new"], conf={"acks": "all"})
    cluster.start_broker(away)
    assert read_values(cluster.bootstrap, name) == [b"new"]
    # The broker keeps the old topic's files in a folder ending in `-stray`, and logs its name.
    eventually(lambda: [*Path(cluster.log_dir(away)).glob("*-stray")], "the files are kept")
    (stray,) = Path(cluster.log_dir(away)).glob("*-stray")
    eventually(lambda: stray.name in said(cluster, away), "it is in the log")
    assert not any(b"old" in segment_bytes(cluster, b, name) for b in cluster.ids)
    cluster.restart(away)
    assert stray.exists()


def test_more_partitions(cluster: LocalCluster, name: str) -> None:
    admin = admin_client(cluster.bootstrap)
    make_topic(cluster.bootstrap, name)
    admin.create_partitions([NewPartitions(name, 5)])[name].result(PATIENCE_S)
    eventually(lambda: all(len(cluster.metadata(b).topics[name]) == 5 for b in cluster.ids), "five")
    for partition in range(5):
        leader_of(cluster, name, partition)
        send_all(cluster.bootstrap, name, [b"%d" % partition], partition)
        assert read_values(cluster.bootstrap, name, partition) == [b"%d" % partition]
    fewer = error_of(admin.create_partitions([NewPartitions(name, 2)])[name])
    assert fewer.code() == KafkaError.INVALID_PARTITIONS


def configs_of(cluster: LocalCluster, topic: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = admin_client(cluster.bootstrap)
    found = admin.describe_configs([resource])[resource]
    return {name: entry.value for name, entry in found.result(PATIENCE_S).items()}


def set_config(cluster: LocalCluster, topic: str, name: str, value: str | None) -> None:
    kind = AlterConfigOpType.SET if value is not None else AlterConfigOpType.DELETE
    entry = ConfigEntry(name, value, incremental_operation=kind)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = admin_client(cluster.bootstrap)
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)


def test_settings_are_changed_and_unset(cluster: LocalCluster, name: str) -> None:
    make_topic(cluster.bootstrap, name)
    assert configs_of(cluster, name)["max.message.bytes"] == "1048588"
    set_config(cluster, name, "max.message.bytes", "5000")
    eventually(lambda: configs_of(cluster, name)["max.message.bytes"] == "5000", "the change")
    set_config(cluster, name, "max.message.bytes", None)
    eventually(lambda: configs_of(cluster, name)["max.message.bytes"] == "1048588", "the default")
    with pytest.raises(KafkaException) as caught:
        set_config(cluster, name, "retention.ms", "a while")
    assert "retention.ms" in str(caught.value)


def test_a_shorter_retention_takes_effect(cluster: LocalCluster, name: str) -> None:
    make_topic(cluster.bootstrap, name, configs={"segment.bytes": "3000"})
    for number in range(20):
        send_all(cluster.bootstrap, name, [b"%d " % number * 200])
    set_config(cluster, name, "retention.ms", "500")
    with consumer(cluster.bootstrap) as client:
        eventually(lambda: ends(client, name) == (20, 20), "all is gone")
    leader = leader_of(cluster, name)
    eventually(lambda: len(segment_bytes(cluster, leader, name)) == 0, "the files too")


def test_delete_records(cluster: LocalCluster, name: str) -> None:
    admin = admin_client(cluster.bootstrap)
    make_topic(cluster.bootstrap, name)
    send_all(cluster.bootstrap, name, [b"%d" % number for number in range(50)])
    wanted = TopicPartition(name, 0, 30)
    (done,) = admin.delete_records([wanted]).values()
    assert done.result(PATIENCE_S).low_watermark == 30
    with consumer(cluster.bootstrap) as client:
        assert ends(client, name) == (30, 50)
    assert read_values(cluster.bootstrap, name)[0] == b"30"
    (done,) = admin.delete_records([TopicPartition(name, 0, 70)]).values()
    assert error_of(done).code() == KafkaError.OFFSET_OUT_OF_RANGE
    with consumer(cluster.bootstrap, {"auto.offset.reset": "earliest"}) as client:
        client.assign([TopicPartition(name, 0, 3)])
        assert take(client, 1)[0].offset() == 30
    (done,) = admin.delete_records([TopicPartition(name, 0, -1)]).values()
    assert done.result(PATIENCE_S).low_watermark == 50
    replicas = [b for b in cluster.ids if partition_dir(cluster, b, name).exists()]
    eventually(
        lambda: all(state_of(cluster, b, name)["log_start_offset"] == 50 for b in replicas),
        "the followers' log start",
    )


def test_the_cluster_is_described(cluster: LocalCluster) -> None:
    admin = admin_client(cluster.bootstrap)
    await_members(cluster)
    listed = admin.list_topics(timeout=PATIENCE_S)
    assert sorted(listed.brokers) == cluster.ids
    described = admin.describe_cluster().result(PATIENCE_S)
    assert sorted(node.id for node in described.nodes) == cluster.ids
    assert described.cluster_id == listed.cluster_id
    assert described.controller.id in cluster.ids
    assert sorted(node.port for node in described.nodes) == sorted(map(cluster.port, cluster.ids))


def test_the_preferred_leader_leads_again(cluster: LocalCluster, name: str) -> None:
    admin = admin_client(cluster.bootstrap)
    make_topic(cluster.bootstrap, name, replicas=3)
    replicas = admin.list_topics(name, timeout=PATIENCE_S).topics[name].partitions[0].replicas
    preferred = replicas[0]
    cluster.restart(preferred)
    await_isr(cluster, name, replicas)
    partition = TopicPartition(name, 0)

    def elect() -> KafkaError | None:
        # A new client: it asks the broker that is the controller after the restart.
        client = admin_client(cluster.bootstrap)
        found = client.elect_leaders(ElectionType.PREFERRED, [partition]).result(PATIENCE_S)
        error: KafkaError | None = found[partition]
        return error

    def is_not_needed() -> bool:
        # It returned by itself, at the restart or since the last request.
        error = elect()
        return error is not None and error.code() == KafkaError.ELECTION_NOT_NEEDED

    eventually(is_not_needed, "it leads again")
    eventually(lambda: leader_of(cluster, name) == preferred, "the preferred leader")
    send_all(cluster.bootstrap, name, [b"x"], conf={"acks": "all"})


def test_a_partition_moves(cluster: LocalCluster, name: str) -> None:
    """A move also replaces the leader, while records are written; no old files remain."""
    make_topic(cluster.bootstrap, name, replicas=3)
    wanted = [b"%d" % number for number in range(5000)]
    send_all(cluster.bootstrap, name, wanted, conf={"acks": "all"})
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        replicas = client.refresh([name]).topics[name].partitions[0].replicas
        (new,) = set(cluster.ids) - set(replicas)
        target = [new, *replicas[1:]]  # replaces the leader
        move = {"name": name, "partitions": [{"partition_index": 0, "replicas": target}]}
        request = {"timeout_ms": 60_000, "topics": [move]}

        def ask(connection: Any) -> None:
            answer = connection.call(ALTER_REASSIGNMENTS, request)
            assert answer["error_code"] == 0, answer
            assert answer["responses"][0]["partitions"][0]["error_code"] == 0, answer

        client.ask_controller(ask)
        send_all(cluster.bootstrap, name, [b"meanwhile"], conf={"enable.idempotence": True})

        def moved() -> bool:
            found = client.refresh([name]).topics[name].partitions[0]
            return list(found.replicas) == target and sorted(found.isr) == sorted(target)

        eventually(moved, "the move is complete")
        nothing = {"timeout_ms": 5000, "topics": None}
        eventually(
            lambda: not client.controller().call(LIST_REASSIGNMENTS, nothing)["topics"],
            "nothing is moving any more",
        )
    eventually(lambda: leader_of(cluster, name) != replicas[0], "another leader")
    assert read_values(cluster.bootstrap, name) == [*wanted, b"meanwhile"]
    eventually(lambda: not partition_dir(cluster, replicas[0], name).exists(), "no leftovers")
    eventually(
        lambda: segment_bytes(cluster, new, name) == segment_bytes(cluster, target[1], name),
        "the same bytes on the new replica",
    )


def test_topics_are_created_by_their_first_record(cluster: LocalCluster, name: str) -> None:
    assert send_all(cluster.bootstrap, name, [b"first"], conf={"acks": "all"}) == [0]
    assert [message.value() for message in read(cluster.bootstrap, name, 1)] == [b"first"]
