"""The lessons: a path through the stories, each ending with steps on a real cluster.

They are data: lessons.toml in this folder, whose first lines describe its keys.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("lessons.toml")


@dataclass(frozen=True, slots=True)
class ClusterAction:
    """A request of the web console: POST /api/actions/NAME."""

    name: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ClusterStep:
    """One step on a real cluster."""

    say: str
    """What to do, and what to look for."""
    run: str
    """The command, for a shell."""
    exits: int = 0
    shows: str = ""
    """A regular expression that the output of the command has."""
    actions: tuple[ClusterAction, ...] = ()
    """The same for the web console; empty if the step is to look at a partition."""
    look: str = ""
    """The topic of that partition."""
    repeat: bool = False
    """Whether the command may fail at first, and is then repeated."""

    def as_data(self) -> dict[str, Any]:
        """Return the step for JSON; `rejected` says that the cluster must reject the action."""
        return {
            "say": self.say,
            "run": self.run,
            "actions": [{"name": each.name, "body": dict(each.body)} for each in self.actions],
            "look": self.look or None,
            "rejected": bool(self.actions) and self.exits != 0,
        }


@dataclass(frozen=True, slots=True)
class Lesson:
    """One lesson; `number` counts from 1."""

    number: int
    title: str
    text: str
    stories: tuple[str, ...]
    """Names of included stories, with their folders."""
    on_cluster: tuple[ClusterStep, ...]

    def as_data(self) -> dict[str, Any]:
        """Return the lesson for JSON."""
        return {
            "number": self.number,
            "title": self.title,
            "text": self.text,
            "stories": list(self.stories),
            "on_cluster": [step.as_data() for step in self.on_cluster],
        }


@lru_cache(maxsize=1)
def lessons() -> tuple[Lesson, ...]:
    """Return all lessons in order."""
    with FILE.open("rb") as file:
        found = tomllib.load(file)["lesson"]
    return tuple(_lesson(number, each) for number, each in enumerate(found, 1))


def _lesson(number: int, data: Mapping[str, Any]) -> Lesson:
    steps = tuple(_step(each) for each in data["try"])
    return Lesson(number, data["title"], data["text"].strip(), tuple(data["stories"]), steps)


def _step(data: Mapping[str, Any]) -> ClusterStep:
    actions = tuple(ClusterAction(**each) for each in data.get("actions", ()))
    return ClusterStep(**{**data, "actions": actions})
