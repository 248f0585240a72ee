"""Leader election, and its effect on the ISR and the eligible leader replicas (ELR).

One pure function, `next_registration`, makes every change of a partition. The cause of a change (a
fenced broker, an ISR proposal, a reassignment, an administrator) only says what the ISR or the
assignment should become; the rules here decide the rest. So they hold for every change.

Invariants of the result:

- The leader is None, or is in the ISR and was acceptable when it was elected.
- ISR and ELR are disjoint and within the replicas.
- The ELR is empty whenever the ISR has at least min.insync.replicas members. (KIP-966: only then
  may the high watermark advance, so a replica that was in the ISR when it shrank below that still
  has every committed record.)
- No replica in `lost` or `behind`, which lost its log, is in ISR or ELR, and none in `offline`,
  whose log directory failed.
- leader_epoch rises exactly when the leader changes or replicas are removed or damaged, not when
  an ISR shrinks (KAFKA-15021).
- partition_epoch rises with every change.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from tidelog.core.controller.events import UNKNOWN_LOG, ElectionType, LogState
from tidelog.core.controller.metadata.registrations import (
    LeaderRecovery,
    PartitionRegistration,
    UncleanElection,
)
from tidelog.core.slotted import field, slotted
from tidelog.core.types import BrokerId


class UncleanRecovery(Enum):
    """`unclean.recovery.strategy` (KIP-966): what the controller does when ISR and ELR are empty.

    NONE leaves the partition offline until an administrator decides. BALANCED elects the
    replica with the most records once every replica that may hold all committed records has
    reported its log, or after `unclean.recovery.timeout.ms` if one of them reported a sound
    log. AGGRESSIVE compares only the logs of the replicas that are alive.
    """

    NONE = "none"
    BALANCED = "balanced"
    AGGRESSIVE = "aggressive"


@slotted(frozen=True)
class ElectionRules:
    """Which replicas may lead, and how far an election may go.

    `logs` holds what the replicas of a leaderless partition reported. `waited` is true when
    `unclean.recovery.timeout.ms` has passed since the partition lost its leader.
    """

    active: frozenset[BrokerId]
    min_insync_replicas: int = 1
    recovery: UncleanRecovery = UncleanRecovery.NONE
    logs: Mapping[BrokerId, LogState] = field(default_factory=dict)
    waited: bool = False


@slotted(frozen=True)
class Target:
    """The requested change; None leaves a field as it is."""

    isr: tuple[BrokerId, ...] | None = None
    replicas: tuple[BrokerId, ...] | None = None
    adding: tuple[BrokerId, ...] | None = None
    removing: tuple[BrokerId, ...] | None = None
    recovery: LeaderRecovery | None = None
    unclean_shutdown: frozenset[BrokerId] = frozenset()
    lost: frozenset[BrokerId] = frozenset()
    """Replicas that lost their log: they can't lead until they are in the ISR again."""
    found: frozenset[BrokerId] = frozenset()
    """Replicas whose lost log is back, or whose log directory works again."""
    offline: frozenset[BrokerId] = frozenset()
    """Replicas whose log directory failed: they can't lead before it is back."""
    damaged: bool = False
    """A replica truncates its log: fetches that it sent before must no longer count."""
    election: ElectionType = ElectionType.ONLINE
    candidate: BrokerId | None = None
    """Tried first, if it is a valid leader."""


@slotted
class _Draft:
    """The replica lists while a change is computed, each in assignment order."""

    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...]
    removing: tuple[BrokerId, ...]
    elr: tuple[BrokerId, ...]
    last_known_elr: tuple[BrokerId, ...]
    lost: tuple[BrokerId, ...]
    behind: tuple[BrokerId, ...]
    offline: tuple[BrokerId, ...]


class Outcome(NamedTuple):
    """The elected leader, and whether committed records may be missing there."""

    leader: BrokerId | None
    unclean: bool = False
    recovered: bool = False
    """The controller itself decided the election, by comparing logs."""


def next_registration(
    partition: PartitionRegistration, target: Target, rules: ElectionRules
) -> PartitionRegistration:
    """Return the partition after the change; the same object if nothing changes."""
    draft = _draft(partition, target)
    _complete_reassignment(draft, rules)
    _keep_eligible(draft, partition, target, rules)
    outcome = _elect(draft, partition, target, rules)
    recovery = partition.recovery if target.recovery is None else target.recovery
    leader = outcome.leader
    if leader is not None and outcome.unclean:
        draft.isr, draft.elr = (leader,), ()
        recovery = LeaderRecovery.RECOVERING
    elif leader is not None and leader in draft.elr:
        draft.isr, draft.elr = (leader,), _without(draft.elr, {leader})
    if len(draft.isr) >= _effective_min_isr(draft, rules):
        # The leader just elected may commit alone, so no other replica is eligible any more.
        draft.elr = draft.last_known_elr = ()
    last_known = () if outcome.unclean else draft.last_known_elr
    lost, behind = _without_logs(draft, leader)
    if (
        draft.isr == partition.isr
        and leader == partition.leader
        and draft.elr == partition.elr
        and draft.replicas == partition.replicas
        and (draft.adding, draft.removing) == (partition.adding, partition.removing)
        and (recovery, last_known) == (partition.recovery, partition.last_known_elr)
        and (lost, behind) == (partition.lost, partition.behind)
        and draft.offline == partition.offline
        and not (target.damaged and leader is not None)
    ):
        return partition
    removed = not set(partition.replicas) <= set(draft.replicas)
    rises = leader != partition.leader or removed or outcome.unclean or target.damaged
    epoch = partition.leader_epoch + rises
    return PartitionRegistration(
        partition.topic_id,
        partition.partition,
        draft.replicas,
        draft.isr,
        leader,
        epoch,
        partition.partition_epoch + 1,
        draft.adding,
        draft.removing,
        draft.elr,
        last_known,
        recovery,
        partition.controller_epoch,
        _unclean_election(partition, outcome, epoch),
        lost,
        behind,
        draft.offline,
    )


def _elect(
    draft: _Draft, partition: PartitionRegistration, target: Target, rules: ElectionRules
) -> Outcome:
    """Elect a leader from the ISR, else from the ELR, else uncleanly if the rules allow it."""
    eligible = draft.isr or draft.elr
    valid = [r for r in draft.replicas if r in rules.active and r in eligible]
    if target.candidate in valid:
        return Outcome(target.candidate)
    if target.election is ElectionType.PREFERRED and draft.replicas[0] in valid:
        return Outcome(draft.replicas[0])
    if partition.leader in valid:
        return Outcome(partition.leader)
    if valid:
        return Outcome(valid[0])
    if target.election is ElectionType.UNCLEAN:
        usable = rules.active.difference(draft.offline)
        alive = [replica for replica in draft.replicas if replica in usable]
        return Outcome(_longest(alive, draft, rules), unclean=bool(alive))
    leader = _recover(draft, rules, bool(eligible))
    balanced = rules.recovery is UncleanRecovery.BALANCED
    return Outcome(leader, unclean=leader is not None, recovered=leader is not None and balanced)


def _recover(draft: _Draft, rules: ElectionRules, waits_for_eligible: bool) -> BrokerId | None:
    """Return the replica with the most records once enough logs are known to tell which it is.

    Why the longest log is enough: a replica that was in sync has every committed record, unless
    its disk lost the end of its log. So of the sound logs that were in sync, the one with the
    newest epoch, and of these the longest, has every committed record if any of them has. Logs
    that end in the same epoch differ only in length, so a longer one out of sync serves as well.
    One that ends in a newer epoch may contradict them: its leader wrote records that were never
    committed, and later leaders committed other records without writing any
    (scenarios/elections/a-newer-epoch-need-not-be-committed.txt).
    Invariant: under BALANCED some replica that was in sync has a sound log, or all replicas
    have reported and none has more than the one elected.
    """
    if rules.recovery is UncleanRecovery.NONE:
        return None
    aggressive = rules.recovery is UncleanRecovery.AGGRESSIVE
    if waits_for_eligible and not aggressive:
        return None
    usable = _without(draft.replicas, set(draft.offline))
    reported = [r for r in usable if r in draft.lost or r in rules.logs]
    on_the_way = any(r in rules.active and r not in reported for r in usable)
    if on_the_way and not rules.waited:
        return None
    known = draft.last_known_elr
    emptied = {*draft.lost, *draft.behind}  # a new log may lack older records
    sound = [r for r in reported if r in known and r not in emptied and not rules.logs[r].cut]
    if sound and not aggressive:
        newest = max(rules.logs[r].leader_epoch for r in sound)
        reported = [r for r in reported if r in known or _reach(r, rules)[0] <= newest]
    alive = [r for r in reported if r in rules.active]
    best = _longest(alive, draft, rules)
    if best != _longest(reported, draft, rules) and not rules.waited:
        # Its broker reported a longer log and is not unfenced yet (KAFKA-19522).
        return None
    if aggressive:
        return best
    if not rules.waited and not set(known) <= set(reported):
        return None
    if sound:
        return best
    # Every log that should have all committed records lacks some. Elect only if such a log is
    # still the longest: otherwise an operator may be able to restore a better one.
    if best is None or len(reported) < len(draft.replicas):
        return None
    as_long = [r for r in known if r not in draft.lost and _reach(r, rules) == _reach(best, rules)]
    return best if best in known or as_long else None


def _reach(replica: BrokerId, rules: ElectionRules) -> tuple[int, int]:
    log = rules.logs.get(replica, UNKNOWN_LOG)
    return log.leader_epoch, log.log_end_offset


def _longest(replicas: list[BrokerId], draft: _Draft, rules: ElectionRules) -> BrokerId | None:
    """Return the replica with the most records: the newest leader epoch, then the log end."""

    def rank(replica: BrokerId) -> tuple[bool, int, int, bool, bool, bool]:
        log = rules.logs.get(replica, UNKNOWN_LOG)
        return (
            replica not in draft.lost,
            log.leader_epoch,
            log.log_end_offset,
            not log.cut,
            replica not in draft.behind,
            replica in draft.last_known_elr,
        )

    return max(replicas, key=rank, default=None)


def _without_logs(
    draft: _Draft, leader: BrokerId | None
) -> tuple[tuple[BrokerId, ...], tuple[BrokerId, ...]]:
    """Return the new `lost` and `behind`: replicas without a log, and replicas that lost their
    log and have not been in the ISR since. With a leader to follow, a replica begins a new log, so
    it moves from `lost` to `behind`."""
    out = set(draft.isr)
    lost = tuple(r for r in draft.replicas if r in draft.lost and r not in out)
    if leader is None:
        out.update(lost)
        behind = tuple(r for r in draft.replicas if r in draft.behind and r not in out)
        return lost, behind
    emptied = {*draft.behind, *lost} - out
    return (), tuple(r for r in draft.replicas if r in emptied)


def _draft(partition: PartitionRegistration, target: Target) -> _Draft:
    replicas = partition.replicas if target.replicas is None else target.replicas
    isr = partition.isr if target.isr is None else target.isr
    lost = target.lost.union(partition.lost) - target.found
    offline = target.offline.union(partition.offline) - target.found - target.lost
    return _Draft(
        replicas,
        tuple(r for r in replicas if r in isr and r not in target.lost and r not in offline),
        partition.adding if target.adding is None else target.adding,
        partition.removing if target.removing is None else target.removing,
        partition.elr,
        partition.last_known_elr,
        tuple(r for r in replicas if r in lost and r not in offline),
        partition.behind,
        tuple(r for r in replicas if r in offline),
    )


def _complete_reassignment(draft: _Draft, rules: ElectionRules) -> None:
    """Drop the replicas to be removed once those to be added are all in the ISR.

    The remaining ISR must also reach min.insync.replicas: the removed replicas may be the only
    others that have all committed records.
    """
    if not draft.adding and not draft.removing:
        return
    isr = _without(draft.isr, set(draft.removing))
    replicas = _without(draft.replicas, set(draft.removing))
    enough = min(rules.min_insync_replicas, len(replicas))
    if set(draft.adding) <= set(isr) and len(isr) >= enough:
        draft.isr, draft.replicas = isr, replicas
        draft.adding = draft.removing = ()


def _keep_eligible(
    draft: _Draft, partition: PartitionRegistration, target: Target, rules: ElectionRules
) -> None:
    if len(draft.isr) >= _effective_min_isr(draft, rules):
        draft.elr = draft.last_known_elr = ()
        return
    were = set(partition.elr) | set(partition.isr)
    out = target.unclean_shutdown.union(draft.isr, draft.lost, draft.offline)
    draft.elr = tuple(r for r in draft.replicas if r in were and r not in out)
    known = were | set(partition.last_known_elr)
    draft.last_known_elr = tuple(
        r for r in draft.replicas if r in known and r not in draft.isr and r not in draft.elr
    )


def _effective_min_isr(draft: _Draft, rules: ElectionRules) -> int:
    return min(rules.min_insync_replicas, len(draft.replicas))


def _unclean_election(
    partition: PartitionRegistration, outcome: Outcome, epoch: int
) -> UncleanElection | None:
    """Return the record of this election if it is unclean, else of the last unclean one."""
    if outcome.leader is None or not outcome.unclean:
        return partition.unclean_election
    return UncleanElection(
        outcome.leader,
        epoch,
        partition.leader,
        partition.isr,
        partition.elr,
        outcome.recovered,
    )


def _without(brokers: tuple[BrokerId, ...], out: set[BrokerId]) -> tuple[BrokerId, ...]:
    return tuple(broker for broker in brokers if broker not in out)
