"""Reset and delete a consumer group's committed offsets; delete groups.

The reset rules are those of kafka-consumer-groups. Invariant: a new offset lies within the
partition's log; a requested offset outside the log is moved into it, with a note.
"""

import csv
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from tidelog.apps.changes.outcome import Change
from tidelog.apps.near_names import nearest
from tidelog.core.errors import ErrorCode
from tidelog.core.types import Offset, TopicPartition
from tidelog.shell.client.client_errors import BrokerError, ClientError, error_name
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.groups import group_admin
from tidelog.shell.client.groups.group_admin import (
    Committed,
    GroupInUse,
    NoSuchGroup,
    committed_offsets,
    describe_group,
)
from tidelog.shell.client.offsets import EARLIEST, LATEST, list_offsets

TO_EARLIEST, TO_LATEST, TO_CURRENT = "to_earliest", "to_latest", "to_current"
TO_OFFSET, SHIFT_BY, TO_TIME, FROM_FILE = "to_offset", "shift_by", "to_time", "from_file"


class ResetRule(NamedTuple):
    """How to choose new offsets: a rule and its number; for FROM_FILE the offsets themselves."""

    kind: str
    number: int = 0
    listed: Mapping[TopicPartition, Offset] = {}


class NewOffset(NamedTuple):
    """The new and the former committed offset of a partition."""

    key: TopicPartition
    new: Offset
    prior: Offset | None


def parse_topics(texts: Sequence[str]) -> list[tuple[str, list[int] | None]]:
    """Parse `orders` (all partitions) and `orders:0,2` (these). Raises ValueError."""
    found: list[tuple[str, list[int] | None]] = []
    for text in texts:
        topic, colon, numbers = text.partition(":")
        parts = numbers.split(",") if colon else []
        if not topic or not all(part.strip().isdecimal() for part in parts):
            raise ValueError(f"{text!r} is not in the form TOPIC or TOPIC:0,1")
        found.append((topic, [int(part) for part in parts] if colon else None))
    return found


def read_file(path: str, group: str) -> dict[TopicPartition, Offset]:
    """Read lines `topic,partition,offset` or `group,topic,partition,offset`; lines of other
    groups are ignored. Raises ValueError, OSError."""
    found = {}
    with open(path, encoding="utf-8", newline="") as file:
        for number, line in enumerate(csv.reader(file), 1):
            fields = [field.strip() for field in line]
            if not fields:
                continue
            if len(fields) not in (3, 4) or not all(field.isdecimal() for field in fields[-2:]):
                raise ValueError(f"{path}, line {number}: expected topic,partition,offset")
            if len(fields) == 4 and fields[0] != group:
                continue
            topic, partition, offset = fields[-3:]
            found[TopicPartition(topic, int(partition))] = int(offset)
    return found


def check_idle(cluster: Cluster, group: str, *, may_be_new: bool) -> None:
    """Check that the group has no members. Raises GroupInUse; NoSuchGroup unless it may be new."""
    try:
        found = describe_group(cluster, group)
    except NoSuchGroup:
        if not may_be_new:
            raise
        return
    if found.is_active:
        raise GroupInUse(
            group, f"its state is {found.state}; its offsets can't be reset while it has members"
        )


def plan_reset(
    cluster: Cluster,
    group: str,
    topics: Sequence[tuple[str, list[int] | None]],
    rule: ResetRule,
    note: Callable[[str], None],
) -> list[NewOffset]:
    """Compute the new offset of each partition. Raises ClientError."""
    committed = committed_offsets(cluster, group)
    keys = _keys(cluster, topics, rule.listed, committed)
    if not keys:
        raise ClientError(f"group {group} has no committed offsets; name topics with --topic")
    first, last = _offsets(cluster, keys, EARLIEST), _offsets(cluster, keys, LATEST)
    by_time = _offsets(cluster, keys, rule.number) if rule.kind == TO_TIME else {}
    found = []
    for key in keys:
        prior = committed[key].offset if key in committed else None
        wanted = _wanted(key, rule, prior, first[key], last[key], by_time)
        new = min(max(wanted, first[key]), last[key])
        if new != wanted:
            which = f"ends at {new}" if wanted > new else f"begins at {new}"
            note(f"offset {wanted} is outside {key}, whose log {which}; using {new}")
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
    rule: ResetRule,
    prior: Offset | None,
    first: Offset,
    last: Offset,
    by_time: Mapping[TopicPartition, Offset],
) -> Offset:
    if rule.kind == TO_EARLIEST:
        return first
    if rule.kind == TO_OFFSET:
        return rule.number
    if rule.kind == FROM_FILE:
        return rule.listed[key]
    if rule.kind == TO_TIME and by_time[key] >= 0:
        return by_time[key]
    if rule.kind == SHIFT_BY:
        if prior is None:
            raise ClientError(
                f"{key} has no committed offset to shift; use --to-earliest or another rule"
            )
        return prior + rule.number
    if rule.kind == TO_CURRENT and prior is not None:
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


def delete_groups(cluster: Cluster, names: Sequence[str]) -> list[Change]:
    """Delete groups."""
    changes = []
    for name, error in group_admin.delete_groups(cluster, list(dict.fromkeys(names))).items():
        if error is None:
            changes.append(Change(name, f"group {name} was deleted"))
            continue
        text = str(error)
        code = error.code if isinstance(error, BrokerError) else ErrorCode.NON_EMPTY_GROUP
        if isinstance(error, group_admin.NoSuchGroup):
            code = ErrorCode.GROUP_ID_NOT_FOUND
            known = [each.group for each in group_admin.list_groups(cluster)[0]]
            if meant := nearest(name, known):
                text = f"there is no group {name!r}; {meant}"
        changes.append(Change(name, "", error_name(code), text))
    return changes


def delete_offsets(
    cluster: Cluster, group: str, topics: Sequence[tuple[str, list[int] | None]]
) -> list[Change]:
    """Delete the group's committed offsets in these topics. Raises ClientError."""
    committed = group_admin.committed_offsets(cluster, group)
    keys = []
    for topic, numbers in topics:
        mine = sorted(key for key in committed if key.topic == topic)
        keys += mine if numbers is None else [TopicPartition(topic, each) for each in numbers]
    missing = {topic for topic, numbers in topics if numbers is None} - {key.topic for key in keys}
    if missing:
        group_admin.describe_group(cluster, group)  # raises NoSuchGroup
    changes = [
        Change(
            topic,
            "",
            "UNKNOWN_TOPIC_OR_PARTITION",
            f"group {group} has no committed offsets in {topic}",
        )
        for topic in sorted(missing)
    ]
    answers = group_admin.delete_offsets(cluster, group, keys) if keys else {}
    for key, code in answers.items():
        if not code:
            changes.append(Change(str(key), f"group {group}: offset in {key} deleted"))
        elif code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
            text = f"group {group}: offset in {key} not deleted: members read it; stop them first"
            changes.append(Change(str(key), "", error_name(code), text))
        else:
            text = f"group {group}: offset in {key} not deleted: {error_name(code)}"
            changes.append(Change(str(key), "", error_name(code), text))
    return changes
