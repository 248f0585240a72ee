"""The console's history store: what it returns, its bound, and a killed writer."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import BEGAN_MS, FakeCluster, with_sampled_times

from tidelog.apps.console.history.schema import file_bytes
from tidelog.apps.console.history.store import HistoryStore


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "history.db")


def record(store: HistoryStore, cluster: FakeCluster) -> None:
    store.record(cluster.at_ms, cluster.states(), cluster.metadata())


def names(store: HistoryStore, **about: Any) -> list[str]:
    """Return the names of events, oldest first."""
    wanted = {"from_ms": None, "to_ms": None, "topic": None, "partition": None, **about}
    return [each["event"] for each in reversed(store.events(**wanted, limit=1000))]


# -- what it returns -------------------------------------------------------------------------

ACTIONS = st.sampled_from(
    [
        "produce",
        "produce one",
        "kill 1",
        "kill 2",
        "start 1",
        "start 2",
        "silence 3",
        "wake 3",
        "elect 1",
        "elect 2",
        "elect nobody",
        "lose",
        "damage",
        "begin 5",
        "begin 900",
        "end",
        "add",
        "more partitions",
        "fewer partitions",
    ]
)


def act_on_records(cluster: FakeCluster, word: str, rest: str) -> None:
    """Begin or end a transaction, or a reassignment."""
    first = cluster.partitions[0]
    if word == "begin":
        first.unstable[1] = {
            "offset": first.high_watermark,
            "producer_id": 1000 + int(rest),
            "producer_epoch": int(rest),
            "last_write_ms": cluster.at_ms if rest == "5" else None,
            "open_transactions": 2,
        }
    elif word == "end":
        first.unstable.clear()
    else:
        first.adding = [] if first.adding else [4]


def act(cluster: FakeCluster, action: str) -> None:
    word, _, rest = action.partition(" ")
    first = cluster.partitions[0]
    if word == "produce":
        cluster.produce(0 if rest else len(cluster.partitions) - 1, 1 if rest else 300)
    elif word == "kill":
        cluster.alive.discard(int(rest))
    elif word == "start":
        cluster.alive.add(int(rest))
        cluster.broker_epochs[int(rest)] += 10
    elif word == "silence":
        cluster.silent.add(int(rest))
    elif word == "wake":
        cluster.silent.discard(int(rest))
    elif word == "elect":
        leader = None if rest == "nobody" else int(rest)
        isr = [broker for broker in (1, 2, 3) if broker in cluster.alive]
        first.elect(leader, isr, [] if len(isr) > 1 else [3])
    elif word in ("begin", "end", "add"):
        act_on_records(cluster, word, rest)
    elif word == "lose":
        cluster.lose(2, 0, 5, 9, 7)
    elif word == "damage":
        first.damage = {} if first.damage else {2: {"offset": 3, "reason": "checksum"}}
    elif word == "more":
        more = FakeCluster(len(cluster.partitions) + 1).partitions[-1]
        cluster.partitions.append(more)
    elif len(cluster.partitions) > 1:
        cluster.partitions.pop()


STEPS = st.lists(
    st.tuples(st.sampled_from([200, 500, 1000, 5000]), st.lists(ACTIONS, max_size=3)),
    min_size=1,
    max_size=14,
)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, reopen=st.booleans())
def test_state_at_returns_the_last_sample_up_to_that_time(
    steps: list[tuple[int, list[str]]], reopen: bool
) -> None:
    """Without sampling of offsets (sample_ms=0), every sample is returned as it was."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "history.db")
        store = HistoryStore(path, sample_ms=0)
        cluster = FakeCluster(2)
        expected = []
        for ms, actions in steps:
            for action in actions:
                act(cluster, action)
            cluster.tick(ms)
            states, metadata = cluster.states(), cluster.metadata()
            store.record(cluster.at_ms, states, metadata)
            expected.append((cluster.at_ms, with_sampled_times(states), metadata))
            if reopen:
                store.close()
                store = HistoryStore(path, sample_ms=0)
        assert store.state_at(expected[0][0] - 1) is None
        for number, (at_ms, states, metadata) in enumerate(expected):
            until = expected[number + 1][0] if number + 1 < len(expected) else at_ms + 99_999
            for moment in {at_ms, (at_ms + until) // 2, until - 1}:
                found = store.state_at(moment)
                assert found is not None
                assert found[1] == metadata
                assert by_partition(found[0]) == by_partition(states)
        store.close()


@settings(max_examples=40, deadline=None)
@given(steps=STEPS)
def test_offsets_are_at_most_a_second_older_than_the_sample(
    steps: list[tuple[int, list[str]]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = HistoryStore(os.path.join(folder, "history.db"))
        cluster = FakeCluster(1)
        ends: list[tuple[int, dict[int, int]]] = []
        for ms, actions in steps:
            for action in actions:
                if "partitions" not in action:
                    act(cluster, action)
            cluster.tick(ms)
            record(store, cluster)
            states = cluster.states()
            ends.append(
                (
                    cluster.at_ms,
                    {b: s["partitions"][0]["log_end_offset"] for b, s in states.items()},
                )
            )
        for at_ms, _ in ends:
            found = store.state_at(at_ms)
            assert found is not None
            for broker, state in found[0].items():
                (replica,) = state["partitions"]
                allowed = {e[broker] for t, e in ends if at_ms - 1000 < t <= at_ms and broker in e}
                assert replica["log_end_offset"] in allowed
        store.close()


def by_partition(states: Any) -> dict[int, Any]:
    """Sort the partitions of each broker by name: their order has no meaning."""
    return {
        broker: {
            **state,
            "partitions": sorted(
                state["partitions"], key=lambda each: (each["topic"], each["partition"])
            ),
        }
        for broker, state in states.items()
    }


def test_idle_partitions_add_no_rows(path: str) -> None:
    store, cluster = HistoryStore(path), FakeCluster(5)
    record(store, cluster)
    for _ in range(50):
        cluster.tick(5_000)
        record(store, cluster)
    store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        assert db.execute("SELECT count(*) FROM state").fetchone() == (5,)
        assert db.execute("SELECT count(*) FROM shape").fetchone() == (1,)


def test_only_the_owner_may_read_the_files(path: str) -> None:
    store, cluster = HistoryStore(path), FakeCluster(1)
    record(store, cluster)
    files = sorted(Path(path).parent.iterdir())
    assert len(files) == 4
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    store.close()


def test_silent_broker_adds_one_row(path: str) -> None:
    store, cluster = HistoryStore(path), FakeCluster(5)
    record(store, cluster)
    cluster.silent = {2}
    cluster.tick(1_000)
    record(store, cluster)
    found = store.state_at(cluster.at_ms)
    assert found is not None
    assert sorted(found[0]) == [1, 3]
    assert sorted(found[1].brokers) == [1, 2, 3]
    store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        assert db.execute("SELECT count(*) FROM state").fetchone() == (5,)


def test_offsets_that_moved_are_written_a_second_later_though_nothing_new_was_fetched(
    path: str,
) -> None:
    """The collector passes the same objects again for partitions that it did not ask about."""
    store, cluster = HistoryStore(path), FakeCluster(1)
    metadata = cluster.metadata()
    store.record(cluster.at_ms, cluster.states(), metadata)
    cluster.produce(0, 10)
    states = cluster.states()
    for after_ms in (300, 600, 1_200):
        store.record(BEGAN_MS + after_ms, states, metadata)
    found = store.state_at(BEGAN_MS + 1_200)
    assert found is not None
    assert found[0][1]["partitions"][0]["log_end_offset"] == 10
    store.close()


def test_moment_of_one_topic(path: str) -> None:
    store, cluster = HistoryStore(path), FakeCluster(2)
    cluster.partitions += FakeCluster(1, "payments").partitions
    record(store, cluster)
    found = store.state_at(cluster.at_ms, "payments")
    assert found is not None
    assert list(found[1].topics) == ["payments"]
    assert [[p["topic"] for p in s["partitions"]] for s in found[0].values()] == [["payments"]] * 3
    whole = store.state_at(cluster.at_ms)
    assert whole is not None
    assert sorted(whole[1].topics) == ["orders", "payments"]
    store.close()


def test_clock_that_is_set_back_does_not_mix_samples(path: str) -> None:
    store, cluster = HistoryStore(path, sample_ms=0), FakeCluster(1)
    record(store, cluster)
    cluster.produce(0, 10)
    store.record(cluster.at_ms - 60_000, cluster.states(), cluster.metadata())
    span = store.span()
    assert span is not None
    assert (span.from_ms, span.to_ms) == (BEGAN_MS, BEGAN_MS + 1)
    found = store.state_at(BEGAN_MS + 1)
    assert found is not None
    assert found[0][1]["partitions"][0]["log_end_offset"] == 10
    store.close()


# -- events ----------------------------------------------------------------------------------


def test_events_of_a_failover(path: str) -> None:
    store, cluster = HistoryStore(path), FakeCluster(2)
    record(store, cluster)
    cluster.produce(0, 10)
    cluster.alive.discard(1)
    cluster.partitions[0].elect(2, [2, 3])
    cluster.partitions[1].elect(None, [], [1])
    cluster.controller = 2
    cluster.tick(1_000)
    record(store, cluster)
    assert names(store, topic="orders", partition=0) == ["leader_elected", "isr_shrunk"]
    assert names(store, topic="orders", partition=1) == ["leader_lost", "isr_shrunk", "elr_changed"]
    assert {"broker_gone", "controller_changed"} < set(names(store))
    (elected,) = [
        e for e in store.events(None, None, None, None, 99) if e["event"] == "leader_elected"
    ]
    assert (elected["leader"], elected["old_leader"], elected["isr"]) == (2, 1, [2, 3])
    assert elected["at_ms"] == cluster.at_ms
    assert elected["text"] == (
        "elected broker 2 for orders-0: leader epoch 1, old leader 1, ISR [2, 3]"
    )
    timeline = store.timeline("orders", 0)
    assert [mark["kind"] for mark in timeline["marks"]].count("leader") == 1
    assert any(mark["kind"] == "broker" for mark in timeline["marks"])
    store.close()


def test_events_of_an_unclean_election_and_a_loss(path: str) -> None:
    store, cluster = HistoryStore(path), FakeCluster(1)
    cluster.produce(0, 10)
    record(store, cluster)
    first = cluster.partitions[0]
    first.elect(3, [3])
    first.unclean = {
        "leader": 3,
        "leader_epoch": 1,
        "old_leader": 1,
        "old_isr": [1],
        "old_elr": [],
        "recovered": False,
    }
    cluster.lose(2, 0, 5, 10, 8)
    cluster.tick(1_000)
    record(store, cluster)
    record(store, cluster)
    found = names(store, topic="orders", partition=0)
    assert found.count("unclean_election") == found.count("records_lost") == 1
    lost = [e for e in store.events(None, None, None, None, 99) if e["event"] == "records_lost"]
    assert (lost[0]["broker"], lost[0]["start"], lost[0]["lost"]) == (2, 5, 3)
    assert lost[0]["at_ms"] == cluster.at_ms - 1_300, "at the time that the broker reported"
    store.close()


def test_losses_are_not_repeated_after_a_broker_was_silent_or_the_console_restarted(
    path: str,
) -> None:
    store, cluster = HistoryStore(path), FakeCluster(1)
    record(store, cluster)
    cluster.lose(2, 0, 5, 10, 8)
    cluster.tick(1_000)
    record(store, cluster)
    cluster.silent = {2}
    cluster.tick(1_000)
    record(store, cluster)
    cluster.silent = set()
    cluster.tick(1_000)
    record(store, cluster)
    store.close()
    store = HistoryStore(path)
    cluster.tick(1_000)
    record(store, cluster)
    assert names(store).count("records_lost") == 1
    assert names(store)[1:] == ["broker_silent", "broker_responds"]
    store.close()


def test_a_time_without_samples_is_an_event(path: str) -> None:
    store, cluster = HistoryStore(path), FakeCluster(1)
    record(store, cluster)
    cluster.tick(600_000)
    record(store, cluster)
    assert names(store) == ["history_gap"]
    store.close()


# -- the bound, other processes, damage ------------------------------------------------------


def test_the_file_stays_below_its_bound(path: str) -> None:
    bound = 1 << 20
    store, cluster = HistoryStore(path, bound), FakeCluster(20)
    largest = 0
    for number in range(1_500):
        cluster.tick(1_000)
        for each in range(20):
            cluster.produce(each, 100 + number % 13)
        if number % 50 == 0:
            cluster.partitions[number % 20].elect(1 + number // 50 % 3, [1, 2, 3])
        record(store, cluster)
        largest = max(largest, file_bytes(path))
    assert largest < bound * 1.1
    span = store.span()
    assert span is not None
    assert BEGAN_MS + 1_000 < span.from_ms < span.to_ms == cluster.at_ms
    assert store.state_at(span.from_ms - 1) is None
    for at_ms in (span.from_ms, (span.from_ms + span.to_ms) // 2, span.to_ms):
        found = store.state_at(at_ms)
        assert found is not None
        assert [len(state["partitions"]) for state in found[0].values()] == [20, 20, 20]
    found = store.state_at(span.to_ms)
    assert found is not None
    assert by_partition(found[0]) == by_partition(with_sampled_times(cluster.states()))
    store.close()


def test_store_of_a_killed_console_is_whole(path: str) -> None:
    """The writer is killed while it writes; the next one continues."""
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from samples import FakeCluster
from tidelog.apps.console.history.store import HistoryStore
store, cluster = HistoryStore({path!r}, sample_ms=0), FakeCluster(3)
while True:
    cluster.tick(1000)
    cluster.produce(0, 10)
    store.record(cluster.at_ms, cluster.states(), cluster.metadata())
    print(cluster.at_ms, flush=True)
"""
    writer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    last = ""
    for _ in range(200):
        last = writer.stdout.readline()
    writer.send_signal(signal.SIGKILL)
    rest = writer.stdout.read().split()
    writer.stdout.close()
    writer.wait()
    recorded = int((rest or [last])[-1])
    store = HistoryStore(path, sample_ms=0)
    assert store.writes
    span = store.span()
    assert span is not None
    assert span.to_ms >= recorded
    found = store.state_at(span.to_ms)
    assert found is not None
    end = found[0][1]["partitions"][0]["log_end_offset"]
    assert end == (span.to_ms - BEGAN_MS) // 1000 * 10
    cluster = FakeCluster(3)
    cluster.at_ms = span.to_ms + 1_000
    record(store, cluster)
    assert store.span() == span._replace(to_ms=cluster.at_ms, bytes=file_bytes(path))
    store.close()


def test_a_second_console_reads_and_takes_over(path: str) -> None:
    first, cluster = HistoryStore(path), FakeCluster(1)
    second = HistoryStore(path)
    assert (first.writes, second.writes) == (True, False)
    record(first, cluster)
    assert second.state_at(cluster.at_ms) == first.state_at(cluster.at_ms)
    cluster.tick(5_000)
    record(second, cluster)
    span = second.span()
    assert span is not None
    assert span.to_ms == BEGAN_MS, "only the first one records"
    first.close()
    record(second, cluster)
    assert second.writes
    span = second.span()
    assert span is not None
    assert span.to_ms == cluster.at_ms
    second.close()


@pytest.mark.parametrize("content", [b"not a database" * 500, b""])
def test_damaged_file_is_replaced(path: str, content: bytes) -> None:
    Path(path).write_bytes(content)
    store, cluster = HistoryStore(path), FakeCluster(1)
    record(store, cluster)
    assert store.span() is not None
    store.close()
    assert os.path.exists(path + ".old") is bool(content)


def test_file_of_another_version_is_replaced(path: str) -> None:
    store, cluster = HistoryStore(path), FakeCluster(1)
    record(store, cluster)
    store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA user_version = 99")
    store = HistoryStore(path)
    assert store.span() is None
    store.close()
    assert os.path.exists(path + ".old")


def test_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = HistoryStore(str(tmp_path / "file/history.db"))
    record(store, FakeCluster(1))
    assert not store.writes
    assert store.state_at(BEGAN_MS) is None
    assert store.span() is None
    assert store.problem.startswith("can't write")
    store.close()


def test_deleted_data_folder_begins_a_new_history(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    store, cluster = HistoryStore(str(folder / "history.db")), FakeCluster(1)
    record(store, cluster)
    shutil.rmtree(folder)
    cluster.tick(1_000)
    record(store, cluster)
    assert not folder.exists(), "a deleted data folder is not created again"
    folder.mkdir()
    cluster.tick(1_000)
    record(store, cluster)
    span = store.span()
    assert span is not None
    assert (span.from_ms, span.to_ms) == (cluster.at_ms, cluster.at_ms)
    store.close()
