"""Changes of the store reach the node in order; many of them take several turns."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tidelog.core.controller.effects import StoreTransaction
from tidelog.core.controller.metadata.metadata_store import OPERATIONS_MAX, Put
from tidelog.core.node import effects as do
from tidelog.core.node import events as on
from tidelog.shell.broker.store_session import CHANGES_A_TURN, StoreSession
from tidelog.shell.clock import Clock
from tidelog.shell.net.event_loop import EventLoop
from tidelog.shell.store import cluster_file
from tidelog.shell.store.log_dir_lock import LockProof
from tidelog.shell.store.sqlite_store_client import SqliteStoreClient

PATIENCE_S = 120.0
REVISIONS = 12


class Stage:
    """A store session on a real store, and its events with the turn of the loop of each."""

    def __init__(self, path: str) -> None:
        self.loop = EventLoop(Clock())
        now_ms = self.loop.clock.now_ms
        self._delivered = 0
        self.store = SqliteStoreClient(
            path, LockProof(), now_ms, self._deliver, patience_s=PATIENCE_S
        )
        self.keeper = StoreSession(self.loop, self.store, self._step)
        self.told: list[tuple[int, on.Event]] = []
        self._turn = 0

    def _deliver(self, act: Callable[[], None]) -> None:
        self.loop.call_from_thread(act)
        self._delivered += 1

    def _step(self, event: on.Event) -> None:
        self.told.append((self._turn, event))

    def turns_until(self, count: int, kind: type) -> None:
        give_up_s = time.monotonic() + PATIENCE_S
        while sum(isinstance(event, kind) for _, event in self.told) < count:
            assert time.monotonic() < give_up_s, f"never told of {count}: {self.told}"
            self._turn += 1
            self.loop.after(100, lambda: None)
            self.loop.turn()

    def write(self, revisions: int, keys: int = OPERATIONS_MAX) -> None:
        before = len(self.told)
        for number in range(revisions):
            puts = tuple(Put(f"k/{number}/{key}", b"") for key in range(keys))
            self.keeper.transact(StoreTransaction(number, (), puts))
        self.turns_until(before + revisions, on.TransactionAnswered)

    def watch_and_wait(self, after: int, revisions: int) -> None:
        """Watch; the store's thread has delivered all changes before the loop's next turn."""
        delivered = self._delivered
        self.keeper.watch(do.WatchStore(after))
        give_up_s = time.monotonic() + PATIENCE_S
        while self._delivered < delivered + revisions:
            assert time.monotonic() < give_up_s, "the store tells nothing"
            time.sleep(0.001)

    @property
    def news(self) -> list[tuple[int, on.StoreChanged]]:
        return [(turn, e) for turn, e in self.told if isinstance(e, on.StoreChanged)]

    def close(self) -> None:
        self.store.close()
        self.loop.close()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    path = str(tmp_path / "cluster.db")
    cluster_file.create(path, {})
    with closing(Stage(path)) as stage:
        yield stage


def test_many_changes_take_several_turns(stage: Stage) -> None:
    stage.write(REVISIONS)
    stage.watch_and_wait(0, REVISIONS)
    stage.turns_until(REVISIONS, on.StoreChanged)
    revisions = [event.batch.rev for _, event in stage.news]
    assert revisions == sorted(set(revisions)), "each once, in order"
    by_turn: dict[int, int] = {}
    for turn, event in stage.news:
        by_turn[turn] = by_turn.get(turn, 0) + len(event.batch.changes)
    turns = REVISIONS * OPERATIONS_MAX // CHANGES_A_TURN
    assert list(by_turn.values()) == [CHANGES_A_TURN] * turns


def test_pending_changes_of_a_replaced_watch_are_discarded(stage: Stage) -> None:
    stage.write(REVISIONS)
    stage.watch_and_wait(0, REVISIONS)
    stage.turns_until(1, on.StoreChanged)
    last = stage.news[-1][1].batch.rev
    told = len(stage.news)
    stage.keeper.watch(do.WatchStore(last))
    stage.turns_until(REVISIONS, on.StoreChanged)
    revisions = [event.batch.rev for _, event in stage.news]
    assert told < REVISIONS
    assert revisions == sorted(set(revisions)), "none twice"


def test_a_few_changes_are_passed_in_one_turn(stage: Stage) -> None:
    stage.write(REVISIONS, 1)
    stage.watch_and_wait(0, REVISIONS)
    stage.turns_until(REVISIONS, on.StoreChanged)
    assert len({turn for turn, _ in stage.news}) == 1
