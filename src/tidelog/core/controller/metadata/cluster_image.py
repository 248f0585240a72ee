"""The image of the metadata store that every broker keeps, and by which the controller decides.

It is loaded from a snapshot and then follows the watch, one revision at a time; no other broker
sends it. The cost of applying a revision depends only on what it changed. `apply` returns these
changes, so that a broker with thousands of partitions checks few.

Invariants: the image is exactly the store at `revision`. A topic's partitions are visible only
once `topics/name/<t>` commits them; uncommitted ones are kept, because their replicas may die
meanwhile.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import ClassVar, TypeAlias

from tidelog.core.authorization.acl import Acl
from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata import registrations as values
from tidelog.core.controller.metadata.features import TIDELOG_VERSION, WITHOUT_KEY
from tidelog.core.controller.metadata.history import NO_CHECKSUM
from tidelog.core.controller.metadata.metadata_store import ABSENT, KV, Batch, Revision, Snapshot
from tidelog.core.controller.metadata.registrations import (
    NEVER_ADMITTED,
    NO_EPOCH,
    BrokerRegistration,
    BrokerState,
    ControllerClaim,
    PartitionKey,
    PartitionRegistration,
    TopicImage,
)
from tidelog.core.quotas.entity import Entity
from tidelog.core.sasl.credential import ScramCredential
from tidelog.core.settings.topic_keys import BROKER_NAME
from tidelog.core.slotted import field, replace, slotted
from tidelog.core.types import BrokerId, StorePoint, TopicId, TopicPartition

MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_LEADER_ELECTION = "unclean.leader.election.enable"
_TOPIC_NAME = {broker: topic for topic, broker in BROKER_NAME.items()}


@slotted
class ImageDelta:
    """The changes of one or more revisions; the new values are in the image.

    `partitions` holds only committed partitions of existing topics. A deleted topic is in
    `deleted_topics`, with the id it had.
    """

    revision: Revision
    partitions: set[PartitionKey] = field(default_factory=set)
    topics: set[str] = field(default_factory=set)
    deleted_topics: set[tuple[str, TopicId]] = field(default_factory=set)
    brokers: set[BrokerId] = field(default_factory=set)
    configs: set[str] = field(default_factory=set)
    controller: bool = False
    features: bool = False


_Applier: TypeAlias = Callable[["ClusterImage", str, KV | None, ImageDelta], None]


class ClusterImage:
    """Brokers, topics, partitions and configuration as of `revision`."""

    __slots__ = (
        "_online",
        "_waiting",
        "acl_changes",
        "acls",
        "active",
        "brokers",
        "checksum",
        "config_changes",
        "configs",
        "controller",
        "controller_epoch",
        "created",
        "features",
        "imbalanced",
        "in_elr",
        "in_isr",
        "leaderless",
        "min_insync_default",
        "mod_revs",
        "next_producer_id",
        "partitions",
        "quota_changes",
        "quota_keys",
        "quotas",
        "reassigning",
        "revision",
        "scram",
        "scram_changes",
        "states",
        "topic_names",
        "topics",
    )

    def __init__(self) -> None:
        self.revision: Revision = 0
        self.checksum = NO_CHECKSUM
        """The checksum of the store's history up to `revision`."""
        self.controller: ControllerClaim | None = None
        self.controller_epoch = 0
        self.brokers: dict[BrokerId, BrokerRegistration] = {}
        """Every registered broker, including those without a session."""
        self.states: dict[BrokerId, BrokerState] = {}
        """The controller's state of each broker; empty only in a new cluster."""
        self.active: frozenset[BrokerId] = frozenset()
        self.features: dict[str, int] = dict(WITHOUT_KEY)
        """The finalised level of each feature."""
        self.topics: dict[str, TopicImage] = {}
        self.topic_names: dict[TopicId, str] = {}
        self.partitions: dict[PartitionKey, PartitionRegistration] = {}
        self.created: dict[PartitionKey, Revision] = {}
        """The revisions in which the partitions were created."""
        self.configs: dict[str, dict[str, str]] = {}
        self.config_changes = 0
        """The number of changes of `configs`."""
        self.acls: dict[str, Acl] = {}
        """The ACLs by their keys."""
        self.acl_changes = 0
        """The number of changes of `acls`."""
        self.quotas: dict[Entity, dict[str, float]] = {}
        """The quotas of clients. Each request checks whether there are any."""
        self.quota_keys: dict[str, Entity] = {}
        """The entities with quotas by their keys."""
        self.quota_changes = 0
        """The number of changes of `quotas`."""
        self.scram: dict[tuple[str, str], ScramCredential] = {}
        """The credentials of users, by mechanism and name."""
        self.scram_changes = 0
        """The number of changes of `scram`."""
        self.min_insync_default = 1
        """The smallest default of an online broker: no leader may commit with fewer replicas
        than the controller assumes."""
        self.mod_revs: dict[str, Revision] = {}
        self.next_producer_id = 0
        self.in_isr: dict[BrokerId, set[PartitionKey]] = {}
        """By broker: partitions that it leads, or whose ISR includes it."""
        self.in_elr: dict[BrokerId, set[PartitionKey]] = {}
        self.leaderless: set[PartitionKey] = set()
        self.imbalanced: set[PartitionKey] = set()
        """Partitions that are not led by their preferred replica, the first of the assignment."""
        self.reassigning: set[PartitionKey] = set()
        self._online: dict[BrokerId, BrokerRegistration] = {}
        self._waiting: dict[TopicId, set[PartitionKey]] = {}

    def load(self, snapshot: Snapshot) -> ImageDelta:
        """Load a snapshot: the first one, or one after the watch was interrupted."""
        delta = ImageDelta(snapshot.rev)
        present = {kv.key for kv in snapshot.kvs}
        for key in [key for key in self.mod_revs if key not in present]:
            self._change(key, None, delta)
        for kv in snapshot.kvs:
            if self.mod_revs.get(kv.key) != kv.mod_rev:
                self._change(kv.key, kv, delta)
        self.revision = snapshot.rev
        self.checksum = snapshot.checksum
        return delta

    def apply(self, *batches: Batch) -> ImageDelta:
        """Apply revisions from the watch; skip those that the image already has."""
        delta = ImageDelta(self.revision)
        for batch in batches:
            if batch.rev > self.revision:
                for change in batch.changes:
                    self._change(change.key, change.kv, delta)
                self.revision = delta.revision = batch.rev
                self.checksum = batch.checksum
        return delta

    @property
    def point(self) -> StorePoint:
        """The point in the store's history of this image."""
        return StorePoint(self.revision, self.checksum)

    @property
    def tidelog_version(self) -> int:
        """The level that says which fields may be written to the store (features.py)."""
        return self.features.get(TIDELOG_VERSION, WITHOUT_KEY[TIDELOG_VERSION])

    def drained(self, broker: BrokerId) -> bool:
        """Whether a broker shuts down, leads nothing and is in no ISR."""
        known = self.brokers.get(broker)
        return known is not None and known.shutting_down and not self.in_isr.get(broker)

    def mod_rev(self, key: str) -> Revision:
        """Return the revision to guard a write with; ABSENT if the key does not exist."""
        return self.mod_revs.get(key, ABSENT)

    def partition(self, topic: str, index: int) -> PartitionRegistration | None:
        """Return a committed partition by its topic's name."""
        image = self.topics.get(topic)
        if image is None or not 0 <= index < image.partition_count:
            return None
        return self.partitions.get(PartitionKey(image.topic_id, index))

    def committed(self, key: PartitionKey) -> bool:
        """Whether the partition belongs to a topic that exists."""
        name = self.topic_names.get(key.topic_id)
        return name is not None and key.partition < self.topics[name].partition_count

    def name_of(self, key: PartitionKey) -> TopicPartition | None:
        """Return the name of a partition; None while it is not committed."""
        if not self.committed(key):
            return None
        return TopicPartition(self.topic_names[key.topic_id], key.partition)

    def uncommitted(self) -> Iterator[PartitionKey]:
        """Yield partitions without a topic: their creation is in progress, or was interrupted."""
        return (key for key in self.partitions if not self.committed(key))

    def topic_config(
        self, topic_id: TopicId, name: str, broker: BrokerId | None = None
    ) -> str | None:
        """Return one of `topic_overrides`, or None."""
        return self.topic_overrides(topic_id, broker).get(name)

    def topic_overrides(
        self, topic_id: TopicId, broker: BrokerId | None = None
    ) -> Mapping[str, str]:
        """Return the dynamic settings for a topic, with the topics' names for settings. The
        topic's own take precedence, then those of `broker` (if given), then of all brokers."""
        topic = self.topic_names.get(topic_id)
        own = {} if topic is None else self.configs.get(keys.topic_config(topic), {})
        of_brokers = self.configs.get(keys.DEFAULT_CONFIG, {})
        if broker is not None and (of_one := self.configs.get(keys.broker_config(broker))):
            of_brokers = {**of_brokers, **of_one}
        if not of_brokers:
            return own
        return {**{_TOPIC_NAME.get(name, name): of_brokers[name] for name in of_brokers}, **own}

    def min_insync_replicas(self, topic_id: TopicId) -> int:
        own = self.topic_config(topic_id, MIN_INSYNC_REPLICAS)
        return self.min_insync_default if own is None else int(own)

    def unclean_election_allowed(self, topic_id: TopicId, *, default: bool = False) -> bool:
        own = self.topic_config(topic_id, UNCLEAN_LEADER_ELECTION)
        return default if own is None else own == "true"

    def may_lead(self, broker: BrokerId, epoch: int) -> bool:
        """Whether this incarnation of a broker may act as leader."""
        known = self.brokers.get(broker)
        return known is not None and known.epoch == epoch and not known.fenced

    def freeze(self) -> Hashable:
        """Return the contents without revisions: equal clusters have equal values."""
        return (
            self.controller,
            self.controller_epoch,
            frozenset(self.brokers.values()),
            frozenset(self.topics.values()),
            frozenset(self.partitions.values()),
            frozenset((key, tuple(sorted(c.items()))) for key, c in self.configs.items()),
            self.next_producer_id,
            frozenset(self.features.items()),
            frozenset(self.acls),
            frozenset((e, tuple(sorted(q.items()))) for e, q in self.quotas.items()),
            frozenset(self.scram.items()),
        )

    def _change(self, key: str, kv: KV | None, delta: ImageDelta) -> None:
        if kv is None:
            self.mod_revs.pop(key, None)
        else:
            self.mod_revs[key] = kv.mod_rev
        for prefix, applier in self._APPLIERS:
            if key.startswith(prefix):
                applier(self, key, kv, delta)
                return

    def _apply_partition(self, key: str, kv: KV | None, delta: ImageDelta) -> None:
        topic, index = key[len(keys.TOPIC_IDS) :].split("/")
        name = PartitionKey(bytes.fromhex(topic), int(index))
        old = self.partitions.get(name)
        if old is not None:
            self._unindex(name, old)
        if kv is None:
            self.partitions.pop(name, None)
            self.created.pop(name, None)
            self._waiting.get(name.topic_id, set()).discard(name)
            return
        self.created[name] = kv.create_rev
        new = self.partitions[name] = values.decode_partition(name, kv.value)
        self._index(name, new)
        if self.committed(name):
            delta.partitions.add(name)
        else:
            self._waiting.setdefault(name.topic_id, set()).add(name)

    def _index(self, name: PartitionKey, partition: PartitionRegistration) -> None:
        for broker in partition.isr:
            self.in_isr.setdefault(broker, set()).add(name)
        for broker in partition.elr:
            self.in_elr.setdefault(broker, set()).add(name)
        if partition.leader is None:
            self.leaderless.add(name)
        else:
            self.in_isr.setdefault(partition.leader, set()).add(name)
        if partition.leader != partition.replicas[0]:
            self.imbalanced.add(name)
        if partition.reassigning:
            self.reassigning.add(name)

    def _unindex(self, name: PartitionKey, partition: PartitionRegistration) -> None:
        for broker in partition.isr:
            self.in_isr[broker].discard(name)
        for broker in partition.elr:
            self.in_elr[broker].discard(name)
        if partition.leader is not None:
            self.in_isr[partition.leader].discard(name)
        self.leaderless.discard(name)
        self.imbalanced.discard(name)
        self.reassigning.discard(name)

    def _apply_topic(self, key: str, kv: KV | None, delta: ImageDelta) -> None:
        name = key[len(keys.TOPIC_NAMES) :]
        old = self.topics.get(name)
        new = None if kv is None else values.decode_topic(name, kv.value)
        if old is not None and (new is None or new.topic_id != old.topic_id):
            del self.topics[name]
            del self.topic_names[old.topic_id]
            delta.deleted_topics.add((name, old.topic_id))
            deleted = {k for k in delta.partitions if k.topic_id == old.topic_id}
            delta.partitions -= deleted
        if new is None:
            return
        self.topics[name] = new
        self.topic_names[new.topic_id] = name
        delta.topics.add(name)
        waiting = self._waiting.pop(new.topic_id, set())
        ready = {k for k in waiting if k.partition < new.partition_count}
        delta.partitions |= ready
        if waiting - ready:
            self._waiting[new.topic_id] = waiting - ready

    def _apply_broker_id(self, key: str, kv: KV | None, delta: ImageDelta) -> None:
        broker = int(key[len(keys.BROKER_IDS) :])
        if kv is None:
            self._online.pop(broker, None)
        else:
            self._online[broker] = values.decode_broker(broker, kv.create_rev, kv.value)
        self._set_broker(broker, delta)

    def _apply_broker_state(self, key: str, kv: KV | None, delta: ImageDelta) -> None:
        broker = int(key[len(keys.BROKER_STATES) :])
        if kv is None:
            self.states.pop(broker, None)
        else:
            self.states[broker] = values.decode_broker_state(kv.value)
        self._set_broker(broker, delta)

    def _set_broker(self, broker: BrokerId, delta: ImageDelta) -> None:
        """Combine a broker's own key and the controller's state of it."""
        own, state = self._online.get(broker), self.states.get(broker)
        if state is None:
            state = BrokerState(NEVER_ADMITTED)
        if own is not None:
            current = own.epoch == state.epoch
            self.brokers[broker] = replace(
                own,
                admitted_epoch=state.epoch,
                fenced=not current or state.fenced,
                shutting_down=current and state.shutting_down,
            )
        elif broker in self.states:
            self.brokers[broker] = BrokerRegistration(
                broker,
                NO_EPOCH,
                admitted_epoch=state.epoch,
                endpoints=state.endpoints,
                rack=state.rack,
                features=state.features,
            )
        else:
            self.brokers.pop(broker, None)
        self.active = frozenset(b.id for b in self.brokers.values() if b.active)
        self.min_insync_default = min(
            (b.min_insync_replicas for b in self._online.values()), default=1
        )
        delta.brokers.add(broker)

    def _apply_config(self, key: str, kv: KV | None, delta: ImageDelta) -> None:
        if kv is None:
            self.configs.pop(key, None)
        else:
            self.configs[key] = values.decode_config(kv.value)
        self.config_changes += 1
        delta.configs.add(key)

    def _apply_acl(self, key: str, kv: KV | None, _delta: ImageDelta) -> None:
        if kv is None:
            self.acls.pop(key, None)
        else:
            self.acls[key] = values.decode_acl(kv.value)
        self.acl_changes += 1

    def _apply_quota(self, key: str, kv: KV | None, _delta: ImageDelta) -> None:
        former = self.quota_keys.pop(key, None)
        if former is not None:
            del self.quotas[former]
        if kv is not None:
            entity, quotas = values.decode_quotas(kv.value)
            self.quotas[entity] = quotas
            self.quota_keys[key] = entity
        self.quota_changes += 1

    def _apply_scram(self, key: str, kv: KV | None, _delta: ImageDelta) -> None:
        name = keys.parse_scram(key)
        if kv is None:
            self.scram.pop(name, None)
        else:
            self.scram[name] = values.decode_scram(kv.value)
        self.scram_changes += 1

    def _apply_producer_ids(self, _key: str, kv: KV | None, _delta: ImageDelta) -> None:
        self.next_producer_id = 0 if kv is None else values.decode_producer_ids(kv.value)

    def _apply_features(self, _key: str, kv: KV | None, delta: ImageDelta) -> None:
        self.features = dict(WITHOUT_KEY) if kv is None else values.decode_features(kv.value)
        delta.features = True

    def _apply_controller(self, key: str, kv: KV | None, delta: ImageDelta) -> None:
        if key == keys.CONTROLLER_EPOCH:
            self.controller_epoch = 0 if kv is None else int(kv.value)
        elif kv is None:
            self.controller = None
        else:
            self.controller = values.decode_claim(kv.value, kv.session, kv.create_rev)
        delta.controller = True

    _APPLIERS: ClassVar[tuple[tuple[str, _Applier], ...]] = (
        (keys.TOPIC_IDS, _apply_partition),
        (keys.BROKER_STATES, _apply_broker_state),
        (keys.BROKER_IDS, _apply_broker_id),
        (keys.TOPIC_NAMES, _apply_topic),
        (keys.CONFIGS, _apply_config),
        (keys.CONTROLLER, _apply_controller),
        (keys.PRODUCER_IDS, _apply_producer_ids),
        (keys.FEATURES, _apply_features),
        (keys.ACLS, _apply_acl),
        (keys.SCRAM, _apply_scram),
        (keys.QUOTAS, _apply_quota),
    )


def partitions_of(image: ClusterImage, topic: TopicImage) -> Iterable[PartitionRegistration]:
    """Return a topic's committed partitions in order."""
    for index in range(topic.partition_count):
        yield image.partitions[PartitionKey(topic.topic_id, index)]
