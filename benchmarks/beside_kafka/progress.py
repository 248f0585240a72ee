"""Progress of a run, on stderr: row i of n, and about how much time is left."""

import sys
import time
from collections.abc import Sequence


class Progress:
    """Shows one line that changes on a terminal; elsewhere prints one line for each row."""

    def __init__(self, expected_s: Sequence[float], before_s: float) -> None:
        """Set the expected seconds of each row, and of the work before the first row."""
        self._expected = list(expected_s)
        self._before = before_s
        self._began = time.monotonic()
        self._terminal = sys.stderr.isatty()

    def say(self, row: int, text: str, done: float = 0) -> None:
        """Show the state; `done` is the finished share of this row."""
        elapsed = time.monotonic() - self._began
        left = left_s(self._before, self._expected, row, done, elapsed)
        told = f"[{row + 1}/{len(self._expected)}] {text}; about {minutes(left)} left"
        if self._terminal:
            sys.stderr.write(f"\r{told[:100]:100}")
        elif not done:
            sys.stderr.write(f"{told}\n")
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
