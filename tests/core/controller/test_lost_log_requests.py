"""Reports of lost, found and damaged logs to the controller."""

from cluster_driver import KEY, TOPIC, Cluster

from tidelog.core.controller import effects as do
from tidelog.core.controller import events as on
from tidelog.core.controller.metadata.registrations import PartitionKey
from tidelog.core.controller.requests import narrowed
from tidelog.core.errors import ErrorCode

SECOND = PartitionKey(TOPIC, 1)
UNKNOWN = PartitionKey(TOPIC, 7)


def tell(
    cluster: Cluster,
    broker: int,
    lost: tuple[PartitionKey, ...],
    found: tuple[PartitionKey, ...] = (),
    epoch: int | None = None,
) -> do.PartitionErrorsAnswer:
    told = cluster.hosts[broker].epoch if epoch is None else epoch
    answer = cluster.request(on.LogReportsReceived(cluster.number(), broker, told, lost, found))
    assert isinstance(answer, do.PartitionErrorsAnswer)
    return answer


def test_losses_are_written_and_answered() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create((1, 2, 3), (2, 3, 1))
    answer = tell(cluster, 3, (KEY, SECOND, UNKNOWN))
    assert answer.error is ErrorCode.NONE
    assert answer.results == {
        KEY: ErrorCode.NONE,
        SECOND: ErrorCode.NONE,
        UNKNOWN: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    for key in (KEY, SECOND):
        assert cluster.partition(key).behind == (3,)
        assert 3 not in cluster.partition(key).isr
    before = cluster.partition()
    assert tell(cluster, 3, (KEY,)).results == {KEY: ErrorCode.NONE}
    assert cluster.partition() == before
    cluster.alter(1, 2, 3)
    assert cluster.partition().behind == ()
    assert tell(cluster, 3, ()).results == {}


def test_only_reports_of_the_current_incarnation_count() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create((1, 2, 3))
    answer = tell(cluster, 3, (KEY,), epoch=1)
    assert answer.error is ErrorCode.STALE_BROKER_EPOCH
    assert cluster.partition().lost == ()


def test_a_report_of_a_broker_that_the_image_lacks_waits() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create((1, 2, 3))
    cluster.crash(3)
    office = cluster.leader
    cluster.deaf.add(office.broker)
    host = cluster.start(3)
    number = cluster.number()
    cluster.step(office.broker, on.LogReportsReceived(number, 3, host.epoch, (KEY,)))
    cluster.run()
    assert number not in office.answers
    cluster.deaf.clear()
    cluster.run()
    assert office.answers[number] == do.PartitionErrorsAnswer(ErrorCode.NONE, {KEY: ErrorCode.NONE})
    assert cluster.partition().behind == (3,)


def test_busy_partitions_are_decided_later() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create((1, 2, 3), (2, 3, 1))
    office = cluster.leader
    cluster.step(office.broker, cluster.proposal(1, 2))
    number = cluster.number()
    told = on.LogReportsReceived(number, 3, cluster.hosts[3].epoch, (KEY, SECOND))
    cluster.step(office.broker, told)
    assert number not in office.answers
    cluster.run()
    answer = office.answers[number]
    assert isinstance(answer, do.PartitionErrorsAnswer)
    assert set(answer.results) == {KEY, SECOND}
    assert (cluster.partition().isr, cluster.partition().behind) == ((1, 2), (3,))


def test_the_last_leader_waits_for_its_log() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create((1, 2), min_insync_replicas="1")
    cluster.alter(1)
    cluster.crash(1)
    cluster.start(1)
    tell(cluster, 1, (KEY,))
    cluster.heartbeat(1)
    assert cluster.partition().leader is None
    assert tell(cluster, 2, (), (KEY,)).results == {KEY: ErrorCode.NONE}
    assert cluster.partition().leader is None
    assert tell(cluster, 1, (), (KEY,)).results == {KEY: ErrorCode.NONE}
    cluster.run()
    assert cluster.partition().leader == 1
    assert cluster.partition().lost == ()


def test_a_part_of_a_report() -> None:
    third = PartitionKey(TOPIC, 2)
    refused = {KEY: 1, SECOND: 2}
    whole = on.LogReportsReceived(1, 3, 9, (KEY,), (SECOND,), refused=refused, offline=(third,))
    part = on.LogReportsReceived(1, 3, 9, (), (SECOND,), refused={SECOND: 2})
    assert narrowed(whole, [SECOND]) == part
    assert narrowed(whole, [third]) == on.LogReportsReceived(1, 3, 9, (), (), offline=(third,))


def test_a_damaged_replica_leaves_the_isr_under_a_new_leader_epoch() -> None:
    """The leader may still get a fetch that the replica sent before it truncated its log."""
    cluster = Cluster(1, 2, 3)
    cluster.create((1, 2, 3))
    before = cluster.partition()

    def report(broker: int) -> None:
        sender = (cluster.number(), broker, cluster.hosts[broker].epoch)
        cluster.request(on.LogReportsReceived(*sender, (), (), damaged=(KEY,)))

    report(3)
    after = cluster.partition()
    assert (after.leader, after.isr) == (1, (1, 2))
    assert after.leader_epoch == before.leader_epoch + 1
    report(3)
    again = cluster.partition()
    assert again.isr == after.isr, "it is out already"
    assert again.leader_epoch == after.leader_epoch + 1, "a fetch of its may be on the way"
    report(1)
    assert (cluster.partition().leader, cluster.partition().isr) == (2, (2,))
    assert cluster.partition().leader_epoch == again.leader_epoch + 1
    alone = cluster.partition()
    report(2)
    assert cluster.partition() == alone, "a leader that is alone serves what is left"


def refuse(cluster: Cluster, broker: int, leader_epoch: int) -> None:
    """Report that the leader of this epoch lacks committed records."""
    sender = (cluster.number(), broker, cluster.hosts[broker].epoch)
    answer = cluster.request(on.LogReportsReceived(*sender, refused={KEY: leader_epoch}))
    assert isinstance(answer, do.PartitionErrorsAnswer)
    assert answer.results == {KEY: ErrorCode.NONE}


def test_a_leader_that_lacks_committed_records_is_replaced() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create((1, 2, 3))
    before = cluster.partition()
    refuse(cluster, 3, before.leader_epoch)
    after = cluster.partition()
    assert (after.leader, after.isr, after.elr) == (3, (2, 3), ())
    assert after.leader_epoch == before.leader_epoch + 1
    assert after.unclean_election is None
    refuse(cluster, 2, before.leader_epoch)
    assert cluster.partition() == after, "about a leader that was replaced already"


def test_a_report_of_an_older_incarnation_replaces_no_leader() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create((1, 2, 3))
    before, old = cluster.partition(), cluster.hosts[3].epoch
    cluster.crash(3)
    cluster.start(3)
    report = on.LogReportsReceived(cluster.number(), 3, old, refused={KEY: before.leader_epoch})
    answer = cluster.request(report)
    assert answer == do.PartitionErrorsAnswer(ErrorCode.STALE_BROKER_EPOCH)
    assert cluster.partition().leader == before.leader
