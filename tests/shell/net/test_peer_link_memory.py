"""The memory that a link to another broker keeps after it received responses."""

import threading
import time
from pathlib import Path

import pytest
from link_peer import PATIENCE_S, LinkStage
from net_stage import framed

from tidelog.shell.net.peer_link import KEPT_BYTES_MAX

NOBODYS = b"\xff\xff\xff\xf0"
MB = 1024 * 1024


@pytest.mark.parametrize(("size", "kept"), [(KEPT_BYTES_MAX - MB, True), (40 * MB, False)])
def test_memory_is_kept_for_usual_responses_only(tmp_path: Path, size: int, kept: bool) -> None:
    stage = LinkStage(tmp_path)
    loop, link = stage.loop, stage.link
    assert link._connect()
    broker = stage.accept()
    stage.prove(broker)
    sender = threading.Thread(
        target=lambda: broker.sendall(framed(NOBODYS + bytes(size)) + framed(NOBODYS))
    )
    sender.start()
    largest, until = 0, time.monotonic() + PATIENCE_S
    while sender.is_alive() or link._buffer.partial or not largest:
        loop.after(5, lambda: None)
        loop.turn()
        largest = max(largest, link._buffer.size)
        assert time.monotonic() < until
    sender.join()
    for _ in range(3):
        loop.after(5, lambda: None)
        loop.turn()
    assert not stage.broken
    assert (link._buffer.size > MB) is kept
    broker.close()
    stage.close()
