"""Flushes on their own thread: each is told of once, whatever happens to it."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tidelog.core.node import events as on
from tidelog.core.node.effects import Flush
from tidelog.shell.broker.flusher import Flusher
from tidelog.shell.net.clock import Clock
from tidelog.shell.net.event_loop import EventLoop
from tidelog.shell.os_disk import OsDisk


class SurprisingDisk(OsDisk):
    """Fails in a way that no disk should."""

    def sync_many(self, files: Sequence[str], directories: Sequence[str]) -> None:
        raise MemoryError(f"too little for {len(files)} files and {len(directories)} folders")


@pytest.mark.parametrize("kind", [OsDisk, SurprisingDisk])
def test_every_flush_is_told_of(tmp_path: Path, kind: type[OsDisk]) -> None:
    loop, told = EventLoop(Clock()), list[on.Event]()
    disk = kind(str(tmp_path))
    disk.append("a", [b"x"])
    flusher = Flusher(loop, disk, told.append)
    for number in range(3):
        flusher.flush(Flush(number, ("a",), ("",)))
    for _ in range(100):
        if len(told) == 3:
            break
        loop.after(100, lambda: None)
        loop.turn()
    flusher.close()
    disk.close()
    loop.close()
    events = [event for event in told if isinstance(event, on.FlushCompleted)]
    assert [event.flush for event in events] == [0, 1, 2]
    assert all((event.error is None) == (kind is OsDisk) for event in events)
