"""Flushes in a thread: each is reported once, whether it succeeds or fails."""

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tidelog.core.node import events as on
from tidelog.core.node.effects import Flush
from tidelog.shell.broker.background_work import Flusher
from tidelog.shell.clock import Clock
from tidelog.shell.net.event_loop import EventLoop
from tidelog.shell.os_disk import OsDisk

PATIENCE_S = 120


class SurprisingDisk(OsDisk):
    """A disk that raises an unexpected kind of exception."""

    def sync_many(self, files: Sequence[str], directories: Sequence[str]) -> None:
        raise MemoryError(f"too little for {len(files)} files and {len(directories)} folders")


def carried_out(disk: OsDisk, *flushes: Flush) -> list[on.FlushCompleted]:
    """Return the events that report these flushes."""
    loop, told = EventLoop(Clock()), list[on.Event]()
    flusher = Flusher(loop, [disk], told.append)
    for flush in flushes:
        flusher.flush(flush)
    give_up = time.monotonic() + PATIENCE_S
    while len(told) < len(flushes):
        assert time.monotonic() < give_up, told
        loop.after(100, lambda: None)
        loop.turn()
    flusher.close()
    disk.close()
    loop.close()
    return [event for event in told if isinstance(event, on.FlushCompleted)]


@pytest.mark.parametrize("kind", [OsDisk, SurprisingDisk])
def test_every_flush_is_reported(tmp_path: Path, kind: type[OsDisk]) -> None:
    disk = kind(str(tmp_path))
    disk.append("a", [b"x"])
    events = carried_out(disk, *(Flush(number, ("a",), ("",)) for number in range(3)))
    assert [event.flush for event in events] == [0, 1, 2]
    assert all((event.error is None) == (kind is OsDisk) for event in events)


def test_deleting_a_topic_during_its_flush_is_not_a_failure(tmp_path: Path) -> None:
    disk = OsDisk(str(tmp_path))
    disk.make_dir("orders-0")
    disk.append("orders-0/0.log", [b"x"])
    disk.rename("orders-0", "orders-0.0-delete")
    (event,) = carried_out(disk, Flush(1, ("orders-0/0.log",), ("orders-0",)))
    assert event.error is None
