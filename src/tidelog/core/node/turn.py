"""The current step: its time, and its effects so far.

All parts of a node share one Turn, so that each adds to the same ordered list of effects.
"""

from collections.abc import Collection
from typing import Protocol

from tidelog.core.errors import ErrorCode
from tidelog.core.node.effects import Effect, Respond
from tidelog.core.node.measuring.counters import Counters
from tidelog.core.node.measuring.journal import Journal
from tidelog.core.node.messages import FetchResponse, ProducePartitionResponse, ProduceResponse
from tidelog.core.types import TopicPartition
from tidelog.core.wall_clock import WallClock


class Timed(Protocol):
    """A part of a node with timers."""

    def tick(self) -> None:
        """Do the work that is due."""
        ...

    def next_ms(self) -> int | None:
        """When `tick` has something to do."""
        ...


class Turn:
    """The time of the event, the effects in order, counters and journal."""

    __slots__ = ("counters", "effects", "journal", "now_ms", "wall")

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        """Monotonic: for timers and intervals, never for the age of a record."""
        self.wall = WallClock()
        self.effects: list[Effect] = []
        self.counters = Counters()
        self.journal = Journal()
        """Counters and journal are for operators; no decision depends on them."""

    @property
    def wall_ms(self) -> int:
        """The current wall clock time."""
        return self.wall.at_ms(self.now_ms)

    def emit(self, effect: Effect) -> None:
        """Add an effect."""
        self.effects.append(effect)

    def take_back_answers(self) -> None:
        """Remove the responses of this step."""
        self.effects = [effect for effect in self.effects if not isinstance(effect, Respond)]

    def fail_answers(self, partitions: Collection[TopicPartition]) -> None:
        """Fail the responses of this step for partitions whose log directory failed."""
        for effect in self.effects:
            if isinstance(effect, Respond) and isinstance(
                effect.response, ProduceResponse | FetchResponse
            ):
                for part in effect.response.partitions:
                    if part.topic_partition in partitions and part.error is ErrorCode.NONE:
                        part.error = ErrorCode.KAFKA_STORAGE_ERROR
                        if isinstance(part, ProducePartitionResponse):
                            part.base_offset = None
                        else:
                            part.records = part.aborted = None

    def take_answers(self) -> list[Effect]:
        """Return and clear the effects so far, if all of them are responses."""
        for effect in self.effects:
            if type(effect) is not Respond:
                return []
        effects, self.effects = self.effects, []
        return effects

    def take(self) -> list[Effect]:
        """Return and clear the effects of this step."""
        effects = self.effects
        self.effects = []
        return effects
