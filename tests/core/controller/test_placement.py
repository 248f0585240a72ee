"""Replica placement over brokers and racks."""

from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tidelog.core.controller.metadata.registrations import NO_EPOCH, BrokerRegistration
from tidelog.core.controller.placement import NotEnoughBrokers, alternate_racks, place


def brokers(*racks: str | None, fenced: tuple[int, ...] = ()) -> list[BrokerRegistration]:
    return [
        BrokerRegistration(n, n, fenced=n in fenced, rack=rack) for n, rack in enumerate(racks, 1)
    ]


def test_leaders_are_round_robin_and_followers_shift_with_each_round() -> None:
    assert place(brokers(None, None, None), range(6), 2) == [
        (1, 2), (2, 3), (3, 1),
        (1, 3), (2, 1), (3, 2),
    ]  # fmt: skip


def test_the_start_index_moves_the_round() -> None:
    assert place(brokers(None, None, None), range(2), 3, start_index=1) == [(2, 3, 1), (3, 1, 2)]


def test_added_partitions_continue_the_round() -> None:
    three = brokers(None, None, None)
    assert place(three, range(2, 5), 2) == place(three, range(5), 2)[2:]


def test_racks_alternate() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "a", 4: "b", 5: "b", 6: "c"}
    assert alternate_racks(racks) == [1, 4, 6, 2, 5, 3]


def test_no_rack_gets_a_second_replica_before_each_has_one() -> None:
    racks = ("a", "a", "a", "b", "b", "c")
    for replicas in place(brokers(*racks), range(24), 3):
        assert {racks[broker - 1] for broker in replicas} == {"a", "b", "c"}


def test_more_replicas_than_racks_are_spread_evenly() -> None:
    racks = ("a", "a", "a", "b", "b", "b")
    for replicas in place(brokers(*racks), range(12), 4):
        assert Counter(racks[broker - 1] for broker in replicas) == {"a": 2, "b": 2}


def test_inactive_brokers_come_last_and_only_if_needed() -> None:
    assert place(brokers(None, None, None, fenced=(1,)), range(2), 2) == [(2, 3), (3, 2)]
    assert place(brokers(None, None, None, fenced=(1,)), range(2), 3) == [(2, 3, 1), (3, 2, 1)]


def test_a_rack_whose_broker_is_down_is_better_than_a_second_replica_in_one() -> None:
    """As in Kafka: otherwise the replicas would stay in one rack when the other is back."""
    for replicas in place(brokers("a", "a", "b", fenced=(3,)), range(4), 2):
        assert replicas[1] == 3
    assert place(brokers("a", "b", "c", fenced=(3,)), range(2), 2) == [(1, 2), (2, 1)]


def test_brokers_that_are_down_take_turns() -> None:
    assert place(brokers(None, None, None, fenced=(2, 3)), range(2), 2) == [(1, 2), (1, 3)]


@pytest.mark.parametrize(
    ("given_brokers", "factor"),
    [
        pytest.param(brokers(None, None), 3, id="too few brokers"),
        pytest.param(brokers(None, fenced=(1,)), 1, id="none is active"),
        pytest.param(brokers(None), 0, id="no replica"),
        pytest.param([BrokerRegistration(1, NO_EPOCH)], 1, id="none is online"),
    ],
)
def test_not_enough_brokers(given_brokers: list[BrokerRegistration], factor: int) -> None:
    with pytest.raises(NotEnoughBrokers):
        place(given_brokers, range(1), factor)


@given(
    st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=8),
    st.integers(1, 8),
    st.integers(1, 40),
    st.integers(0, 100),
)
def test_every_placement_is_distinct_and_even(
    racks: list[str | None], factor: int, partitions: int, start: int
) -> None:
    factor = min(factor, len(racks))
    assignment = place(brokers(*racks), range(partitions), factor, start)
    assert all(len(set(replicas)) == factor for replicas in assignment)
    leaders = Counter(replicas[0] for replicas in assignment)
    assert max(leaders.values()) - min(leaders.get(n + 1, 0) for n in range(len(racks))) <= 1


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "c", "d", None]), st.booleans()),
        min_size=1,
        max_size=9,
    ),
    st.integers(1, 9),
    st.integers(0, 100),
)
def test_no_rack_gets_another_replica_while_an_emptier_rack_has_room(
    kinds: list[tuple[str | None, bool]], factor: int, start: int
) -> None:
    """For uneven racks, brokers that are down, more replicas than racks, and brokers without a
    rack, which Kafka treats as one rack too (StripedReplicaPlacer)."""
    racks = [rack for rack, _ in kinds]
    down = tuple(n for n, (_, fenced) in enumerate(kinds, 1) if fenced)
    assume(len(down) < len(kinds))
    factor = min(factor, len(racks))
    sizes = Counter(racks)
    for replicas in place(brokers(*racks, fenced=down), range(12), factor, start):
        assert replicas[0] not in down
        used = Counter(racks[broker - 1] for broker in replicas)
        for rack, size in sizes.items():
            if used[rack] < size:
                assert max(used.values()) <= used[rack] + 1
