"""The changes of brokers and partitions that follow from which brokers are alive.

The controller compares the whole image with the brokers' liveness whenever something changes,
instead of reacting to single events. So it also finds the unfinished work of an earlier controller.
It checks only partitions of inactive brokers and those named by the caller, a limited number at
once: the death of a broker that led thousands of partitions must not block the controller.
"""

from collections.abc import Set as AbstractSet
from heapq import nsmallest
from typing import NamedTuple

from tidelog.core.controller.broker_liveness import BrokerLiveness, deregistration_transaction
from tidelog.core.controller.effects import ControllerEffect, Elected, ElectedUncleanly
from tidelog.core.controller.election import (
    ElectionRules,
    Target,
    UncleanRecovery,
    next_registration,
)
from tidelog.core.controller.log_reports import LogReports
from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata import registrations as values
from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.controller.metadata.features import (
    RANGES_IN_STATES,
    SUPPORTED,
    FeatureRange,
    newest_levels,
    range_of,
    unsupported,
)
from tidelog.core.controller.metadata.metadata_store import ABSENT, Guard, Put
from tidelog.core.controller.metadata.registrations import (
    BrokerRegistration,
    BrokerState,
    PartitionKey,
    PartitionRegistration,
)
from tidelog.core.controller.store_transactions import TransactionsInFlight, Write
from tidelog.core.slotted import replace, slotted
from tidelog.core.types import BrokerId

ADMISSIONS_MAX = 10
ADMISSION_PARTITIONS_MAX = 30
"""The most admissions and partition changes that share one transaction."""


@slotted(frozen=True)
class ControllerTerm:
    """The input of a controller's decisions: the image, its epoch and its settings."""

    image: ClusterImage
    controller_epoch: int
    reports: LogReports
    recovery: UncleanRecovery = UncleanRecovery.BALANCED
    unclean_default: bool = False
    """Whether an unclean election is allowed if it is not configured."""
    supported: tuple[FeatureRange, ...] = SUPPORTED
    """The feature levels that the controller's own software supports."""

    def rules(self, key: PartitionKey, active: frozenset[BrokerId]) -> ElectionRules:
        """Return the election rules of a partition."""
        image = self.image
        allowed = image.unclean_election_allowed(key.topic_id, default=self.unclean_default)
        return ElectionRules(
            active,
            image.min_insync_replicas(key.topic_id),
            UncleanRecovery.AGGRESSIVE if allowed else self.recovery,
            self.reports.of(key) if key in image.leaderless else {},
            self.reports.waited(key),
        )

    def write(self, old: PartitionRegistration | None, new: PartitionRegistration) -> Write:
        """Write a partition, unless it has changed meanwhile.

        A guard checks that a new leader or ISR member is still the same incarnation: one that
        died or restarted a moment ago can't enter, even before the controller knows of it.
        """
        name = keys.partition(new.topic_id, new.partition)
        joined = set(new.isr) if old is None else set(new.isr) - set(old.isr)
        if new.leader is not None and (old is None or new.leader != old.leader):
            joined.add(new.leader)
        guards = [Guard(name, ABSENT if old is None else self.image.mod_rev(name))]
        guards += [broker_guard(self.image.brokers[broker]) for broker in sorted(joined)]
        effects: tuple[ControllerEffect, ...] = ()
        if old is not None and new.leader is not None and new.leader != old.leader:
            elected = Elected(new.key, new.leader, new.leader_epoch, old.leader, new.isr)
            effects = (elected,)
        before = None if old is None else old.unclean_election
        if new.unclean_election is not None and new.unclean_election != before:
            effects += (ElectedUncleanly(new.key, new.unclean_election),)
        value = values.encode_partition(self.stamp(new))
        return Write(Put(name, value), tuple(guards), effects, new.key)

    def stamp(self, partition: PartitionRegistration) -> PartitionRegistration:
        """Set the controller epoch. Together with the partition epoch it is unique to one write."""
        return replace(partition, controller_epoch=self.controller_epoch)


class Remaining(NamedTuple):
    """The partitions that remain to be checked."""

    to_check: set[PartitionKey]
    """Partitions that may get a leader but were busy or beyond the limit."""
    unfinished: bool
    """Whether any was beyond the limit."""


def upkeep(
    term: ControllerTerm,
    liveness: BrokerLiveness,
    transactions: TransactionsInFlight,
    to_check: AbstractSet[PartitionKey],
    most: int,
) -> tuple[list[list[Write]], Remaining]:
    """Return groups of writes for at most `most` partitions, and the partitions that remain.

    A group must not be split; urgent groups come first. `to_check` names partitions that may get
    a leader.
    """
    image, busy = term.image, transactions.busy
    brokers = sorted(image.brokers.values(), key=lambda broker: broker.id)
    states = {b: state for b in brokers if (state := liveness.next_state(b)) is not None}
    dead = [broker for broker in brokers if liveness.is_dead(broker)]
    leaving = {b.id for b, state in states.items() if state.fenced or state.shutting_down}
    active = image.active - leaving - {broker.id for broker in dead}
    arriving = [broker for broker in brokers if broker.awaits_admission and broker not in dead]
    writes, left = _partition_writes(
        term, active, arriving, transactions.busy_partitions, to_check, most
    )
    deaths = []
    for broker in dead:
        guards, (delete,) = deregistration_transaction(broker.id, broker.epoch)
        if delete.key not in busy:
            deaths.append([Write(delete, guards)])
    decided = [
        [state_write(image, broker, state)]
        for broker, state in states.items()
        if not broker.awaits_admission and keys.broker_state(broker.id) not in busy
    ]
    admissions = _admissions(term, arriving, writes, busy)
    return [*deaths, *decided, *admissions, *([write] for write in writes.values())], left


def _partition_writes(
    term: ControllerTerm,
    active: frozenset[BrokerId],
    arriving: list[BrokerRegistration],
    busy: AbstractSet[PartitionKey],
    to_check: AbstractSet[PartitionKey],
    most: int,
) -> tuple[dict[PartitionKey, Write], Remaining]:
    """Remove inactive brokers from ISRs, and incarnations that stopped uncleanly and
    unregistered brokers from ELRs too. These writes are urgent, and are found again if they exceed
    the limit. Then check the named partitions."""
    image = term.image
    unclean = frozenset(broker.id for broker in arriving if broker.stopped_uncleanly)
    unclean |= _unregistered(image)
    affected: set[PartitionKey] = set()
    for broker, held in image.in_isr.items():
        if broker not in active:
            affected |= held
    for broker in unclean:
        affected |= image.in_elr.get(broker, set())
    if not most:
        return {}, Remaining(set(to_check), bool(affected or to_check))
    writes: dict[PartitionKey, Write] = {}
    left = set(to_check & busy)
    named = to_check - affected - left
    looked_at = sorted(named) if len(named) <= most else nsmallest(most, named)
    for key in (*_leaders_first(image, affected - busy, active), *looked_at):
        if len(writes) == most:
            left.update(named)
            return writes, Remaining(left, True)
        partition = image.partitions.get(key)
        if partition is None:
            continue
        isr = tuple(broker for broker in partition.isr if broker in active)
        target = Target(isr=isr, unclean_shutdown=unclean)
        new = next_registration(partition, target, term.rules(key, active))
        if new is not partition:
            writes[key] = term.write(partition, new)
    return writes, Remaining(left | named - set(looked_at), len(named) > most)


def _leaders_first(
    image: ClusterImage, affected: set[PartitionKey], active: frozenset[BrokerId]
) -> list[PartitionKey]:
    """Sort partitions that need another leader before those that only lose an ISR member: clients
    wait for the first ones."""
    urgent = {
        key
        for key in affected
        if (known := image.partitions.get(key)) is not None and known.leader not in active
    }
    return sorted(urgent) + sorted(affected - urgent)


def _unregistered(image: ClusterImage) -> frozenset[BrokerId]:
    """Brokers that were unregistered and are still in an ISR or ELR."""
    held = (*image.in_isr, *image.in_elr)
    return frozenset(broker for broker in held if broker not in image.brokers)


def _admissions(
    term: ControllerTerm,
    arriving: list[BrokerRegistration],
    writes: dict[PartitionKey, Write],
    busy: set[str],
) -> list[list[Write]]:
    """Admit new incarnations in the transaction that removes the older ones from ISRs.

    An incarnation whose predecessor loses too much for one transaction is admitted after that.
    Removes the partition writes that it needs from `writes`. A broker whose software does not
    support the finalised feature levels is not admitted, nor any broker while they change. A new
    cluster has no levels: its first admission finalises the newest ones that its brokers support.
    """
    if keys.FEATURES in busy:
        return []
    image = term.image
    is_new = not image.states and keys.FEATURES not in image.mod_revs
    levels = _first_levels(term) if is_new else image.features
    ready: list[BrokerRegistration] = []
    shared: set[PartitionKey] = set()
    for broker in arriving:
        held = set(image.in_isr.get(broker.id, ()))
        if broker.stopped_uncleanly:
            held |= image.in_elr.get(broker.id, set())
        if keys.broker_state(broker.id) in busy or not held <= writes.keys():
            continue
        if unsupported(levels, broker.features) is not None:
            continue
        if len(shared | held) <= ADMISSION_PARTITIONS_MAX and len(ready) < ADMISSIONS_MAX:
            ready.append(broker)
            shared |= held
    if not ready:
        return []
    group = [writes.pop(key) for key in sorted(shared)]
    group += [state_write(image, broker, BrokerState(broker.epoch)) for broker in ready]
    if is_new:
        put = Put(keys.FEATURES, values.encode_features(levels))
        group.append(Write(put, (Guard(keys.FEATURES, ABSENT),)))
    return [group]


def _first_levels(term: ControllerTerm) -> dict[str, int]:
    """Return the newest feature levels that the registered brokers of a new cluster support.

    A broker whose software is too old for the controller's does not count: it is not admitted.
    """
    everyone = [broker.features for broker in term.image.brokers.values()]
    fitting = [
        ranges
        for ranges in everyone
        if all(range_of(ranges, own.name).highest >= own.lowest for own in term.supported)
    ]
    return newest_levels(fitting, term.supported)


def state_write(image: ClusterImage, broker: BrokerRegistration, state: BrokerState) -> Write:
    """Write a broker's state; to admit or unfence it, its own key must still exist."""
    ranges = broker.features if image.tidelog_version >= RANGES_IN_STATES else ()
    state = replace(state, endpoints=broker.endpoints, rack=broker.rack, features=ranges)
    name = keys.broker_state(broker.id)
    guards = [Guard(name, image.mod_rev(name))]
    if broker.awaits_admission or not state.fenced:
        guards.append(broker_guard(broker))
    return Write(Put(name, values.encode_broker_state(state)), tuple(guards))


def broker_guard(broker: BrokerRegistration) -> Guard:
    """Return a guard that holds while the key of this incarnation exists."""
    return Guard(keys.broker_id(broker.id), broker.epoch, "create")
