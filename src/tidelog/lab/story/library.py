"""The stories there are, and the few calls that a command line needs.

    list_stories()            every story that ships
    find(name)                a path, a file's stem, or folder/stem
    load(path)                read and parse; StoryError names file and line
    check(paths)              play files and folders under every policy, judge each
    rewrite_file(path)        write what a story prints into it

A story passes when it can be played to its end, every `expect` and bare `check` holds, and
every output that is given is what was printed.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from tidelog.lab.story.grammar import Story, StoryError, parse
from tidelog.lab.story.runner import Performance, perform_all, rewrite

SUFFIX = ".txt"
STORY_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one story did under one policy; `problems` read `file:line: what`."""

    path: str
    policy: str
    title: str
    problems: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether all was as the story says."""
        return not self.problems


def story_folder() -> Path:
    """Where the stories lie: beside the sources, or inside the installed package."""
    package = Path(__file__).parents[2]
    inside = package / "scenarios"
    return inside if inside.is_dir() else package.parents[1] / "scenarios"


def list_stories(folder: Path | None = None) -> list[Story]:
    """Every story in a folder and below, in order of their names."""
    return [load(path) for path in _files(folder or story_folder())]


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from sorted(path.rglob("*" + SUFFIX))
    else:
        yield path


def find(name: str) -> Path:
    """The file of a story, by its path or by its name."""
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
        text = path.read_text(encoding="utf-8-sig")  # some editors write a mark first
    except OSError as error:
        raise StoryError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise StoryError(f"{path}: not UTF-8 text") from error
    try:
        return parse(text, str(path))
    except StoryError as error:
        raise StoryError(f"{path}:{error.line or 1}: {error.message}", error.line) from error


def check(paths: Iterable[Path] = ()) -> Iterator[Verdict]:
    """Judge stories, one verdict for each policy, as they are played."""
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


def verdict(performance: Performance) -> Verdict:
    """A performance in short."""
    story = performance.story
    problems = tuple(f"{story.path}:{p.line}: {p.message}" for p in performance.problems)
    return Verdict(story.path, performance.policy, story.title, problems)


def rewrite_file(path: Path) -> bool:
    """Write what the story prints into it; True if that changed anything."""
    story = load(path)
    before = path.read_text(encoding="utf-8")
    after = rewrite(before, story)
    if after != before:
        path.write_text(after, encoding="utf-8")
    return after != before
