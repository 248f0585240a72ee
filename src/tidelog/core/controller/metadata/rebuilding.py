"""Rebuild the metadata of a cluster from its brokers' folders.

The folders provide the topics with their ids, the replicas of each partition, the leader epochs
and the log end offsets. Everything else comes from a base, if there is one: a backup, or the
damaged store as far as it can be read.

No acknowledged record is lost: every in-sync replica had it, so the leader had it. The leader
of the newest epoch is the replica whose log has the highest leader epoch, and then the most
records. Replicas with the same epoch and the same end have the same log. These, and only these,
are in sync in the rebuilt metadata; all others truncate and catch up as after any election.

Every broker is registered with the epoch that it will send as its previous one, if any. So it is
admitted as a broker that lost nothing: its logs were examined here.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata import registrations as values
from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.controller.metadata.history import NO_CHECKSUM
from tidelog.core.controller.metadata.metadata_copy import MetadataCopy
from tidelog.core.controller.metadata.metadata_store import Revision, Snapshot
from tidelog.core.controller.metadata.registrations import (
    NO_EPOCH,
    BrokerState,
    PartitionKey,
    PartitionRegistration,
    TopicImage,
)
from tidelog.core.coordinator.lookup import OFFSETS_TOPIC
from tidelog.core.types import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    StorePoint,
    TopicId,
    TopicPartition,
)

PRODUCER_IDS_SPARED = 1_000_000
"""Producer ids that brokers may have been given since the newest copy was written."""


class FoundLog(NamedTuple):
    """One replica's log in a broker's folder."""

    partition: TopicPartition
    topic_id: TopicId
    leader_epoch: LeaderEpoch
    log_end_offset: Offset
    high_watermark: Offset
    producer_id: int = -1
    """The highest producer id that wrote to it."""


class FoundBroker(NamedTuple):
    """The content of one broker's log directory."""

    broker: BrokerId
    seen: StorePoint | None
    """The last revision of the store that the broker applied; None if unknown."""
    clean_epoch: BrokerEpoch | None
    """The broker epoch in the mark of a clean stop, if there is one."""
    copy: MetadataCopy | None
    logs: tuple[FoundLog, ...]


class RebuiltPartition(NamedTuple):
    """One partition of the plan."""

    partition: TopicPartition
    registration: PartitionRegistration
    log_end_offset: Offset
    records_from: tuple[BrokerId, ...]
    """Brokers that have a log of it."""


class Rebuilt(NamedTuple):
    """The metadata to write, and remarks for the operator."""

    revision: Revision
    keys: dict[str, bytes]
    partitions: tuple[RebuiltPartition, ...]
    remarks: tuple[str, ...]


class Base(NamedTuple):
    """An older store of the cluster, and the checksums of its history."""

    snapshot: Snapshot
    past: Mapping[Revision, int]

    def is_behind(self, seen: StorePoint) -> bool:
        """Whether a broker has applied changes that this store lacks."""
        return self.snapshot.rev < seen.revision or self.past.get(
            seen.revision, seen.checksum
        ) not in (seen.checksum, NO_CHECKSUM)


def rebuild(brokers: Iterable[FoundBroker], base: Base | None = None) -> Rebuilt:
    """Decide the contents of the rebuilt store."""
    return _Rebuilding(list(brokers), base).run()


class _Rebuilding:
    def __init__(self, brokers: list[FoundBroker], base: Base | None) -> None:
        self._brokers = sorted(brokers, key=_revision_seen)
        self._base = ClusterImage()
        self._base_keys: dict[str, bytes] = {}
        self._behind = base is None
        if base is not None:
            self._base_keys = {kv.key: kv.value for kv in base.snapshot.kvs}
            self._base.load(base.snapshot)
            self._behind = any(b.seen is not None and base.is_behind(b.seen) for b in brokers)
        self._seen = max(map(_revision_seen, brokers), default=0)
        self._remarks: list[str] = []

    def run(self) -> Rebuilt:
        found = self._found_topics()
        topics = {**{t.name: t.topic_id for t in self._base.topics.values()}, **found}
        partitions = [made for name in sorted(topics) for made in self._topic(name, topics[name])]
        written = self._settings(topics)
        for made in partitions:
            registration = made.registration
            key = keys.partition(registration.topic_id, registration.partition)
            written[key] = values.encode_partition(registration)
        for name, topic_id in topics.items():
            count = sum(made.partition.topic == name for made in partitions)
            topic = TopicImage(name, topic_id, count)
            written[keys.topic_name(name)] = values.encode_topic(topic)
        for broker in self._brokers:
            state = BrokerState(NO_EPOCH if broker.clean_epoch is None else broker.clean_epoch)
            written[keys.broker_state(broker.broker)] = values.encode_broker_state(state)
        revision = max(self._seen, self._base.revision) + 1
        return Rebuilt(revision, written, tuple(partitions), tuple(self._remarks))

    # -- topics ----------------------------------------------------------------------------

    def _found_topics(self) -> dict[str, TopicId]:
        """Return topic ids by name. Of two topics with one name, the newest broker's counts."""
        found: dict[str, TopicId] = {}
        for broker in self._brokers:
            for log in broker.logs:
                name = log.partition.topic
                before = found.get(name)
                if before is not None and before != log.topic_id:
                    self._remark(
                        f"topic {name} was deleted and recreated: the folders of its older id"
                        f" {before.hex()} are ignored, and set aside when the brokers start"
                    )
                found[name] = log.topic_id
        return found

    def _topic(self, name: str, topic_id: TopicId) -> list[RebuiltPartition]:
        logs: dict[int, dict[BrokerId, FoundLog]] = {}
        for broker in self._brokers:
            for log in broker.logs:
                if log.partition.topic == name and log.topic_id == topic_id:
                    logs.setdefault(log.partition.partition, {})[broker.broker] = log
        known = self._base.topics.get(name)
        if known is not None and known.topic_id != topic_id:
            self._remark(f"topic {name} of the base has another id than the folders: ignored")
            known = None
        count = max([known.partition_count if known else 0, *(index + 1 for index in logs)])
        if not logs:
            self._remark(
                f"topic {name} has no folder on any broker: it was deleted after the backup, or"
                " its folders are lost; it is restored empty"
            )
        return [
            self._partition(TopicPartition(name, index), topic_id, logs.get(index, {}), logs)
            for index in range(count)
        ]

    def _partition(
        self,
        name: TopicPartition,
        topic_id: TopicId,
        logs: Mapping[BrokerId, FoundLog],
        beside: Mapping[int, Mapping[BrokerId, FoundLog]],
    ) -> RebuiltPartition:
        known = self._base.partitions.get(PartitionKey(topic_id, name.partition))
        epochs = [log.leader_epoch for log in logs.values()]
        epoch = max([*epochs, known.leader_epoch if known else 0]) + 1
        best = max(((log.leader_epoch, log.log_end_offset) for log in logs.values()), default=None)
        in_sync = {b for b, log in logs.items() if (log.leader_epoch, log.log_end_offset) == best}
        replicas = _replicas(known, in_sync, logs)
        if not replicas:  # a gap: no folder of this partition is left
            replicas = tuple(sorted({b for some in beside.values() for b in some}))
        if beside and not logs:
            self._remark(
                f"{name} has no folder on any broker: its records are lost, it starts empty"
            )
        isr = tuple(b for b in replicas if b in in_sync) or replicas
        registration = PartitionRegistration(
            topic_id,
            name.partition,
            replicas,
            isr,
            None,
            epoch,
            partition_epoch=(known.partition_epoch if known else 0) + 1,
            controller_epoch=self._base.controller_epoch,
        )
        end = best[1] if best else 0
        committed = max((log.high_watermark for log in logs.values()), default=0)
        if committed > end:
            self._remark(f"{name} was committed up to {committed}, but the best log ends at {end}")
        missing = [b for b in replicas if b not in logs]
        if missing and logs:
            self._remark(f"{name} has no folder on broker {', '.join(map(str, missing))}")
        return RebuiltPartition(name, registration, end, tuple(sorted(logs)))

    # -- settings and producer ids ---------------------------------------------------------

    def _settings(self, topics: Mapping[str, TopicId]) -> dict[str, bytes]:
        """The base's other keys, with the settings of the newest copy."""
        written = {
            key: value
            for key, value in self._base_keys.items()
            if not key.startswith((keys.TOPIC_NAMES, keys.TOPIC_IDS))
            and not key.startswith((keys.BROKER_IDS, keys.BROKER_STATES))
            and key != keys.CONTROLLER
        }
        copies = [b.copy for b in self._brokers if b.copy is not None]
        newest = max(copies, key=lambda copy: copy.revision, default=None)
        if newest is not None and self._behind:
            written = {k: v for k, v in written.items() if not k.startswith(keys.CONFIGS)}
            written.update({k: values.encode_config(v) for k, v in newest.configs.items()})
            if newest.acls is not None:
                written = {k: v for k, v in written.items() if not k.startswith(keys.ACLS)}
                written.update({key: acl.encode() for key, acl in newest.acls.items()})
            if newest.quotas is not None:
                written = {k: v for k, v in written.items() if not k.startswith(keys.QUOTAS)}
                written.update({key: value.encode() for key, value in newest.quotas.items()})
            if newest.features is not None:
                written[keys.FEATURES] = values.encode_features(newest.features)
        elif self._behind:
            self._remark(
                "no broker has a copy of the settings: topics get those of the base, or the"
                " brokers' defaults"
            )
        self._forget_settings(written, topics)
        given = [newest.next_producer_id] if newest else []
        given += [log.producer_id + 1 for broker in self._brokers for log in broker.logs]
        next_id = max([self._base.next_producer_id, *given], default=0) + PRODUCER_IDS_SPARED
        epoch = self._base.controller_epoch
        written[keys.PRODUCER_IDS] = values.encode_producer_ids(next_id, epoch)
        return written

    def _forget_settings(self, written: dict[str, bytes], topics: Mapping[str, TopicId]) -> None:
        for key in [key for key in written if key.startswith(keys.TOPIC_CONFIGS)]:
            if key.removeprefix(keys.TOPIC_CONFIGS) not in topics:
                del written[key]
        key = keys.topic_config(OFFSETS_TOPIC)
        if OFFSETS_TOPIC in topics and key not in written:
            self._remark(f"{OFFSETS_TOPIC} has no settings in any copy: set cleanup.policy=compact")
            written[key] = values.encode_config({"cleanup.policy": "compact"})

    def _remark(self, text: str) -> None:
        if text not in self._remarks:
            self._remarks.append(text)


def _revision_seen(broker: FoundBroker) -> Revision:
    return 0 if broker.seen is None else broker.seen.revision


def _replicas(
    known: PartitionRegistration | None,
    in_sync: Iterable[BrokerId],
    logs: Mapping[BrokerId, FoundLog],
) -> tuple[BrokerId, ...]:
    """The brokers that have a log, in the base's order. A broker without a log stays a replica only
    if there would be fewer replicas than before: reassignment may have moved its log away."""
    named = known.replicas if known else ()
    found = [b for b in dict.fromkeys((*named, *sorted(in_sync), *sorted(logs))) if b in logs]
    without = [b for b in named if b not in logs]
    return (*found, *without[: max(0, len(named) - len(found))])
