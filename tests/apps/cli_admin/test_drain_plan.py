"""Where the replicas of a drained broker go."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.apps.changes import drain
from tidelog.apps.changes.drain_plan import TooFewBrokers, plan_drain
from tidelog.apps.changes.reassignment_plan import Plan, Racks
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.shell.client.admin import RegisteredBroker
from tidelog.shell.client.administration.topics import Outcome


def plan_of(*replicas: list[int], topic: str = "t") -> Plan:
    return {TopicPartition(topic, number): each for number, each in enumerate(replicas)}


def drained(broker: int, places: Plan, racks: Racks, live: set[int] | None = None) -> Plan:
    only = [key for key, replicas in places.items() if broker in replicas]
    return plan_drain(broker, places, racks, set(racks) if live is None else live, only)


def no_racks(*brokers: int) -> dict[int, str | None]:
    return dict.fromkeys(brokers)


def test_replicas_go_to_the_emptiest_brokers() -> None:
    places = plan_of([4, 1], [1, 4], [4, 1], [1, 2], [1, 2])
    found = drained(4, places, no_racks(1, 2, 3, 4))
    added = Counter(b for key, replicas in found.items() for b in set(replicas) - {1})
    assert added == {3: 2, 2: 1}  # broker 2 had two replicas, broker 3 none


def test_the_other_replicas_stay() -> None:
    found = drained(3, plan_of([1, 3], [2, 1], [3, 2]), no_racks(1, 2, 3, 4))
    assert [set(each) - {4} for each in found.values()] == [{1}, {2}]
    assert found[TopicPartition("t", 0)] == [1, 4]


def test_the_rack_of_the_drained_broker_is_used_before_a_second_replica_in_a_rack() -> None:
    racks = {1: "a", 2: "b", 3: "c", 4: "a", 5: "b", 6: "c"}
    found = drained(6, plan_of([1, 2, 6], [5, 4, 6]), racks)
    assert [set(each) for each in found.values()] == [{1, 2, 3}, {3, 4, 5}]


def test_a_rack_gets_two_replicas_if_there_is_no_other_place() -> None:
    racks = {1: "a", 2: "b", 3: "c", 4: "a"}
    assert drained(3, plan_of([1, 2, 3]), racks) == plan_of([1, 2, 4])


def test_a_dead_broker_gets_no_replicas() -> None:
    assert drained(3, plan_of([1, 3]), no_racks(1, 2, 3, 4), live={1, 4}) == plan_of([1, 4])


def test_preferred_leaders_are_spread() -> None:
    places = plan_of(*[[4, 1, 2]] * 6)
    first = Counter(replicas[0] for replicas in drained(4, places, no_racks(1, 2, 3, 4)).values())
    assert first == {1: 2, 2: 2, 3: 2}


def test_partitions_that_can_not_move_are_named() -> None:
    places = {**plan_of([1, 2, 3]), **plan_of([1], topic="u"), **plan_of(*[[3, 2, 1]] * 9)}
    with pytest.raises(TooFewBrokers, match=r"3 replicas .* there are 2 \(1,2\); .*t-0.*4 more"):
        drained(3, places, no_racks(1, 2, 3))
    with pytest.raises(TooFewBrokers, match=r"there are 1 \(2\)"):
        drained(3, plan_of([1, 2, 3]), no_racks(1, 2, 3, 4), live={2, 3})


@given(st.data())
def test_properties_of_every_plan(data: st.DataObject) -> None:
    brokers = list(range(1, data.draw(st.integers(3, 8)) + 1))
    names = st.sampled_from(["a", "b", "c", None])
    racks = {broker: data.draw(names) for broker in brokers}
    lists = st.lists(st.sampled_from(brokers), unique=True, min_size=1, max_size=len(brokers) - 1)
    places = plan_of(*data.draw(st.lists(lists, min_size=1, max_size=20)))
    found = drained(1, places, racks)
    assert found.keys() == {key for key, replicas in places.items() if 1 in replicas}
    load = Counter(b for key in places for b in found.get(key, places[key]))
    for key, replicas in found.items():
        kept = [broker for broker in places[key] if broker != 1]
        (new,) = set(replicas) - set(kept)
        assert len(replicas) == len(set(replicas)) == len(places[key])
        assert 1 not in replicas
        used = Counter(racks[broker] for broker in kept)
        for other in set(brokers) - {1, new} - set(kept):
            assert used[racks[new]] <= used[racks[other]]
            if used[racks[new]] == used[racks[other]]:
                assert load[new] - load[other] <= 1


def test_a_topic_that_is_deleted_before_the_throttle_is_set_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first attempt to set the throttle failed, and the plan is older than the view."""
    kept, deleted = TopicPartition("kept", 0), TopicPartition("deleted", 0)
    throttled: list[Plan] = []

    def set_throttle(_cluster: object, before: Plan, after: Plan, _rate: int) -> list[object]:
        throttled.extend((before, after))
        return []

    monkeypatch.setattr(drain, "set_throttle", set_throttle)
    work = drain.Drain(None, 1, 1_000)  # type: ignore[arg-type]
    work._plan = {kept: [2], deleted: [3]}
    work._throttle(drain.View({}, {}, {}, [], {kept: [1]}, []), 1_000)
    assert throttled == [{kept: [1]}, {kept: [2]}]


def test_a_partition_that_changed_since_the_plan_gets_a_new_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The controller rejects the old place each time, because the replica count differs."""
    sent: list[Plan] = []

    def alter(
        _cluster: object, targets: Plan, *, keep_factor: bool
    ) -> dict[TopicPartition, Outcome]:
        sent.append(targets)
        assert keep_factor
        error = ErrorCode.INVALID_REPLICATION_FACTOR
        return {key: Outcome(str(key), error) for key in targets}

    monkeypatch.setattr(drain, "alter_reassignments", alter)
    work = drain.Drain(None, 4)  # type: ignore[arg-type]
    brokers = {each: RegisteredBroker(each, "h", 9092, None, False) for each in range(1, 5)}
    key = TopicPartition("t", 0)
    work._before[key] = [4, 1]
    for replicas in ([4, 1], [4, 1, 2], [4, 2, 3]):
        work._move_some(drain.View(brokers, {key: replicas}, {}, [], {key: replicas}, []))
    assert [sorted(plan[key]) for plan in sent] == [[1, 2], [1, 2, 3], [1, 2, 3]]
