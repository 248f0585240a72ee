"""The history of the demo, in the event format of all histories (core/history.py).

It has the samples of the observer, the kill and the restart, the progress of the Spark job, and the
events of the brokers' own logs. The picture and the table of epochs are derived from it, and
`tidelog demo` writes it beside its report, as one JSON object per line.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from tidelog.apps.demo.observer import Round, Sample
from tidelog.apps.demo.orders import PARTITION, TOPIC
from tidelog.core.history import HistoryEvent

STARTED = "demo_started"
SAMPLED, UNREACHABLE = "replica_sampled", "replica_unreachable"
KILLED, RESTARTED, IN_SYNC_AGAIN = "broker_killed", "broker_restarted", "replicas_in_sync"
LANDED = "orders_landed"
PLACE: dict[str, object] = {"topic": TOPIC, "partition": PARTITION}
"""The fields of an event about the partition."""


class DemoEvent(NamedTuple):
    """One kind of event that only the demo writes, for docs/reference/log-events.md."""

    fields: tuple[str, ...]
    meaning: str


_PARTITION = ("topic", "partition")
EVENTS = {
    STARTED: DemoEvent(_PARTITION, "the demo starts; times in its report count from here"),
    SAMPLED: DemoEvent(
        (*_PARTITION, *Sample._fields),
        "a broker's response to the demo: the state of its replica; `epochs` has pairs of leader"
        " epoch and start offset",
    ),
    UNREACHABLE: DemoEvent(_PARTITION, "a broker did not respond to the demo"),
    KILLED: DemoEvent((), "the demo killed the broker with `kill -9`"),
    RESTARTED: DemoEvent((), "the demo started the killed broker again"),
    IN_SYNC_AGAIN: DemoEvent(_PARTITION, "the demo saw all replicas in the ISR again"),
    LANDED: DemoEvent(
        ("orders",), "Spark completed a micro-batch; `orders` is the count in the lake"
    ),
}


class History:
    """The events of one run. Events are added with times of the monotonic clock."""

    def __init__(self) -> None:
        self.began_s = time.monotonic()
        self._began_ms = time.time_ns() // 1_000_000
        self.events: list[HistoryEvent] = []
        self.add(STARTED, self.began_s, fields=PLACE)

    def add(
        self,
        event: str,
        at_s: float,
        broker: int | None = None,
        text: str = "",
        fields: Mapping[str, object] | None = None,
    ) -> None:
        """Add an event."""
        at_ms = self._began_ms + round((at_s - self.began_s) * 1000)
        self.events.append(HistoryEvent(at_ms, broker, event, fields or {}, text=text))

    def add_rounds(self, rounds: Iterable[Round]) -> None:
        """Add the samples of the observer."""
        for each in rounds:
            for broker, sample in each.samples.items():
                if sample is None:
                    self.add(UNREACHABLE, each.at_s, broker, fields=PLACE)
                else:
                    self.add(SAMPLED, each.at_s, broker, fields=PLACE | sample._asdict())

    def add_log(self, path: str) -> None:
        """Add the events of a broker's JSON log; skip lines that are not events."""
        with open(path, encoding="utf-8", errors="replace") as log:
            for line in log:
                with suppress(ValueError, KeyError, AttributeError):
                    self.events.append(HistoryEvent.from_data(json.loads(line)))

    def lines(self) -> str:
        """Return the history as the text of a file, in the order of time."""
        ordered = sorted(self.events, key=lambda event: event.at_ms)
        return "".join(json.dumps(event.as_data()) + "\n" for event in ordered)


def read_history(path: str) -> list[HistoryEvent]:
    """Read a history file. Raises OSError, ValueError, KeyError."""
    with open(path, encoding="utf-8") as file:
        return [HistoryEvent.from_data(json.loads(line)) for line in file]


def clock_of(history: Sequence[HistoryEvent]) -> Callable[[HistoryEvent], float]:
    """Return a function that converts an event's time to seconds since the start of the demo."""
    [began_ms] = [event.at_ms for event in history if event.event == STARTED]
    return lambda event: (event.at_ms - began_ms) / 1000


def rounds_of(history: Sequence[HistoryEvent]) -> list[Round]:
    """Return the observer's rounds, in seconds since the start of the demo."""
    seconds = clock_of(history)
    rounds: dict[float, dict[int, Sample | None]] = {}
    for event in history:
        if event.broker is None or event.event not in (SAMPLED, UNREACHABLE):
            continue
        samples = rounds.setdefault(seconds(event), {})
        samples[event.broker] = None if event.event == UNREACHABLE else _sample(event)
    return [Round(at_s, samples) for at_s, samples in sorted(rounds.items())]


def _sample(event: HistoryEvent) -> Sample:
    """Convert the fields; JSON has lists where a sample has tuples."""
    values = {name: event.fields[name] for name in Sample._fields}
    values["isr"] = tuple(values["isr"])
    values["epochs"] = tuple((epoch, start) for epoch, start in values["epochs"])
    return Sample(**values)
