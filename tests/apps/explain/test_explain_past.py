"""`tidelog explain` of earlier moments, from files; tests/apps/console_history has a cluster's."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tidelog.apps.cli.main import cli

STORY = "unclean-election-loses-and-says-so"


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, words)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A history: broker 1 leads in epoch 0, dies, and broker 2 leads in epoch 2."""
    path = str(tmp_path_factory.mktemp("story") / "story.jsonl")
    played = run("story", "play", STORY, "--policy", "leader-epoch", "--history", path)
    assert played.exit_code == 0, played.output
    return path


def test_each_moment_of_a_file_is_explained(story: str) -> None:
    first = run("explain", "story/0", "--history", story, "--at", "0")
    assert "as it was at 1970-01-01 00:00:00.000 UTC" in first.stdout
    assert "Broker 1 leads in epoch 0" in first.stdout
    last = json.loads(run("explain", "story/0", "--history", story, "--format", "json").stdout)
    assert last["partition"]["leader"] == 2
    assert last["sampled_at_ms"] > 0


def test_what_can_not_be_explained_is_named(story: str, tmp_path: Path) -> None:
    for words, said in (
        (["none/0", "--history", story], "there is no topic 'none'"),
        (["story/7", "--history", story], "has no partition 7"),
        (["story/0", "--history", str(tmp_path / "none")], "can't read"),
        (["story/0", "--history", story, "--at", "soon"], "'soon' is not a time"),
        (["story/0", "--data", str(tmp_path)], "--data needs --at"),
        (["story/0", "--at", "5", "--data", str(tmp_path)], "has no history"),
        (["story/0", "--at", "5", "--data", ".", "-b", "localhost:1"], "use one of"),
    ):
        found = run("explain", *words)
        assert found.exit_code != 0
        assert said in found.stderr, words
    assert list(tmp_path.iterdir()) == [], "reading creates no file"
