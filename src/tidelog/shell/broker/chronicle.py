"""What a broker's log tells about the cluster: who comes and goes, who is the controller, who
leads after it.

Only what changed is told, and how many partitions this broker leads a moment after brokers
came or went: for one line for each of thousands nobody would thank us.
"""

from collections.abc import Callable

from tidelog.core.node.node import Node
from tidelog.core.types import BrokerId
from tidelog.shell.net.event_loop import EventLoop, Timer

SETTLED_MS = 1000


class Chronicle:
    """Compares the image with what was told last."""

    def __init__(self, loop: EventLoop, node: Node, tell: Callable[[str, str], None]) -> None:
        self._loop = loop
        self._node = node
        self._tell = tell
        """Hears a level and a line."""
        self._active: frozenset[BrokerId] = frozenset()
        self._controller: BrokerId | None = None
        self._leading = 0
        self._unclean = 0
        self._timer: Timer | None = None

    def image_advanced(self) -> None:
        """The image has changed."""
        image = self._node.image
        controller = None if image.controller is None else image.controller.broker
        if controller != self._controller:
            self._controller = controller
            if controller is not None:
                epoch = image.controller_epoch
                self._tell("INFO", f"broker {controller} is the controller, epoch {epoch}")
        if image.active != self._active:
            gone, come = self._active - image.active, image.active - self._active
            self._active = image.active
            for broker in sorted(gone):
                self._tell("WARN", f"broker {broker} is gone; alive: {_listed(image.active)}")
            for broker in sorted(come):
                self._tell("INFO", f"broker {broker} is alive")
            self._count_soon()

    def _count_soon(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.after(SETTLED_MS, self._count)

    def _count(self) -> None:
        self._timer = None
        node = self._node
        if node.halted is not None:
            return
        leading = sum(replica.partition.is_leader for replica in node.replicas.values())
        if leading != self._leading:
            self._leading = leading
            self._tell("INFO", f"leads {leading} of {len(node.replicas)} partitions here")
        unclean = len(node.seat.unclean_elections)
        if unclean > self._unclean:
            self._tell("WARN", f"{unclean - self._unclean} unclean elections: records may be lost")
        self._unclean = unclean

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _listed(brokers: frozenset[BrokerId]) -> str:
    return ", ".join(map(str, sorted(brokers))) or "nobody"
