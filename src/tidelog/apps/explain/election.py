"""Who would be elected if the leader died now, and which records would be lost.

The election is the controller's own: a registration is built from the view, and `next_registration`
(core/controller/election.py) decides. A view does not know the last known ELR, which matters only
to an unclean election, and that compares logs.
"""

from collections.abc import Mapping
from typing import NamedTuple

from tidelog.apps.explain.situation import (
    BAD,
    INFO,
    WARN,
    Explanation,
    Situation,
    count,
    named,
    offsets,
)
from tidelog.apps.views.recovery import view_recovery
from tidelog.core.controller.election import ElectionRules, Target, next_registration
from tidelog.core.controller.events import ElectionType, LogState
from tidelog.core.controller.metadata.registrations import PartitionRegistration
from tidelog.core.types import BrokerId, LeaderEpoch, Offset

TOPIC = "election"
_NO_TOPIC_ID = bytes(16)


def explain_election(now: Situation) -> list[Explanation]:
    """Say who would lead if the leader died; without a leader, who may be elected."""
    view = now.view
    if view.leader is None:
        return [_without_leader(now)]
    after = after_death(now, view.leader)
    if after.leader is None:
        return [_no_successor(now)]
    return [_clean(now, after)]


def after_death(now: Situation, broker: BrokerId) -> PartitionRegistration:
    """Return the partition after the controller removed a dead broker from the ISR."""
    registration = registered(now)
    active = now.alive - {broker}
    isr = tuple(each for each in registration.isr if each in active)
    return next_registration(registration, Target(isr=isr), _rules(now, active))


def after_unclean_election(now: Situation, dead: BrokerId | None) -> PartitionRegistration:
    """Return the partition after an administrator's unclean election without the dead broker."""
    active = now.alive if dead is None else now.alive - {dead}
    before = registered(now) if dead is None else after_death(now, dead)
    logs = {
        broker: LogState(log.last_epoch, log.sound_upto, log.damaged)
        for broker, log in known_logs(now).items()
        if broker in active
    }
    target = Target(election=ElectionType.UNCLEAN)
    return next_registration(before, target, _rules(now, active, logs))


class KnownLog(NamedTuple):
    """The log of a replica that responded."""

    last_epoch: LeaderEpoch
    """The leader epoch of its last undamaged record."""
    sound_upto: Offset
    """Its log end, or the first damaged offset."""
    damaged: bool
    shared_upto: Offset
    """The offset up to which it has the records of the best log."""


def known_logs(now: Situation) -> dict[BrokerId, KnownLog]:
    """Return the logs of the replicas that responded."""
    plan = view_recovery(now.view)
    best = 0 if plan.best is None else plan.best.sound_upto or 0
    return {
        each.broker: KnownLog(
            each.last_epoch,
            each.sound_upto,
            each.sound_upto != each.log_end_offset,
            best - (each.loses or 0),
        )
        for each in plan.candidates
        if each.last_epoch is not None and each.sound_upto is not None
    }


def registered(now: Situation) -> PartitionRegistration:
    """Return the partition's registration as far as the view shows it."""
    view = now.view
    replicas = tuple(each.broker for each in view.replicas)
    lost = tuple(broker for broker in replicas if broker in (view.lost or ()))
    return PartitionRegistration(
        _NO_TOPIC_ID,
        view.partition,
        replicas,
        tuple(broker for broker in replicas if broker in view.isr),
        view.leader,
        view.leader_epoch,
        view.partition_epoch or 0,
        adding=tuple((view.reassignment or {}).get("adding", ())),
        removing=tuple((view.reassignment or {}).get("removing", ())),
        elr=tuple(broker for broker in replicas if broker in (view.elr or ())),
        lost=() if view.leader is not None else lost,
        behind=lost if view.leader is not None else (),
    )


def _rules(
    now: Situation,
    active: frozenset[BrokerId],
    logs: Mapping[BrokerId, LogState] | None = None,
) -> ElectionRules:
    return ElectionRules(active, now.view.min_isr or 1, logs=logs or {})


def _clean(now: Situation, after: PartitionRegistration) -> Explanation:
    view, leader = now.view, after.leader
    where = "in the ISR" if leader in view.isr else "in the ELR"
    text = (
        f"If broker {view.leader} died now, broker {leader} ({where}) would lead in epoch"
        f" {after.leader_epoch}. No committed record would be lost."
    )
    parts = []
    row = now.replica(leader)
    if row is not None and row.unreachable is not None:
        parts.append(
            f"But broker {leader} did not respond ({row.unreachable}); if it is dead too:"
            f" {_second(now, leader)}"
        )
    parts.append(_uncommitted(now, leader))
    if view.min_isr is not None and len(after.isr) < view.min_isr:
        text += (
            f" With {count(len(after.isr), 'replica')} in sync, acks=all would be rejected:"
            f" min.insync.replicas is {view.min_isr}."
        )
    severity = WARN if row is not None and row.unreachable is not None else INFO
    return Explanation(TOPIC, severity, text, " ".join(filter(None, parts)))


def _second(now: Situation, leader: BrokerId | None) -> str:
    """Return who would lead if this broker were dead as well."""
    without = now._replace(alive=now.alive - {leader})
    after = after_death(without, now.view.leader or 0)
    return "no replica could be elected." if after.leader is None else f"broker {after.leader}."


def _uncommitted(now: Situation, leader: BrokerId | None) -> str:
    """Return what happens to the records above the HW."""
    if now.leader is None:
        return ""
    watermark, end = now.leader["high_watermark"], now.leader["log_end_offset"]
    if watermark is None or end is None:
        return ""
    if watermark >= end:
        return "Every record is committed."
    row = now.replica(leader)
    has = None if row is None else row.log_end_offset
    above = offsets(watermark, end)
    if has is None:
        return (
            f"The {count(end - watermark, 'record')} above the HW ({above}) may be lost: they are"
            " not committed, so none was acknowledged with acks=all."
        )
    if has >= end:
        return f"Broker {leader} also has the {count(end - watermark, 'record')} above the HW."
    first = max(has, watermark)
    return (
        f"{count(end - first, 'record')} above the HW would be lost ({offsets(first, end)}): broker"
        f" {leader} does not have them. None was acknowledged with acks=all."
    )


def _no_successor(now: Situation) -> Explanation:
    """Explain that no replica may lead after the leader's death."""
    view = now.view
    text = (
        f"If broker {view.leader} died now, no replica could be elected: the partition would be"
        f" offline until broker {view.leader} returns. No record is lost while its disk is intact."
    )
    if len(view.replicas) == 1:
        return Explanation(TOPIC, INFO, text, "The partition has one replica.")
    if now.kafka:
        return Explanation(TOPIC, BAD, text, "No other replica is in sync.")
    return Explanation(TOPIC, BAD, text, _unclean(now, view.leader))


def _without_leader(now: Situation) -> Explanation:
    view = now.view
    eligible = [*view.isr, *(view.elr or ())]
    if eligible:
        text = (
            f"The first of {named(eligible)} that returns is elected, unless it stopped uncleanly"
            " and may have lost records."
        )
    else:
        text = (
            "No replica is known to have all committed records. By default"
            " (unclean.recovery.strategy=balanced) the controller elects the longest log once the"
            " replicas that were in sync have reported theirs."
        )
    alive = any(row.broker in now.alive for row in view.replicas)
    detail = "" if now.kafka or not alive else _unclean(now, None)
    return Explanation(TOPIC, BAD, text, detail)


def _unclean(now: Situation, dead: BrokerId | None) -> str:
    """Return whom an unclean election would choose, and what it would lose."""
    chosen = after_unclean_election(now, dead).leader
    log = None if chosen is None else known_logs(now).get(chosen)
    if chosen is None:
        return "No other replica is alive, so not even an unclean election is possible."
    if log is None:
        return f"An unclean election would choose broker {chosen}, whose log is unknown."
    kept = min(log.sound_upto, log.shared_upto)
    text = (
        f"An unclean election (`tidelog partition recover {now.view.name}`) would choose broker"
        f" {chosen}, which has the records up to offset {kept} (exclusive)."
    )
    committed, end = _reach(now)
    if committed > kept:
        text += f" It would lose {count(committed - kept, 'committed record')}"
        text += f" ({offsets(kept, committed)})"
        more = end - committed
        return text + (f" and {count(more, 'record')} above the HW." if more > 0 else ".")
    if end > kept:
        text += f" It would lose {count(end - kept, 'uncommitted record')}"
        return text + f" ({offsets(kept, end)})."
    unknown = [row.broker for row in now.view.replicas if row.broker not in known_logs(now)]
    if unknown:
        return text + f" What it would lose is unknown: the log of {named(unknown)} is."
    return text + " It would lose no record that another replica has."


def _reach(now: Situation) -> tuple[Offset, Offset]:
    """Return the largest HW and the largest log end offset that are known."""
    marks = [r.high_watermark for r in now.view.replicas if r.high_watermark is not None]
    ends = [r.log_end_offset for r in now.view.replicas if r.log_end_offset is not None]
    return max(marks, default=0), max(ends, default=0)
