"""Requests that wait until this broker's image is up to date (ADR 17).

Between the end of a broker's session and the election of new leaders, the image still names the
dead broker, and just then clients request metadata. Metadata and FindCoordinator wait if their
response would name a leader or coordinator that is known to be dead.

A broker that starts has no image before it has read the store, which takes long while the store
does not respond. Metadata waits for it; then the connection is closed, so that the client uses
another broker. A response without topics would tell the client that its topics do not exist.

Elections and reassignments name partitions that another broker may have created a moment ago: they
wait until the image is as new as the store.
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
    """Whether a requested topic (or any, if all are requested) has a dead leader.

    True also while this broker has no image.
    """
    if has_no_image(image):
        return True
    live = _live(image)
    topics = request["topics"]
    if topics is None:
        # Frequent, and with many partitions: only the partitions of dead brokers are checked.
        return any(
            image.partitions[key].leader == broker and image.committed(key)
            for broker, keys in image.in_isr.items()
            if broker not in live
            for key in keys
        )
    # Each topic once: a request may repeat a topic of thousands of partitions.
    names = {
        topic["name"] or image.topic_names.get(topic.get("topic_id", b""), "") for topic in topics
    }
    return any(
        partition.leader is not None and partition.leader not in live
        for name in names
        if name in image.topics
        for partition in partitions_of(image, image.topics[name])
    )


def has_no_image(image: ClusterImage) -> bool:
    """Whether this broker has not read the store since its start."""
    return image.revision == 0


def names_a_dead_coordinator(image: ClusterImage, request: Struct) -> bool:
    """Whether a requested group has a dead coordinator."""
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


def waits_for_store_only(_image: ClusterImage, _request: Struct) -> bool:
    """False: the request waits only until the image is as new as the store."""
    return False


def _live(image: ClusterImage) -> set[BrokerId]:
    return {broker.id for broker in image.brokers.values() if not broker.fenced}


UNSETTLED: dict[int, Unsettled] = {
    METADATA: names_a_dead_leader,
    FIND_COORDINATOR: names_a_dead_coordinator,
    ELECT_LEADERS: waits_for_store_only,
    ALTER_PARTITION_REASSIGNMENTS: waits_for_store_only,
}
"""By API: whether a response would be outdated. All of these requests also wait until the image is
as new as the store was when the request arrived."""
