"""The shipped stories, and the functions that the command line uses.

    list_stories()            return every shipped story
    find(name)                find a story by path, file stem, or folder/stem
    load(path)                read and parse; StoryError has the file and line
    check(paths)              run files and folders under every policy, yield verdicts

A story passes when it runs to its end, every `expect` and bare `check` holds, and every
expected output equals the actual output.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from tidelog.lab.story.grammar import Story, StoryError, parse
from tidelog.lab.story.runner import Performance, perform_all

SUFFIX = ".txt"
STORY_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one story under one policy; a problem has the form `file:line: what`."""

    path: str
    policy: str
    title: str
    problems: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether the story passed."""
        return not self.problems


def story_folder() -> Path:
    """Return the folder of the stories: in the installed package, or next to the sources."""
    package = Path(__file__).parents[2]
    inside = package / "scenarios"
    return inside if inside.is_dir() else package.parents[1] / "scenarios"


def list_stories(folder: Path | None = None) -> list[Story]:
    """Return every story in a folder and its subfolders, sorted by path."""
    return [load(path) for path in _files(folder or story_folder())]


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from sorted(path.rglob("*" + SUFFIX))
    else:
        yield path


def find(name: str) -> Path:
    """Return the file of a story, by its path or by its name."""
    direct = Path(name)
    if direct.is_file():
        return direct
    folder = story_folder()
    named = {path.stem: path for path in _files(folder)}
    named |= {str(path.relative_to(folder).with_suffix("")): path for path in named.values()}
    wanted = name.removesuffix(SUFFIX)
    if wanted not in named:
        near = get_close_matches(wanted, named, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise StoryError(f"no story {name!r}{hint}")
    return named[wanted]


def load(path: Path) -> Story:
    """Read and parse a story."""
    try:
        if path.stat().st_size > STORY_BYTES_MAX:
            raise StoryError(f"{path}: larger than {STORY_BYTES_MAX} bytes")
        text = path.read_text(encoding="utf-8-sig")  # some editors write a byte order mark
    except OSError as error:
        raise StoryError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise StoryError(f"{path}: not UTF-8 text") from error
    try:
        return parse(text, str(path))
    except StoryError as error:
        raise StoryError(f"{path}:{error.line or 1}: {error.message}", error.line) from error


def check(paths: Iterable[Path] = ()) -> Iterator[Verdict]:
    """Run stories; yield one verdict for each story and policy as they finish."""
    for given in list(paths) or [story_folder()]:
        found = list(_files(given))
        if not found:
            yield Verdict(str(given), "", "", (f"{given}: no story in this folder",))
        for path in found:
            yield from _judge(path)


def _judge(path: Path) -> Iterator[Verdict]:
    try:
        story = load(path)
    except StoryError as error:
        yield Verdict(str(path), "", "", (error.message,))
        return
    for performance in perform_all(story):
        yield verdict(performance)


def broken_invariants(performance: Performance) -> list[tuple[str, str]]:
    """Return each invariant that did not hold, with the violation that a check printed, if any."""
    checked = [
        (" ".join(frame.step.arguments), line.removeprefix("VIOLATED").strip())
        for frame in performance.frames
        if frame.step.word == "check"
        for line in frame.output
        if line.startswith("VIOLATED")
    ]
    expected = [
        (" ".join(frame.step.arguments[1:]), "")
        for frame in performance.frames
        if frame.step.word == "expect" and frame.step.arguments[:1] == ("violated",)
    ]
    return checked + expected


def kept_invariants(performance: Performance) -> list[str]:
    """Return the invariants that were checked, and held each time."""
    broken = {name for name, _ in broken_invariants(performance)}
    checks = [" ".join(f.step.arguments) for f in performance.frames if f.step.word == "check"]
    return [name for name in dict.fromkeys(checks) if name not in broken]


def verdict(performance: Performance) -> Verdict:
    """Return the verdict on a performance."""
    story = performance.story
    problems = tuple(f"{story.path}:{p.line}: {p.message}" for p in performance.problems)
    return Verdict(story.path, performance.policy, story.title, problems)
