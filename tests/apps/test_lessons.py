"""The lessons as data, in `tidelog story lessons`, and the stories that they name."""

import json
import re
import shlex

import pytest
from click.testing import CliRunner

from tidelog.apps.cli.main import cli
from tidelog.apps.stories.lessons import Lesson, lessons
from tidelog.apps.stories.shelf import included
from tidelog.lab.story.library import verdict
from tidelog.lab.story.runner import perform_all

ACTIONS = {"create-topic", "produce", "elect", "kill", "pause", "resume", "start"}
WORDS_MAX = 30


def by_number(lesson: Lesson) -> str:
    return str(lesson.number)


def test_there_are_ten_lessons_and_each_story_is_in_one() -> None:
    assert [lesson.number for lesson in lessons()] == list(range(1, 11))
    names = [name for lesson in lessons() for name in lesson.stories]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("lesson", lessons(), ids=by_number)
def test_each_story_of_a_lesson_exists_and_passes(lesson: Lesson) -> None:
    assert lesson.stories
    for name in lesson.stories:
        for performance in perform_all(included()[name]):
            assert list(verdict(performance).problems) == []


@pytest.mark.parametrize("lesson", lessons(), ids=by_number)
def test_a_lesson_is_a_few_short_sentences_and_ends_on_a_real_cluster(lesson: Lesson) -> None:
    sentences = re.split(r"(?<=[.:?])\s+", lesson.text)
    assert 3 <= len(sentences) <= 8
    assert max(len(sentence.split()) for sentence in sentences) <= WORDS_MAX
    assert len(lesson.on_cluster) >= 3


@pytest.mark.parametrize("lesson", lessons(), ids=by_number)
def test_each_step_is_a_command_and_its_actions_or_a_look_at_a_partition(lesson: Lesson) -> None:
    topic = f"lesson{lesson.number}"
    for step in lesson.on_cluster:
        assert "tidelog" in shlex.split(step.run)
        re.compile(step.shows)
        assert bool(step.actions) != bool(step.look), step.run
        assert step.look in ("", topic)
        for action in step.actions:
            assert action.name in ACTIONS
            assert action.body.get("topic", topic) == topic


def test_the_list_names_each_lesson_and_its_stories() -> None:
    found = CliRunner(env={"COLUMNS": "100"}).invoke(cli, ["story", "lessons"])
    assert found.exit_code == 0
    for lesson in lessons():
        assert f"{lesson.number}. {lesson.title}" in found.stdout
        for name in lesson.stories:
            assert f"tidelog story play {name.rpartition('/')[2]}" in found.stdout
    assert max(map(len, found.stdout.splitlines())) <= 100


def test_one_lesson_has_its_text_and_its_commands() -> None:
    found = CliRunner().invoke(cli, ["story", "lessons", "5"])
    assert found.exit_code == 0
    assert "tidelog story play hw-loses-acked-record --step" in found.stdout
    assert "tidelog topic create lesson5" in found.stdout
    missing = CliRunner().invoke(cli, ["story", "lessons", "11"])
    assert missing.exit_code == 2


def test_lessons_as_json() -> None:
    found = CliRunner().invoke(cli, ["story", "lessons", "--format", "json"])
    data = json.loads(found.stdout)
    assert data["holds"] is True
    assert data["lessons"] == [lesson.as_data() for lesson in lessons()]
    one = json.loads(CliRunner().invoke(cli, ["story", "lessons", "2", "--format", "json"]).stdout)
    assert [lesson["number"] for lesson in one["lessons"]] == [2]
