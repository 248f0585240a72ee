"""What a link to another broker keeps of the answers that came through it."""

import threading
import time
from pathlib import Path

import pytest
from net_stage import framed

from tidelog.shell.net.clock import Clock
from tidelog.shell.net.event_loop import EventLoop
from tidelog.shell.net.listener import bind
from tidelog.shell.net.peer_link import KEPT_BYTES_MAX, LinkEvents, PeerLink
from tidelog.shell.os_disk import OsDisk

NOBODYS = b"\xff\xff\xff\xf0"
MB = 1024 * 1024


@pytest.mark.parametrize(("size", "kept"), [(KEPT_BYTES_MAX - MB, True), (40 * MB, False)])
def test_room_is_kept_for_usual_answers_only(tmp_path: Path, size: int, kept: bool) -> None:
    loop, disk = EventLoop(Clock()), OsDisk(str(tmp_path))
    [door] = bind("127.0.0.1", 0)
    door.setblocking(True)
    address = ("127.0.0.1", door.getsockname()[1])
    broken: list[bool] = []
    told = LinkEvents(
        lambda _number, _answer: None, lambda _number: None, lambda: broken.append(True)
    )
    link = PeerLink(loop, disk, "test", b"", lambda: address, told)
    assert link._connect()
    broker, _ = door.accept()
    sender = threading.Thread(
        target=lambda: broker.sendall(framed(NOBODYS + bytes(size)) + framed(NOBODYS))
    )
    sender.start()
    largest, until = 0, time.monotonic() + 20
    while sender.is_alive() or link._buffer.partial or not largest:
        loop.after(5, lambda: None)
        loop.turn()
        largest = max(largest, link._buffer.size)
        assert time.monotonic() < until
    sender.join()
    for _ in range(3):
        loop.after(5, lambda: None)
        loop.turn()
    assert not broken
    assert (link._buffer.size > MB) is kept
    link.close()
    for each in (broker, door):
        each.close()
    disk.close()
    loop.close()
