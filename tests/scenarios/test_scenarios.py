"""Every story that ships, under each of its policies; and every mechanism has its story."""

import re
from pathlib import Path

import pytest

from tidelog.lab.story.grammar import Story
from tidelog.lab.story.library import list_stories, story_folder, verdict
from tidelog.lab.story.rules import RULES
from tidelog.lab.story.runner import COMMANDS, play

STORIES = list_stories()
PLAYS = [(story, policy) for story in STORIES for policy in story.policies]
LINES_MAX = 100

NOT_TOLD: dict[str, str] = {}
"""Mechanisms no story can show, and why."""

TOLD = {f"M{number:02}" for number in [*range(1, 28), 36]}


def name(value: object) -> str:
    if isinstance(value, Story):
        return str(Path(value.path).relative_to(story_folder()))
    return str(value)


@pytest.mark.parametrize(("story", "policy"), PLAYS, ids=name)
def test_story_passes(story: Story, policy: str) -> None:
    assert list(verdict(play(story, policy)).problems) == []


@pytest.mark.parametrize("story", STORIES, ids=name)
def test_story_has_a_title_prose_and_a_check(story: Story) -> None:
    assert not story.title.endswith((".", ":")), "a title is a title"
    assert len([line for line in story.prose if line]) >= 2, "the first paragraph says why"
    assert story.covers, "a story names what it covers"
    assert len(Path(story.path).read_text().splitlines()) <= LINES_MAX
    judging = [step.word for step in story.steps if step.word in ("check", "expect")]
    assert judging, "a story demands something"
    assert story.steps[-1].word == "check", "it ends with a check"


def test_every_mechanism_has_a_story() -> None:
    covered = {mechanism for story in STORIES for mechanism in story.covers}
    assert covered <= TOLD, "only known ids are named"
    assert not covered & NOT_TOLD.keys(), "what is told needs no excuse"
    assert covered | NOT_TOLD.keys() == TOLD


def test_every_policy_and_every_command_is_used() -> None:
    assert {policy for story in STORIES for policy in story.policies} == set(RULES)
    assert {step.word for story in STORIES for step in story.steps} == set(COMMANDS)


def test_the_grammar_page_names_every_command() -> None:
    page = (story_folder() / "README.md").read_text()
    missing = [word for word in COMMANDS if not re.search(rf"`{re.escape(word)}\b", page)]
    assert not missing


def test_stories_that_the_sources_name_exist() -> None:
    sources = story_folder().parent.joinpath("src").rglob("*.py")
    named = {
        path
        for source in sources
        for path in re.findall(r"scenarios/[\w/-]+\.txt", source.read_text())
    }
    assert named
    assert not [path for path in named if not (story_folder().parent / path).is_file()]
