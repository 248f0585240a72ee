"""Look up the subscribed partitions, their start and end offsets, and the ends of leader epochs.

This runs on the driver, with one client. Invariant: a topic counts as deleted or recreated only if
the metadata says so for DELETED_AFTER_S and no broker that responds still has the topic. A broker
that has just started may not know all topics yet.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from tidelog.apps.near_names import nearest
from tidelog.apps.spark.client_options import ClientSettings
from tidelog.apps.spark.source.source_options import Subscription
from tidelog.core.api_table import METADATA
from tidelog.core.errors import ErrorCode
from tidelog.core.types import INTERNAL_TOPICS, LeaderEpoch, Offset, TopicId, TopicPartition
from tidelog.shell.client.client_errors import (
    BrokerError,
    CannotConnect,
    ClientError,
    NoSuchPartition,
    NoSuchTopic,
    Unresolved,
)
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.cluster_metadata import NO_TOPIC_ID, read_metadata
from tidelog.shell.client.offsets import (
    Found,
    FoundOffset,
    epoch_end,
    list_all_offsets,
    list_offsets,
)
from tidelog.shell.client.retry import Retry

DELETED_AFTER_S = 2.0


def is_retriable_or_no_topic(error: ClientError) -> bool:
    """Whether to retry after an error. A broker that has just started may not know a topic yet."""
    return error.retriable or isinstance(error, NoSuchTopic)


def is_same_topic(known: TopicId, found: TopicId | None) -> bool:
    """Compare topic ids; `found` is None if the topic does not exist.

    Without ids, topics with the same name count as the same topic.
    """
    return found is not None and (known == found or NO_TOPIC_ID in (known, found))


def known_by_a_broker(cluster: Cluster, doubted: Mapping[str, TopicId]) -> str | None:
    """Return one of these topics that a broker still has with its id; None if no broker does.

    It sends a request to every broker, and skips brokers that do not respond.
    """
    request = {
        "topics": [{"name": topic} for topic in doubted],
        "allow_auto_topic_creation": False,
    }
    for broker in cluster.metadata.brokers:
        try:
            reported = read_metadata(cluster.broker(broker).call(METADATA, request)).topics
        except (BrokerError, CannotConnect, Unresolved):
            continue
        for topic, known_id in doubted.items():
            each = reported.get(topic)
            if each and not each.error and is_same_topic(known_id, each.id):
                return topic
    return None


class SubscribedPartitions(NamedTuple):
    """The partitions that are read, and the ids of their topics."""

    partitions: frozenset[TopicPartition]
    ids: Mapping[str, TopicId]


class PartitionLookup:
    """Sends the driver's requests about partitions and offsets."""

    def __init__(self, client: ClientSettings, subscription: Subscription, isolation: int) -> None:
        self.client = client
        self.subscription = subscription
        self.isolation = isolation
        self._cluster: Cluster | None = None

    @property
    def cluster(self) -> Cluster:
        if self._cluster is None:
            self._cluster = self.client.cluster()
        return self._cluster

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def covers(self, topic: str) -> bool:
        """Whether the subscription includes the topic, existing or not."""
        wanted = self.subscription
        if wanted.pattern is not None:
            return re.fullmatch(wanted.pattern, topic) is not None
        return topic in wanted.topics or any(key.topic == topic for key in wanted.partitions)

    def reads(self, key: TopicPartition) -> bool:
        """Whether the subscription includes the partition, existing or not."""
        wanted = self.subscription
        return key in wanted.partitions if wanted.partitions else self.covers(key.topic)

    # -- which partitions -------------------------------------------------------------------

    def find(self, known: Mapping[str, TopicId] | None = None) -> SubscribedPartitions:
        """Return the subscribed partitions. Raises ClientError.

        A topic in `known` counts as deleted or recreated only after a while, and if no broker
        still has it.
        """
        retry = Retry(DELETED_AFTER_S)
        while True:
            found = self._find_once()
            doubted = self._doubted(known or {}, found.ids)
            if not doubted:
                return found
            try:
                retry.wait(NoSuchTopic(f"topic {min(doubted)!r}"))
            except NoSuchTopic:
                self._check_all_brokers(doubted)
                return found

    def _doubted(
        self, known: Mapping[str, TopicId], ids: Mapping[str, TopicId]
    ) -> dict[str, TopicId]:
        return {
            topic: known_id
            for topic, known_id in known.items()
            if self.covers(topic) and not is_same_topic(known_id, ids.get(topic))
        }

    def _check_all_brokers(self, doubted: Mapping[str, TopicId]) -> None:
        """Raise BrokerError if a broker still has one of these topics: some broker is stale."""
        topic = known_by_a_broker(self.cluster, doubted)
        if topic is not None:
            what = f"comparing the brokers' ids of topic {topic!r}"
            raise BrokerError(what, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def find_named(self) -> SubscribedPartitions:
        """Return the subscribed partitions; wait a while for missing topics of the subscription."""
        return self.find(dict.fromkeys(self._named(), NO_TOPIC_ID))

    def find_all(self) -> SubscribedPartitions:
        """Return the subscribed partitions. Raises NoSuchTopic, NoSuchPartition."""
        found = self.find_named()
        missing = sorted(self._named() - found.ids.keys())
        if missing:
            meant = nearest(missing[0], self.cluster.refresh().topics)
            raise NoSuchTopic(f"topic {missing[0]!r}", missing[0], *([meant] if meant else []))
        for key in self.subscription.partitions:
            if key not in found.partitions:
                raise NoSuchPartition(*key)
        return found

    def _named(self) -> set[str]:
        return {*self.subscription.topics, *(key.topic for key in self.subscription.partitions)}

    def _find_once(self) -> SubscribedPartitions:
        wanted = self.subscription
        metadata = self.cluster.refresh(sorted(self._named()) if wanted.pattern is None else None)
        ids, partitions = {}, set()
        for name, topic in metadata.topics.items():
            if topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not self.covers(name):
                continue
            if wanted.pattern is not None and (topic.internal or name in INTERNAL_TOPICS):
                continue
            if topic.error and topic.error != ErrorCode.LEADER_NOT_AVAILABLE:
                raise BrokerError(f"request for the metadata of topic {name}", topic.error)
            ids[name] = topic.id
            partitions |= {TopicPartition(name, partition) for partition in topic.partitions}
        if wanted.partitions:
            partitions &= set(wanted.partitions)
        return SubscribedPartitions(frozenset(partitions), ids)

    # -- where they begin and end -----------------------------------------------------------

    def list_offsets(self, wanted: Mapping[TopicPartition, int]) -> Found:
        """Return an offset or an error for each partition; `wanted` contains timestamps."""
        return list_offsets(self.cluster, wanted, self.isolation)

    def list_all_offsets(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, FoundOffset]:
        """Return an offset for each partition; retry for `patience_s`. Raises ClientError."""
        retry = Retry(self.client.patience_s, retriable=is_retriable_or_no_topic)
        return list_all_offsets(self.cluster, wanted, retry, self.isolation)

    def epoch_end(
        self, key: TopicPartition, epoch: LeaderEpoch
    ) -> tuple[LeaderEpoch, Offset] | None:
        """Return the largest epoch up to `epoch` in the leader's log, and its end offset.

        None if the log has no epoch that old.
        """
        found = epoch_end(self.cluster, *key, epoch)
        return None if found[1] < 0 else found

    def epoch_start(self, key: TopicPartition, epoch: LeaderEpoch) -> Offset:
        """Return the first offset of the leader's epoch; -1 if unknown."""
        if epoch <= 0:
            return epoch  # epoch 0 starts at offset 0; -1 is unknown
        return epoch_end(self.cluster, *key, epoch - 1)[1]
