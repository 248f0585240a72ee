"""History events of brokers that run in the lab, in the format of a broker's JSON log.

The simulator and stories use it, so that a reader of history (core/history.py) needs one parser.
"""

from collections.abc import Iterable, Iterator

from tidelog.core.history import HistoryEvent
from tidelog.core.node.measuring.journal import EVENTS, Note
from tidelog.core.types import BrokerId


def logged(broker: BrokerId | None, at_ms: int, notes: Iterable[Note]) -> Iterator[HistoryEvent]:
    """Yield the event of each note that a broker wrote to its journal.

    The broker is None for a controller that does not run in a broker.
    """
    name = "controller" if broker is None else f"broker {broker}"
    for note in notes:
        level, text = EVENTS[note.event].level, f"{name}: {note.text()}"
        yield HistoryEvent(at_ms, broker, note.event, note.fields(), level, text)


def stopped(broker: BrokerId, at_ms: int, *, clean: bool) -> HistoryEvent:
    """Return the event that a broker's supervisor logs when the process ends."""
    level, text = ("INFO", "stopped cleanly") if clean else ("ERROR", "stopped")
    return HistoryEvent(
        at_ms, broker, "stopped", {"clean": clean}, level, f"broker {broker}: {text}"
    )
