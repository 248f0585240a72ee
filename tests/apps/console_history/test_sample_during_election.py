"""Views of a sample whose metadata is newer than the states of the brokers: a leader was elected
while the sample was fetched."""

import pytest
from samples import FakeCluster

from tidelog.apps.explain.explain import explain, situation_from_states
from tidelog.apps.views.broker import NOT_IN_CLUSTER, BrokerStates, State
from tidelog.apps.views.partition import FetchedStates, PartitionView, partition_from_states
from tidelog.core.types import TopicPartition


class Moment:
    """States from before the election of broker 3, and metadata from after it."""

    def __init__(self, *, old_leader_responds: bool, elected: bool = True) -> None:
        cluster = FakeCluster()
        cluster.produce(0, 10)
        states: dict[int, State] = dict(cluster.states())
        unreachable: dict[int, str] = {}
        if not old_leader_responds:
            del states[1]
            unreachable = {1: NOT_IN_CLUSTER}
            cluster.alive = {2, 3}
        if elected:
            cluster.partitions[0].elect(3, [2, 3])
        metadata = cluster.metadata()
        self.alive = frozenset(metadata.brokers)
        self.fetched = FetchedStates(BrokerStates(states, unreachable), metadata.brokers)
        topic = metadata.topics["orders"]
        self.view = partition_from_states(self.fetched, "orders", topic.id, topic.partitions[0])

    def texts(self) -> list[str]:
        now = situation_from_states(self.fetched, self.view, self.alive)
        return [f"{each.text} {each.detail}" for each in explain(now)]


def leadership(view: PartitionView) -> tuple[int | None, int, list[int]]:
    return view.leader, view.leader_epoch, view.isr


@pytest.mark.parametrize("old_leader_responds", [True, False])
def test_leader_epoch_and_isr_are_all_of_the_metadata_if_it_is_newer(
    old_leader_responds: bool,
) -> None:
    now = Moment(old_leader_responds=old_leader_responds)
    assert leadership(now.view) == (3, 1, [2, 3])
    assert now.view.partition_epoch is None
    assert [each.in_isr for each in now.view.replicas] == [False, True, True]


@pytest.mark.parametrize("old_leader_responds", [True, False])
def test_a_new_leader_that_responded_before_its_election_is_not_called_silent(
    old_leader_responds: bool,
) -> None:
    texts = Moment(old_leader_responds=old_leader_responds).texts()
    assert not [each for each in texts if "broker 3 leads and did not respond" in each]
    assert any("broker 3 leads since epoch 1, and responded before" in each for each in texts)
    assert any(each.startswith("Broker 3 leads in epoch 1.") for each in texts)


def test_states_are_used_if_the_metadata_is_not_newer() -> None:
    now = Moment(old_leader_responds=True, elected=False)
    assert leadership(now.view) == (1, 0, [1, 2, 3])
    assert now.view.partition_epoch == 0
    assert now.fetched.leader_of(TopicPartition("orders", 0)) is not None


def test_a_leader_of_an_old_epoch_does_not_replace_what_a_follower_knows() -> None:
    """The old leader is cut off and reports its old epoch; metadata is of either time."""
    cluster = FakeCluster()
    old, old_metadata = cluster.states()[1], cluster.metadata()
    cluster.partitions[0].elect(3, [2, 3])
    answers = BrokerStates({1: old, 2: cluster.states()[2]}, {3: "no response within 5 s"})
    for metadata in (old_metadata, cluster.metadata()):
        fetched = FetchedStates(answers, metadata.brokers)
        topic = metadata.topics["orders"]
        view = partition_from_states(fetched, "orders", topic.id, topic.partitions[0])
        assert leadership(view) == (3, 1, [2, 3])
