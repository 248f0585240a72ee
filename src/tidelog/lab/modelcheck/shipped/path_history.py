"""A path through the model of the shipped code as history events, for the console and other
readers of histories (core/history.py).

Each step takes one second of virtual time. It has an event with the action, the events that a
broker or the controller would log, and a sample of each replica that changed, with the fields of
lab/broker_history.py. The last event names the broken invariant. Broker A of the model is broker 1.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from tidelog.core.history import HistoryEvent
from tidelog.core.lineage.leader_epochs import LeaderEpochs
from tidelog.core.node.measuring.journal import EVENTS as JOURNAL
from tidelog.core.types import BrokerId
from tidelog.lab.broker_history import SAMPLED, SAMPLED_FIELDS
from tidelog.lab.modelcheck.explorer import Violation
from tidelog.lab.modelcheck.shipped import messages as wire
from tidelog.lab.modelcheck.shipped.cluster_model import ClusterModel
from tidelog.lab.modelcheck.shipped.invariants import broker_name
from tidelog.lab.modelcheck.shipped.local_step import (
    FOLLOWERS,
    HIGH_WATERMARK,
    ISR,
    LEADER,
    LEADER_EPOCH,
    LOG_END_OFFSET,
    PARTITION_EPOCH,
    Record,
    fields_of,
)
from tidelog.lab.modelcheck.shipped.state import State

STEP_MS = 1_000
STEP, BROKEN = "model_step", "invariant_broken"
EVENTS = {
    STEP: (
        ("topic", "partition", "step", "action", "in_flight"),
        "a step of the model checker's path; `in_flight` are the messages after it",
    ),
    BROKEN: (("topic", "partition", "invariant", "depth"), "the state breaks an invariant"),
}
"""Events that only this module writes, with their fields and meaning."""
_PLACE = {"topic": "model", "partition": 0}
_NONE = -1


def path_events(model: ClusterModel, violation: Violation) -> list[HistoryEvent]:
    """Return the events of a path from the initial state to a broken invariant."""
    states = [step.state for step in violation.path]
    names = ", ".join(f"{broker_name(b)} is broker {_id(b)}" for b in model.brokers)
    events = [_step(0, f"initial state; {names}", states[0])]
    events += _elected(0, None, states[0][1][-1])
    events += _samples(0, model, None, states[0])
    for number, (before, step) in enumerate(pairwise(violation.path), 1):
        at_ms, after = number * STEP_MS, step.state
        events.append(_step(number, step.action, after))
        events += _registered(at_ms, before.state[1][-1], after[1][-1])
        events += _removed(at_ms, before.state, after)
        events += _samples(at_ms, model, before.state, after)
    fields = {**_PLACE, "invariant": violation.invariant, "depth": violation.depth}
    text = f"model: broken: {violation.invariant}"
    events.append(HistoryEvent(violation.depth * STEP_MS + 1, None, BROKEN, fields, "ERROR", text))
    return events


def _id(broker: int) -> BrokerId:
    return broker + 1


def _ids(brokers: Iterable[int]) -> list[BrokerId]:
    return [_id(broker) for broker in brokers]


def _step(number: int, action: str, state: State) -> HistoryEvent:
    flying = [f"{wire.NAMES[m[0]]} {broker_name(m[1])}->{broker_name(m[2])}" for m in state[2]]
    fields = {**_PLACE, "step": number, "action": action, "in_flight": flying}
    return HistoryEvent(number * STEP_MS, None, STEP, fields, "INFO", f"step {number}: {action}")


def _logged(at_ms: int, broker: BrokerId | None, name: str, fields: dict[str, Any]) -> HistoryEvent:
    who = "controller" if broker is None else f"broker {broker}"
    fields = {**_PLACE, **fields}
    text = JOURNAL[name].text.format(**fields)
    return HistoryEvent(at_ms, broker, name, fields, JOURNAL[name].level, f"{who}: {text}")


# -- the controller --------------------------------------------------------------------------


def _elected(
    at_ms: int, old: tuple[Any, ...] | None, new: tuple[Any, ...]
) -> Iterator[HistoryEvent]:
    leader, epoch, _, isr, _ = new
    fields = {
        "leader": None if leader == _NONE else _id(leader),
        "leader_epoch": epoch,
        "old_leader": None if old is None or old[0] == _NONE else _id(old[0]),
        "isr": _ids(isr),
    }
    if leader != _NONE:
        yield _logged(at_ms, None, "leader_elected", fields)
    elif old is not None and old[0] != _NONE:
        text = f"controller: {_PLACE['topic']}-0 has no leader"
        yield HistoryEvent(at_ms, None, "leader_lost", {**_PLACE, **fields}, "WARN", text)


def _registered(at_ms: int, old: tuple[Any, ...], new: tuple[Any, ...]) -> Iterator[HistoryEvent]:
    """Yield what changed in the controller's registration of the partition."""
    if (old[0], old[1]) != (new[0], new[1]):
        yield from _elected(at_ms, old, new)
    left, joined = (
        sorted(set(one) - set(other)) for one, other in ((old[3], new[3]), (new[3], old[3]))
    )
    about = {"leader_epoch": new[1], "isr": _ids(new[3])}
    if left:
        yield _logged(at_ms, None, "isr_shrunk", {**about, "left": _ids(left)})
    if joined:
        yield _logged(at_ms, None, "isr_expanded", {**about, "joined": _ids(joined)})


# -- the replicas ----------------------------------------------------------------------------


def _removed(at_ms: int, before: State, after: State) -> Iterator[HistoryEvent]:
    """Yield the truncations of a step."""
    for broker, ((frozen, log), (later, now)) in enumerate(zip(before[0], after[0], strict=True)):
        kept = _shared(log, now)
        if kept == len(log):
            continue
        committed = max(0, min(len(log), fields_of(frozen)[HIGH_WATERMARK]) - kept)
        epoch = fields_of(later)[LEADER_EPOCH]
        fields = {"leader_epoch": epoch, "start": kept, "end": len(log)}
        if committed:
            yield _logged(at_ms, _id(broker), "records_lost", {**fields, "lost": committed})
        else:
            yield _logged(at_ms, _id(broker), "truncated", fields)


def _shared(log: Sequence[Record], now: Sequence[Record]) -> int:
    for offset, (old, new) in enumerate(zip(log, now, strict=False)):
        if old != new:
            return offset
    return min(len(log), len(now))


def _samples(
    at_ms: int, model: ClusterModel, before: State | None, after: State
) -> Iterator[HistoryEvent]:
    """Yield a sample of each replica that changed, also if only the registration did."""
    for broker in model.brokers:
        fields = _sample(model, broker, after)
        if before is None or fields != _sample(model, broker, before):
            text = (
                f"{fields['role']} in leader epoch {fields['leader_epoch']}, LEO"
                f" {fields['log_end_offset']}, HW {fields['high_watermark']}"
            )
            yield HistoryEvent(at_ms, _id(broker), SAMPLED, fields, "INFO", text)


def _sample(model: ClusterModel, broker: int, state: State) -> dict[str, Any]:
    frozen, log = state[0][broker]
    fields, registration = fields_of(frozen), state[1][-1]
    leads = fields[LEADER] == broker
    epochs = LeaderEpochs()
    for offset, (epoch, _) in enumerate(log):
        epochs.assign(epoch, offset)
    members, pending = fields[ISR][0], None
    maximal = set(members)
    if len(fields[ISR]) > 1:
        _, joining, leaving, _ = fields[ISR]
        changing, kind = (joining, "expand") if joining else (leaving, "shrink")
        pending = {"kind": kind, "brokers": _ids(changing)}
        maximal |= set(joining)
    found = {
        **_PLACE,
        "role": "leader" if leads else "follower",
        "leader": None if fields[LEADER] == _NONE else _id(fields[LEADER]),
        "leader_epoch": fields[LEADER_EPOCH],
        "partition_epoch": fields[PARTITION_EPOCH],
        "log_start_offset": 0,
        "log_end_offset": fields[LOG_END_OFFSET],
        "high_watermark": fields[HIGH_WATERMARK],
        "last_stable_offset": fields[HIGH_WATERMARK],
        "epochs": [list(entry) for entry in epochs.entries],
        "damage": None,
        "replicas": _ids(model.brokers),
        "isr": _ids(registration[3]),
        "maximal_isr": _ids(sorted(maximal)) if leads else None,
        "pending_isr": pending if leads else None,
        "elr": _ids(registration[4]),
        "lost": [],
        "min_isr": model.bounds.min_insync_replicas,
        "adding": [],
        "removing": [],
        "unclean_election": None,
        "unstable": None,
        "followers": [
            {
                "broker": _id(follower[0]),
                "log_end_offset": None if follower[1] == _NONE else follower[1],
                "log_start_offset": follower[2],
                "in_isr": follower[0] in members,
            }
            for follower in (fields[FOLLOWERS] if leads else ())
        ],
    }
    return {name: found[name] for name in SAMPLED_FIELDS}
