"""What changed between two moments of a history."""

from pathlib import Path

from samples import BEGAN_MS, FakeCluster

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
    assert found["brokers"] == [
        {"broker": 1, "before": "up", "after": "away", "restarted": False},
        {"broker": 2, "before": "up", "after": "up", "restarted": True},
        {"broker": 3, "before": "up", "after": "silent", "restarted": False},
    ]
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
        "written": [{"topic": "orders", "written": 10, "committed": 10}],
    }
    store.close()
