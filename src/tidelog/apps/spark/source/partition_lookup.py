"""Asks the brokers: which partitions are read, where they begin and end, where epochs end.

Runs on the driver; one client is kept. Always true: that a topic is gone, or is another one, is
believed only when it stays so for a while and no broker that answers says otherwise, because
one that has just started knows little.
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
from tidelog.shell.client.offsets import Found, FoundOffset, epoch_end, list_offsets
from tidelog.shell.client.retry import Retry

BELIEVE_GONE_S = 2.0


def is_retriable_or_no_topic(error: ClientError) -> bool:
    """Whether to try again; a broker that has just started may not know a topic yet."""
    return error.retriable or isinstance(error, NoSuchTopic)


def is_same_topic(known: TopicId, found: TopicId | None) -> bool:
    """By their ids; None: there is none of that name. Where brokers have no ids a topic of the
    same name is taken for the same."""
    return found is not None and (known == found or NO_TOPIC_ID in (known, found))


def known_by_a_broker(cluster: Cluster, doubted: Mapping[str, TopicId]) -> str | None:
    """One of these topics, if a broker knows it as it was. All of them are asked; who does not
    answer is left out."""
    request = {
        "topics": [{"name": topic} for topic in doubted],
        "allow_auto_topic_creation": False,
    }
    for broker in cluster.metadata.brokers:
        try:
            told = read_metadata(cluster.broker(broker).call(METADATA, request)).topics
        except (BrokerError, CannotConnect, Unresolved):
            continue
        for topic, known_id in doubted.items():
            each = told.get(topic)
            if each and not each.error and is_same_topic(known_id, each.id):
                return topic
    return None


class SubscribedPartitions(NamedTuple):
    """The partitions that are read, and the ids of their topics."""

    partitions: frozenset[TopicPartition]
    ids: Mapping[str, TopicId]


class PartitionLookup:
    """A client for the questions of a plan."""

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
        """Whether the topic is among those asked for, there or not."""
        wanted = self.subscription
        if wanted.pattern is not None:
            return re.fullmatch(wanted.pattern, topic) is not None
        return topic in wanted.topics or any(key.topic == topic for key in wanted.partitions)

    def reads(self, key: TopicPartition) -> bool:
        """Whether the partition is among those asked for, there or not."""
        wanted = self.subscription
        return key in wanted.partitions if wanted.partitions else self.covers(key.topic)

    # -- which partitions -------------------------------------------------------------------

    def look(self, known: Mapping[str, TopicId] | None = None) -> SubscribedPartitions:
        """Ask for metadata. That a topic of `known` is gone, or has another id, is believed
        after some doubt, and if no broker knows better. Raises ClientError."""
        retry = Retry(BELIEVE_GONE_S)
        while True:
            found = self._find_once()
            doubted = self._doubted(known or {}, found.ids)
            if not doubted:
                return found
            try:
                retry.wait(NoSuchTopic(f"topic {min(doubted)!r}"))
            except NoSuchTopic:
                self._ask_all_brokers(doubted)
                return found

    def _doubted(
        self, known: Mapping[str, TopicId], ids: Mapping[str, TopicId]
    ) -> dict[str, TopicId]:
        return {
            topic: known_id
            for topic, known_id in known.items()
            if self.covers(topic) and not is_same_topic(known_id, ids.get(topic))
        }

    def _ask_all_brokers(self, doubted: Mapping[str, TopicId]) -> None:
        """Raises BrokerError if a broker knows one of these topics as it was: another one is
        behind the times, or this one is."""
        topic = known_by_a_broker(self.cluster, doubted)
        if topic is not None:
            what = f"brokers do not agree on topic {topic!r}"
            raise BrokerError(what, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def find_named(self) -> SubscribedPartitions:
        """As `look`; that a topic is not there which was named is doubted."""
        return self.look(dict.fromkeys(self._named(), NO_TOPIC_ID))

    def find_all(self) -> SubscribedPartitions:
        """As `find_named`, but what was named must be there. Raises NoSuchTopic."""
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
                raise BrokerError(f"metadata of {name}", topic.error)
            ids[name] = topic.id
            partitions |= {TopicPartition(name, partition) for partition in topic.partitions}
        if wanted.partitions:
            partitions &= set(wanted.partitions)
        return SubscribedPartitions(frozenset(partitions), ids)

    # -- where they begin and end -----------------------------------------------------------

    def ask(self, wanted: Mapping[TopicPartition, int]) -> Found:
        """By partition an offset, or what stood in the way."""
        return list_offsets(self.cluster, wanted, self.isolation)

    def ask_all(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, FoundOffset]:
        """An offset of each; asked again until the patience is at its end. Raises ClientError."""
        retry = Retry(self.client.patience_s, retriable=is_retriable_or_no_topic)
        found: dict[TopicPartition, FoundOffset] = {}
        while True:
            left = {key: time for key, time in wanted.items() if key not in found}
            error: ClientError | None = None
            for key, answer in self.ask(left).items():
                if isinstance(answer, FoundOffset):
                    found[key] = answer
                else:
                    error = answer
            if error is None:
                return found
            retry.failed(error)

    def epoch_end(
        self, key: TopicPartition, epoch: LeaderEpoch
    ) -> tuple[LeaderEpoch, Offset] | None:
        """The largest epoch of the leader's log up to that one, and where it ends; None: it knows
        none that old."""
        found = epoch_end(self.cluster, *key, epoch)
        return None if found[1] < 0 else found

    def epoch_start(self, key: TopicPartition, epoch: LeaderEpoch) -> Offset:
        """Where the leader's own epoch began: where those before it end; -1: nobody can say."""
        if epoch <= 0:
            return epoch  # the first of all begins with the log; or none is known
        return epoch_end(self.cluster, *key, epoch - 1)[1]
