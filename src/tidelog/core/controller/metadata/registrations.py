"""The values in the metadata store, and their encoding.

Values are frozen and hashable, so that elections and ISR changes are pure functions of them, which
a model checker can run directly. They are encoded as JSON, because operators read the store when
something is wrong.
"""

import json
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from tidelog.core.authorization.acl import (
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from tidelog.core.controller.metadata.features import BEFORE_FEATURES, SUPPORTED, FeatureRange
from tidelog.core.quotas.entity import Entity
from tidelog.core.sasl.credential import ScramCredential
from tidelog.core.slotted import slotted
from tidelog.core.types import (
    CLIENT_LISTENER,
    INTERNAL_LISTENER,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    TopicId,
)

NO_EPOCH: BrokerEpoch = -1
"""An unknown broker epoch; in AlterPartition it means "do not check"."""
NEVER_ADMITTED: BrokerEpoch = -2
"""The controller has no state of a broker; no broker has this as its previous epoch."""


class PartitionKey(NamedTuple):
    """One partition of one incarnation of a topic."""

    topic_id: TopicId
    partition: int


class LeaderRecovery(IntEnum):
    """Whether the leader still recovers from an unclean election (KIP-704)."""

    RECOVERED = 0
    RECOVERING = 1


class Endpoint(NamedTuple):
    """A named listener of a broker."""

    listener: str
    host: str
    port: int


def endpoint_name(listener: str) -> str:
    """The name under which a client listener is registered: its own, unless Tidelog uses it."""
    reserved = listener in (CLIENT_LISTENER, INTERNAL_LISTENER)
    return f"{CLIENT_LISTENER}:{listener}" if reserved else listener


@slotted(frozen=True)
class UncleanElection:
    """The last election of a leader that may lack committed records, and the state before it.

    `recovered` is true when the controller compared the logs itself, after every in-sync
    replica had stopped uncleanly; false when an administrator asked for the election.
    """

    leader: BrokerId
    leader_epoch: LeaderEpoch
    old_leader: BrokerId | None
    old_isr: tuple[BrokerId, ...]
    old_elr: tuple[BrokerId, ...]
    recovered: bool


@slotted(frozen=True)
class PartitionRegistration:
    """The metadata of one partition.

    `isr`, `elr`, `last_known_elr`, `lost`, `behind` and `offline` are in assignment order, so that
    equal states are equal values. A replica in `lost` had no log when its broker started, and there
    has been no leader since. One in `behind` had no log, and has not been in the ISR since. The log
    directory of one in `offline` failed, and its broker has not reported that it is back.
    `controller_epoch` and `partition_epoch` together are unique to one write: by them a
    controller recognises its own write if the outcome was unknown.
    """

    topic_id: TopicId
    partition: int
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader: BrokerId | None
    leader_epoch: LeaderEpoch = 0
    partition_epoch: int = 0
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()
    elr: tuple[BrokerId, ...] = ()
    last_known_elr: tuple[BrokerId, ...] = ()
    recovery: LeaderRecovery = LeaderRecovery.RECOVERED
    controller_epoch: int = 0
    unclean_election: UncleanElection | None = None
    lost: tuple[BrokerId, ...] = ()
    behind: tuple[BrokerId, ...] = ()
    offline: tuple[BrokerId, ...] = ()

    @property
    def key(self) -> PartitionKey:
        return PartitionKey(self.topic_id, self.partition)

    @property
    def reassigning(self) -> bool:
        return bool(self.adding or self.removing)


@slotted(frozen=True)
class TopicImage:
    """A topic that exists; partitions from `partition_count` on are not committed yet."""

    name: str
    topic_id: TopicId
    partition_count: int


@slotted(frozen=True)
class BrokerState:
    """A broker's registration as the controller keeps it, until UnregisterBroker removes it.

    `epoch` is NO_EPOCH in rebuilt metadata for a broker without the mark of a clean stop.
    `fenced` and `shutting_down` are valid for that broker epoch only. `endpoints` and `rack`
    describe the broker while its process is down; stores of older releases lack them. So do
    `features`, the ranges that its software supports, which need a level (features.py).
    """

    epoch: BrokerEpoch
    fenced: bool = True
    shutting_down: bool = False
    endpoints: tuple[Endpoint, ...] = ()
    rack: str | None = None
    features: tuple[FeatureRange, ...] = ()


@slotted(frozen=True)
class BrokerRegistration:
    """A registered broker: its own key, which exists as long as its session, and the
    controller's state of it, which remains when the session ends.

    `epoch` is the create revision of its own key, NO_EPOCH while it is offline. `admitted_epoch`
    is the epoch in the controller's state, NEVER_ADMITTED without a state. The broker is fenced
    unless both are equal and the controller unfenced it. So the end of a session fences at once,
    and a new incarnation is fenced until the controller has handled the older one.

    `min_insync_replicas` is the broker's default for topics without this setting. `features` are
    the ranges that its software supports; empty if they are unknown.
    """

    id: BrokerId
    epoch: BrokerEpoch
    fenced: bool = True
    shutting_down: bool = False
    admitted_epoch: BrokerEpoch = NEVER_ADMITTED
    previous_epoch: BrokerEpoch = NO_EPOCH
    incarnation: str = ""
    endpoints: tuple[Endpoint, ...] = ()
    rack: str | None = None
    min_insync_replicas: int = 1
    features: tuple[FeatureRange, ...] = ()

    def endpoint(self, listener: str) -> Endpoint | None:
        """The endpoint of a client listener, by its `endpoint_name`; None if it has none.

        A broker of an older release registers its one client listener without the name: that one
        stands for every name.
        """
        unnamed, has_names = None, False
        for endpoint in self.endpoints:
            if endpoint.listener == listener:
                return endpoint
            if endpoint.listener == CLIENT_LISTENER:
                unnamed = endpoint
            elif endpoint.listener != INTERNAL_LISTENER:
                has_names = True
        return None if has_names else unnamed

    @property
    def online(self) -> bool:
        """Whether it has a session. A broker without one is registered and fenced."""
        return self.epoch != NO_EPOCH

    @property
    def awaits_admission(self) -> bool:
        return self.online and self.epoch != self.admitted_epoch

    @property
    def stopped_uncleanly(self) -> bool:
        """Whether it may have lost records since it was last admitted: it can't prove a clean
        stop. A broker that was unregistered, or never admitted, has no proof."""
        return self.previous_epoch != self.admitted_epoch

    @property
    def active(self) -> bool:
        """Whether it may lead and join an ISR."""
        return not self.fenced and not self.shutting_down


@slotted(frozen=True)
class ControllerClaim:
    """The broker that holds the role of controller; `token` is the key's create revision."""

    broker: BrokerId
    broker_epoch: BrokerEpoch
    controller_epoch: int
    session: int
    token: int


_encode = json.JSONEncoder(separators=(",", ":")).encode
"""Created once, because thousands of partitions are written at a time."""


def _dumps(value: dict[str, Any]) -> bytes:
    return _encode(value).encode()


def encode_partition(value: PartitionRegistration) -> bytes:
    """Encode a partition. Topic id and index are in the key; empty fields are left out."""
    fields: dict[str, Any] = {
        "replicas": value.replicas,
        "isr": value.isr,
        "leader": value.leader,
        "leader_epoch": value.leader_epoch,
        "partition_epoch": value.partition_epoch,
        "controller_epoch": value.controller_epoch,
        "recovery": int(value.recovery),
    }
    for name in ("adding", "removing", "elr", "last_known_elr", "lost", "behind", "offline"):
        if getattr(value, name):
            fields[name] = getattr(value, name)
    if (unclean := value.unclean_election) is not None:
        fields["unclean_election"] = {
            name: getattr(unclean, name) for name in UncleanElection.__annotations__
        }
    return _dumps(fields)


def decode_partition(key: PartitionKey, value: bytes) -> PartitionRegistration:
    """Decode a partition."""
    fields = json.loads(value)
    unclean = fields.get("unclean_election")
    if unclean is not None:
        for name in ("old_isr", "old_elr"):
            unclean[name] = tuple(unclean[name])
        if "last_known_leader" in unclean:  # written before 0.2
            unclean["recovered"] = unclean.pop("last_known_leader")
    return PartitionRegistration(
        key.topic_id,
        key.partition,
        tuple(fields["replicas"]),
        tuple(fields["isr"]),
        fields["leader"],
        fields["leader_epoch"],
        fields["partition_epoch"],
        tuple(fields.get("adding", ())),
        tuple(fields.get("removing", ())),
        tuple(fields.get("elr", ())),
        tuple(fields.get("last_known_elr", ())),
        LeaderRecovery(fields["recovery"]),
        fields["controller_epoch"],
        None if unclean is None else UncleanElection(**unclean),
        tuple(fields.get("lost", ())),
        tuple(fields.get("behind", ())),
        tuple(fields.get("offline", ())),
    )


def encode_broker(
    incarnation: str,
    endpoints: tuple[Endpoint, ...],
    rack: str | None,
    previous_epoch: BrokerEpoch,
    min_insync_replicas: int = 1,
    features: tuple[FeatureRange, ...] = SUPPORTED,
) -> bytes:
    """Encode the value of a broker's own key. It has no epoch: that is the key's revision.

    The ranges are written at every level of `tidelog.version`: by them a level is agreed on.
    Software that does not know the field ignores it.
    """
    return _dumps(
        {
            "incarnation": incarnation,
            "endpoints": endpoints,
            "rack": rack,
            "previous_epoch": previous_epoch,
            "min_insync_replicas": min_insync_replicas,
            "features": features,
        }
    )


def decode_broker(broker: BrokerId, epoch: BrokerEpoch, value: bytes) -> BrokerRegistration:
    """Decode the value of a broker's own key."""
    fields = json.loads(value)
    return BrokerRegistration(
        broker,
        epoch,
        previous_epoch=fields["previous_epoch"],
        incarnation=fields["incarnation"],
        endpoints=tuple(Endpoint(*endpoint) for endpoint in fields["endpoints"]),
        rack=fields["rack"],
        min_insync_replicas=fields["min_insync_replicas"],
        features=_ranges(fields) or BEFORE_FEATURES,
    )


def _ranges(fields: dict[str, Any]) -> tuple[FeatureRange, ...]:
    return tuple(FeatureRange(*each) for each in fields.get("features", ()))


def encode_broker_state(value: BrokerState) -> bytes:
    """Encode the controller's state of a broker."""
    fields: dict[str, Any] = {
        "epoch": value.epoch,
        "fenced": value.fenced,
        "shutting_down": value.shutting_down,
        "endpoints": value.endpoints,
        "rack": value.rack,
    }
    if value.features:
        fields["features"] = value.features
    return _dumps(fields)


def decode_broker_state(value: bytes) -> BrokerState:
    """Decode a broker's state. States of older releases have neither endpoints nor rack."""
    fields = json.loads(value)
    return BrokerState(
        fields["epoch"],
        fields["fenced"],
        fields["shutting_down"],
        tuple(Endpoint(*endpoint) for endpoint in fields.get("endpoints", ())),
        fields.get("rack"),
        _ranges(fields),
    )


def encode_topic(value: TopicImage) -> bytes:
    """Encode a topic's id and partition count."""
    return _dumps({"topic_id": value.topic_id.hex(), "partition_count": value.partition_count})


def decode_topic(name: str, value: bytes) -> TopicImage:
    """Decode a topic."""
    fields = json.loads(value)
    return TopicImage(name, bytes.fromhex(fields["topic_id"]), fields["partition_count"])


def encode_claim(broker: BrokerId, broker_epoch: BrokerEpoch, controller_epoch: int) -> bytes:
    """Encode a claim to the role of controller."""
    return _dumps(
        {"broker": broker, "broker_epoch": broker_epoch, "controller_epoch": controller_epoch}
    )


def decode_claim(value: bytes, session: int, token: int) -> ControllerClaim:
    """Decode a claim."""
    return ControllerClaim(**json.loads(value), session=session, token=token)


def encode_features(levels: dict[str, int]) -> bytes:
    """Encode the finalised levels, sorted by name."""
    return _dumps(dict(sorted(levels.items())))


def decode_features(value: bytes) -> dict[str, int]:
    """Decode the finalised levels."""
    return {str(name): int(level) for name, level in json.loads(value).items()}


def encode_producer_ids(next_id: int, controller_epoch: int) -> bytes:
    """Encode the next producer id. With the controller epoch it is unique to one write: a
    controller recognises its own write if the outcome was unknown."""
    return _dumps({"next": next_id, "controller_epoch": controller_epoch})


def decode_producer_ids(value: bytes) -> int:
    """Return the next producer id."""
    return int(json.loads(value)["next"])


def encode_scram(user: str, value: ScramCredential) -> bytes:
    """Encode a credential. The user's name is for readers of the store; the key has it too."""
    return _dumps(
        {
            "user": user,
            "salt": value.salt.hex(),
            "stored_key": value.stored_key.hex(),
            "server_key": value.server_key.hex(),
            "iterations": value.iterations,
        }
    )


def decode_scram(value: bytes) -> ScramCredential:
    """Decode a credential."""
    fields = json.loads(value)
    salt, stored, server = (
        bytes.fromhex(fields[name]) for name in ("salt", "stored_key", "server_key")
    )
    return ScramCredential(salt, stored, server, fields["iterations"])


def encode_config(value: dict[str, str]) -> bytes:
    """Encode settings, sorted by name."""
    return _dumps(dict(sorted(value.items())))


def decode_config(value: bytes) -> dict[str, str]:
    """Decode settings."""
    return {str(name): str(text) for name, text in json.loads(value).items()}


def encode_entity(entity: Entity) -> bytes:
    """Encode the parts of an entity with quotas: equal entities have equal texts."""
    return _dumps(dict(entity))


def encode_quotas(entity: Entity, quotas: Mapping[str, float]) -> bytes:
    """Encode an entity and its quotas, sorted by name."""
    return _dumps({"entity": dict(entity), "quotas": dict(sorted(quotas.items()))})


def decode_quotas(value: bytes) -> tuple[Entity, dict[str, float]]:
    """Decode an entity and its quotas."""
    fields = json.loads(value)
    entity = tuple(sorted(fields["entity"].items()))
    return entity, {str(key): float(each) for key, each in fields["quotas"].items()}


def encode_acl(value: Acl) -> bytes:
    """Encode an ACL, with the names of its types."""
    return _dumps(
        {
            "resource_type": value.resource_type.name,
            "resource_name": value.resource_name,
            "pattern_type": value.pattern_type.name,
            "principal": value.principal,
            "host": value.host,
            "operation": value.operation.name,
            "permission": value.permission.name,
        }
    )


def decode_acl(value: bytes) -> Acl:
    """Decode an ACL."""
    fields = json.loads(value)
    return Acl(
        ResourceType[fields["resource_type"]],
        fields["resource_name"],
        PatternType[fields["pattern_type"]],
        fields["principal"],
        fields["host"],
        Operation[fields["operation"]],
        Permission[fields["permission"]],
    )
