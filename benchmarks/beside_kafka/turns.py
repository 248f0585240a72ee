"""Measure the rows in turns: the side that works first changes with each round.

Rows on shared clusters come first. These clusters are closed before others are started, so that at
most one Kafka cluster runs at a time.

Invariant: a row that fails does not end the run, and earlier results are kept.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import groupby
from typing import Any, TypeVar

from beside_kafka.figures import figure, line, summary
from beside_kafka.loads import Loads
from beside_kafka.rows import ROWS, HalfOfMaximum, Row, Where, consume, produce, requests
from beside_kafka.sides import KAFKA, TIDELOG, Side
from processes import touch_memory

from tidelog.shell.client.client_errors import ClientError
from tidelog.shell.supervisor.cluster import ClusterFailed

FAILURES = (SystemExit, ClientError, ClusterFailed, OSError, subprocess.SubprocessError)
SIDES = (TIDELOG, KAFKA)
WARM_UP = (
    produce(1000, 1.0, 1, 3),
    produce(1000, 1.0, 1, 1),
    produce(100, 0.4, 6, 3),
    consume(1000, 1.0, 1),
    requests(16, 1, 20_000),
)
WARM_UP_S = 15.0
START_S = 12.0
TURN_GB = 3.5
"""Gigabytes to touch before each turn: the page cache that the longest load uses.

So neither side pays for memory that the host of a virtual machine reclaimed since the last turn.
"""
USUAL_ROUNDS = 3
T = TypeVar("T")
Rounds = dict[str, list[dict[str, Any]]]


class Turns:
    """One run over the rows."""

    def __init__(
        self, rows: Sequence[Row], scale: float, warm_up: int, rounds: int, rounds_of_events: int
    ) -> None:
        self._groups = grouped(rows)
        self._scale, self._warm_up = scale, warm_up
        self._rounds, self._rounds_of_events = rounds, rounds_of_events
        shared = any(row.where is Where.SHARED for row in rows)
        expected = [
            sum(row.takes_s for row in group)
            * (scale if group[0].where is Where.SHARED else 1)
            * (1 if group[0].rounds else self._rounds_of(group[0]) / USUAL_ROUNDS)
            for group in self._groups
        ]
        before = (START_S + warm_up * WARM_UP_S * scale) if shared else 0
        self._progress = Progress(expected, before)
        self._number = 0
        self._loads = Loads()
        self.cold: dict[str, Any] = {}
        self.results: list[dict[str, Any]] = []

    def run(self, write_results: Callable[[], None]) -> None:
        """Measure all rows; call `write_results` after each group that shares its rounds."""
        try:
            for (where, settings), groups in groupby(
                self._groups, key=lambda group: cluster_key(group[0])
            ):
                with self._clusters(where, dict(settings)) as sides:
                    for group in groups:
                        self._measure(group, sides)
                        write_results()
        finally:
            self._progress.clear()
            self._loads.close()

    @contextmanager
    def _clusters(self, where: Where, settings: dict[str, str]) -> Iterator[list[Side]]:
        with ExitStack() as stack:
            sides: list[Side] = []
            if where is not Where.FRESH:
                self._progress.show(self._number, "both clusters start")
                sides = [stack.enter_context(Side(name, settings)) for name in SIDES]
            if where is Where.SHARED:
                self._warm(sides)
            yield sides

    def _warm(self, sides: list[Side]) -> None:
        """Measure the first row on cold clusters; then warm up Kafka's JVMs.

        The cold figures are the ones that a developer or a CI job sees.
        """
        row = ROWS[0]
        self.cold = {side.name: row.work(self._loads, side, self._scale) for side in sides}
        shown = (f"{name} {figure(row, one):.0f} {row.unit}" for name, one in self.cold.items())
        self._progress.clear()
        print(f"cold, {row.name}: {', '.join(shown)}", flush=True)
        for turn in range(self._warm_up):
            self._progress.show(0, f"Kafka warms up, {turn + 1} of {self._warm_up}")
            for work in WARM_UP:
                work(self._loads, sides[1], self._scale)

    def _measure(self, group: list[Row], sides: list[Side]) -> None:
        first, note = group[0], ""
        self._progress.show(self._number, first.name)
        try:
            if isinstance(first.work, HalfOfMaximum):
                note = first.work.find(self._loads, sides, self._scale)
            if first.warm:
                first.work(self._loads, sides[1], self._scale / 2)
            found = self._rounds_of_both(first, sides)
            made = [summary(row, found, note if row is first else "") for row in group]
        except FAILURES as error:
            made = [{"row": row.name, "error": " ".join(str(error).split())} for row in group]
        self._progress.clear()
        for result in made:
            print(line(result), flush=True)
        self.results += made
        self._number += 1

    def _rounds_of_both(self, row: Row, sides: list[Side]) -> Rounds:
        found: Rounds = {name: [] for name in SIDES}
        rounds = self._rounds_of(row)
        for turn in range(rounds):
            if turn:
                self._progress.show(self._number, row.name, turn / rounds)
            for name, one in self._round(row, sides, turn):
                found[name].append(one)
        return found

    def _round(
        self, row: Row, sides: list[Side], turn: int
    ) -> Iterable[tuple[str, dict[str, Any]]]:
        def work(side: Side) -> tuple[str, dict[str, Any]]:
            if row.unit == "MB/s":
                touch_memory(TURN_GB * self._scale)
            return side.name, row.work(self._loads, side, self._scale)

        if row.at_once:
            with ThreadPoolExecutor(len(sides)) as both:
                return list(both.map(work, sides))
        if row.where is Where.FRESH:
            return list(self._fresh(row, in_turn(SIDES, turn)))
        return [work(side) for side in in_turn(sides, turn)]

    def _fresh(self, row: Row, names: Iterable[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        for name in names:
            with Side(name, row.settings) as side:
                yield name, row.work(self._loads, side, self._scale)

    def _rounds_of(self, row: Row) -> int:
        shared = row.where is Where.SHARED
        return row.rounds or (self._rounds if shared else self._rounds_of_events)


def grouped(rows: Sequence[Row]) -> list[list[Row]]:
    """Group adjacent rows that share their rounds: the same work on the same clusters."""
    return [list(group) for _, group in groupby(rows, key=lambda row: (row.work, cluster_key(row)))]


def cluster_key(row: Row) -> tuple[Where, tuple[tuple[str, str], ...]]:
    """Return the key of a row's clusters; adjacent rows with the same key share them."""
    return row.where, tuple(sorted(row.settings.items()))


def in_turn(sides: Sequence[T], turn: int) -> Iterable[T]:
    return sides if turn % 2 == 0 else reversed(sides)


# -- progress on stderr -------------------------------------------------------------------


class Progress:
    """Shows one line that changes on a terminal; elsewhere prints one line for each row."""

    def __init__(self, expected_s: Sequence[float], before_s: float) -> None:
        """Set the expected seconds of each row, and of the work before the first row."""
        self._expected = list(expected_s)
        self._before = before_s
        self._began = time.monotonic()
        self._terminal = sys.stderr.isatty()

    def show(self, row: int, what: str, done: float = 0) -> None:
        """Show the state; `done` is the finished share of this row."""
        elapsed = time.monotonic() - self._began
        left = left_s(self._before, self._expected, row, done, elapsed)
        text = f"[{row + 1}/{len(self._expected)}] {what}; about {minutes(left)} left"
        if self._terminal:
            sys.stderr.write(f"\r{text[:100]:100}")
        elif not done:
            sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def clear(self) -> None:
        """Clear the line, before a row of the table is printed."""
        if self._terminal:
            sys.stderr.write(f"\r{'':100}\r")
            sys.stderr.flush()


def left_s(
    before: float, expected: Sequence[float], row: int, done: float, elapsed: float
) -> float:
    """Return the expected remaining seconds, scaled by the pace of the run so far."""
    behind = before + sum(expected[:row]) + done * expected[row]
    ahead = sum(expected[row:]) - done * expected[row]
    # The pace of a run that has just started is not known well: damp it.
    pace = (elapsed + 30) / (behind + 30)
    return ahead * pace


def minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
