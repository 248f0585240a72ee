"""The child process of an edited story: read its text from stdin, print its data as JSON."""

import json
import resource
import sys

from tidelog.apps.stories.bounded import MEMORY_BYTES_MAX, SECONDS_MAX, check_bounds
from tidelog.apps.stories.playing import story_data
from tidelog.lab.story.runner import perform_all


def main() -> None:
    """Play the story within limits of memory and processor time."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    seconds = int(SECONDS_MAX) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    text = sys.stdin.buffer.read().decode("utf-8")
    story = check_bounds(text)
    json.dump(story_data(story, text, perform_all(story)), sys.stdout)


if __name__ == "__main__":
    main()
