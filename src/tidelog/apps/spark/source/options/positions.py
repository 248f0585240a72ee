"""Where a read begins and ends, as the options say it: a word, offsets, or times.

Spelling and precedence are those of Spark's connector: one time for all before times by
partition before offsets. Always true: what is here was understood; whether the partitions
named are those of the topics is only known when brokers were asked.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tidelog.apps.spark.source.options.known import OptionError, one_of, text_of
from tidelog.core.types import Offset, TopicPartition
from tidelog.shell.client.offsets import EARLIEST, LATEST

WORDS = {"earliest": EARLIEST, "latest": LATEST}
SPELLED = {EARLIEST: "earliest", LATEST: "latest"}


class Positions(NamedTuple):
    """One of these is set."""

    everywhere: int | None = None
    """EARLIEST or LATEST, in every partition."""
    offsets: Mapping[TopicPartition, Offset] | None = None
    """Offsets; EARLIEST and LATEST may be among them."""
    timestamps: Mapping[TopicPartition, int] | None = None
    timestamp: int | None = None
    """Milliseconds since 1970: the first offset that is not older."""
    option: str = ""
    """Who said so, for messages."""
    else_latest: bool = False
    """Where nothing is as new as the time: begin at the end, rather than refuse."""

    def check_partitions(self, found: Iterable[TopicPartition]) -> None:
        """Each partition must be named, and no other. Raises OptionError."""
        named = self.offsets if self.offsets is not None else self.timestamps
        if named is None:
            return
        missing = sorted(set(found) - named.keys())
        extra = sorted(named.keys() - set(found))
        if missing:
            raise OptionError(
                f"{self.option} leaves out {_listed(missing)};"
                " name every partition (-2 is the earliest offset, -1 the latest)"
            )
        if extra:
            raise OptionError(f"{self.option} names {_listed(extra)}, which is not read")


def starting_positions(options: Mapping[str, str], default: int, *, batch: bool) -> Positions:
    """Where to begin. Raises OptionError."""
    found = _positions(options, "starting", default)
    strategy = one_of(options, "startingOffsetsByTimestampStrategy", ("error", "latest"))
    if batch and (found.everywhere == LATEST or LATEST in (found.offsets or {}).values()):
        raise OptionError(
            f"{found.option} is latest, which leaves a batch nothing to read;"
            " give earliest, offsets or a time"
        )
    return found._replace(else_latest=strategy == "latest")


def ending_positions(options: Mapping[str, str]) -> Positions:
    """Where a batch ends. Raises OptionError."""
    found = _positions(options, "ending", LATEST)
    if found.everywhere == EARLIEST or EARLIEST in (found.offsets or {}).values():
        raise OptionError(f"{found.option} is earliest; give latest, offsets or a time")
    return found._replace(else_latest=True)


def refuse_endings(options: Mapping[str, str]) -> None:
    """A stream has no end. Raises OptionError."""
    for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
        if text_of(options, name) is not None:
            raise OptionError(f"{name} is for batch reads; a stream has no end")


def _positions(options: Mapping[str, str], side: str, default: int) -> Positions:
    name = f"{side}Timestamp"
    text = text_of(options, name)
    if text is not None:
        if not text.isdecimal() or not _is_whole(int(text), 0):
            raise OptionError(f"{name} is {text!r}; give milliseconds since 1970")
        return Positions(timestamp=int(text), option=name)
    name = f"{side}OffsetsByTimestamp"
    text = text_of(options, name)
    if text is not None:
        return Positions(timestamps=_by_partition(name, text, 0), option=name)
    name = f"{side}Offsets"
    text = text_of(options, name)
    if text is None:
        return Positions(everywhere=default, option=name)
    if text.lower() in WORDS:
        return Positions(everywhere=WORDS[text.lower()], option=name)
    return Positions(offsets=_by_partition(name, text, EARLIEST), option=name)


def parse_assignment(text: str) -> tuple[TopicPartition, ...]:
    """`{"topic": [0, 1]}`. Raises OptionError."""
    shape = 'give JSON such as {"topic": [0, 1]}'
    found = _object("assign", text, shape)
    named = []
    for topic, listed in found.items():
        if not isinstance(listed, list) or not all(_is_whole(each, 0) for each in listed):
            raise OptionError(f"assign: {topic!r} has no list of partitions; {shape}")
        named += [TopicPartition(topic, partition) for partition in listed]
    if not named:
        raise OptionError(f"assign names no partition; {shape}")
    return tuple(dict.fromkeys(named))


def _by_partition(name: str, text: str, least: int) -> dict[TopicPartition, int]:
    words = " or earliest or latest" if least < 0 else ""
    shape = f'give JSON such as {{"topic": {{"0": 23}}}}{words}'
    found: dict[TopicPartition, int] = {}
    for topic, partitions in _object(name, text, shape).items():
        if not isinstance(partitions, dict):
            raise OptionError(f"{name}: {topic!r} has no partitions; {shape}")
        for partition, value in partitions.items():
            if not partition.isdecimal() or not _is_whole(value, least):
                raise OptionError(f"{name}: {partition!r}: {value!r} of {topic!r}; {shape}")
            found[TopicPartition(topic, int(partition))] = value
    return found


def _object(name: str, text: str, shape: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise OptionError(f"{name} is {text!r}; {shape}")
    return found


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**63


def _listed(keys: list[TopicPartition]) -> str:
    more = f" and {len(keys) - 3} more" if len(keys) > 3 else ""
    return ", ".join(map(str, keys[:3])) + more
