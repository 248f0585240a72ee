"""The commands of each lesson, run on a real cluster as a reader would type them."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.apps.stories.lessons import ClusterStep, Lesson, lessons

PATIENCE_S = 120.0
QUICK = (1, 4)
"""Lessons that run with the tests that take seconds."""


def run(command: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env={**os.environ, "PATH": path, "COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in which `tidelog up` has started three brokers."""
    found = tmp_path_factory.mktemp("lessons")
    began = run("tidelog up --detach --port 0", found)
    assert began.returncode == 0, began.stderr
    yield found
    run("tidelog down", found)


def is_done(step: ClusterStep, folder: Path) -> tuple[bool, str]:
    """Run the command; return whether its result is as the lesson says, and its output."""
    done = run(step.run, folder)
    output = done.stdout + done.stderr
    shown = re.search(step.shows, output, re.MULTILINE) is not None
    return done.returncode == step.exits and shown, f"exit code {done.returncode}\n{output}"


@pytest.mark.parametrize(
    "lesson",
    [
        pytest.param(lesson, marks=() if lesson.number in QUICK else pytest.mark.ci)
        for lesson in lessons()
    ],
    ids=lambda lesson: f"{lesson.number}",
)
def test_the_commands_of_a_lesson_do_what_it_says(lesson: Lesson, folder: Path) -> None:
    for broker in (1, 2, 3):  # a lesson that failed may have left one down
        run(f"tidelog broker resume {broker} || tidelog broker start {broker}", folder)
    for step in lesson.on_cluster:
        deadline = time.monotonic() + PATIENCE_S
        done, output = is_done(step, folder)
        while not done and (step.look or step.repeat) and time.monotonic() < deadline:
            time.sleep(0.2)
            done, output = is_done(step, folder)
        assert done, f"{step.run}\nwanted {step.exits} and {step.shows!r}\n{output}"
