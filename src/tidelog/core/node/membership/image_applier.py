"""Apply changes of the cluster image to the replicas on this broker.

The image follows the store. Changes of partitions with a replica on this broker become
PartitionChanged events, new logs and deleted logs. A log belongs to a topic id, not to a name: a
topic that is recreated under an old name gets an empty log.

Two kinds of changes are postponed. First, a partition whose leader is this broker, while this
broker is not active: the registration may be of an earlier incarnation, whose unflushed records are
lost; applying it would let two different records share an offset and an epoch. Second, a partition
whose log was lost, until the controller knows that and another broker leads (log_reporter.py).

A topic may have thousands of partitions: `partitions_at_once` of them are changed in one turn, the
rest with the next ticks (backlog.py). A replica that waits is like one on a broker that receives
changes of the store later; but this broker is not active while changes wait.
"""

from collections.abc import Collection
from functools import partial

from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata.cluster_image import ImageDelta
from tidelog.core.controller.metadata.metadata_store import Revision
from tidelog.core.controller.metadata.registrations import (
    NO_EPOCH,
    LeaderRecovery,
    PartitionKey,
    PartitionRegistration,
)
from tidelog.core.node.config import NodeConfig
from tidelog.core.node.following.leader_fetcher import ReplicaFetchers
from tidelog.core.node.hosting.gate import Gate
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.hosting.replica_notes import note_standing
from tidelog.core.node.hosting.replicas import Replicas
from tidelog.core.node.hosting.replication_quota import (
    FOLLOWER_REPLICAS,
    LEADER_REPLICAS,
    throttled,
)
from tidelog.core.node.membership.backlog import Backlog
from tidelog.core.node.membership.log_reporter import LogReporter
from tidelog.core.node.membership.topic_settings import topic_settings
from tidelog.core.node.turn import Turn
from tidelog.core.replication.events import BrokersChanged, LogFailed, PartitionChanged
from tidelog.core.replication.partition import Partition
from tidelog.core.replication.truncation import TruncationPolicy
from tidelog.core.storage import checkpoint, layout
from tidelog.core.storage.disk import DiskError
from tidelog.core.storage.log import Log
from tidelog.core.storage.log_directory import NewLog
from tidelog.core.types import BrokerEpoch, BrokerId, TopicId, TopicPartition

CHANGES_PER_LOG = 4
"""A change of a replica syncs no file, so several count as much as one new or deleted log."""


class ImageApplier:
    """Keeps the hosted replicas up to date with the image."""

    def __init__(
        self,
        config: NodeConfig,
        turn: Turn,
        gate: Gate,
        replicas: Replicas,
        fetchers: ReplicaFetchers,
        reporter: LogReporter,
        policy: TruncationPolicy,
    ) -> None:
        self._config = config
        self._turn = turn
        self._gate = gate
        self._image = gate.image
        self._replicas = replicas
        self._fetchers = fetchers
        self._reporter = reporter
        self._policy = policy
        self._backlog = Backlog()
        self._room = config.partitions_at_once
        """How many more partitions may be changed before the next tick."""
        self._may_lead = False
        self._held_back: dict[PartitionKey, None] = {}
        self._postponed: set[PartitionKey] = set()
        """Leaders whose high watermark may rise once their waiting change is applied."""
        self._dropped: list[TopicPartition] = []
        """Partitions whose logs are to be deleted together."""
        self.applied_revision: Revision = 0
        """The revision of the image that all replicas have applied."""
        self.brokers: dict[BrokerId, BrokerEpoch | None] = {}
        """Brokers that may be in an ISR, with their epochs; shared by all partitions."""
        self._incarnations: dict[BrokerId, BrokerEpoch] = {}

    def apply(self, delta: ImageDelta) -> None:
        """Apply a change of the image to the replicas.

        A snapshot contains many revisions. So settings are applied before partitions: an ISR that
        shrank under a higher min.insync.replicas commits nothing. High watermarks rise because of
        settings and brokers only after that: a leader that was replaced commits nothing either.
        """
        for topic, topic_id in sorted(delta.deleted_topics):
            for name in self._replicas.directory.of_topic(topic):
                if self._replicas.directory.logs[name].topic_id == topic_id:
                    self._backlog.to_delete[name] = topic_id
        concerned = self._configure(delta.configs) if delta.configs else ()
        if delta.brokers and self._brokers_changed(delta.brokers):
            concerned = self._replicas.hosted.keys()
        self._reporter.image_advanced(delta)
        for key in sorted(delta.partitions):
            if self._lacks_log(key):
                self._queue_log(key)
            else:
                self._backlog.changes[key] = None
        self._work()
        hosted = self._replicas.hosted
        self._raise_high_watermarks([hosted[name] for name in list(concerned) if name in hosted])

    @property
    def settled(self) -> bool:
        """Whether every replica has applied the image."""
        return self._backlog.settled

    def tick(self) -> bool:
        """Apply the next waiting changes; return whether there were any."""
        self._room = self._config.partitions_at_once
        if self._backlog.is_empty:
            return False
        self._work()
        return True

    def next_ms(self) -> int | None:
        """Now if changes wait, else None."""
        return None if self._backlog.is_empty else self._turn.now_ms

    def set_aside_strays(self) -> None:
        """Rename the folders of topics that were deleted while this broker was down. The store is
        not behind this broker (store_follower.py), but as in Kafka the files stay."""
        directory, hosted = self._replicas.directory, self._replicas.hosted
        known = self._image.topic_names
        strays = [
            name
            for name, log in directory.logs.items()
            if log.topic_id is not None
            and log.topic_id not in known
            and name not in hosted
            and name not in self._backlog.to_delete
        ]
        directory.set_aside(strays)

    def let_lead(self, may_lead: bool) -> None:
        """Set whether replicas on this broker may become leaders; if so, apply the postponed
        changes."""
        if may_lead and not self._may_lead:
            self._may_lead = True
            self._backlog.changes.update(self._held_back)
            self._held_back.clear()
            self._work()
        self._may_lead = may_lead

    def begin_acting(self) -> None:
        """Recompute high watermarks: all changes are applied and this broker is active."""
        self._raise_high_watermarks(list(self._replicas.hosted.values()))

    # -- a few partitions at a time --------------------------------------------------------

    def _work(self) -> None:
        """Apply waiting changes up to the limit of this turn."""
        backlog = self._backlog
        while self._room > 0 and not backlog.is_empty:
            if backlog.changes:
                keys = backlog.next_changes(self._room * CHANGES_PER_LOG)
                for key in keys:
                    self._partition_changed(key)
                self._room -= -(-len(keys) // CHANGES_PER_LOG)
            elif backlog.has_logs_to_create:
                keys = backlog.logs_to_create(self._room, self._image.revision)
                self._create_logs(keys)
                self._room -= len(keys)
            else:
                to_delete = backlog.next_to_delete(self._room)
                for name, topic_id in to_delete:
                    self._drop(name, topic_id)
                self._room -= len(to_delete)
            self._delete_dropped()
        if backlog.settled:
            self.applied_revision = self._image.revision

    def _lacks_log(self, key: PartitionKey) -> bool:
        """Whether a log is to be created: there is none, or it belongs to an earlier topic of the
        same name whose deletion this broker did not see, or its creation was interrupted."""
        name = self._image.name_of(key)
        if name is None or self._config.broker_id not in self._image.partitions[key].replicas:
            return False
        log = self._replicas.directory.logs.get(name)
        if log is not None:
            older = log.topic_id is None and log.log_end_offset > 0
            if older or log.topic_id == key.topic_id:
                return False
        return not self._reporter.withheld(key)

    def _queue_log(self, key: PartitionKey) -> None:
        """Queue a log to create. A replica of an earlier topic of the same name stops serving:
        requests without a topic id mean the new topic."""
        name = self._image.name_of(key)
        if name in self._replicas.hosted:
            self._replicas.unhost(self._replicas.hosted[name])
        self._backlog.add_log(key)

    def _create_logs(self, keys: list[PartitionKey]) -> None:
        """Create some logs of a batch with the syncs of one; the last ones also record the
        revision."""
        directory = self._replicas.directory
        new = []
        for key in filter(self._lacks_log, keys):
            name = self._image.name_of(key)
            assert name is not None, "only committed partitions lack a log"
            if name in directory.logs:
                self._drop(name, directory.logs[name].topic_id)
            settings = topic_settings(self._config, self._image, key.topic_id)
            new.append(NewLog(name, key.topic_id, settings.log))
        self._delete_dropped()
        complete = self._backlog.completes_batch(keys)
        if complete:
            directory.seen = self._image.point
        if new:
            revision = self._backlog.revision if complete else None
            directory.create_all(new, self._turn.now_ms, revision)
        elif complete:
            directory.write_revision(self._backlog.revision)
        self._backlog.logs_created(keys)

    def _partition_changed(self, key: PartitionKey) -> None:
        name = self._image.name_of(key)
        if name is None:
            return  # deleted since the change was queued
        known = self._image.partitions[key]
        if self._config.broker_id not in known.replicas:
            self._drop(name, key.topic_id)
            return
        if self._reporter.withheld(key):
            return
        if self._lacks_log(key):
            self._queue_log(key)
            return
        replica = self._host(name, key.topic_id)
        replica.note_isr(known.replicas, known.isr, self._turn.now_ms)
        if known.leader == self._config.broker_id and not self._may_lead:
            self._held_back[key] = None
            return
        self._held_back.pop(key, None)
        led, epoch = replica.partition.is_leader, replica.partition.leader_epoch
        if known.leader == self._config.broker_id:
            # Later acknowledgements rely on this ISR: an older store may name a leader that lacks
            # the records.
            self._rely_on_image()
        if known.unclean_election is not None:
            self._replicas.recorder.registered(replica, known.unclean_election)
        self._replicas.step(replica, _event(known, self._turn.now_ms))
        out = known.leader is not None and self._config.broker_id not in known.isr
        if out and not self._reporter.is_reporting(key):
            # Before the first fetch from this leader, which is sent at the end of the step.
            self._replicas.begin_repair(replica)
        note_standing(self._turn, replica, known, led, epoch)
        if key in self._postponed:
            self._postponed.discard(key)
            self._raise_high_watermarks([replica])
        # Followers that rest at this replica may have left the ISR: their fetches count again.
        self._replicas.touched[replica] = None

    def _rely_on_image(self) -> None:
        """Write the image's revision to disk before the effects of this step are carried out."""
        if self._replicas.directory.seen != self._image.point:
            self._replicas.relied_on = self._image.point

    def _host(self, name: TopicPartition, topic_id: TopicId) -> HostedReplica:
        replica = self._replicas.hosted.get(name)
        if replica is not None and replica.topic_id == topic_id:
            return replica
        directory = self._replicas.directory
        settings = topic_settings(self._config, self._image, topic_id)
        log = directory.logs[name]
        if log.topic_id is None:
            self._adopt(log, topic_id)
        log.config = settings.log
        log.on_damage = partial(self._replicas.damage_found, name)
        partition = Partition(
            self._config.broker_id,
            settings.partition,
            self.brokers,
            log.epochs,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            high_watermark=directory.high_watermarks[name],
            high_watermark_uncertain=name in directory.damaged,
            policy=self._policy,
            producers=log.producers,
        )
        traffic = self._turn.counters.traffic(name.topic, self._image.topics)
        replica = HostedReplica(name, topic_id, partition, log, settings.rules, traffic)
        self._throttle(replica)
        self._replicas.hosted[name] = replica
        self._replicas.log_changed(replica)
        if directory.is_offline(name):
            self._replicas.step(replica, LogFailed())
        return replica

    def _adopt(self, log: Log, topic_id: TopicId) -> None:
        """Assign a topic id to a log without one, which is older than topic ids."""
        path = f"{log.directory}/{layout.PARTITION_METADATA}"
        directory = self._replicas.directory
        try:
            checkpoint.write_topic_metadata(directory.disk_of(log.partition), path, topic_id)
        except DiskError as error:
            if not directory.failed(error, log.partition):
                raise
        log.topic_id = topic_id

    def _drop(self, name: TopicPartition, topic_id: TopicId | None) -> None:
        """Queue a log of that topic id for deletion, hosted or only found at startup."""
        log = self._replicas.directory.logs.get(name)
        if log is None or log.topic_id != topic_id:
            return
        replica = self._replicas.hosted.get(name)
        if topic_id is not None and topic_id in self._image.topic_names:
            if replica is None:
                replica = self._host_removed(name, topic_id)
            self._replicas.recorder.removed(replica)
        if replica is not None:
            self._replicas.unhost(replica)
        self._dropped.append(name)

    def _host_removed(self, name: TopicPartition, topic_id: TopicId) -> HostedReplica:
        """Return the replica of a log that was found at startup, which a reassignment has removed
        while this broker was down."""
        replica = self._host(name, topic_id)
        known = self._image.partitions.get(PartitionKey(topic_id, name.partition))
        if known is not None:
            replica.partition.leader = known.leader
            replica.partition.leader_epoch = known.leader_epoch
        return replica

    def _delete_dropped(self) -> None:
        dropped, self._dropped = self._dropped, []
        self._replicas.directory.delete_all(dropped, self._turn.now_ms)

    def _brokers_changed(self, changed: set[BrokerId]) -> bool:
        """Note restarts of brokers; return whether the set of eligible ISR members changed."""
        for broker in sorted(changed):
            known = self._image.brokers.get(broker)
            epoch = known.epoch if known is not None and known.online else None
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

    def _raise_high_watermarks(self, replicas: list[HostedReplica]) -> None:
        """Recompute high watermarks after a change of brokers or settings. While this broker is not
        active nothing is committed; `begin_acting` recomputes later. A partition with a waiting
        change is postponed, because another broker may lead it."""
        if not self._gate.acting:
            return
        event = BrokersChanged(self._turn.now_ms)
        waiting = self._backlog.changes
        for replica in replicas:
            key = PartitionKey(replica.topic_id, replica.topic_partition.partition)
            if waiting and key in waiting:
                self._postponed.add(key)
            else:
                self._replicas.step(replica, event)
                if replica.resting and replica.partition.has_followers_outside_isr:
                    # Followers whose fetches wait may be able to join the ISR now.
                    self._replicas.touched[replica] = None

    def _configure(self, changed: set[str]) -> Collection[TopicPartition]:
        """Apply new settings; return the partitions that got any."""
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
            # It was not tracked while acknowledgements did not wait for flushes.
            partition.flushed_offset = min(partition.flushed_offset, replica.log.recovery_point)
            replica.rules = settings.rules
            self._throttle(replica)
            self._replicas.log_changed(replica)
        return configured.keys()

    def _throttle(self, replica: HostedReplica) -> None:
        """Note whether the topic's settings throttle this replica, as a leader and a follower."""
        me, partition = self._config.broker_id, replica.topic_partition.partition
        own = self._image.configs.get(keys.topic_config(replica.topic_partition.topic), {})
        replica.leader_throttled = throttled(own, LEADER_REPLICAS, partition, me)
        replica.follower_throttled = throttled(own, FOLLOWER_REPLICAS, partition, me)


def _event(known: PartitionRegistration, now_ms: int) -> PartitionChanged:
    return PartitionChanged(
        known.leader,
        known.leader_epoch,
        known.partition_epoch,
        known.isr,
        known.replicas,
        known.recovery is LeaderRecovery.RECOVERING,
        now_ms,
        NO_EPOCH if known.unclean_election is None else known.unclean_election.leader_epoch,
    )
