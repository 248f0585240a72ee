"""What changed between two moments of a history."""

from pathlib import Path

from samples import BEGAN_MS, FakeCluster, sample

from tidelog.apps.console.history.diff import diff
from tidelog.apps.console.history.store import HistoryStore


def test_diff_of_two_moments(tmp_path: Path) -> None:
    store, cluster = HistoryStore(str(tmp_path / "history.db"), sample_ms=0), FakeCluster(2)
    store.record(cluster.at_ms, cluster.states(), cluster.metadata())
    cluster.produce(0, 10)
    cluster.partitions[1].elect(2, [2, 3])
    cluster.alive.discard(1)
    cluster.silent.add(3)
    cluster.broker_epochs[2] += 10
    cluster.controller = 2
    cluster.tick(1_000)
    cluster.lose(2, 1, 4, 8, 6)
    store.record(cluster.at_ms, cluster.states(), cluster.metadata())
    found = diff(store, BEGAN_MS, cluster.at_ms)
    assert found is not None
    rows = [{k: v for k, v in each.items() if k != "changes"} for each in found["brokers"]]
    assert rows == [
        {"broker": 1, "before": "up", "after": "away", "restarted": False},
        {"broker": 2, "before": "up", "after": "up", "restarted": True},
        {"broker": 3, "before": "up", "after": "silent", "restarted": False},
    ]
    changes = [[tuple(one.values()) for one in each["changes"]] for each in found["brokers"]]
    assert changes == [[("leads", 2, 1), ("in_sync", 2, 1)], [("leads", 0, 1)], []]
    assert found["controller"] == {"before": 1, "after": 2}
    changed = {each["partition"]: each["changes"] for each in found["partitions"]}
    assert {each["what"]: each["after"] for each in changed[1]} == {
        "leader": 2,
        "leader_epoch": 1,
        "isr": [2, 3],
    }
    assert found["events"]["leader_elected"] == 1
    assert [each["lost"] for each in found["losses"]] == [2]
    assert diff(store, BEGAN_MS - 1, cluster.at_ms) is None
    same = diff(store, cluster.at_ms, cluster.at_ms)
    assert same is not None
    assert (same["partitions"], same["brokers"], same["controller"]) == ([], [], None)
    store.close()


def test_written_records_and_topics(tmp_path: Path) -> None:
    store, cluster = HistoryStore(str(tmp_path / "history.db"), sample_ms=0), FakeCluster(1)
    store.record(cluster.at_ms, cluster.states(), cluster.metadata())
    cluster.produce(0, 10)
    cluster.tick(1_000)
    more = FakeCluster(1, "payments").partitions
    cluster.partitions += more
    store.record(cluster.at_ms, cluster.states(), cluster.metadata())
    found = diff(store, BEGAN_MS, cluster.at_ms)
    assert found is not None
    assert found["topics"] == {
        "created": ["payments"],
        "deleted": [],
        "changed": [],
        "written": [{"topic": "orders", "written": 10, "committed": 10}],
    }
    store.close()


def test_changes_of_topics_and_reassignments(tmp_path: Path) -> None:
    store, cluster = HistoryStore(str(tmp_path / "history.db"), sample_ms=0), FakeCluster(1)
    store.record(cluster.at_ms, cluster.states(), cluster.metadata())
    cluster.tick(1_000)
    cluster.partitions.append(FakeCluster(2).partitions[1])
    first = cluster.partitions[0]
    first.adding = [4]
    first.elect(1, [1, 2])
    store.record(cluster.at_ms, cluster.states(), cluster.metadata())
    found = diff(store, BEGAN_MS, cluster.at_ms)
    assert found is not None
    [topic] = found["topics"]["changed"]
    assert topic["topic"] == "orders"
    assert topic["changes"] == [
        {"what": "partitions", "before": 1, "after": 2},
        {"what": "under_replicated", "before": 0, "after": 1},
    ]
    [partition] = found["partitions"]
    moving = {"adding": [4], "removing": []}
    assert {"what": "reassignment", "before": None, "after": moving} in partition["changes"]
    assert found["groups"] is None
    # A leader that did not respond leaves its own fields unknown, which is no change.
    cluster.tick(1_000)
    cluster.silent.add(1)
    before_ms = cluster.at_ms - 1_000
    store.record(cluster.at_ms, cluster.states(), cluster.metadata())
    silent = diff(store, before_ms, cluster.at_ms)
    assert silent is not None
    assert silent["partitions"] == []
    store.close()


def test_changes_of_groups(tmp_path: Path) -> None:
    store, cluster = HistoryStore(str(tmp_path / "history.db")), FakeCluster(1)
    same = sample("same", {0: 1})
    first = [sample("a", {0: 5, 1: 7}), sample("b", {0: 1}), same]
    second = [sample("a", {0: 9, 1: 7}, members=2), same, sample("c", {})]
    for at_ms, groups in ((BEGAN_MS, first), (BEGAN_MS + 1_000, second)):
        store.record(at_ms, cluster.states(), cluster.metadata())
        store.record_groups(at_ms, groups, complete=True)
    found = diff(store, BEGAN_MS, BEGAN_MS + 1_000)
    assert found is not None
    assert found["groups"] == {
        "created": ["c"],
        "deleted": ["b"],
        "changed": [
            {
                "group": "a",
                "changes": [
                    {"what": "state", "before": "Empty", "after": "Stable"},
                    {"what": "members", "before": [], "after": ["m0", "m1"]},
                ],
                "offsets": [{"topic": "t", "partition": 0, "before": 5, "after": 9}],
            }
        ],
        "groups_changed": 1,
    }
    store.close()
