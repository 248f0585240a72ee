"""Reassignment plans: reading them from a file, and making them."""

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.apps.changes.reassignment_plan import BadPlan, Plan, as_document, make_plan, read_plan
from tidelog.core.types import TopicPartition


def plan_of(*replicas: list[int]) -> Plan:
    return {TopicPartition("t", number): each for number, each in enumerate(replicas)}


def test_written_plan_is_read_back() -> None:
    plan = plan_of([1, 2], [2, 3])
    assert read_plan(json.dumps(as_document(plan))) == plan
    with_log_dirs = {"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "any"]}
    assert read_plan(json.dumps({"partitions": [with_log_dirs]})) == plan_of([1, 2])


def entry(**changes: Any) -> dict[str, Any]:
    return {"topic": "t", "partition": 0, "replicas": [1], **changes}


BAD = {
    "invalid JSON": ("{", "invalid JSON"),
    "another document": ([], 'key "partitions" is missing'),
    "a newer version": (
        {"version": 2, "partitions": [entry()]},
        "version 2 is not supported, only 1",
    ),
    "nothing": ({"partitions": []}, "the list of partitions is empty"),
    "twice": ({"partitions": [entry(), entry()]}, "t-0 is listed twice"),
    "no object": ({"partitions": [5]}, 'entry 0 of "partitions" is not an object'),
    "no topic": ({"partitions": [entry(topic=None)]}, 'must have "topic" and "partition"'),
    "no number": ({"partitions": [entry(partition="0")]}, 'must have "topic" and "partition"'),
    "no replicas": ({"partitions": [entry(replicas=[])]}, 't-0: "replicas"'),
    "no ids": ({"partitions": [entry(replicas=["a"])]}, 't-0: "replicas"'),
    "a broker twice": ({"partitions": [entry(replicas=[1, 1])]}, "lists a broker twice"),
    "log directories": ({"partitions": [entry(log_dirs=["/d"])]}, "can't be chosen"),
}


@pytest.mark.parametrize(("document", "message"), BAD.values(), ids=BAD)
def test_invalid_plan_says_why(document: Any, message: str) -> None:
    text = document if isinstance(document, str) else json.dumps(document)
    with pytest.raises(BadPlan, match=message):
        read_plan(text)


def test_balanced_plan_is_unchanged() -> None:
    now = plan_of([1, 2], [2, 3], [3, 1])
    assert make_plan(now, [1, 2, 3], {}) == now


def test_only_replicas_of_a_removed_broker_move() -> None:
    made = make_plan(plan_of([1, 2], [2, 3], [3, 1]), [1, 2, 4], {})
    assert [set(each) for each in made.values()] == [{1, 2}, {2, 4}, {4, 1}]


def test_added_broker_gets_its_share() -> None:
    made = make_plan(plan_of(*[[1, 2, 3]] * 4), [1, 2, 3, 4], {})
    assert Counter(b for each in made.values() for b in each) == {1: 3, 2: 3, 3: 3, 4: 3}
    assert Counter(each[0] for each in made.values()) == {1: 1, 2: 1, 3: 1, 4: 1}


def test_replicas_are_on_different_racks_where_there_are_enough() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    made = make_plan(plan_of([1], [2], [3], [4]), [1, 2, 3, 4], racks, factor=2)
    assert all({racks[b] for b in each} == {"a", "b"} for each in made.values())
    crowded = make_plan(plan_of([1]), [1, 2], racks, factor=2)
    assert sorted(crowded[TopicPartition("t", 0)]) == [1, 2]


def test_replicas_on_one_rack_spread_to_an_added_rack() -> None:
    racks = {1: "a", 2: "a", 3: "b"}
    made = make_plan(plan_of([1, 2]), [1, 2, 3], racks)
    assert made == plan_of([1, 3]), "the preferred leader stays"


def test_fewer_replicas_stay_on_different_racks_without_a_copy() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    assert make_plan(plan_of([1, 2, 4]), [1, 2, 3, 4], racks, factor=2) == plan_of([1, 4])


@given(st.data())
def test_no_rack_has_another_replica_while_an_emptier_rack_has_room(data: st.DataObject) -> None:
    known = list(range(1, 8))
    names = st.sampled_from(["a", "b", "c", None])
    racks = dict(zip(known, data.draw(st.lists(names, min_size=7, max_size=7)), strict=True))
    sets = st.lists(st.sampled_from(known), min_size=1, max_size=4, unique=True)
    now = plan_of(*data.draw(st.lists(sets, min_size=1, max_size=8)))
    factor = data.draw(st.sampled_from([None, 1, 2, 3]))
    needed = max(factor or len(each) for each in now.values())
    brokers = data.draw(st.lists(st.sampled_from(known), min_size=needed, unique=True))
    for replicas in make_plan(now, brokers, racks, factor).values():
        used = Counter(racks[broker] for broker in replicas)
        for free in set(brokers) - set(replicas):
            assert used[racks[free]] + 1 >= max(used.values())


def test_too_few_brokers_are_reported() -> None:
    with pytest.raises(BadPlan, match="t-0 needs 3 brokers, but --brokers lists 2"):
        make_plan(plan_of([1]), [1, 2], {}, factor=3)


@given(st.data())
def test_every_plan_is_valid_and_balanced(data: st.DataObject) -> None:
    known = list(range(1, 7))
    sets = st.lists(st.sampled_from(known), min_size=1, max_size=4, unique=True)
    now = plan_of(*data.draw(st.lists(sets, min_size=1, max_size=12)))
    needed = max(len(each) for each in now.values())
    brokers = data.draw(st.lists(st.sampled_from(known), min_size=needed, unique=True))
    made = make_plan({key: list(each) for key, each in now.items()}, brokers, {})
    for key, replicas in made.items():
        assert len(replicas) == len(now[key]) == len(set(replicas))
        assert set(replicas) <= set(brokers)
    load = Counter(dict.fromkeys(brokers, 0))
    load.update(b for each in made.values() for b in each)
    if all(len(each) < len(brokers) for each in made.values()):
        assert max(load.values()) - min(load.values()) <= 1
    again = make_plan({key: list(each) for key, each in made.items()}, brokers, {})
    assert {key: set(each) for key, each in again.items()} == {k: set(v) for k, v in made.items()}
