"""The included stories by name, played when they are first requested.

Names come from a request, so only names of included stories are accepted, never a path.
"""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from tidelog.apps.stories.playing import story_data
from tidelog.lab.story.grammar import Story
from tidelog.lab.story.library import list_stories, load, story_folder
from tidelog.lab.story.runner import perform_all


def full_name(story: Story) -> str:
    """Return the name of an included story, such as `truncation/hw-loses-acked-record`."""
    return Path(story.path).relative_to(story_folder()).with_suffix("").as_posix()


@lru_cache(maxsize=1)
def included() -> Mapping[str, Story]:
    """Return all included stories by name."""
    return {full_name(story): story for story in list_stories()}


def summaries() -> list[dict[str, Any]]:
    """Return name, folder, title, rules and mechanisms of each story."""
    return [
        {
            "name": name.rpartition("/")[2],
            "folder": name.rpartition("/")[0],
            "title": story.title,
            "policies": list(story.policies),
            "covers": list(story.covers),
        }
        for name, story in included().items()
    ]


@lru_cache(maxsize=16)
def played(name: str) -> dict[str, Any]:
    """Play an included story and return its data; KeyError for an unknown name."""
    path = Path(included()[name].path)
    story = load(path)
    folder, _, stem = name.rpartition("/")
    text = path.read_text(encoding="utf-8-sig")
    return {"name": stem, "folder": folder, **story_data(story, text, perform_all(story))}
