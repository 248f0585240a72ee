"""The names of a run with transactions: topics, group, files, and the roles of its clients."""

WRITER = "transactional writer"
PROCESSOR = "transactional processor"
READERS = "committed readers"
FULL_READER = "reader from the start"
FIRST_PROCESSOR = 501
"""Processors are numbered from here on, writers from 1."""


def output_topic(topic: str) -> str:
    """Return the topic that the processors write; `topic` is the one that they read."""
    return f"{topic}-output"


def group(topic: str) -> str:
    """Return the group of the processors."""
    return f"{topic}-processors"


def assignor(seed: int) -> str:
    """Return the assignor of the group: eager or cooperative rebalances, by the seed."""
    return ("range", "cooperative-sticky")[seed % 2]
