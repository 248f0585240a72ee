"""Run a story under each of its policies; compare its output, or rewrite it.

Results are plain data: frames of lines, and a list of problems. Every error, even one in the
code that the story runs, becomes a problem with its line number in the file.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tidelog.core.controller.metadata.registrations import PartitionRegistration
from tidelog.core.history import HistoryEvent
from tidelog.core.types import BrokerId
from tidelog.lab.spec.snapshot import LogEntry, ReplicaSnapshot
from tidelog.lab.story.commands import control, facts, faults, looking, traffic, transacting
from tidelog.lab.story.grammar import RULE, Step, Story, StoryError, known_name
from tidelog.lab.story.play import Command, Play, check_options
from tidelog.lab.story.rules import RULES
from tidelog.lab.story.stage.narration import Line

COMMANDS: dict[str, Command] = {
    **traffic.COMMANDS,
    **transacting.COMMANDS,
    **faults.COMMANDS,
    **control.COMMANDS,
    **looking.COMMANDS,
    **facts.COMMANDS,
}
STEP_MS = 1
"""The duration of every command, so that periodic work happens between commands."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica after a step: as `state` shows it, and as data."""

    name: str
    description: str
    role: str
    """`leader`, `follower`, `waiting` (without a leader), or `down`."""
    snapshot: ReplicaSnapshot
    topic: str
    """Its topic. It is not the story's own for the option `other`, and for coordinators."""
    registration: PartitionRegistration | None
    """Its partition in the controller's image."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One step and its result."""

    step: Step
    lines: tuple[Line, ...]
    problems: tuple[str, ...]
    replicas: tuple[Replica, ...]
    registration: PartitionRegistration | None = None
    """The partition in the controller's image; None if the step failed to run."""
    acked: int = 0
    """How many records were acknowledged with acks=all until then: the first ones of
    `Performance.acked`."""

    @property
    def output(self) -> tuple[str, ...]:
        """The lines that the step printed."""
        return tuple(map(str, self.lines))


@dataclass(frozen=True, slots=True)
class Problem:
    """An error in a story: its line and message."""

    line: int
    message: str


@dataclass(slots=True)
class Performance:
    """The result of one story under one policy."""

    story: Story
    policy: str
    frames: list[Frame] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    history: list[HistoryEvent] = field(default_factory=list)
    """The events that brokers and controller logged, with the time of the story."""
    acked: list[LogEntry] = field(default_factory=list)
    """The records acknowledged with acks=all, in the order of their acknowledgements."""
    labels: dict[BrokerId, str] = field(default_factory=dict)
    """The names of the brokers by their ids."""

    @property
    def passed(self) -> bool:
        """Whether the story passed."""
        return not self.problems


def play(story: Story, policy: str) -> Performance:
    """Run the story to its end, or to the first step that fails to run."""
    known_name("rule", policy, RULES)
    performance, current = Performance(story, policy), Play(RULES[policy])
    for frame in _frames(current, story):
        performance.frames.append(frame)
        performance.problems += [Problem(frame.step.line, text) for text in frame.problems]
    performance.history = current.events
    if current.has_stage:
        performance.acked = current.world.history.acked
        performance.labels = current.world.labels
    return performance


def _frames(current: Play, story: Story) -> Iterator[Frame]:
    """Run the story step by step; a step that fails to run is the last frame."""
    policy = current.rule.name
    for step in story.steps:
        if not step.played_under(policy):
            continue
        try:
            frame = perform(current, step)
        except StoryError as error:
            yield Frame(step, tuple(current.take_lines()), (error.message,), ())
            return
        except Exception as error:  # noqa: BLE001 - no story may end in a traceback
            reason = f"the broker's code raised {type(error).__name__}: {error}"
            yield Frame(step, tuple(current.take_lines()), (reason,), ())
            return
        yield frame


def perform(current: Play, step: Step) -> Frame:
    """Run one step; return its output and problems."""
    known_name("command", step.word, COMMANDS)
    command = COMMANDS[step.word]
    check_options(step, command)
    command.action(current, step)
    current.world.deliver_reports()
    current.stage.coordination.run()
    current.stage.members.run()
    lines = tuple(current.take_lines())
    problems = (*current.failures, *_compare(step, current.rule.name, lines))
    current.failures.clear()
    replicas = _replicas(current)
    registration = current.world.controller.partition
    acked = len(current.world.history.acked)
    current.world.pass_time(STEP_MS)
    return Frame(step, lines, problems, replicas, registration, acked)


def _replicas(current: Play) -> tuple[Replica, ...]:
    found = []
    for name, broker in current.world.brokers.items():
        snapshot, role = broker.snapshot(current.world.now_ms), looking.role_of(broker)
        text = looking.describe_snapshot(role, snapshot)
        known = current.world.controller.image.partition(*broker.shown)
        found.append(Replica(name, text, role, snapshot, broker.shown.topic, known))
    return tuple(found)


def _compare(step: Step, policy: str, lines: tuple[Line, ...]) -> list[str]:
    if step.expected is None:
        return []
    wanted, found = step.expected[policy], tuple(map(str, lines))
    if wanted == found:
        return []
    actual = ["actual output:", *(f"  {line}" for line in found or ("nothing",))]
    expected = ["expected output:", *(f"  {line}" for line in wanted or ("nothing",))]
    return ["\n".join([*actual, *expected])]


def perform_all(story: Story) -> list[Performance]:
    """Run the story under each policy that it names."""
    return [play(story, policy) for policy in story.policies]


def rewrite(text: str, story: Story) -> str:
    """Return the story's text with the actual output in place of each expected output.

    The result has one output for each policy only where the outputs differ.
    """
    printed: dict[int, dict[str, tuple[str, ...]]] = {}
    for performance in perform_all(story):
        for frame in performance.frames:
            printed.setdefault(frame.step.line, {})[performance.policy] = frame.output
    lines = text.splitlines()
    for step in reversed(story.steps):
        if step.expected is not None and step.line in printed:
            end = step.line
            while end < len(lines) and lines[end].strip():
                end += 1
            lines[step.line : end] = _blocks(printed[step.line])
    return "\n".join(lines) + "\n"


def _blocks(outputs: dict[str, tuple[str, ...]]) -> list[str]:
    different = dict.fromkeys(outputs.values())
    if len(different) == 1:
        return [RULE, *next(iter(different))]
    blocks: list[str] = []
    for output in different:
        names = ", ".join(name for name, found in outputs.items() if found == output)
        blocks += [f"{RULE} {names}", *output]
    return blocks
