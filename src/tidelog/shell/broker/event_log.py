"""The events in a broker's log: brokers that join or fail, the controller, changes of this
broker's replicas, connections that it closed.

Only changes are logged. Of one kind of event at most `LINES_MAX` lines are logged in a second, so
that thousands of partitions do not fill the log; the rest is counted, and the count is logged.
"""

from typing import Protocol

from tidelog.core.node.measuring.journal import EVENTS
from tidelog.core.node.node import Node
from tidelog.core.types import BrokerId
from tidelog.shell.net.event_loop import EventLoop, Timer

SETTLED_MS = 1000
WINDOW_MS = 1000
LINES_MAX = 20
"""Lines of one kind of event in a window."""
FAULT_CHARACTERS_MAX = 4000


class WriteLine(Protocol):
    """Writes one line: level, text, kind of event, fields."""

    def __call__(self, level: str, text: str, event: str = "note", **fields: object) -> None: ...


class EventLog:
    """Logs changes of the cluster image and the notes in the node's journal."""

    def __init__(self, loop: EventLoop, node: Node, write: WriteLine) -> None:
        self._loop = loop
        self._node = node
        self._write = write
        self._active: frozenset[BrokerId] = frozenset()
        self._controller: BrokerId | None = None
        self._leading = 0
        self._timer: Timer | None = None
        self._window: Timer | None = None
        self._logged: dict[str, int] = {}
        """Lines in this window, by kind of event."""
        self._left_out: dict[str, int] = {}

    def image_advanced(self) -> None:
        """Log the changes of the cluster image."""
        image = self._node.image
        controller = None if image.controller is None else image.controller.broker
        if controller != self._controller:
            self._controller = controller
            if controller is not None:
                epoch = image.controller_epoch
                text = f"broker {controller} is the controller, epoch {epoch}"
                about = {"controller": controller, "controller_epoch": epoch}
                self._write("INFO", text, "controller_changed", **about)
        if image.active != self._active:
            left, joined = self._active - image.active, image.active - self._active
            self._active = image.active
            alive = sorted(image.active)
            for broker in sorted(left):
                text = f"broker {broker} has failed or left; alive: {_listed(image.active)}"
                self._write("WARN", text, "broker_gone", other=broker, alive=alive)
            for broker in sorted(joined):
                text = f"broker {broker} is alive"
                self._write("INFO", text, "broker_alive", other=broker, alive=alive)
            self._count_soon()

    def log_journal(self) -> None:
        """Log the notes that the node's journal got since the last call."""
        notes, more = self._node.journal.take()
        for note in notes:
            kind = EVENTS[note.event]
            if kind.always or self._is_within_limit(note.event):
                self._write(kind.level, note.text(), note.event, **note.fields())
        for event, count in more.items():
            self._leave_out(event, count)

    def connection_ended(self, peer: str, reason: str, why: str) -> None:
        """Log a connection that this broker closed."""
        event = "connection_dropped"
        if self._is_within_limit(event):
            self._write(
                "WARN",
                f"closed the connection of {peer}: {why}",
                event,
                peer=peer,
                reason=reason,
                why=why,
            )

    def metrics_refused(self, peer: str) -> None:
        """Log a request for metrics without their credentials.

        This is a kind of its own: a flood of such requests must not hide failed logins of clients,
        which are connections that were closed.
        """
        event = "metrics_refused"
        if self._is_within_limit(event):
            text = f"refused metrics to {peer}: missing or wrong credentials"
            self._write("WARN", text, event, peer=peer)

    def peer_unproven(self, broker: BrokerId, address: tuple[str, int] | None, reason: str) -> None:
        """Log that a process at another broker's address failed the handshake."""
        event = "peer_unproven"
        if self._is_within_limit(event):
            where = "an unknown address" if address is None else f"{address[0]}:{address[1]}"
            text = f"{where} did not prove that it is broker {broker}: {reason}"
            self._write("WARN", text, event, other=broker, address=where, reason=reason)

    def fault(self, error: Exception) -> None:
        """Log a bug in Tidelog that closed one client's connection."""
        if self._is_within_limit("fault"):
            from traceback import format_exception

            where = "".join(format_exception(error))[-FAULT_CHARACTERS_MAX:]
            self._write("ERROR", f"a bug in Tidelog: {where}", "fault", trace=where)

    def _is_within_limit(self, event: str) -> bool:
        logged = self._logged[event] = self._logged.get(event, 0) + 1
        if logged > LINES_MAX:
            self._leave_out(event, 1)
        elif self._window is None:
            self._window = self._loop.after(WINDOW_MS, self._end_window)
        return logged <= LINES_MAX

    def _leave_out(self, event: str, count: int) -> None:
        self._left_out[event] = self._left_out.get(event, 0) + count
        if self._window is None:
            self._window = self._loop.after(WINDOW_MS, self._end_window)

    def _end_window(self) -> None:
        self._window = None
        left_out, self._left_out, self._logged = self._left_out, {}, {}
        for event, count in left_out.items():
            level = EVENTS[event].level if event in EVENTS else "WARN"
            self._write(level, f"{count} more events of this kind: {event}", event, left_out=count)

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
            text = f"leads {leading} of its {len(node.replicas)} partitions"
            about = {"leads": leading, "partitions": len(node.replicas)}
            self._write("INFO", text, "leading", **about)

    def close(self) -> None:
        for timer in (self._timer, self._window):
            if timer is not None:
                timer.cancel()


def _listed(brokers: frozenset[BrokerId]) -> str:
    return ", ".join(map(str, sorted(brokers))) or "none"
