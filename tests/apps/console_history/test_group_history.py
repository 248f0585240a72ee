"""Groups in the console's history: what the store returns, and pages of earlier moments."""

import time
from pathlib import Path
from typing import Any

import pytest
from console_client import CALM, PATIENCE_S, Client, eventually, serve
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import BEGAN_MS, FakeCluster, sample

from tidelog.apps.console.group_sampler import GroupPace
from tidelog.apps.console.history.place import recorder_for
from tidelog.apps.console.history.store import HistoryStore
from tidelog.apps.console.target import RemoteCluster
from tidelog.apps.views.group_sample import GroupSample
from tidelog.core.record.record import Record
from tidelog.core.types import TopicPartition
from tidelog.shell.client import admin
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.groups.group_admin import (
    Committed,
    commit_offsets,
    delete_groups,
)
from tidelog.shell.client.producer import Producer
from tidelog.shell.supervisor.cluster import LocalCluster


@pytest.fixture
def store(tmp_path: Path) -> HistoryStore:
    store = HistoryStore(str(tmp_path / "history.db"))
    cluster = FakeCluster()
    store.record(cluster.at_ms, cluster.states(), cluster.metadata())
    return store


def events(store: HistoryStore, group: str) -> list[tuple[str, int]]:
    found = store.group_events(group, None, 1000)
    return [(each["event"], each["at_ms"]) for each in reversed(found)]


def test_every_moment_has_the_groups_of_its_sample(store: HistoryStore) -> None:
    moments = {
        1: [sample("a", {0: 5, 1: 7})],
        2: [sample("a", {0: 6, 1: 7}), sample("b", {0: None}, members=1)],
        3: [sample("a", {0: 6, 1: 7}), sample("b", {0: 3}, members=1)],
        4: [sample("a", {0: 6, 1: 2}, coordinator=2), sample("b", {0: 3, 1: 1}, members=2)],
        5: [sample("b", {0: 3, 1: 1})],
    }
    for at, groups in moments.items():
        store.record_groups(BEGAN_MS + at, groups, complete=True)
    assert store.groups_at(BEGAN_MS) is None
    for at, groups in moments.items():
        assert store.groups_at(BEGAN_MS + at) == (BEGAN_MS + at, groups)
    assert store.groups_at(BEGAN_MS + 60_000) == (BEGAN_MS + 5, moments[5])
    assert events(store, "a") == [
        ("group_coordinator_changed", BEGAN_MS + 4),
        ("group_offsets_moved_back", BEGAN_MS + 4),
        ("group_deleted", BEGAN_MS + 5),
    ]
    assert events(store, "b") == [
        ("group_created", BEGAN_MS + 2),
        ("group_members_changed", BEGAN_MS + 4),
        ("group_state_changed", BEGAN_MS + 5),
        ("group_members_changed", BEGAN_MS + 5),
    ]


def test_groups_whose_broker_did_not_respond_are_kept(store: HistoryStore) -> None:
    first = [sample("a", {0: 5}), sample("b", {0: 1})]
    store.record_groups(BEGAN_MS + 1, first, complete=True)
    listed_only = GroupSample(first[1].listed, None)
    store.record_groups(BEGAN_MS + 2, [listed_only], complete=False)
    assert store.groups_at(BEGAN_MS + 2) == (BEGAN_MS + 2, first)
    assert events(store, "a") == []


def test_a_store_that_is_opened_again_continues(tmp_path: Path) -> None:
    path = str(tmp_path / "history.db")
    cluster = FakeCluster()
    for at in range(4):
        store = HistoryStore(path)
        store.record(cluster.at_ms, cluster.states(), cluster.metadata())
        store.record_groups(BEGAN_MS + at, [sample("a", {0: at, 1: 9})], complete=True)
        store.close()
    store = HistoryStore(path)
    for at in range(4):
        assert store.groups_at(BEGAN_MS + at) == (BEGAN_MS + at, [sample("a", {0: at, 1: 9})])
    assert events(store, "a") == []


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from("abc"),
            # Few shapes, so that many rows have only numbers.
            st.tuples(
                st.fixed_dictionaries({0: st.integers(0, 1 << 40), 1: st.integers(0, 3)}),
                st.sampled_from([0, 0, 0, 2]),
            ),
        ),
        min_size=3,
        max_size=30,
    ),
    st.integers(0, 40),
)
def test_moments_after_a_deletion_of_old_rows_are_unchanged(
    tmp_path_factory: pytest.TempPathFactory,
    moments: list[dict[str, tuple[dict[int, int], int]]],
    cut: int,
) -> None:
    path = tmp_path_factory.mktemp("history") / "history.db"
    store = HistoryStore(str(path))
    cluster = FakeCluster()
    expected = []
    for number, groups in enumerate(moments):
        at_ms = BEGAN_MS + 10 * number
        store.record(at_ms, cluster.states(), cluster.metadata())
        found = [sample(name, *what) for name, what in sorted(groups.items())]
        store.record_groups(at_ms, found, complete=True)
        expected.append((at_ms, found))
    assert [store.groups_at(at_ms) for at_ms, _ in expected] == expected
    assert store._writer is not None
    start = BEGAN_MS + 10 * (cut % len(moments))
    with store._writer:
        store._delete_before(store._writer, start)
    kept = [each for each in expected if each[0] >= start]
    assert [store.groups_at(at_ms) for at_ms, _ in kept] == kept
    store.close()


def test_pages_show_a_group_as_it_was(tmp_path: Path) -> None:
    key = TopicPartition("orders", 0)
    with LocalCluster(brokers=3, data=str(tmp_path / "data"), settings=CALM) as running:
        options: dict[str, Any] = {
            "recorder": recorder_for(str(tmp_path / "data")),
            "group_pace": GroupPace(0.1, 0.1, 1.0, 1.0),
        }
        target = RemoteCluster(running.bootstrap)
        with (
            serve(target, tmp_path / "static", **options) as pages,
            Cluster(running.bootstrap, timeout_s=PATIENCE_S) as client,
        ):
            admin.create_topic(client, "orders", 1, 3)
            Producer(client).append("orders", 0, [Record(None, b"x", 1)] * 10)
            commit_offsets(client, "readers", {key: Committed(4)})
            first_ms = seen(pages, 4, 6)
            commit_offsets(client, "readers", {key: Committed(9)})
            second_ms = seen(pages, 9, 1)
            assert delete_groups(client, ["readers"]) == {"readers": None}
            eventually(lambda: "group_deleted" in names(pages, second_ms), "the group is deleted")

            then = pages.read(f"groups/readers?at={first_ms}")
            assert (then["group"], then["state"], then["lag"]) == ("readers", "Empty", 6)
            [row] = then["offsets"]
            assert (row["topic"], row["current_offset"], row["log_end_offset"]) == ("orders", 4, 10)
            assert then["sampled_at_ms"] <= first_ms
            [listed] = pages.read(f"groups?at={second_ms}")["groups"]
            assert (listed["group"], listed["members"], listed["lag"]) == ("readers", 0, 1)
            now_ms = time.time_ns() // 1_000_000
            assert pages.read(f"groups?at={now_ms}")["groups"] == []
            assert pages.settled(f"/api/groups/readers?at={now_ms}").status == 404
            assert pages.get("/api/groups?at=5").status == 404


def seen(pages: Client, offset: int, lag: int) -> int:
    """Wait until the history has the group with this offset; return the moment."""

    def moment() -> int | None:
        at_ms = time.time_ns() // 1_000_000
        answer = pages.get(f"/api/groups/readers?at={at_ms}")
        if answer.status != 200:
            return None
        shown = [(row["current_offset"], row["lag"]) for row in answer.json()["offsets"]]
        return at_ms if shown == [(offset, lag)] else None

    found: int = eventually(moment, f"offset {offset} with lag {lag} is in the history")
    pages.until(
        "groups",
        lambda data: (
            [(each["group"], each["lag"]) for each in data["groups"]] == [("readers", lag)]
        ),
    )
    return found


def names(pages: Client, from_ms: int) -> list[str]:
    return [each["event"] for each in pages.read(f"events?from={from_ms}")["events"]]
