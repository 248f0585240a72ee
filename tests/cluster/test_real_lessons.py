"""The commands of each lesson, run on a real cluster as a reader would type them."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tidelog.apps.stories.lessons import ClusterStep, Lesson, lessons

PATIENCE_S = 120.0
FENCED = 10
"""The lesson in which the session of a paused broker ends."""
LONG_SESSIONS = "--set broker.session.timeout.ms=120000 --set replica.lag.time.max.ms=120000"
"""In the others, no paused broker leaves the ISR before the next command has run."""
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


@contextmanager
def cluster_in(folder: Path, options: str) -> Iterator[Path]:
    """A folder in which `tidelog up` has started three brokers."""
    began = run(f"tidelog up --detach --port 0 --wait 120 {options}", folder)
    assert began.returncode == 0, began.stderr
    try:
        yield folder
    finally:
        run("tidelog down", folder)


@pytest.fixture(scope="module")
def patient_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with cluster_in(tmp_path_factory.mktemp("lessons"), LONG_SESSIONS) as folder:
        yield folder


@pytest.fixture
def folder(request: pytest.FixtureRequest, lesson: Lesson, tmp_path: Path) -> Iterator[Path]:
    """A folder in which a cluster runs, whose sessions last as long as the lesson needs."""
    if lesson.number != FENCED:
        yield request.getfixturevalue("patient_folder")
        return
    with cluster_in(tmp_path, "") as found:
        yield found


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
