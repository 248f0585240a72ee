"""AllocateProducerIds: a block is allocated once, also after a write of unknown outcome."""

from cluster_driver import Cluster

from tidelog.core.controller import effects as do
from tidelog.core.controller import events as on
from tidelog.core.controller.effects import ProducerIdsAnswer
from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata.metadata_store import OutcomeUnknown, TxnAnswer
from tidelog.core.errors import ErrorCode


def ask(cluster: Cluster, broker: int = 2, epoch: int | None = None) -> ProducerIdsAnswer:
    answer = cluster.request(event(cluster, broker, epoch))
    assert isinstance(answer, ProducerIdsAnswer)
    return answer


def event(
    cluster: Cluster, broker: int = 2, epoch: int | None = None
) -> on.AllocateProducerIdsReceived:
    known = cluster.hosts[broker].epoch if epoch is None else epoch
    return on.AllocateProducerIdsReceived(cluster.number(), broker, known)


def block(first: int) -> ProducerIdsAnswer:
    return ProducerIdsAnswer(ErrorCode.NONE, first, 1000)


def about_ids(transaction: do.StoreTransaction) -> bool:
    return any(op.key == keys.PRODUCER_IDS for op in transaction.ops)


def test_blocks_follow_each_other() -> None:
    cluster = Cluster(1, 2)
    assert [ask(cluster), ask(cluster, 1), ask(cluster)] == [block(0), block(1000), block(2000)]
    assert cluster.leader.image.next_producer_id == 3000


def test_an_earlier_incarnation_gets_no_producer_ids() -> None:
    cluster = Cluster(1, 2)
    old = cluster.hosts[2].epoch
    cluster.restart(2)
    assert ask(cluster, 2, old) == ProducerIdsAnswer(ErrorCode.STALE_BROKER_EPOCH)


def test_an_incarnation_the_image_does_not_show_yet_waits() -> None:
    cluster = Cluster(1, 2)
    controller = cluster.leader
    ahead = controller.image.revision + 1
    asked = event(cluster, 2, ahead)
    cluster.step(controller.broker, asked)
    assert asked.request not in controller.answers
    cluster.create((1, 2))
    assert controller.answers[asked.request] == ProducerIdsAnswer(ErrorCode.STALE_BROKER_EPOCH)


def test_two_requests_at_once_get_two_blocks() -> None:
    cluster = Cluster(1, 2)
    controller = cluster.leader
    one, two = event(cluster, 1), event(cluster, 2)
    cluster.step(controller.broker, one, two)
    cluster.run()
    assert controller.answers[one.request] == block(0)
    assert controller.answers[two.request] == block(1000)


def test_a_write_of_unknown_outcome_that_was_applied_is_this_block() -> None:
    cluster = Cluster(1, 2)
    lost: list[TxnAnswer] = []

    def lose(when: str, transaction: do.StoreTransaction) -> TxnAnswer | None:
        if when == "after" and about_ids(transaction) and not lost:
            lost.append(OutcomeUnknown())
            return lost[0]
        return None

    cluster.fault = lose
    asked = event(cluster)
    cluster.step(cluster.leader.broker, asked)
    cluster.run()
    cluster.tick(1000)
    assert cluster.leader.answers[asked.request] == block(0)
    assert ask(cluster) == block(1000)


def test_the_next_controllers_block_is_not_mistaken_for_the_lost_one() -> None:
    """Both write the same number to the same key; only one of them may allocate the block."""
    cluster = Cluster(1, 2, 3)
    old = cluster.leader
    cluster.deaf.add(old.broker)
    cluster.fault = lambda when, txn: (
        OutcomeUnknown() if when == "before" and about_ids(txn) else None
    )
    asked = event(cluster, 2)
    cluster.step(old.broker, asked)
    cluster.run()
    cluster.fault = None
    # The session of the old controller ends; it learns neither of that nor of its successor.
    cluster.store.expire(old.session)
    cluster.run()
    (new,) = [h for h in cluster.hosts.values() if h.is_active() and h is not old]
    other = event(cluster, 3)
    cluster.step(new.broker, other)
    cluster.run()
    assert new.answers[other.request] == block(0)
    cluster.step(old.broker, on.Ticked(cluster.now_ms + 500))
    cluster.run()
    assert old.answers[asked.request] == ProducerIdsAnswer(ErrorCode.NOT_CONTROLLER)
