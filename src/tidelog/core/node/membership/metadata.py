"""From the cluster's image to this broker's replicas.

The image follows the store. What it says about partitions that have a replica here becomes
PartitionChanged events, new logs and deleted logs. A log belongs to a topic id, not to a
name: a topic made anew under an old name gets an empty log.

Held back: a partition whose leader is this broker, while this broker is not acting. The word
may be about an earlier incarnation of it, whose unflushed records are gone; taking it would
let two different records share an offset and an epoch. And one whose log was lost, until the
controller knows that and somebody leads (lost_logs.py).
"""

from collections.abc import Collection

from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata.cluster_image import ImageDelta
from tidelog.core.controller.metadata.registrations import (
    LeaderRecovery,
    PartitionKey,
    PartitionRegistration,
)
from tidelog.core.errors import ErrorCode
from tidelog.core.node.config import NodeConfig
from tidelog.core.node.following.replica_fetchers import ReplicaFetchers
from tidelog.core.node.measuring.replica_notes import note_standing
from tidelog.core.node.membership.lost_logs import LostLogs
from tidelog.core.node.membership.topic_settings import topic_settings
from tidelog.core.node.replicas import HostedReplica, Replicas
from tidelog.core.node.serving.gate import Gate
from tidelog.core.node.turn import Turn
from tidelog.core.replication.events import BrokersChanged, PartitionChanged
from tidelog.core.replication.partition import Partition
from tidelog.core.replication.truncation import TruncationPolicy
from tidelog.core.storage import checkpoint, layout
from tidelog.core.storage.log import Log
from tidelog.core.storage.log_directory import NewLog
from tidelog.core.types import BrokerEpoch, BrokerId, TopicId, TopicPartition


class Metadata:
    """Keeps the hosted replicas as the image says."""

    def __init__(
        self,
        config: NodeConfig,
        turn: Turn,
        gate: Gate,
        replicas: Replicas,
        fetchers: ReplicaFetchers,
        lost: LostLogs,
        policy: TruncationPolicy,
    ) -> None:
        self._config = config
        self._turn = turn
        self._gate = gate
        self._image = gate.image
        self._replicas = replicas
        self._fetchers = fetchers
        self._lost = lost
        self._policy = policy
        self._held_back: dict[PartitionKey, None] = {}
        self.brokers: dict[BrokerId, BrokerEpoch | None] = {}
        """Who may be in an ISR; shared by all partitions."""
        self._incarnations: dict[BrokerId, BrokerEpoch] = {}

    def apply(self, delta: ImageDelta) -> None:
        """Let the replicas follow what has changed in the image.

        A snapshot brings many revisions at once. So settings come before partitions (an ISR
        that shrank under a higher min.insync.replicas commits nothing), and high watermarks
        rise by settings and brokers only after them (nor does a leader that was deposed).
        """
        for name, topic_id in sorted(delta.deleted_topics):
            self._drop_topic(name, topic_id)
        concerned = self._configure(delta.configs) if delta.configs else ()
        if delta.brokers and self._brokers_changed(delta.brokers):
            concerned = self._replicas.hosted.keys()
        self._lost.image_advanced(delta)
        changed = sorted(delta.partitions)
        self._make_logs(changed)
        for key in changed:
            self._partition_changed(key)
        hosted = self._replicas.hosted
        self._reconsider([hosted[name] for name in list(concerned) if name in hosted])

    def set_aside_strays(self) -> None:
        """Logs of topics that were deleted while this broker was away. As in Kafka their files
        stay: a store that was restored from a backup may know less than the logs."""
        directory = self._replicas.directory
        for name, log in list(directory.logs.items()):
            unknown = log.topic_id is not None and log.topic_id not in self._image.topic_names
            if unknown and name not in self._replicas.hosted:
                directory.set_aside(name)

    def begin_acting(self) -> None:
        """Take the words about this broker's own leadership that were held back."""
        held_back, self._held_back = self._held_back, {}
        for key in held_back:
            if self._image.committed(key):
                self._partition_changed(key)
        self._reconsider(list(self._replicas.hosted.values()))

    def _partition_changed(self, key: PartitionKey) -> None:
        name = self._image.name_of(key)
        assert name is not None, "only committed partitions are told of"
        known = self._image.partitions[key]
        if self._config.broker_id not in known.replicas:
            self._drop(name, key.topic_id)
            return
        if self._lost.withheld(key):
            return
        replica = self._host(name, key.topic_id)
        replica.note_isr(known.replicas, known.isr, self._turn.now_ms)
        if known.leader == self._config.broker_id and not self._gate.acting:
            self._held_back[key] = None
            return
        self._held_back.pop(key, None)
        led, epoch = replica.partition.is_leader, replica.partition.leader_epoch
        if known.unclean_election is not None:
            replica.unclean_epoch = known.unclean_election.leader_epoch
        self._replicas.step(replica, _event(known, self._turn.now_ms))
        note_standing(self._turn, replica, known, led, epoch)
        # Followers that rest here may have left the ISR: their fetches count again.
        self._replicas.touched[replica] = None

    def _make_logs(self, changed: list[PartitionKey]) -> None:
        """The logs that will be missed, all with the syncs of one."""
        directory = self._replicas.directory
        new = []
        for key in changed:
            name = self._image.name_of(key)
            if name is None or self._config.broker_id not in self._image.partitions[key].replicas:
                continue
            if name not in directory.logs and not self._lost.withheld(key):
                settings = topic_settings(self._config, self._image, key.topic_id)
                new.append(NewLog(name, key.topic_id, settings.log))
        if new:
            directory.create_all(new, self._turn.now_ms, self._image.revision)

    def _host(self, name: TopicPartition, topic_id: TopicId) -> HostedReplica:
        replica = self._replicas.hosted.get(name)
        if replica is not None and replica.topic_id == topic_id:
            return replica
        directory = self._replicas.directory
        settings = topic_settings(self._config, self._image, topic_id)
        log = directory.logs.get(name)
        if log is not None and log.topic_id is None:
            self._adopt(log, topic_id)
        elif log is not None and log.topic_id != topic_id:
            # Of a topic that had this name before; its deletion was not seen here.
            self._drop(name, log.topic_id)
            log = None
        if log is None:
            now_ms, revision = self._turn.now_ms, self._image.revision
            log = directory.create(name, topic_id, now_ms, settings.log, revision)
        log.config = settings.log
        partition = Partition(
            self._config.broker_id,
            settings.partition,
            self.brokers,
            log.epochs,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            high_watermark=directory.high_watermarks[name],
            policy=self._policy,
            producers=log.producers,
        )
        traffic = self._turn.counters.traffic(name.topic)
        replica = HostedReplica(name, topic_id, partition, log, settings.rules, traffic)
        self._replicas.hosted[name] = replica
        self._replicas.surroundings.log_changed(replica)
        return replica

    def _adopt(self, log: Log, topic_id: TopicId) -> None:
        """A log from before topic ids, or whose making was cut short: it is this topic's."""
        path = f"{log.directory}/{layout.PARTITION_METADATA}"
        checkpoint.write_topic_metadata(self._replicas.directory.disk, path, topic_id)
        log.topic_id = topic_id

    def _drop_topic(self, name: str, topic_id: TopicId) -> None:
        for partition in [p for p in self._replicas.directory.logs if p.topic == name]:
            self._drop(partition, topic_id)

    def _drop(self, name: TopicPartition, topic_id: TopicId | None) -> None:
        """Let go of a log of that topic id, hosted or only found at the start."""
        log = self._replicas.directory.logs.get(name)
        if log is None or log.topic_id != topic_id:
            return
        replica = self._replicas.hosted.pop(name, None)
        if replica is not None:
            self._fetchers.stop(replica)
            self._replicas.fail_waiters(replica, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            self._replicas.touched.pop(replica, None)
        self._replicas.directory.delete(name, self._turn.now_ms)

    def _brokers_changed(self, changed: set[BrokerId]) -> bool:
        """Take note of who came and went; whether others may be in an ISR now."""
        for broker in sorted(changed):
            known = self._image.brokers.get(broker)
            epoch = None if known is None or not known.registered else known.epoch
            if epoch is None:
                self._incarnations.pop(broker, None)
                self._fetchers.leader_restarted(broker)
            elif self._incarnations.get(broker) != epoch:
                self._incarnations[broker] = epoch
                self._fetchers.leader_restarted(broker)
        eligible = {b.id: b.epoch for b in self._image.brokers.values() if b.active}
        if eligible == self.brokers:
            return False
        self.brokers.clear()
        self.brokers.update(eligible)
        return True

    def _reconsider(self, replicas: list[HostedReplica]) -> None:
        """Let high watermarks rise that may, now that brokers or settings are others. While
        this broker is not acting nothing rises; it is made up for when it acts again."""
        if self._gate.acting:
            event = BrokersChanged(self._turn.now_ms)
            for replica in replicas:
                self._replicas.step(replica, event)

    def _configure(self, changed: set[str]) -> Collection[TopicPartition]:
        """Give the replicas their new settings; which ones got any."""
        mine = {keys.DEFAULT_CONFIG, keys.broker_config(self._config.broker_id)}
        everywhere = not mine.isdisjoint(changed)
        configured = {
            name: replica
            for name, replica in self._replicas.hosted.items()
            if everywhere or keys.topic_config(name.topic) in changed
        }
        for replica in configured.values():
            settings = topic_settings(self._config, self._image, replica.topic_id)
            replica.log.config = settings.log
            partition = replica.partition
            partition.config = settings.partition
            # It was not kept in mind while no acknowledgement waited for flushes.
            partition.flushed_offset = min(partition.flushed_offset, replica.log.recovery_point)
            replica.rules = settings.rules
            self._replicas.surroundings.log_changed(replica)
        return configured.keys()


def _event(known: PartitionRegistration, now_ms: int) -> PartitionChanged:
    return PartitionChanged(
        known.leader,
        known.leader_epoch,
        known.partition_epoch,
        known.isr,
        known.replicas,
        known.recovery is LeaderRecovery.RECOVERING,
        now_ms,
    )
