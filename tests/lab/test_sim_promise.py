"""What the simulator holds brokers to, once folders were removed or power was lost."""

from tidelog.lab.sim.oracle.promise import Promise


def test_with_a_folder_goes_where_its_log_had_started() -> None:
    promise = Promise(min_isr=1)
    assert not promise.allows_loss_from(0)
    promise.emptied(2, revision=14)
    assert promise.allows_loss_from(0), "a log made anew begins at 0, whatever was deleted"
    assert promise.folderless == {2}
    promise.settle(2)
    assert not promise.allows_loss_from(0)
    assert promise.folderless == set()


def test_fewer_than_the_smallest_isr_lose_nothing_for_all() -> None:
    promise = Promise(min_isr=2)
    promise.lost(1, 7)
    assert not promise.allows_loss_from(7)
    promise.stopped_uncleanly(1, revision=3)
    assert not promise.allows_loss_from(7)
    promise.stopped_uncleanly(2, revision=4)
    assert promise.allows_loss_from(7)
    assert not promise.allows_loss_from(6)


def test_damage_to_one_replica_loses_nothing_by_itself() -> None:
    promise = Promise(min_isr=1)
    promise.damage(2, revision=14)
    promise.stopped_uncleanly(1, revision=15)
    assert not promise.allows_loss_from(0)
    promise.lost(1, 7)
    assert promise.allows_loss_from(7), "two replicas at a time lack records"
    promise.settle(2)
    assert promise.damaged == set()
