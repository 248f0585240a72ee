"""Output of `tidelog story`: the list, a run with the step where rules differ, verdicts.

A step that prints the same under every rule is shown once. Where outputs differ, their common
lines come first, then the lines of each rule, side by side if the screen is wide enough. Lines
are never wrapped, so that they can be copied into a story.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidelog.apps.cli import output
from tidelog.lab.story.grammar import Step, Story, expand
from tidelog.lab.story.legend import Sign, used
from tidelog.lab.story.library import Verdict, broken_invariants, kept_invariants, story_folder
from tidelog.lab.story.render import INDENT, as_data, as_mermaid
from tidelog.lab.story.rules import RULES
from tidelog.lab.story.runner import Frame, Performance

LIST_WIDTH = 100
"""On a narrower screen, a story's title is printed below its name."""
MARGIN = 4
GAP = 3
CHECK_COMMANDS = ("check", "expect")
"""Commands that only check."""
_LOG = re.compile(r"LEO=(\d+) .*HW=(\d+).*log=\[(.*)\]")
_FIELD = re.compile(r"(\w+)=(\[.*\]|\S+)")


def short_name(path: str) -> str:
    """Return `truncation/hw-loses-acked-record` for an included story, else the relative path."""
    folder = story_folder()
    if Path(path).is_relative_to(folder):
        return str(Path(path).relative_to(folder).with_suffix(""))
    return os.path.relpath(path)


# -- the list and the verdicts


def summary(story: Story) -> dict[str, Any]:
    """Return a summary of a story, for JSON."""
    return {
        "name": short_name(story.path),
        "title": story.title,
        "policies": list(story.policies),
        "covers": list(story.covers),
    }


def show_list(screen: Console, stories: Sequence[Story]) -> None:
    """Print a line for each story, by folder."""
    folders: dict[str, list[Story]] = {}
    for story in stories:
        folders.setdefault(str(Path(short_name(story.path)).parent), []).append(story)
    (_list_wide if screen.width >= LIST_WIDTH else _list_narrow)(screen, folders)
    screen.print(f"{len(stories)} stories; ◆ compares several rules")
    screen.print("run one: tidelog story play NAME")


def _list_wide(screen: Console, folders: Mapping[str, Sequence[Story]]) -> None:
    table = output.table(("story", "", "what it shows"))
    for folder, included in folders.items():
        table.add_section()
        table.add_row(output.heading(folder + "/"))
        for story in included:
            name = Text("  " + Path(story.path).stem, output.NAME)
            parts = Text("◆" if len(story.policies) > 1 else "", output.WARN)
            table.add_row(name, parts, story.title)
    screen.print(table)


def _list_narrow(screen: Console, folders: Mapping[str, Sequence[Story]]) -> None:
    for folder, included in folders.items():
        screen.print(output.heading(folder + "/"))
        for story in included:
            name = Text("  " + Path(story.path).stem, output.NAME)
            parts = Text(" ◆" if len(story.policies) > 1 else "", output.WARN)
            screen.print(name + parts, soft_wrap=True)
            screen.print(output.indented(Text(story.title), MARGIN))
        screen.print()


def verdict_data(verdict: Verdict) -> dict[str, Any]:
    """Return the verdict of one run, for JSON."""
    return {
        "path": verdict.path,
        "policy": verdict.policy,
        "title": verdict.title,
        "passed": verdict.passed,
        "problems": list(verdict.problems),
    }


def show_verdicts(screen: Console, verdicts: Sequence[Verdict]) -> None:
    """Print a line for each story, and its problems."""
    by_path: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        by_path.setdefault(verdict.path, []).append(verdict)
    for path, runs in by_path.items():
        passed = all(run.passed for run in runs)
        policies = ", ".join(run.policy for run in runs if run.policy)
        line = output.verdict_line(passed, short_name(path))
        screen.print(line.append(f"  {policies}", output.FAINT), soft_wrap=True)
        _show_problems(screen, [(run.policy, p) for run in runs for p in run.problems])
    wrong = sum(not all(run.passed for run in runs) for runs in by_path.values())
    played = f"{_count(by_path, 'story', 'stories')}, {_count(verdicts, 'run', 'runs')}"
    text = f"{played}: {wrong} not as expected" if wrong else f"{played}: all as expected"
    screen.print(output.verdict_line(not wrong, text))


def _count(things: Sized, one: str, more: str) -> str:
    return f"{len(things)} {one if len(things) == 1 else more}"


def _show_problems(screen: Console, problems: Iterable[tuple[str, str]], mark: str = "") -> None:
    """Print problems; one that occurs under several rules is printed once."""
    policies: dict[str, list[str]] = {}
    for policy, problem in problems:
        policies.setdefault(problem, []).append(policy)
    for problem, names in policies.items():
        under = f"[{', '.join(names)}] " if all(names) else ""
        margin = " " * (MARGIN if mark else 2)
        for line in (mark + under + problem).splitlines():
            screen.print(Text(margin + line, output.BAD), soft_wrap=True)


# -- one story


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step of the story, with its frame under each rule."""

    step: Step
    frames: dict[str, Frame]

    def outputs(self) -> dict[tuple[str, ...], list[str]]:
        """Return each different output, and the rules that printed it."""
        different: dict[tuple[str, ...], list[str]] = {}
        for policy, frame in self.frames.items():
            different.setdefault(frame.output, []).append(policy)
        return different


class StoryReport:
    """One story under one or more rules."""

    def __init__(self, performances: Sequence[Performance]) -> None:
        self.performances = performances
        self.story = performances[0].story
        frames: dict[int, dict[str, Frame]] = {}
        for performance in performances:
            for frame in performance.frames:
                frames.setdefault(frame.step.line, {})[performance.policy] = frame
        self.steps = [
            StepReport(next(iter(frames[line].values())).step, frames[line])
            for line in sorted(frames)
        ]
        differing = [report for report in self.steps if len(report.outputs()) > 1]
        shown = [report for report in differing if not report.step.given]
        self.first_difference = next(iter(shown or differing), None)

    @property
    def passed(self) -> bool:
        """Whether every expectation of the story holds."""
        return all(performance.passed for performance in self.performances)

    def as_data(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        difference = self.first_difference
        return {
            "title": self.story.title,
            "path": self.story.path,
            "parts_at": (
                {"line": difference.step.line, "command": difference.step.text}
                if difference
                else None
            ),
            "legend": [{"sign": each.sign, "meaning": each.meaning} for each in self.legend()],
            "performances": [as_data(performance) for performance in self.performances],
        }

    def show(self, screen: Console) -> None:
        """Print prose, steps, differences, and the final state."""
        screen.print(output.heading(self.story.title))
        screen.print(Text("─" * len(self.story.title), output.FAINT))
        _prose(screen, self.story.prose)
        given = " · ".join(report.step.text for report in self.steps if report.step.given)
        if given:
            screen.print()
            screen.print(output.faint(f"given: {given}"))
        self._show_legend(screen)
        for report in self.steps:
            if not report.step.given or any(f.problems for f in report.frames.values()):
                self._show_step(screen, report)
        if self.story.closing:
            screen.print()
            _prose(screen, self.story.closing)
        self._show_end(screen)

    def legend(self) -> list[Sign]:
        """Return the signs that occur in the output of the story."""
        printed = [
            line
            for report in self.steps
            for frame in report.frames.values()
            for line in (report.step.text, *frame.output)
        ]
        return used(printed)

    def _show_legend(self, screen: Console) -> None:
        signs = self.legend()
        if not signs:
            return
        screen.print()
        width = max(len(each.sign) for each in signs)
        for each in signs:
            text = Text(f"{each.sign.ljust(width)}  {each.meaning}", output.FAINT)
            screen.print(text, soft_wrap=True)

    def _show_step(self, screen: Console, report: StepReport) -> None:
        step, outputs = report.step, report.outputs()
        if step.prose:
            screen.print()
            _prose(screen, step.prose)
        command = Text("› ").append(step.text, f"bold {output.NAME}")
        if report is self.first_difference:
            command.append("   ◆ the rules differ here", f"bold {output.WARN}")
        problems = any(frame.problems for frame in report.frames.values())
        if step.word == "expect" and not problems:
            command = Text("✓ ", output.GOOD).append(step.text, output.FAINT)
        screen.print(command, soft_wrap=True)
        shared = _shared(list(outputs))
        _lines(screen, shared, MARGIN)
        if len(outputs) > 1:
            own = {", ".join(names): lines[len(shared) :] for lines, names in outputs.items()}
            (_side_by_side if _fits(own, screen.width) else _one_by_one)(screen, own)
        wrong = [
            (policy, f"line {step.line}: {problem}")
            for policy, frame in report.frames.items()
            for problem in frame.problems
        ]
        _show_problems(screen, wrong, "✗ ")

    def _show_end(self, screen: Console) -> None:
        screen.print()
        if not self._ends_with_state():
            self._show_replicas(screen)
        for performance in self.performances:
            screen.print(_verdict(performance), soft_wrap=True)
        if self.first_difference and len(self.performances) > 1:
            where = f"{short_name(self.story.path)}, line {self.first_difference.step.line}"
            line = Text("◆ ", output.WARN).append(
                f"the rules differ at `{self.first_difference.step.text}`"
            )
            screen.print(line.append(f"  {where}", output.FAINT), soft_wrap=True)
        broken = {p.policy: broken_invariants(p) for p in self.performances if broken_invariants(p)}
        if broken and self.passed:
            held = [p.policy for p in self.performances if p.policy not in broken]
            screen.print(output.verdict_line(True, _as_expected(broken, held)), soft_wrap=True)

    def _ends_with_state(self) -> bool:
        """Return whether the last step of the story shows all replicas."""
        acts = [report.step for report in self.steps if report.step.word not in CHECK_COMMANDS]
        return bool(acts) and acts[-1].text == "state" and not acts[-1].given

    def _show_replicas(self, screen: Console) -> None:
        table = output.table(("rule", "replica", "at the end", "epoch", "LEO", "HW", "log"))
        for performance in self.performances:
            name = performance.policy
            for replica in performance.frames[-1].replicas:
                role, fields, log = _fields(replica.description)
                cells = [fields.get(key, "") for key in ("epoch", "LEO", "HW")]
                table.add_row(Text(name, output.NAME), replica.name, role, *cells, log)
                name = ""
        if table.row_count:
            screen.print(table)


def _prose(screen: Console, lines: Iterable[str]) -> None:
    for line in lines:
        screen.print(Text(line, "italic"), soft_wrap=True)


def _shared(outputs: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the common first lines."""
    if len(outputs) == 1:
        return outputs[0]
    same = takewhile(lambda lines: len(set(lines)) == 1, zip(*outputs, strict=False))
    return tuple(lines[0] for lines in same)


def _lines(screen: Console, lines: Sequence[str], margin: int) -> None:
    for line in lines:
        screen.print(Text(" " * margin).append_text(_styled(line)), soft_wrap=True)


def _fits(own: Mapping[str, Sequence[str]], width: int) -> bool:
    """Return whether these outputs fit side by side."""
    widths = [max(map(len, [names, *lines])) for names, lines in own.items()]
    return MARGIN + sum(widths) + GAP * len(widths) <= width


def _one_by_one(screen: Console, own: dict[str, tuple[str, ...]]) -> None:
    for names, lines in own.items():
        screen.print(Text(" " * MARGIN).append(f"under {names}:", "bold"), soft_wrap=True)
        _lines(screen, lines, 2 * MARGIN)
        if not lines:
            screen.print(output.faint(" " * 2 * MARGIN + "no change"))


def _side_by_side(screen: Console, own: dict[str, tuple[str, ...]]) -> None:
    height = 1 + max(map(len, own.values()))
    bar = output.faint("\n".join("│" * height))
    cells: list[Text] = []
    for names, lines in own.items():
        shown = [_styled(line) for line in lines] or [output.faint("no change")]
        cells += [bar, Text("\n").join([Text(names, "bold"), *shown])]
    grid = Table.grid(padding=(0, 1))
    grid.add_row(*cells)
    screen.print(output.indented(grid, MARGIN))


# -- colours


def _styled(line: str) -> Text:
    """Highlight losses, truncations and violations; in logs, committed records."""
    text = Text(line)
    if line.startswith("VIOLATED"):
        text.stylize(output.BAD)
    elif line.startswith("holds"):
        text.stylize(output.GOOD)
    elif "(lost)" in line:
        text.stylize(f"{output.FAINT} strike")
    elif " truncates " in line or "dropping" in line:
        text.stylize(output.WARN)
    elif match := _LOG.search(line):
        log = _log(match[3], int(match[1]), int(match[2]))
        text = Text(line[: match.start(3)]).append_text(log)
        text.append("]")
    return text


def _log(records: str, log_end_offset: int, high_watermark: int) -> Text:
    """Colour committed records green, the rest yellow. `m1..m4@0` is four records."""
    words = records.split()
    offset = log_end_offset - sum(len(expand(word)) for word in words)
    log = []
    for word in words:
        log.append(Text(word, output.GOOD if offset < high_watermark else output.WARN))
        offset += len(expand(word))
    return Text(" ").join(log)


def _fields(description: str) -> tuple[str, dict[str, str], Text]:
    """Split `leader   epoch=0 LEO=2 HW=2 log=[m1@0 m2@0]` into role, fields and log."""
    fields = dict(_FIELD.findall(description))
    log = _styled(description)
    return description.split()[0], fields, log[description.index("[") + 1 : -1]


def _verdict(performance: Performance) -> Text:
    """Return the verdict of one run: invariants kept or broken, and whether the story expects it.

    If an invariant breaks under the rule that brokers follow, the rule is not the cause (an unclean
    election may be). The verdict then does not name the rule.
    """
    policy, broken = performance.policy, broken_invariants(performance)
    if not performance.passed:
        return Text(f"✗ {policy}: {len(performance.problems)} not as expected", output.BAD)
    if broken:
        violations = "; ".join(
            filter(None, (f"{name}: {what}" if what else name for name, what in broken))
        )
        if RULES[policy].shipped:
            return Text("! broken: ", output.WARN).append(violations)
        return Text(f"✗ {policy} breaks ", output.BAD).append(violations)
    kept = ", ".join(kept_invariants(performance))
    return Text(f"✓ {performance.policy}", output.GOOD).append(
        f" keeps {kept}" if kept else ": as expected"
    )


def _as_expected(broken: Mapping[str, Sequence[tuple[str, str]]], held: Sequence[str]) -> str:
    """Return the last line of a story that expects a violation and shows it."""
    shipped = next((rule for rule in broken if RULES[rule].shipped), None)
    if shipped is not None:
        names = ", ".join(dict.fromkeys(name for name, _ in broken[shipped]))
        return f"as expected: {names} is expected to break here"
    failed = [f"{name} (historical rule)" for name in broken]
    parts = [(failed, "fails", "fail"), (list(held), "holds", "hold")]
    verdicts = [f"{' and '.join(n)} {one if len(n) == 1 else more}" for n, one, more in parts if n]
    return f"as expected: {', '.join(verdicts)}"


# -- the Mermaid diagram


def sequence_diagram(performances: Sequence[Performance]) -> Iterator[str]:
    """Yield the lines of a Mermaid diagram, with `alt` blocks for steps where rules differ."""
    first = performances[0]
    opening = Performance(first.story, first.policy, first.frames[:1])
    yield from list(as_mermaid(opening))[: 1 + len(first.frames[0].replicas)]
    steps: dict[int, dict[str, list[str]]] = {}
    for performance in performances:
        for frame in performance.frames:
            steps.setdefault(frame.step.line, {})[performance.policy] = _diagram_lines(
                performance, frame
            )
    for line in sorted(steps):
        yield from _diagram_step(steps[line], len(performances))


def _diagram_lines(performance: Performance, frame: Frame) -> list[str]:
    """Return the lines of one step; a step that failed has no replicas and no lines."""
    if not frame.replicas:
        return []
    alone = Performance(performance.story, performance.policy, [frame])
    return list(as_mermaid(alone))[1 + len(frame.replicas) :]


def _diagram_step(by_policy: dict[str, list[str]], policies: int) -> Iterator[str]:
    different: dict[tuple[str, ...], list[str]] = {}
    for policy, lines in by_policy.items():
        different.setdefault(tuple(lines), []).append(policy)
    if len(different) == 1 and len(by_policy) == policies:
        yield from next(iter(different))
        return
    word = "alt"
    for own, names in different.items():
        if own:
            yield f"{INDENT}{word} {', '.join(names)}"
            yield from (INDENT + line for line in own)
            word = "else"
    if word == "else":
        yield f"{INDENT}end"
