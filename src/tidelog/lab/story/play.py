"""A running story, and functions that read the arguments and options of a command."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from tidelog.core.history import HistoryEvent
from tidelog.lab.story.grammar import Step, StoryError, known_name
from tidelog.lab.story.rules import Rule
from tidelog.lab.story.stage.clients import Clients
from tidelog.lab.story.stage.coordination import Coordination
from tidelog.lab.story.stage.members import Members
from tidelog.lab.story.stage.narration import Line
from tidelog.lab.story.stage.network import REPLY, REQUEST, Fate, Network
from tidelog.lab.story.stage.producers import Producers
from tidelog.lab.story.stage.world import Setup, World


@dataclass(slots=True)
class Stage:
    """The objects that the `cluster` command creates."""

    world: World
    network: Network
    clients: Clients
    coordination: Coordination
    producers: Producers
    members: Members


@dataclass(slots=True)
class Play:
    """One run of a story under one rule."""

    rule: Rule
    failures: list[str] = field(default_factory=list)
    """The failed expectations of the current step."""
    _stage: Stage | None = None

    def set_up(self, setup: Setup) -> None:
        """Create the cluster; a story may do so only once."""
        if self._stage is not None:
            raise StoryError("the story has a cluster already")
        _apply(self.rule, setup)
        world = World(setup, self.rule.truncation)
        network, clients = Network(world), Clients(world)
        coordination = Coordination(world, network)
        producers = Producers(world, clients, coordination)
        members = Members(world, clients, coordination)
        self._stage = Stage(world, network, clients, coordination, producers, members)

    @property
    def has_stage(self) -> bool:
        """Whether the story has run `cluster`."""
        return self._stage is not None

    @property
    def stage(self) -> Stage:
        """The stage; StoryError if the story has not run `cluster` yet."""
        if self._stage is None:
            raise StoryError("the story has no cluster yet; begin with: cluster A B")
        return self._stage

    @property
    def world(self) -> World:
        """The cluster."""
        return self.stage.world

    @property
    def events(self) -> list[HistoryEvent]:
        """The events that brokers and controller logged so far."""
        return [] if self._stage is None else self._stage.world.events

    def take_lines(self) -> list[Line]:
        """Return the lines printed since the last call."""
        if self._stage is None:
            return []
        lines, self._stage.world.lines = self._stage.world.lines, []
        return lines


def _apply(rule: Rule, setup: Setup) -> None:
    """Set the options of the cluster that the rule is about."""
    if rule.transaction_version is None:
        return
    if setup.transaction_version is not None:
        raise StoryError(f"the rule {rule.name} sets the option transaction.version")
    setup.transaction_version = rule.transaction_version
    setup.config.transaction_partition_verification_enable = rule.verifies


Action: TypeAlias = Callable[[Play, Step], None]


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its function, usage and options."""

    action: Action
    usage: str
    options: tuple[str, ...] = ()


def check_options(step: Step, command: Command) -> None:
    """Raise StoryError for an option that the command does not have."""
    for option in step.options:
        if not command.options:
            raise StoryError(f"{step.word} takes no options; usage: {command.usage}")
        known_name(f"option of {step.word}", option, dict.fromkeys(command.options))


def arguments(step: Step, usage: str, least: int, most: int | None = None) -> tuple[str, ...]:
    """Return the arguments of a command; StoryError if there are too few or too many."""
    count = len(step.arguments)
    if count < least or (most is not None and count > most):
        raise StoryError(f"usage: {usage}")
    return step.arguments


def number(text: str, what: str, most: int = 10**12 - 1) -> int:
    """Parse a count or an offset."""
    if not text.isdecimal():
        raise StoryError(f"{what} must be a number, not {text!r}")
    if len(text) > 12 or int(text) > most:
        raise StoryError(f"{what} is at most {most}")
    return int(text)


def one_of(text: str, choices: tuple[str, ...], what: str) -> str:
    """Return the text if it is one of the choices; otherwise raise StoryError."""
    known_name(what, text, dict.fromkeys(choices))
    return text


def boolean(text: str, what: str) -> bool:
    """Parse `true` or `false`."""
    return one_of(text, ("true", "false"), what) == "true"


def unseen_by(step: Step) -> list[str]:
    """Return the brokers of `unseen=A,B`, which do not receive the metadata change."""
    return [name for name in step.options.get("unseen", "").split(",") if name]


def fate(step: Step, *parts: str) -> Fate:
    """Parse `lose=reply`, or `hold=reply as=x`; `parts` lists what can be lost or held here."""
    lose, hold = step.options.get("lose", ""), step.options.get("hold", "")
    for what, value in (("lose", lose), ("hold", hold)):
        if value:
            one_of(value, parts or (REQUEST, REPLY), what)
    if lose and hold:
        raise StoryError("a message is lost or held, not both")
    name = step.options.get("as", "")
    if bool(hold) != bool(name):
        raise StoryError("hold=… and as=NAME must be given together")
    return Fate(lose, hold, name)
