"""A story under construction: each command is played as soon as it is added.

So the writer sees the effect of a command before it chooses the next one, and never writes a
story that can't be played. A telling can be played again from the start, unchanged or changed,
under any rule. This is how tellings are compared and made simpler.
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
    """One command, and the actions of the checker that it stands for."""

    command: str
    stands_for: tuple[str, ...] = ()

    def named(self, key: str) -> str | None:
        """Return the value of an option; None if it is not given."""
        return next((w[len(key) + 1 :] for w in self.words if w.startswith(key + "=")), None)

    @property
    def words(self) -> list[str]:
        """The command's name and arguments."""
        return self.command.split()


@dataclass(slots=True)
class Telling:
    """The commands so far, and the world in which they were played."""

    policy: str
    said: list[Said] = field(default_factory=list)
    _play: Play = field(init=False)

    def __post_init__(self) -> None:
        self._play = Play(POLICIES[self.policy])

    @property
    def world(self) -> World:
        """The world after the last command."""
        return self._play.world

    def say(self, command: str, *stands_for: str) -> None:
        """Play a command and add it; raise StoryError if it can't be played."""
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
        """Return whether an invariant of the stories is violated now."""
        return any(INVARIANTS[invariant](self.world.picture()))


def play_again(said: Sequence[Said], policy: str) -> Telling | None:
    """Play the same commands from the start; return None if not all can be played."""
    telling = Telling(policy)
    try:
        for each in said:
            telling.say(each.command, *each.stands_for)
    except StoryError:
        return None
    return telling


def same_outcome(one: World, other: World) -> bool:
    """Return whether two worlds have equal replicas, controller and promises to clients."""
    return _board(one.picture()) == _board(other.picture())


def _board(picture: ClusterSnapshot) -> object:
    return picture.replicas, picture.controller, picture.history
