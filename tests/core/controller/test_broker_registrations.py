"""A registration outlives its broker's session; only UnregisterBroker removes it."""

import pytest
from cluster_driver import KEY, TOPIC, Cluster

from tidelog.core.controller import events as on
from tidelog.core.controller.broker_liveness import registration_transaction
from tidelog.core.controller.effects import PartitionErrorsAnswer, TopicAnswer
from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.controller.metadata.metadata_store import Delete, Put
from tidelog.core.controller.metadata.registrations import Endpoint, PartitionKey
from tidelog.core.errors import ErrorCode

OTHER = b"\x08" * 16


def make(cluster: Cluster, factor: int, partitions: int = 3) -> TopicAnswer:
    answer = cluster.request(on.CreateTopicReceived(900, "new", OTHER, partitions, factor))
    assert isinstance(answer, TopicAnswer)
    return answer


def unregister(cluster: Cluster, broker: int) -> TopicAnswer:
    answer = cluster.request(on.UnregisterBrokerReceived(cluster.number(), broker))
    assert isinstance(answer, TopicAnswer)
    return answer


def image(cluster: Cluster) -> ClusterImage:
    found = ClusterImage()
    found.load(cluster.store.range(""))
    return found


def test_topics_get_replicas_on_a_broker_that_is_down() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.crash(3)
    assert make(cluster, 3).error is ErrorCode.NONE
    for index in range(3):
        made = cluster.partition(PartitionKey(OTHER, index))
        assert set(made.replicas) == {1, 2, 3}
        assert set(made.isr) == {1, 2}
        assert made.leader == made.replicas[0] != 3
        assert made.elr == ()


def test_brokers_that_are_up_come_first() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.crash(3)
    make(cluster, 2)
    assert all(3 not in p.replicas for p in image(cluster).partitions.values())


def test_more_replicas_than_registered_brokers_are_refused() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.crash(3)
    answer = make(cluster, 4)
    assert answer.error is ErrorCode.INVALID_REPLICATION_FACTOR
    assert "3 brokers are registered" in answer.message


def test_an_assignment_needs_one_broker_that_is_up() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.crash(3)
    cluster.create((3, 1))
    assert cluster.partition().isr == (1,)
    assert cluster.partition().leader == 1
    answer = cluster.request(on.CreateTopicReceived(900, "new", OTHER, 0, 0, {}, ((3,),)))
    assert isinstance(answer, TopicAnswer)
    assert answer.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_partitions_are_added_while_a_broker_is_down() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create((1, 2, 3))
    cluster.crash(3)
    answer = cluster.request(on.CreatePartitionsReceived(900, "t", 3))
    assert isinstance(answer, TopicAnswer)
    assert answer.error is ErrorCode.NONE
    for index in (1, 2):
        assert set(cluster.partition(PartitionKey(TOPIC, index)).isr) == {1, 2}


def test_a_partition_moves_to_a_broker_that_is_down_once_it_is_back() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create((1, 2))
    cluster.crash(3)
    answer = cluster.request(on.AlterReassignmentsReceived(900, {KEY: (1, 3)}))
    assert answer == PartitionErrorsAnswer(ErrorCode.NONE, {KEY: ErrorCode.NONE})
    assert cluster.partition().adding == (3,)
    cluster.start(3)
    cluster.heartbeat(3)
    cluster.alter(1, 2, 3)
    assert (cluster.partition().replicas, cluster.partition().adding) == ((1, 3), ())


def test_a_preferred_leader_that_is_down_is_not_available() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.crash(3)
    cluster.create((3, 1))
    answer = cluster.request(on.ElectLeadersReceived(900, on.ElectionType.PREFERRED, (KEY,)))
    assert isinstance(answer, PartitionErrorsAnswer)
    assert answer.results == {KEY: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}


def test_a_setting_of_a_broker_that_is_down_is_kept() -> None:
    cluster = Cluster(1, 2)
    cluster.crash(2)
    change = on.AlterConfigReceived(900, None, {"log.retention.ms": "7"}, broker=2)
    answer = cluster.request(change)
    assert isinstance(answer, TopicAnswer)
    assert answer.error is ErrorCode.NONE
    assert image(cluster).topic_config(TOPIC, "retention.ms", 2) == "7"


def test_a_broker_that_returns_has_a_new_epoch_under_the_same_registration() -> None:
    cluster = Cluster(1, 2)
    cluster.create((1, 2), min_insync_replicas="1")
    old = cluster.hosts[2].epoch
    cluster.crash(2)
    down = image(cluster).brokers[2]
    assert (down.online, down.fenced, down.active, down.admitted_epoch) == (False, True, False, old)
    cluster.start(2, previous_epoch=old)
    cluster.heartbeat(2)
    back = image(cluster).brokers[2]
    assert (back.online, back.active) == (True, True)
    assert back.epoch == back.admitted_epoch > old


def test_address_and_rack_are_known_while_a_broker_is_down() -> None:
    cluster = Cluster(1)
    session = cluster.store.open_session()
    endpoints = (Endpoint("CLIENT", "host", 9092),)
    cluster.store.txn(*registration_transaction(2, session, "two", endpoints, "cellar"))
    cluster.run()
    cluster.store.expire(session)
    down = image(cluster).brokers[2]
    assert (down.online, down.endpoints, down.rack) == (False, endpoints, "cellar")


def test_a_state_written_by_an_older_release_is_a_registration() -> None:
    cluster = Cluster(1)
    old = b'{"epoch":1,"fenced":false,"shutting_down":false}'
    cluster.store.txn((), (Put(keys.broker_state(2), old),))
    cluster.run()
    assert make(cluster, 2, partitions=1).error is ErrorCode.NONE
    made = cluster.partition(PartitionKey(OTHER, 0))
    assert (made.replicas, made.isr, made.leader) == ((1, 2), (1,), 1)
    cluster.start(2)
    cluster.heartbeat(2)
    assert image(cluster).brokers[2].active


def test_unregistering_removes_a_broker_that_is_down() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create((1, 2, 3), min_insync_replicas="3")
    cluster.crash(3)
    assert cluster.partition().elr == (3,)
    assert unregister(cluster, 3) == TopicAnswer(ErrorCode.NONE)
    assert set(image(cluster).brokers) == {1, 2}
    assert cluster.partition().replicas == (1, 2, 3)
    assert cluster.partition().elr == ()
    assert unregister(cluster, 3).error is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert make(cluster, 3).error is ErrorCode.INVALID_REPLICATION_FACTOR


def test_unregistering_a_broker_that_is_up_moves_its_leaderships() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create((2, 3))
    epoch = cluster.hosts[2].epoch
    assert unregister(cluster, 2) == TopicAnswer(ErrorCode.NONE)
    assert set(image(cluster).brokers) == {1, 3}
    assert (cluster.partition().leader, cluster.partition().isr) == (3, (3,))
    assert not image(cluster).may_lead(2, epoch)
    beat = on.HeartbeatReceived(900, 2, epoch, 0, cluster.now_ms)
    assert cluster.request(beat).error is ErrorCode.BROKER_ID_NOT_REGISTERED


@pytest.mark.parametrize("claims", [True, False], ids=["with an epoch", "without"])
def test_a_broker_that_was_unregistered_begins_as_a_new_one(claims: bool) -> None:
    """Its previous epoch does not count."""
    cluster = Cluster(1, 2)
    cluster.create((2, 1), min_insync_replicas="2")
    epoch = cluster.hosts[2].epoch
    cluster.crash(2)
    # The state goes first, so that the broker is back before it has left the ELR.
    cluster.deaf.add(1)
    cluster.store.txn((), (Delete(keys.broker_state(2)),))
    cluster.start(2, epoch if claims else -1)
    cluster.deaf.clear()
    cluster.run()
    cluster.heartbeat(2)
    assert image(cluster).brokers[2].active
    assert (cluster.partition().isr, cluster.partition().elr) == ((1,), ())


def test_an_unknown_broker_can_not_be_unregistered() -> None:
    answer = unregister(Cluster(1), 9)
    assert answer.error is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert "Broker 9" in answer.message


def test_a_broker_that_returns_at_the_same_time_is_not_half_unregistered() -> None:
    """The request is decided again by the new image."""
    cluster = Cluster(1, 2)
    cluster.crash(2)
    cluster.deaf.add(1)
    cluster.start(2)
    cluster.step(1, on.UnregisterBrokerReceived(900, 2))
    cluster.carry_out(1)
    assert 900 not in cluster.leader.answers
    cluster.deaf.clear()
    cluster.run()
    assert cluster.leader.answers[900] == TopicAnswer(ErrorCode.NONE)
    assert not {key for key in image(cluster).mod_revs if key.endswith("/2")}
