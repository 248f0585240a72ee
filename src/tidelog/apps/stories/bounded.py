"""Run an edited story in a child process, with bounds on its size, steps, time and memory.

A story can't read or write files: its disks are simulated. But a few commands can take much time
(`fetch B times=1000`), so an edited story runs in a process that is killed at the limit.

    run_edited(text)    return the played story, or raise RunRefused
"""

import json
import subprocess
import sys
from typing import Any

from tidelog.lab.story.grammar import Story, StoryError, parse

TEXT_BYTES_MAX = 64 << 10
STEPS_MAX = 300
"""The most steps, counted once for each rule."""
SECONDS_MAX = 10.0
MEMORY_BYTES_MAX = 1 << 30
ANSWER_BYTES_MAX = 16 << 20
CHILD = "tidelog.apps.stories.run_child:main"


class RunRefused(Exception):
    """A story that can't be run, and what to do about it; `line` is 0 if it is not about one."""

    def __init__(self, message: str, advice: str = "", line: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice
        self.line = line


def check_bounds(text: str) -> Story:
    """Parse a story; raise RunRefused if it is invalid or too large."""
    if len(text.encode("utf-8", "replace")) > TEXT_BYTES_MAX:
        raise RunRefused(
            f"the story is larger than {TEXT_BYTES_MAX >> 10} KiB", "Remove steps from it."
        )
    try:
        story = parse(text)
    except StoryError as error:
        raise RunRefused(error.message, "Correct this line.", error.line) from error
    steps = len(story.steps) * len(story.policies)
    if steps > STEPS_MAX:
        raise RunRefused(
            f"the story has {steps} steps, counted under each rule; at most {STEPS_MAX} are run",
            "Remove steps or rules.",
        )
    return story


def run_edited(text: str, seconds: float = SECONDS_MAX) -> dict[str, Any]:
    """Run a story in a child process; raise RunRefused if it is invalid or reaches a limit."""
    check_bounds(text)
    try:
        done = subprocess.run(
            [sys.executable, "-m", CHILD.partition(":")[0]],
            input=text.encode("utf-8", "replace"),
            capture_output=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RunRefused(
            f"the story was stopped after {seconds:g} seconds", "Let it do less in one step."
        ) from error
    if done.returncode != 0:
        raise RunRefused("the story was stopped: it needs too much memory or time", "Shorten it.")
    if len(done.stdout) > ANSWER_BYTES_MAX:
        raise RunRefused("the story's output is too large", "Write fewer records.")
    found: dict[str, Any] = json.loads(done.stdout)
    return {"name": "", "folder": "", **found}
