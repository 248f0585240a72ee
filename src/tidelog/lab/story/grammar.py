"""Parse the text of a story into steps.

scenarios/README.md describes the whole grammar on one page. A `#` line is Markdown prose. A
step is a command, alone or followed by `----` and its exact output, up to a blank line.
`---- name` starts the output for one rule, which the code calls a policy. Every error message has
the file and the line. If a name is nearly right, the message also has the correct name.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from tidelog.lab.story.rules import RULES, SHIPPED

RULE = "----"
RULE_LINES = ("rules:", "policies:")
"""How the line with the rules begins; the second is the earlier spelling."""
_RANGE = re.compile(r"^(.*?)(\d+)\.\.\1(\d+)(@\d+)?$")
_LIMITED = re.compile(r"^([^\s\[]+|(?:expect|check)\s+)\[([^\]]*)(\]?)\s*(.*)$")
"""`expect[kip-101, leader-epoch] …`: a command name, and the policies it applies to."""
_NAMES = re.compile(r",|(\|)")
"""Commas separate names, and `|` is a separate argument even without blanks around it."""
_REMARK = re.compile(r"\s#.*$")
_VERBATIM = ("note", "put-file")
"""Commands with free text as arguments: commas and brackets in it stay."""
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f]")
"""Control characters, which a terminal obeys and does not show."""
RANGE_MAX = 1000
"""The most names in one range; no story needs more."""


class StoryError(Exception):
    """A story cannot be parsed or run; `line` 0 means the file as a whole."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.line = line

    def at(self, line: int) -> "StoryError":
        """Return the error with a line number, if it has none yet."""
        return self if self.line else StoryError(self.message, line)


@dataclass(frozen=True, slots=True)
class Step:
    """One command line and its expected output."""

    line: int
    text: str
    word: str
    arguments: tuple[str, ...]
    options: Mapping[str, str]
    only: frozenset[str]
    """The policies under which this step runs; empty means all."""
    expected: Mapping[str, tuple[str, ...]] | None
    """The expected output by policy; None if the output is not compared."""
    given: bool
    prose: tuple[str, ...]
    """The Markdown lines directly before the step."""

    def played_under(self, policy: str) -> bool:
        """Return whether this step runs under the policy."""
        return not self.only or policy in self.only


@dataclass(frozen=True, slots=True)
class Story:
    """A parsed story file."""

    path: str
    title: str
    policies: tuple[str, ...]
    covers: tuple[str, ...]
    prose: tuple[str, ...]
    steps: tuple[Step, ...]
    closing: tuple[str, ...] = ()


@dataclass(slots=True)
class _Reader:
    """The state of the parser."""

    lines: Sequence[str]
    at: int = 0
    policies: tuple[str, ...] = (SHIPPED,)
    prose: list[str] = field(default_factory=list)
    opening: tuple[str, ...] | None = None
    steps: list[Step] = field(default_factory=list)
    given: bool = False

    def take_prose(self) -> tuple[str, ...]:
        taken, self.prose = tuple(self.prose), []
        return taken


def parse(text: str, path: str = "story") -> Story:
    """Parse a story; StoryError says what is wrong and on which line."""
    reader = _Reader(text.splitlines())
    for number, line in enumerate(reader.lines, 1):
        if found := _CONTROL.search(line):
            raise StoryError(f"control character {found[0]!r}; stories are plain text", number)
    while reader.at < len(reader.lines):
        _line(reader)
    opening = reader.opening if reader.opening is not None else reader.take_prose()
    if not reader.steps:
        raise StoryError("a story needs at least one command, such as: cluster A B", 1)
    return Story(
        path,
        next((line for line in opening if line), path),
        reader.policies,
        _covers(opening),
        tuple(line for line in opening if not line.startswith("Covers:"))[1:],
        tuple(reader.steps),
        reader.take_prose(),
    )


def _line(reader: _Reader) -> None:
    raw = reader.lines[reader.at]
    line = raw.strip()
    if not line:
        reader.at += 1
        if reader.opening is None and reader.prose:
            reader.opening = reader.take_prose()
    elif line.startswith("#"):
        reader.at += 1
        reader.prose.append(line[1:].removeprefix(" "))
    elif line.startswith(RULE):
        raise StoryError("output without a command before it", reader.at + 1)
    elif line.startswith(RULE_LINES):
        reader.policies = _policies(line.partition(":")[2], reader)
        reader.at += 1
    elif line == "given:":
        reader.given = True
        reader.at += 1
    else:
        reader.given = reader.given and raw[0].isspace()
        reader.steps.append(_step(reader, line))


def _policies(names: str, reader: _Reader) -> tuple[str, ...]:
    if reader.steps:
        raise StoryError("`rules:` must come before the first command", reader.at + 1)
    found = tuple(name.strip() for name in names.split(",") if name.strip())
    if not found:
        raise StoryError("`rules:` needs at least one rule", reader.at + 1)
    for name in found:
        known_name("rule", name, RULES, reader.at + 1)
    if len(set(found)) < len(found):
        raise StoryError("a rule is named twice", reader.at + 1)
    return found


def known_name(kind: str, name: str, known: Mapping[str, object], line: int = 0) -> None:
    """Raise StoryError for an unknown name, with the nearest known name."""
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else "known: " + ", ".join(known)
        raise StoryError(f"unknown {kind} {name!r}; {hint}", line)


def _step(reader: _Reader, text: str) -> Step:
    line = reader.at + 1
    command, only = _limited(text, reader.policies, line)
    word, arguments, options = _words(command, line)
    prose = reader.take_prose()
    if reader.opening is None:
        reader.opening, prose = prose, ()
    reader.at += 1
    expected = _expected(reader)
    if expected is not None and only:
        raise StoryError("a step that runs only under some rules can't have expected output", line)
    given = reader.given
    return Step(line, text, word, tuple(arguments), options, only, expected, given, prose)


def _limited(text: str, policies: tuple[str, ...], line: int) -> tuple[str, frozenset[str]]:
    """Split `expect[kip-101] …` into `expect …` and the set of its policies."""
    match = _LIMITED.match(text)
    if match is None:
        return text, frozenset()
    word, names, closed, rest = match.groups()
    if not closed:
        raise StoryError(f"missing ] in {text!r}", line)
    only = [name.strip() for name in names.split(",")]
    for name in only:
        known_name("rule of this story", name, dict.fromkeys(policies), line)
    return f"{word} {rest}", frozenset(only)


def _words(command: str, line: int) -> tuple[str, list[str], dict[str, str]]:
    """Return a command's name, arguments and options; commas may separate arguments too."""
    word = command.split()[0]
    verbatim = word in _VERBATIM
    arguments: list[str] = []
    options: dict[str, str] = {}
    for part in (command if verbatim else _REMARK.sub("", command)).split()[1:]:
        key, equals, value = part.partition("=")
        if equals and word not in ("note", "expect"):
            if key in options:
                raise StoryError(f"option {key} is given twice", line)
            options[key] = value if verbatim else value.rstrip(",")
            continue
        for name in [part] if verbatim else _NAMES.split(part.strip("[]{}")):
            arguments += expand(name, line) if name else []
    return word, arguments, options


def expand(word: str, line: int = 0) -> list[str]:
    """Expand a range: `m1..m3` is m1 m2 m3, and `m1..m3@0` is m1@0 m2@0 m3@0."""
    match = _RANGE.match(word)
    if match is None:
        return [word]
    name, first, last, epoch = match[1], int(match[2]), int(match[3]), match[4] or ""
    if not 0 <= last - first < RANGE_MAX:
        raise StoryError(f"{word!r} is not a range of 1 to {RANGE_MAX} names", line)
    return [f"{name}{number}{epoch}" for number in range(first, last + 1)]


def _expected(reader: _Reader) -> dict[str, tuple[str, ...]] | None:
    """Return the expected output after a command, by policy; None without such output."""
    found: dict[str, tuple[str, ...]] = {}
    while reader.at < len(reader.lines) and reader.lines[reader.at].strip().startswith(RULE):
        line = reader.at + 1
        names = reader.lines[reader.at].strip()[len(RULE) :]
        wanted = [name.strip() for name in names.split(",") if name.strip()]
        reader.at += 1
        output: list[str] = []
        while reader.at < len(reader.lines):
            text = reader.lines[reader.at]
            if not text.strip() or text.strip().startswith(RULE):
                break
            output.append(text.strip() if reader.given else text.rstrip())
            reader.at += 1
        for name in wanted or reader.policies:
            known_name("rule of this story", name, dict.fromkeys(reader.policies), line)
            if name in found:
                raise StoryError(f"two outputs for rule {name}", line)
            found[name] = tuple(output)
    missing = [name for name in reader.policies if name not in found]
    if found and missing:
        raise StoryError("no output given for rule " + ", ".join(missing), reader.at)
    return found or None


def _covers(prose: Sequence[str]) -> tuple[str, ...]:
    """Return the ids of the mechanisms that a story shows: `# Covers: M07, M12`."""
    for line in prose:
        if line.startswith("Covers:"):
            return tuple(part.strip() for part in line.removeprefix("Covers:").split(","))
    return ()
