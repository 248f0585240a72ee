"""The invariants of the cluster model, and the goals that must be reachable."""

from typing import Any, TypeAlias

from tidelog.lab.modelcheck.shipped.local_step import (
    ACCUSED,
    HIGH_WATERMARK,
    LEADER,
    LEADER_EPOCH,
    LOG_END_OFFSET,
    Fields,
    fields_of,
)
from tidelog.lab.modelcheck.shipped.state import DISAGREED, FELL_BACK

State: TypeAlias = tuple[Any, ...]

HW_AT_MOST_LEO = "the high watermark is at most the log end offset"
COMMITTED_ON_CANDIDATES = "every replica that may be elected has all committed records"
KNOWN_BY_TWO_SURVIVES = "some replica in ISR or ELR has all records that two knew to be committed"
"""The weaker form of the rule above, for a log that has lost its end undetected. If only the
damaged replica knew that a record was committed, no other replica can detect the loss."""
ONE_HISTORY = "no two leaders disagree on what is committed"
ONLY_COMMITTED_SHOWN = "below any high watermark there are only committed records"
LOG_MATCHING = "one epoch writes one record at one offset"
HW_NEVER_FALLS = "a leader's high watermark never falls"
ONE_LEADER = "no two replicas lead in one epoch"
NONE_REFUSED = "no leader lacks records that a follower knows to be committed"

NAMES = (
    HW_AT_MOST_LEO,
    COMMITTED_ON_CANDIDATES,
    ONE_HISTORY,
    HW_NEVER_FALLS,
    ONLY_COMMITTED_SHOWN,
    LOG_MATCHING,
    ONE_LEADER,
    NONE_REFUSED,
)
GOALS: tuple[str, ...] = (
    "a record commits",
    "leadership moves",
    "a log is truncated",
    "the ISR shrinks and grows",
)
DAMAGED_LEADER = "a replica leads that lacks committed records"


def violated(state: State) -> list[str]:
    """Return the names of the invariants that do not hold."""
    frozen_replicas, registrations, _, (committed, wrong, _, _, damages, confirmed) = state
    replicas = [(fields_of(frozen), log) for frozen, log in frozen_replicas]
    broken = []
    if wrong & DISAGREED:
        broken.append(ONE_HISTORY)
    if wrong & FELL_BACK:
        broken.append(HW_NEVER_FALLS)
    if not damages and any(f[ACCUSED] >= 0 for f, _ in replicas):
        broken.append(NONE_REFUSED)
    if any(
        f[HIGH_WATERMARK] > f[LOG_END_OFFSET] or f[LOG_END_OFFSET] != len(log)
        for f, log in replicas
    ):
        broken.append(HW_AT_MOST_LEO)
    if any(log[: f[HIGH_WATERMARK]] != committed[: f[HIGH_WATERMARK]] for f, log in replicas):
        broken.append(ONLY_COMMITTED_SHOWN)
    _, _, _, isr, elr = registrations[-1]
    size = len(committed)
    if not damages:
        if any(replicas[broker][1][:size] != committed for broker in isr or elr):
            broken.append(COMMITTED_ON_CANDIDATES)
    else:
        kept = committed[:confirmed]
        if not any(replicas[broker][1][:confirmed] == kept for broker in (*isr, *elr)):
            broken.append(KNOWN_BY_TWO_SURVIVES)
    if not _logs_match(replicas):
        broken.append(LOG_MATCHING)
    leading = [f[LEADER_EPOCH] for broker, (f, _) in enumerate(replicas) if f[LEADER] == broker]
    if len(leading) != len(set(leading)):
        broken.append(ONE_LEADER)
    return broken


def _logs_match(replicas: list[tuple[Fields, Any]]) -> bool:
    """Return whether equal offset and epoch always mean the same record."""
    seen: dict[tuple[int, int], int] = {}
    return all(
        seen.setdefault((offset, epoch), record) == record
        for _, log in replicas
        for offset, (epoch, record) in enumerate(log)
    )


def reached(state: State, brokers: tuple[int, ...]) -> list[str]:
    """Return the goals that this state meets."""
    replicas, registrations, _, (committed, _, produced, _, damages, _) = state
    leader, leader_epoch, partition_epoch, isr, _ = registrations[-1]
    met = []
    if committed:
        met.append("a record commits")
    if leader_epoch > 0:
        met.append("leadership moves")
    if sum(len(log) for _, log in replicas) < produced:
        met.append("a log is truncated")
    if partition_epoch > leader_epoch + 1 and isr == brokers:
        met.append("the ISR shrinks and grows")
    if damages and leader >= 0 and replicas[leader][1][: len(committed)] != committed:
        met.append(DAMAGED_LEADER)
    return met


def describe(state: State) -> list[str]:
    """Return a table: a line for each replica, and one for the controller and the network."""
    replicas, registrations, messages, (committed, *_) = state
    lines = []
    for broker, (frozen, log) in enumerate(replicas):
        fields = fields_of(frozen)
        role = "leader  " if fields[LEADER] == broker else "follower"
        records = " ".join(f"m{record + 1}@{epoch}" for epoch, record in log)
        lines.append(
            f"{broker_name(broker)} {role} epoch={fields[LEADER_EPOCH]}"
            f" LEO={fields[LOG_END_OFFSET]} HW={fields[HIGH_WATERMARK]}"
            f" log=[{records}]"
        )
    leader, leader_epoch, _, isr, _ = registrations[-1]
    lines.append(
        f"controller: leader={broker_name(leader)} epoch={leader_epoch}"
        f" ISR={{{' '.join(broker_name(b) for b in isr)}}}"
        f" committed={len(committed)} in flight={len(messages)}"
    )
    return lines


def broker_name(broker: int) -> str:
    """Return the broker's letter, as in the stories, or `controller`."""
    return "controller" if broker < 0 else chr(ord("A") + broker)
