"""Count the function calls of a broker in one turn: the same number on every machine.

A request delays all others while the broker works on it in one turn. Time depends on the machine
and its load; the number of calls does not, and a request that is slow because of a loop makes many.
"""

import sys
from types import FrameType, TracebackType
from typing import Any, Self


class Effort:
    """Counts calls of Python and C functions inside `with`; `turn_ends` starts the next turn."""

    def __init__(self) -> None:
        self.calls = 0
        """Calls in all turns."""
        self._before = 0
        self._most = 0

    @property
    def calls_in_a_turn(self) -> int:
        """Calls in the turn that had the most."""
        return max(self._most, self.calls - self._before)

    def turn_ends(self) -> None:
        self._most = self.calls_in_a_turn
        self._before = self.calls

    def _count(self, _frame: FrameType, event: str, _argument: Any) -> None:
        if event in ("call", "c_call"):
            self.calls += 1

    def __enter__(self) -> Self:
        sys.setprofile(self._count)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _where: TracebackType | None,
    ) -> None:
        sys.setprofile(None)
