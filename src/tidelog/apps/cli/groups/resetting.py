"""New offsets for a group, by the rules of Kafka's own tool.

Always true: a new offset lies within the log as it is now; where another was asked for, a note
says so.
"""

import csv
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from tidelog.core.types import Offset, TopicPartition
from tidelog.shell.client.client_errors import ClientError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.groups.group_admin import (
    Committed,
    GroupInUse,
    NoSuchGroup,
    committed_offsets,
    describe_group,
)
from tidelog.shell.client.offsets import list_offsets
from tidelog.shell.client.reader import EARLIEST, LATEST

TO_EARLIEST, TO_LATEST, TO_CURRENT = "to_earliest", "to_latest", "to_current"
TO_OFFSET, SHIFT_BY, TO_TIME, FROM_FILE = "to_offset", "shift_by", "to_time", "from_file"


class Aim(NamedTuple):
    """Which offsets are wanted: a rule and its number; for FROM_FILE the offsets themselves."""

    rule: str
    number: int = 0
    listed: Mapping[TopicPartition, Offset] = {}


class NewOffset(NamedTuple):
    """What a partition gets, and had."""

    key: TopicPartition
    new: Offset
    prior: Offset | None


def parse_topics(texts: Sequence[str]) -> list[tuple[str, list[int] | None]]:
    """`orders` is all its partitions, `orders:0,2` those. Raises ValueError."""
    found: list[tuple[str, list[int] | None]] = []
    for text in texts:
        topic, colon, numbers = text.partition(":")
        parts = numbers.split(",") if colon else []
        if not topic or not all(part.strip().isdecimal() for part in parts):
            raise ValueError(f"{text!r} is not TOPIC or TOPIC:0,1")
        found.append((topic, [int(part) for part in parts] if colon else None))
    return found


def read_file(path: str, group: str) -> dict[TopicPartition, Offset]:
    """Lines `topic,partition,offset` or `group,topic,partition,offset`, of which those of other
    groups are left out. Raises ValueError, OSError."""
    found = {}
    with open(path, encoding="utf-8", newline="") as file:
        for number, line in enumerate(csv.reader(file), 1):
            words = [word.strip() for word in line]
            if not words:
                continue
            if len(words) not in (3, 4) or not all(word.isdecimal() for word in words[-2:]):
                raise ValueError(f"{path}, line {number}: write topic,partition,offset")
            if len(words) == 4 and words[0] != group:
                continue
            topic, partition, offset = words[-3:]
            found[TopicPartition(topic, int(partition))] = int(offset)
    return found


def must_be_idle(cluster: Cluster, group: str, *, may_be_new: bool) -> None:
    """Raises GroupInUse; NoSuchGroup unless it may be new."""
    try:
        found = describe_group(cluster, group)
    except NoSuchGroup:
        if not may_be_new:
            raise
        return
    if found.is_active:
        raise GroupInUse(group, f"it is {found.state}, and its offsets can't be reset")


def plan_reset(
    cluster: Cluster,
    group: str,
    topics: Sequence[tuple[str, list[int] | None]],
    aim: Aim,
    note: Callable[[str], None],
) -> list[NewOffset]:
    """What each partition would get. Raises ClientError."""
    committed = committed_offsets(cluster, group)
    keys = _keys(cluster, topics, aim.listed, committed)
    if not keys:
        raise ClientError(f"group {group} has no offsets; name topics with --topic")
    first, last = _offsets(cluster, keys, EARLIEST), _offsets(cluster, keys, LATEST)
    by_time = _offsets(cluster, keys, aim.number) if aim.rule == TO_TIME else {}
    found = []
    for key in keys:
        prior = committed[key].offset if key in committed else None
        wanted = _wanted(key, aim, prior, first[key], last[key], by_time)
        new = min(max(wanted, first[key]), last[key])
        if new != wanted:
            which = f"ends at {new}" if wanted > new else f"begins at {new}"
            note(f"{wanted} is not in {key}, which {which}; it gets {new}")
        found.append(NewOffset(key, new, prior))
    return found


def _keys(
    cluster: Cluster,
    topics: Sequence[tuple[str, list[int] | None]],
    listed: Mapping[TopicPartition, Offset],
    committed: Mapping[TopicPartition, Committed],
) -> list[TopicPartition]:
    if not topics:
        known = cluster.refresh().topics
        return sorted(key for key in listed or committed if key.topic in known or key in listed)
    found = set()
    for topic, numbers in topics:
        for partition in cluster.topic(topic).partitions if numbers is None else numbers:
            cluster.partition(topic, partition)
            found.add(TopicPartition(topic, partition))
    if listed:
        found &= set(listed)
    return sorted(found)


def _wanted(
    key: TopicPartition,
    aim: Aim,
    prior: Offset | None,
    first: Offset,
    last: Offset,
    by_time: Mapping[TopicPartition, Offset],
) -> Offset:
    if aim.rule == TO_EARLIEST:
        return first
    if aim.rule == TO_OFFSET:
        return aim.number
    if aim.rule == FROM_FILE:
        return aim.listed[key]
    if aim.rule == TO_TIME and by_time[key] >= 0:
        return by_time[key]
    if aim.rule == SHIFT_BY:
        if prior is None:
            raise ClientError(f"{key} has no offset to be shifted; take --to-earliest or another")
        return prior + aim.number
    if aim.rule == TO_CURRENT and prior is not None:
        return prior
    return last


def _offsets(
    cluster: Cluster, keys: Collection[TopicPartition], timestamp: int
) -> dict[TopicPartition, Offset]:
    found = {}
    for key, answer in list_offsets(cluster, dict.fromkeys(keys, timestamp)).items():
        if isinstance(answer, ClientError):
            raise answer
        found[key] = answer.offset
    return found
