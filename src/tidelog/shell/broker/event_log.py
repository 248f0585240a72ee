"""What a broker's log tells: who comes and goes, who is the controller, what happens to the
replicas here, who is thrown out.

Only what changed is told, and of thousands of the same kind only the first: for one line for
each of thousands of partitions nobody would thank us. What is left out is counted, and told
when the second is over.
"""

from typing import Protocol

from tidelog.core.node.measuring.journal import EVENTS
from tidelog.core.node.node import Node
from tidelog.core.types import BrokerId
from tidelog.shell.net.event_loop import EventLoop, Timer

SETTLED_MS = 1000
WINDOW_MS = 1000
LINES_MAX = 20
"""Of one event, in a window."""
FAULT_CHARACTERS_MAX = 4000


class WriteLine(Protocol):
    """Hears a level, a line, what kind of event it is, and its fields."""

    def __call__(self, level: str, text: str, event: str = "note", **fields: object) -> None: ...


class EventLog:
    """Compares the image with what was told last, and tells what is in the node's journal."""

    def __init__(self, loop: EventLoop, node: Node, tell: WriteLine) -> None:
        self._loop = loop
        self._node = node
        self._tell = tell
        self._active: frozenset[BrokerId] = frozenset()
        self._controller: BrokerId | None = None
        self._leading = 0
        self._timer: Timer | None = None
        self._window: Timer | None = None
        self._told: dict[str, int] = {}
        """Lines of this window, by event."""
        self._left_out: dict[str, int] = {}

    def image_advanced(self) -> None:
        """The image has changed."""
        image = self._node.image
        controller = None if image.controller is None else image.controller.broker
        if controller != self._controller:
            self._controller = controller
            if controller is not None:
                epoch = image.controller_epoch
                text = f"broker {controller} is the controller, epoch {epoch}"
                about = {"controller": controller, "controller_epoch": epoch}
                self._tell("INFO", text, "controller_changed", **about)
        if image.active != self._active:
            gone, come = self._active - image.active, image.active - self._active
            self._active = image.active
            alive = sorted(image.active)
            for broker in sorted(gone):
                text = f"broker {broker} is gone; alive: {_listed(image.active)}"
                self._tell("WARN", text, "broker_gone", other=broker, alive=alive)
            for broker in sorted(come):
                text = f"broker {broker} is alive"
                self._tell("INFO", text, "broker_alive", other=broker, alive=alive)
            self._count_soon()

    def log_journal(self) -> None:
        """What the node noted since the last time."""
        notes, more = self._node.journal.take()
        for note in notes:
            kind = EVENTS[note.event]
            if kind.always or self._may_tell(note.event):
                self._tell(kind.level, note.text(), note.event, **note.fields())
        for event, count in more.items():
            self._leave_out(event, count)

    def connection_ended(self, peer: str, reason: str, why: str) -> None:
        """This broker threw somebody out."""
        event = "connection_dropped"
        if self._may_tell(event):
            self._tell("WARN", f"dropped {peer}: {why}", event, peer=peer, reason=reason, why=why)

    def peer_unproven(self, broker: BrokerId, address: tuple[str, int] | None, reason: str) -> None:
        """The process at another broker's address did not prove that it is that broker."""
        event = "peer_unproven"
        if self._may_tell(event):
            where = "an unknown address" if address is None else f"{address[0]}:{address[1]}"
            text = f"{where} did not prove that it is broker {broker}: {reason}"
            self._tell("WARN", text, event, other=broker, address=where, reason=reason)

    def fault(self, error: Exception) -> None:
        """A mistake in Tidelog, which cost one client its connection."""
        if self._may_tell("fault"):
            from traceback import format_exception

            where = "".join(format_exception(error))[-FAULT_CHARACTERS_MAX:]
            self._tell("ERROR", f"a fault in Tidelog: {where}", "fault", trace=where)

    def _may_tell(self, event: str) -> bool:
        told = self._told[event] = self._told.get(event, 0) + 1
        if told > LINES_MAX:
            self._leave_out(event, 1)
        elif self._window is None:
            self._window = self._loop.after(WINDOW_MS, self._end_window)
        return told <= LINES_MAX

    def _leave_out(self, event: str, count: int) -> None:
        self._left_out[event] = self._left_out.get(event, 0) + count
        if self._window is None:
            self._window = self._loop.after(WINDOW_MS, self._end_window)

    def _end_window(self) -> None:
        self._window = None
        left_out, self._left_out, self._told = self._left_out, {}, {}
        for event, count in left_out.items():
            level = EVENTS[event].level if event in EVENTS else "WARN"
            self._tell(level, f"{count} more of the same kind: {event}", event, left_out=count)

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
            text = f"leads {leading} of {len(node.replicas)} partitions here"
            about = {"leads": leading, "partitions": len(node.replicas)}
            self._tell("INFO", text, "leading", **about)

    def close(self) -> None:
        for timer in (self._timer, self._window):
            if timer is not None:
                timer.cancel()


def _listed(brokers: frozenset[BrokerId]) -> str:
    return ", ".join(map(str, sorted(brokers))) or "nobody"


_BY_BEGINNING = (
    ("malformed request", "malformed"),
    ("a request of", "too large"),
    ("a frame of", "too large"),
    ("API ", "not offered"),
    ("silent for too long", "idle"),
    ("a request that did not come", "slow request"),
    ("only brokers are replicas", "no broker"),
    ("failed handshake", "no broker"),
    ("a produce without acks", "failed produce"),
)
_NO_NEWS = ("the peer", "the broker stops", "it was cut off", "[Errno")
ANSWERS_NOT_TAKEN = "answers not taken"


def close_reason(said: str) -> str | None:
    """The kind of ending; None where the broker did not end it."""
    if said.startswith(_NO_NEWS) or not said:
        return None
    if said.endswith("were not taken"):
        return ANSWERS_NOT_TAKEN
    for beginning, reason in _BY_BEGINNING:
        if said.startswith(beginning):
            return reason
    return "refused"
