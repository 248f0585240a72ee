"""Cleaner processes end, die and hang; the broker gets a message in each case."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cleaning_kit import COMPACT, close_segment, pairs, plan_of, put, swap
from storage_kit import new_log

from tidelog.core.node.effects import CleanLog, StopCleaning
from tidelog.core.storage.cleaning.plan import (
    CleanedGroup,
    CleaningMessage,
    CleaningPlan,
    CleaningResult,
    LastBatch,
)
from tidelog.core.storage.log import Log
from tidelog.shell.broker import background_work
from tidelog.shell.broker.background_work import Cleaner
from tidelog.shell.clock import Clock
from tidelog.shell.net.event_loop import EventLoop
from tidelog.shell.os_disk import OsDisk

UNLIMITED = 1e308
PATIENCE_S = 120


class Stage:
    """A log in a folder, a loop, and a cleaner."""

    def __init__(self, root: Path) -> None:
        self.strangers = children()
        self.disk = OsDisk(str(root))
        self.loop = EventLoop(Clock())
        self.told: list[tuple[int, CleaningMessage]] = []
        self.cleaner = Cleaner(self.loop, [str(root)], lambda n, told: self.told.append((n, told)))
        self.log: Log = new_log(self.disk, COMPACT)
        for number in range(20):
            put(self.log, ("a", str(number)), ("b", str(number)))
        close_segment(self.log)

    def plan(self) -> CleaningPlan:
        plan = plan_of(self.log)
        assert plan is not None
        return plan

    def until(self, done: Callable[[], bool]) -> None:
        give_up = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < give_up, self.told
            self.loop.after(10, lambda: None)
            self.loop.turn()

    def ended(self) -> bool:
        return bool(self.told) and not isinstance(self.told[-1][1], CleanedGroup)

    def children(self) -> set[str]:
        """The cleaner processes; this process may have children of other tests."""
        return children() - self.strangers

    def pid(self) -> int:
        (process,) = self.cleaner._processes.values()
        return process._pid


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.cleaner.close()
    stage.until(lambda: not stage.children())
    stage.disk.close()
    stage.loop.close()


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def test_a_cleaning_reports_each_group(stage: Stage) -> None:
    stage.cleaner.clean(CleanLog(7, stage.plan(), UNLIMITED))
    stage.until(stage.ended)
    *groups, (_, result) = stage.told
    assert {number for number, _ in stage.told} == {7}
    assert isinstance(result, CleaningResult)
    assert result.records_kept < result.records_read
    assert groups
    for _, group in groups:
        assert isinstance(group, CleanedGroup)
        swap(stage.disk, stage.log, group)
    assert pairs(stage.log) == [("a", "19"), ("b", "19")]
    stage.until(lambda: not stage.children())


def test_a_large_plan_gets_through(stage: Stage) -> None:
    """The plan is larger than a socket accepts in one call."""
    plan = stage.plan()
    producers = dict.fromkeys(range(200_000), LastBatch(0, 5))
    stage.cleaner.clean(CleanLog(1, plan._replace(producers=producers), UNLIMITED))
    stage.until(stage.ended)
    assert isinstance(stage.told[-1][1], CleaningResult)


def test_a_damaged_log_fails_the_cleaning(stage: Stage) -> None:
    plan = stage.plan()
    with open(f"{stage.disk.root}/orders-0/{0:020d}.log", "r+b") as file:
        file.seek(70)
        file.write(b"\xff")
    stage.cleaner.clean(CleanLog(1, plan, UNLIMITED))
    stage.until(stage.ended)
    assert stage.told == [(1, f"orders-0/{0:020d}.log: checksum differs at byte 0")]


def test_a_process_that_dies_is_reported_once(stage: Stage) -> None:
    stage.cleaner.clean(CleanLog(1, stage.plan(), 100.0))
    os.kill(stage.pid(), signal.SIGKILL)
    stage.until(stage.ended)
    assert stage.told == [(1, "the cleaner process ended unexpectedly")]
    stage.cleaner.clean(CleanLog(2, stage.plan(), UNLIMITED))
    stage.until(lambda: stage.told[-1][0] == 2 and stage.ended())
    assert isinstance(stage.told[-1][1], CleaningResult)


def test_a_silent_cleaner_process_fails_the_cleaning(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_work, "SILENT_MAX_MS", 300)
    stage.cleaner.clean(CleanLog(1, stage.plan(), 100.0))
    os.kill(stage.pid(), signal.SIGSTOP)
    stage.until(stage.ended)
    assert stage.told == [(1, "the cleaner process was silent for 0 s")]
    stage.until(lambda: not stage.children())


def test_a_slow_process_gives_signs_of_life(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = stage.plan()
    size = sum(segment.size for segment in plan.segments)
    began = time.monotonic()
    stage.cleaner.clean(CleanLog(1, plan, size * 2 / 7))  # read twice: for about seven seconds
    (process,) = stage.cleaner._processes.values()
    unheard = process._silence
    stage.until(lambda: process._silence is not unheard)  # on a busy machine it starts slowly
    monkeypatch.setattr(background_work, "SILENT_MAX_MS", 4000)
    stage.until(stage.ended)
    assert isinstance(stage.told[-1][1], CleaningResult)
    assert time.monotonic() - began > 6, "no faster than allowed"


def test_a_stopped_cleaning_sends_no_more_messages(stage: Stage) -> None:
    stage.cleaner.clean(CleanLog(1, stage.plan(), 100.0))
    stage.cleaner.stop(StopCleaning(1))
    stage.cleaner.stop(StopCleaning(1))
    stage.until(lambda: not stage.children())
    assert stage.told == []


def test_a_cleaner_process_that_cannot_start_is_reported(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    stage.cleaner.clean(CleanLog(1, stage.plan(), UNLIMITED))
    assert stage.told == [], "not in the middle of a step"
    stage.until(stage.ended)
    (_, reason) = stage.told[0]
    assert isinstance(reason, str)
    assert "No such file" in reason


_PARENT = """
import os, sys, time
sys.path[:0] = {paths!r}
from pathlib import Path
from test_cleaner import Stage
from tidelog.core.node.effects import CleanLog
stage = Stage(Path({root!r}))
stage.cleaner.clean(CleanLog(1, stage.plan(), 100.0))
stage.until(lambda: any(n.endswith(".cleaned") for n in os.listdir({root!r} + "/orders-0")))
print(stage.pid(), flush=True)
time.sleep(600)
"""


def test_a_cleaner_process_ends_when_its_broker_is_killed(tmp_path: Path) -> None:
    here = Path(__file__).parent
    paths = [str(here), str(here.parents[1] / "core" / "storage")]
    source = _PARENT.format(paths=paths, root=str(tmp_path))
    broker = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True)
    try:
        assert broker.stdout is not None
        pid = int(broker.stdout.readline())
        assert os.path.exists(f"/proc/{pid}")
        niceness = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[16])
        assert niceness > 0
    finally:
        broker.kill()
        broker.communicate()
    until = time.monotonic() + PATIENCE_S
    while _runs(pid):
        assert time.monotonic() < until, "it goes on without its broker"
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
