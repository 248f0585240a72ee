"""UpdateFeatures: the rules by which feature levels change, as in Kafka's FeatureControlManager.

A level changes only if the software of every registered broker supports it, as Kafka has it. The
ranges of a broker that is down are known from level 2 of `tidelog.version` on; before, such a
broker must be started or unregistered first.

A change of `tidelog.version` also rewrites the records whose fields depend on it. So a downgrade
leaves no field of the higher level behind, and loses nothing that a restart does not bring back.
"""

from tidelog.core.controller.events import UpdateFeaturesReceived, UpgradeType
from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata import registrations as values
from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.controller.metadata.features import (
    RANGES_IN_STATES,
    SUPPORTED,
    TIDELOG_VERSION,
    FeatureRange,
    range_of,
)
from tidelog.core.controller.metadata.metadata_store import Guard, Put
from tidelog.core.controller.plans import Plan
from tidelog.core.controller.store_transactions import Write, pack
from tidelog.core.controller.upkeep import ControllerTerm
from tidelog.core.errors import ErrorCode
from tidelog.core.slotted import replace
from tidelog.core.types import BrokerId


def update_features(term: ControllerTerm, event: UpdateFeaturesReceived) -> Plan:
    """Change all levels of the request, or none."""
    image = term.image
    assert image.controller is not None, "the controller has a claim"
    levels = dict(image.features)
    for name, level, kind in event.updates:
        problem = _problem(image, image.controller.broker, name, level, kind)
        if problem is not None:
            message = f"Invalid update version {level} for feature {name}. {problem}"
            return Plan(ErrorCode.INVALID_UPDATE_VERSION, message)
        levels[name] = level
    levels = {name: level for name, level in levels.items() if level > 0}
    writes = _state_writes(image, levels[TIDELOG_VERSION])
    if levels != image.features:
        key = keys.FEATURES
        guard = Guard(key, image.mod_rev(key))
        writes.insert(0, Write(Put(key, values.encode_features(levels)), (guard,)))
    # No broker is admitted or unfenced under the old levels meanwhile.
    states = frozenset(keys.broker_state(broker) for broker in image.brokers)
    return Plan(steps=pack([write] for write in writes), also_busy=states | {keys.FEATURES})


def _problem(
    image: ClusterImage, me: BrokerId, name: str, level: int, kind: UpgradeType
) -> str | None:
    """Return why a level is refused, in Kafka's words; None if it is allowed."""
    if kind is UpgradeType.UNKNOWN:
        return "The controller does not support the given upgrade type."
    if level < 0:
        return "A feature version cannot be less than 0."
    if (reason := _not_supported(image, me, name, level)) is not None:
        return reason
    current = image.features.get(name, 0)
    if level < current and kind is UpgradeType.UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either"
            " safe or unsafe downgrade."
        )
    if level > current and kind is not UpgradeType.UPGRADE:
        return "Can't downgrade to a newer version."
    return None


def _not_supported(image: ClusterImage, me: BrokerId, name: str, level: int) -> str | None:
    reason = _outside(f"Local controller {me}", range_of(SUPPORTED, name), level)
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
