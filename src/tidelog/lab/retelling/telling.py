"""A story while it is being written: each command is played as soon as it is put down.

So the writer sees what came of its words before it chooses the next ones, and a telling that
can't be played is never written. A telling may be played again from the start, whole or
changed, under any rule; that is how tellings are compared and made simpler.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tidelog.lab.historical_truncation import POLICIES
from tidelog.lab.spec.invariants import INVARIANTS
from tidelog.lab.spec.snapshot import ClusterSnapshot
from tidelog.lab.story.grammar import StoryError, parse
from tidelog.lab.story.play import Play
from tidelog.lab.story.runner import perform
from tidelog.lab.story.stage.world import World


@dataclass(frozen=True, slots=True)
class Said:
    """One command, and the happenings it stands for."""

    command: str
    stands_for: tuple[str, ...] = ()

    def named(self, key: str) -> str | None:
        """The value of an option."""
        return next((w[len(key) + 1 :] for w in self.words if w.startswith(key + "=")), None)

    @property
    def words(self) -> list[str]:
        """The command, word by word."""
        return self.command.split()


@dataclass(slots=True)
class Telling:
    """Commands so far, and the stage they were played on."""

    policy: str
    said: list[Said] = field(default_factory=list)
    _play: Play = field(init=False)

    def __post_init__(self) -> None:
        self._play = Play(POLICIES[self.policy])

    @property
    def world(self) -> World:
        """The stage as it is now."""
        return self._play.world

    def say(self, command: str, *stands_for: str) -> None:
        """Put a command down and play it; StoryError if it can't be done."""
        step = parse(command).steps[0]
        try:
            frame = perform(self._play, step)
        except StoryError:
            raise
        except Exception as error:
            reason = f"the broker's code stopped: {type(error).__name__}: {error}"
            raise StoryError(reason) from error
        if frame.problems:
            raise StoryError("; ".join(frame.problems))
        self.said.append(Said(command, stands_for))

    def violates(self, invariant: str) -> bool:
        """Whether an invariant of the stories is broken now."""
        return any(INVARIANTS[invariant](self.world.picture()))


def play_again(said: Sequence[Said], policy: str) -> Telling | None:
    """The same words from the start; None if they can't all be played."""
    telling = Telling(policy)
    try:
        for each in said:
            telling.say(each.command, *each.stands_for)
    except StoryError:
        return None
    return telling


def same_outcome(one: World, other: World) -> bool:
    """Whether two stages look alike: replicas, controller, and what clients were promised."""
    return _board(one.picture()) == _board(other.picture())


def _board(picture: ClusterSnapshot) -> object:
    return picture.replicas, picture.controller, picture.history
