"""Metrics of consumer groups, reported by the broker that coordinates them.

The lag of a group is known if a replica of the partition is on the same broker. Otherwise it is
left out; compute it from the committed offset and the partition's high watermark.
"""

from collections.abc import Callable, Iterator

from tidelog.core.coordinator.lookup import OFFSETS_TOPIC
from tidelog.core.groups.membership.group import Group, GroupState
from tidelog.core.metrics.exposition import GAUGE, Family, Sample, labelled
from tidelog.core.metrics.load_time_families import load_time_families
from tidelog.core.metrics.scrape import Scrape
from tidelog.core.types import TopicPartition

_LABELS = ("consumergroup", "topic", "partition")
_MANAGER = "kafka_coordinator_group_groupmetadatamanager"


def _groups(scrape: Scrape) -> Iterator[Group]:
    for hosted in list(scrape.node.coordinators.shards(OFFSETS_TOPIC).values()):
        if hosted.loaded:
            yield from hosted.shard.groups


def _count(name: str, meaning: str, count: Callable[[Scrape], int]) -> Family:
    return Family(f"{_MANAGER}_{name}", GAUGE, (), meaning, lambda s: [("", "", count(s))])


def _in_state(state: GroupState) -> Family:
    def count(scrape: Scrape) -> int:
        return sum(group.state is state for group in _groups(scrape))

    return _count(f"numgroups{state.lower()}", f"Groups in state {state}.", count)


def _offsets(scrape: Scrape) -> Iterator[tuple[str, str, int, int]]:
    """Group id, topic, partition and committed offset."""
    for group in _groups(scrape):
        for topic, partition in list(group.offsets):
            value = group.offsets.get(topic, partition)
            if value is not None:
                yield group.group_id, topic, partition, value.offset


def _current(scrape: Scrape) -> Iterator[Sample]:
    for group, topic, partition, offset in _offsets(scrape):
        yield "", labelled(consumergroup=group, topic=topic, partition=partition), offset


def _lag(scrape: Scrape) -> Iterator[Sample]:
    ends = {r.topic_partition: r.partition.high_watermark for r, _ in scrape.hosted}
    for group, topic, partition, offset in _offsets(scrape):
        end = ends.get(TopicPartition(topic, partition))
        if end is not None:
            labels = labelled(consumergroup=group, topic=topic, partition=partition)
            yield "", labels, max(0, end - offset)


def _members(scrape: Scrape) -> Iterator[Sample]:
    for group in _groups(scrape):
        yield "", labelled(consumergroup=group.group_id), len(group.members)


GROUPS = (
    _count("numgroups", "Groups that this broker coordinates.", lambda s: len([*_groups(s)])),
    _count(
        "numoffsets",
        "Committed offsets of the groups that this broker coordinates.",
        lambda s: len([*_offsets(s)]),
    ),
    *map(_in_state, GroupState),
    *load_time_families("group", OFFSETS_TOPIC),
    Family(
        "kafka_consumergroup_members",
        GAUGE,
        ("consumergroup",),
        "Members of the group.",
        _members,
    ),
    Family(
        "kafka_consumergroup_current_offset",
        GAUGE,
        _LABELS,
        "The committed offset of the group.",
        _current,
    ),
    Family(
        "kafka_consumergroup_lag",
        GAUGE,
        _LABELS,
        "Records between the committed offset and the high watermark, if the coordinator has a"
        " replica of the partition.",
        _lag,
    ),
)
