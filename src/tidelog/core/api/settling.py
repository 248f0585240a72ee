"""Whether an answer would name a broker that is known to be gone: a leader, or a coordinator.

Between the end of a broker's session and the election of other leaders there is a moment,
and it is the moment in which clients ask.

What moves replicas and leaders names partitions of topics, and those may have been made a
moment ago at another broker: such a request waits until this one knows all that the store has.
"""

from collections.abc import Callable
from typing import TypeAlias

from tidelog.core.api.context import Struct
from tidelog.core.api_table import (
    ALTER_PARTITION_REASSIGNMENTS,
    ELECT_LEADERS,
    FIND_COORDINATOR,
    METADATA,
)
from tidelog.core.controller.metadata.cluster_image import ClusterImage, partitions_of
from tidelog.core.coordinator.lookup import OFFSETS_TOPIC, partition_for
from tidelog.core.types import BrokerId

Unsettled: TypeAlias = Callable[[ClusterImage, Struct], bool]
_GROUP = 0


def names_a_dead_leader(image: ClusterImage, request: Struct) -> bool:
    """Of the topics asked for, or of any if all are."""
    live = _live(image)
    asked = request["topics"]
    if asked is None:
        # Asked often, and with many partitions: only what the dead had is looked at.
        return any(
            image.partitions[key].leader == broker and image.committed(key)
            for broker, keys in image.in_isr.items()
            if broker not in live
            for key in keys
        )
    # Each once: a request may name a topic of thousands of partitions thousands of times.
    names = {
        topic["name"] or image.topic_names.get(topic.get("topic_id", b""), "") for topic in asked
    }
    return any(
        partition.leader is not None and partition.leader not in live
        for name in names
        if name in image.topics
        for partition in partitions_of(image, image.topics[name])
    )


def names_a_dead_coordinator(image: ClusterImage, request: Struct) -> bool:
    """Of the groups asked for."""
    topic = image.topics.get(OFFSETS_TOPIC)
    if topic is None or request.get("key_type", _GROUP) != _GROUP:
        return False
    live = _live(image)
    groups = request["coordinator_keys"] if "coordinator_keys" in request else [request["key"]]
    for group in set(groups):
        kept = image.partition(OFFSETS_TOPIC, partition_for(group, topic.partition_count))
        if kept is not None and kept.leader is not None and kept.leader not in live:
            return True
    return False


def knows_all_it_needs(_image: ClusterImage, _request: Struct) -> bool:
    """As soon as the image is as new as the store was when the request came."""
    return False


def _live(image: ClusterImage) -> set[BrokerId]:
    return {broker.id for broker in image.brokers.values() if not broker.fenced}


UNSETTLED: dict[int, Unsettled] = {
    METADATA: names_a_dead_leader,
    FIND_COORDINATOR: names_a_dead_coordinator,
    ELECT_LEADERS: knows_all_it_needs,
    ALTER_PARTITION_REASSIGNMENTS: knows_all_it_needs,
}
"""By API: whether its answer has to wait for a moment. All of them wait until the image is as
new as the store."""
