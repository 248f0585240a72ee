"""UpdateFeatures: the rules by which feature levels change, as in Kafka's FeatureControlManager.

A level changes only if the software of every registered broker supports it, as Kafka has it. The
ranges of a broker that is down are known from level 2 of `tidelog.version` on; before, such a
broker must be started or unregistered first.

A change of `tidelog.version` also rewrites the records whose fields depend on it. So a downgrade
leaves no field of the higher level behind. A safe downgrade is refused while that would delete what
a restart does not bring back, the replicas whose log directory failed, and while there may be
transactions, which older software can't end, credentials of users, ACLs or client quotas.
"""

from tidelog.core.controller.acl_changes import acl_deletions
from tidelog.core.controller.events import UpdateFeaturesReceived, UpgradeType
from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata import registrations as values
from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.controller.metadata.features import (
    ACLS,
    OFFLINE_REPLICAS,
    QUOTAS,
    RANGES_IN_STATES,
    SCRAM,
    TIDELOG_VERSION,
    TRANSACTIONS,
    FeatureRange,
    range_of,
)
from tidelog.core.controller.metadata.metadata_store import Guard, Put
from tidelog.core.controller.plans import Plan
from tidelog.core.controller.quota_changes import quota_deletions
from tidelog.core.controller.scram_changes import scram_deletions
from tidelog.core.controller.store_transactions import Write, pack
from tidelog.core.controller.upkeep import ControllerTerm
from tidelog.core.coordinator.lookup import TRANSACTIONS_TOPIC
from tidelog.core.errors import ErrorCode
from tidelog.core.slotted import replace
from tidelog.core.types import BrokerId


def update_features(term: ControllerTerm, event: UpdateFeaturesReceived) -> Plan:
    """Change all levels of the request, or none."""
    image = term.image
    assert image.controller is not None, "the controller has a claim"
    levels = dict(image.features)
    for name, level, kind in event.updates:
        problem = _problem(term, image.controller.broker, name, level, kind)
        if problem is not None:
            message = f"Invalid update version {level} for feature {name}. {problem}"
            return Plan(ErrorCode.INVALID_UPDATE_VERSION, message)
        levels[name] = level
    levels = {name: level for name, level in levels.items() if level > 0}
    level = levels[TIDELOG_VERSION]
    writes = _state_writes(image, level) + _partition_writes(image, level)
    writes += _acl_writes(image, level)
    writes += scram_deletions(image, () if level >= SCRAM else image.scram)
    writes += quota_deletions(image, () if level >= QUOTAS else image.quota_keys)
    if levels != image.features:
        key = keys.FEATURES
        guard = Guard(key, image.mod_rev(key))
        write = Write(Put(key, values.encode_features(levels)), (guard,))
        # Many brokers need several transactions, and the controller may fail between two of them:
        # fields of a level are written after it is raised, and removed before it is lowered.
        raised = levels[TIDELOG_VERSION] >= image.tidelog_version
        writes.insert(0 if raised else len(writes), write)
    # No broker is admitted or unfenced under the old levels meanwhile.
    states = frozenset(keys.broker_state(broker) for broker in image.brokers)
    return Plan(steps=pack([write] for write in writes), also_busy=states | {keys.FEATURES})


def _problem(
    term: ControllerTerm, me: BrokerId, name: str, level: int, kind: UpgradeType
) -> str | None:
    """Return why a level is refused, in Kafka's words; None if it is allowed."""
    if kind is UpgradeType.UNKNOWN:
        return "The controller does not support the given upgrade type."
    if level < 0:
        return "A feature version cannot be less than 0."
    if (reason := _not_supported(term, me, name, level)) is not None:
        return reason
    current = term.image.features.get(name, 0)
    if level < current and kind is UpgradeType.UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either"
            " safe or unsafe downgrade."
        )
    if level > current and kind is not UpgradeType.UPGRADE:
        return "Can't downgrade to a newer version."
    safe = kind is UpgradeType.SAFE_DOWNGRADE and name == TIDELOG_VERSION
    if safe and level < OFFLINE_REPLICAS and (offline := _offline_replicas(term.image)):
        return (
            "Refusing to perform the requested downgrade because it might delete metadata"
            f" information: the log directory of {offline} failed, and the lower level does not"
            " store that. Bring the directory back or move the replica first; an unsafe downgrade"
            " counts its log as lost."
        )
    if safe and level < TRANSACTIONS and TRANSACTIONS_TOPIC in term.image.topics:
        return (
            "Refusing to perform the requested downgrade because older software can't end"
            f" transactions: end them, then delete the topic {TRANSACTIONS_TOPIC}."
        )
    if safe and level < ACLS and term.image.acls:
        return (
            "Refusing to perform the requested downgrade because older software does not obey ACLs:"
            f" delete the {len(term.image.acls)} ACLs first; an unsafe downgrade deletes them."
        )
    if safe and level < QUOTAS and term.image.quotas:
        return (
            "Refusing to perform the requested downgrade because older software does not enforce"
            f" client quotas: remove those of {len(term.image.quotas)} entities first; an unsafe"
            " downgrade removes them."
        )
    if safe and level < SCRAM and term.image.scram:
        return (
            "Refusing to perform the requested downgrade because it would delete"
            f" {len(term.image.scram)} credentials of users: delete them first; an unsafe downgrade"
            " deletes them."
        )
    return None


def _offline_replicas(image: ClusterImage) -> str:
    """Name a replica whose log directory failed, and how many others there are; "" without one."""
    found = sorted(
        f"{image.name_of(key)} on broker {broker}"
        for key, known in image.partitions.items()
        for broker in known.offline
    )
    if len(found) <= 1:
        return "".join(found)
    return f"{found[0]} and of {len(found) - 1} other replicas"


def _not_supported(term: ControllerTerm, me: BrokerId, name: str, level: int) -> str | None:
    image = term.image
    reason = _outside(f"Local controller {me}", range_of(term.supported, name), level)
    for broker in sorted(image.brokers.values(), key=lambda broker: broker.id):
        if reason is None and broker.features:
            reason = _outside(f"Broker {broker.id}", range_of(broker.features, name), level)
        elif reason is None and level != image.features.get(name, 0):
            reason = (
                f"Broker {broker.id} is down, and the levels that it supports are unknown; start it"
                " or unregister it first."
            )
    return reason


def _outside(who: str, supported: FeatureRange, level: int) -> str | None:
    if supported.lowest <= level <= supported.highest:
        return None
    if supported.highest == 0:
        return f"{who} does not support this feature."
    return f"{who} only supports versions {supported}"


def _state_writes(image: ClusterImage, level: int) -> list[Write]:
    """Rewrite the broker states that have other fields at this level of `tidelog.version`."""
    writes = []
    for broker, state in sorted(image.states.items()):
        ranges = image.brokers[broker].features if level >= RANGES_IN_STATES else ()
        if state.features != ranges:
            name = keys.broker_state(broker)
            value = values.encode_broker_state(replace(state, features=ranges))
            writes.append(Write(Put(name, value), (Guard(name, image.mod_rev(name)),)))
    return writes


def _partition_writes(image: ClusterImage, level: int) -> list[Write]:
    """Rewrite the partitions with fields that this level of `tidelog.version` does not have. A
    replica that is offline counts as lost: its broker does not lead before it has a log again."""
    writes = []
    for key, known in sorted(image.partitions.items()) if level < OFFLINE_REPLICAS else ():
        if known.offline:
            without = {*known.lost, *known.offline}
            lost = tuple(r for r in known.replicas if r in without) if known.leader is None else ()
            changed = replace(
                known, offline=(), lost=lost, partition_epoch=known.partition_epoch + 1
            )
            name = keys.partition(*key)
            value = values.encode_partition(changed)
            writes.append(Write(Put(name, value), (Guard(name, image.mod_rev(name)),)))
    return writes


def _acl_writes(image: ClusterImage, level: int) -> list[Write]:
    """Delete all ACLs at a level of `tidelog.version` that does not have them."""
    return [] if level >= ACLS else acl_deletions(image, image.acls)
