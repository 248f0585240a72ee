"""One step under way: what time it is, and what is to be done so far.

All parts of a node share one Turn, so that each can add to the same ordered list of effects
without handing it around.
"""

from typing import Protocol

from tidelog.core.node.effects import Effect, Respond
from tidelog.core.node.measuring.counters import Counters
from tidelog.core.node.measuring.journal import Journal
from tidelog.core.wall_clock import WallClock


class Timed(Protocol):
    """A part of a node that has something to do by the clock."""

    def tick(self) -> None:
        """Do what is due."""
        ...

    def next_ms(self) -> int | None:
        """When `tick` has something to do."""
        ...


class Turn:
    """The time of the event, and the effects in order."""

    __slots__ = ("counters", "effects", "journal", "now_ms", "wall")

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        """Monotonic: for timers and intervals, never for the age of a record."""
        self.wall = WallClock()
        self.effects: list[Effect] = []
        self.counters = Counters()
        self.journal = Journal()
        """These two are for people; nothing is decided by them."""

    @property
    def wall_ms(self) -> int:
        """The wall clock as it is now."""
        return self.wall.at_ms(self.now_ms)

    def emit(self, effect: Effect) -> None:
        self.effects.append(effect)

    def take_back_answers(self) -> None:
        """Nobody is told anything of this step."""
        self.effects = [effect for effect in self.effects if not isinstance(effect, Respond)]

    def take_answers(self) -> list[Effect]:
        """The effects so far, if all of them are answers."""
        for effect in self.effects:
            if type(effect) is not Respond:
                return []
        return self.take()

    def take(self) -> list[Effect]:
        """The effects of this step; the next one begins with none."""
        effects = self.effects
        self.effects = []
        return effects
