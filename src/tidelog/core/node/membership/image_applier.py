"""From the cluster's image to this broker's replicas.

The image follows the store. What it says about partitions that have a replica here becomes
PartitionChanged events, new logs and deleted logs. A log belongs to a topic id, not to a
name: a topic made anew under an old name gets an empty log.

Held back: a partition whose leader is this broker, while this broker is not acting. The word
may be about an earlier incarnation of it, whose unflushed records are gone; taking it would
let two different records share an offset and an epoch. And one whose log was lost, until the
controller knows that and somebody leads (log_reporter.py).

A topic may have thousands of partitions: their logs are made, their words taken, so many at
once as the configuration says, and the rest with the next ticks (backlog.py). A replica that
waits is as one on a broker that hears from the store later; but this broker does not act as
long as any does that it had to hear of before.
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
from tidelog.core.node.membership.backlog import Backlog
from tidelog.core.node.membership.log_reporter import LogReporter
from tidelog.core.node.membership.topic_settings import topic_settings
from tidelog.core.node.turn import Turn
from tidelog.core.replication.events import BrokersChanged, PartitionChanged
from tidelog.core.replication.partition import Partition
from tidelog.core.replication.truncation import TruncationPolicy
from tidelog.core.storage import checkpoint, layout
from tidelog.core.storage.log import Log
from tidelog.core.storage.log_directory import NewLog
from tidelog.core.types import BrokerEpoch, BrokerId, TopicId, TopicPartition


class ImageApplier:
    """Keeps the hosted replicas as the image says."""

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
        """How much may still be done before the next tick."""
        self._may_lead = False
        self._held_back: dict[PartitionKey, None] = {}
        self._unconsidered: set[PartitionKey] = set()
        """Leaders that may commit more once they have heard what waits for them."""
        self._dropped: list[TopicPartition] = []
        """Whose logs are to be deleted, together."""
        self.applied_revision: Revision = 0
        """The replicas here are as the image was then, or later."""
        self.brokers: dict[BrokerId, BrokerEpoch | None] = {}
        """Who may be in an ISR; shared by all partitions."""
        self._incarnations: dict[BrokerId, BrokerEpoch] = {}

    def apply(self, delta: ImageDelta) -> None:
        """Let the replicas follow what has changed in the image.

        A snapshot brings many revisions at once. So settings come before partitions (an ISR
        that shrank under a higher min.insync.replicas commits nothing), and high watermarks
        rise by settings and brokers only after them (nor does a leader that was deposed).
        """
        for topic, topic_id in sorted(delta.deleted_topics):
            for name in self._replicas.directory.of_topic(topic):
                if self._replicas.directory.logs[name].topic_id == topic_id:
                    self._backlog.leaving[name] = topic_id
        concerned = self._configure(delta.configs) if delta.configs else ()
        if delta.brokers and self._brokers_changed(delta.brokers):
            concerned = self._replicas.hosted.keys()
        self._reporter.image_advanced(delta)
        for key in sorted(delta.partitions):
            if self._lacks_log(key):
                self._await_log(key)
            else:
                self._backlog.words[key] = None
        self._work()
        hosted = self._replicas.hosted
        self._reconsider([hosted[name] for name in list(concerned) if name in hosted])

    @property
    def settled(self) -> bool:
        """Whether every replica here is as the image says."""
        return self._backlog.settled

    def tick(self) -> bool:
        """Go on with what waits; whether anything did."""
        self._room = self._config.partitions_at_once
        if self._backlog.is_empty:
            return False
        self._work()
        return True

    def next_ms(self) -> int | None:
        """At once, if something waits."""
        return None if self._backlog.is_empty else self._turn.now_ms

    def set_aside_strays(self) -> None:
        """Logs of topics that were deleted while this broker was away. The store is not behind
        this broker (store_follower.py); as in Kafka the files stay nevertheless."""
        directory, hosted = self._replicas.directory, self._replicas.hosted
        known = self._image.topic_names
        strays = [
            name
            for name, log in directory.logs.items()
            if log.topic_id is not None
            and log.topic_id not in known
            and name not in hosted
            and name not in self._backlog.leaving
        ]
        directory.set_aside(strays)

    def let_lead(self, may_lead: bool) -> None:
        """Whether this broker may take words about its own leadership; those that were held
        back are taken then."""
        if may_lead and not self._may_lead:
            self._may_lead = True
            self._backlog.words.update(self._held_back)
            self._held_back.clear()
            self._work()
        self._may_lead = may_lead

    def begin_acting(self) -> None:
        """All words are taken: watermarks may rise."""
        self._reconsider(list(self._replicas.hosted.values()))

    # -- so many at once -------------------------------------------------------------------

    def _work(self) -> None:
        """Go on while there is room."""
        backlog = self._backlog
        while self._room > 0 and not backlog.is_empty:
            if backlog.words:
                keys = backlog.next_words(self._room)
                for key in keys:
                    self._partition_changed(key)
                self._room -= len(keys)
            elif backlog.has_logs_to_make:
                keys = backlog.logs_to_make(self._room, self._image.revision)
                self._make_logs(keys)
                self._room -= len(keys)
            else:
                leaving = backlog.next_leaving(self._room)
                for name, topic_id in leaving:
                    self._drop(name, topic_id)
                self._room -= len(leaving)
            self._delete_dropped()
        if backlog.settled:
            self.applied_revision = self._image.revision

    def _lacks_log(self, key: PartitionKey) -> bool:
        """Whether its log is to be made: it is none yet, or is of a topic that had this name
        before, and whose deletion was not seen here."""
        name = self._image.name_of(key)
        if name is None or self._config.broker_id not in self._image.partitions[key].replicas:
            return False
        log = self._replicas.directory.logs.get(name)
        if log is not None and log.topic_id in (None, key.topic_id):
            return False
        return not self._reporter.withheld(key)

    def _await_log(self, key: PartitionKey) -> None:
        """A replica of a topic that had the name before serves nobody from now on: who names no
        topic id means the new one."""
        name = self._image.name_of(key)
        if name in self._replicas.hosted:
            self._replicas.unhost(self._replicas.hosted[name])
        self._backlog.add_log(key)

    def _make_logs(self, keys: list[PartitionKey]) -> None:
        """Some of a batch, all with the syncs of one. With the last of them the revision."""
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
        self._backlog.logs_made(keys)

    def _partition_changed(self, key: PartitionKey) -> None:
        name = self._image.name_of(key)
        if name is None:
            return  # deleted since it was told of
        known = self._image.partitions[key]
        if self._config.broker_id not in known.replicas:
            self._drop(name, key.topic_id)
            return
        if self._reporter.withheld(key):
            return
        if self._lacks_log(key):
            self._await_log(key)
            return
        replica = self._host(name, key.topic_id)
        replica.note_isr(known.replicas, known.isr, self._turn.now_ms)
        if known.leader == self._config.broker_id and not self._may_lead:
            self._held_back[key] = None
            return
        self._held_back.pop(key, None)
        led, epoch = replica.partition.is_leader, replica.partition.leader_epoch
        if known.leader == self._config.broker_id:
            # What is acknowledged from here on relies on this ISR: a store that knows less
            # may name a leader that lacks it.
            self._rely_on_image()
        self._replicas.step(replica, _event(known, self._turn.now_ms))
        out = known.leader is not None and self._config.broker_id not in known.isr
        if out and not self._reporter.is_reporting(key):
            # Before the first fetch from this leader, which leaves at the end of the step.
            self._replicas.begin_repair(replica)
        note_standing(self._turn, replica, known, led, epoch)
        if key in self._unconsidered:
            self._unconsidered.discard(key)
            self._reconsider([replica])
        # Followers that rest here may have left the ISR: their fetches count again.
        self._replicas.touched[replica] = None

    def _rely_on_image(self) -> None:
        """Remember the image's revision on disk before the effects of this step leave."""
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
        self._replicas.hosted[name] = replica
        self._replicas.log_changed(replica)
        return replica

    def _adopt(self, log: Log, topic_id: TopicId) -> None:
        """A log from before topic ids, or whose making was cut short: it is this topic's."""
        path = f"{log.directory}/{layout.PARTITION_METADATA}"
        checkpoint.write_topic_metadata(self._replicas.directory.disk, path, topic_id)
        log.topic_id = topic_id

    def _drop(self, name: TopicPartition, topic_id: TopicId | None) -> None:
        """Let go of a log of that topic id, hosted or only found at the start."""
        log = self._replicas.directory.logs.get(name)
        if log is None or log.topic_id != topic_id:
            return
        if name in self._replicas.hosted:
            self._replicas.unhost(self._replicas.hosted[name])
        self._dropped.append(name)

    def _delete_dropped(self) -> None:
        dropped, self._dropped = self._dropped, []
        self._replicas.directory.delete_all(dropped, self._turn.now_ms)

    def _brokers_changed(self, changed: set[BrokerId]) -> bool:
        """Take note of who came and went; whether others may be in an ISR now."""
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

    def _reconsider(self, replicas: list[HostedReplica]) -> None:
        """Let high watermarks rise that may, now that brokers or settings are others. While
        this broker is not acting nothing rises; it is made up for when it acts again. Nor does
        it where a word waits, by which somebody else may lead."""
        if not self._gate.acting:
            return
        event = BrokersChanged(self._turn.now_ms)
        words = self._backlog.words
        for replica in replicas:
            key = PartitionKey(replica.topic_id, replica.topic_partition.partition)
            if words and key in words:
                self._unconsidered.add(key)
            else:
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
            self._replicas.log_changed(replica)
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
        NO_EPOCH if known.unclean_election is None else known.unclean_election.leader_epoch,
    )
