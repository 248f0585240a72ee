"""What must hold in every state of the cluster model, and what must be reachable."""

from typing import Any, TypeAlias

State: TypeAlias = tuple[Any, ...]

HW_AT_MOST_LEO = "the high watermark is at most the log end offset"
COMMITTED_ON_CANDIDATES = "every replica that may be elected has all committed records"
ONE_HISTORY = "no two leaders disagree on what is committed"
ONLY_COMMITTED_SHOWN = "below any high watermark there are only committed records"
LOG_MATCHING = "one epoch writes one record at one offset"
ONE_LEADER = "no two replicas lead in one epoch"

NAMES = (
    HW_AT_MOST_LEO,
    COMMITTED_ON_CANDIDATES,
    ONE_HISTORY,
    ONLY_COMMITTED_SHOWN,
    LOG_MATCHING,
    ONE_LEADER,
)


def violated(state: State) -> list[str]:
    """The names of what does not hold."""
    replicas, registrations, _, (committed, conflict, _, _) = state
    broken = []
    if conflict:
        broken.append(ONE_HISTORY)
    if any(picture[2] > picture[1] or picture[1] != len(log) for picture, log in replicas):
        broken.append(HW_AT_MOST_LEO)
    if any(log[: picture[2]] != committed[: picture[2]] for picture, log in replicas):
        broken.append(ONLY_COMMITTED_SHOWN)
    _, _, _, isr, elr = registrations[-1]
    size = len(committed)
    if any(replicas[broker][1][:size] != committed for broker in isr or elr):
        broken.append(COMMITTED_ON_CANDIDATES)
    if not _logs_match(replicas):
        broken.append(LOG_MATCHING)
    leading = [p[6] for broker, (p, _) in enumerate(replicas) if p[5] == broker]
    if len(leading) != len(set(leading)):
        broken.append(ONE_LEADER)
    return broken


def _logs_match(replicas: tuple[Any, ...]) -> bool:
    """Same offset and epoch, same record."""
    seen: dict[tuple[int, int], int] = {}
    return all(
        seen.setdefault((offset, epoch), record) == record
        for _, log in replicas
        for offset, (epoch, record) in enumerate(log)
    )


def reached(state: State, brokers: tuple[int, ...]) -> list[str]:
    """The goals met here."""
    replicas, registrations, _, (committed, _, produced, _) = state
    _, leader_epoch, partition_epoch, isr, _ = registrations[-1]
    met = []
    if committed:
        met.append("a record commits")
    if leader_epoch > 0:
        met.append("leadership moves")
    if sum(len(log) for _, log in replicas) < produced:
        met.append("a log is cut")
    if partition_epoch > leader_epoch + 1 and isr == brokers:
        met.append("the ISR shrinks and grows")
    return met


def describe(state: State) -> list[str]:
    """A table of the replicas, the controller's word, and what is in flight."""
    replicas, registrations, messages, (committed, _, _, _) = state
    lines = []
    for broker, (picture, log) in enumerate(replicas):
        role = "leader  " if picture[5] == broker else "follower"
        records = " ".join(f"m{record + 1}@{epoch}" for epoch, record in log)
        lines.append(
            f"{broker_name(broker)} {role} epoch={picture[6]} LEO={picture[1]} HW={picture[2]}"
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
    """A letter, as in the stories."""
    return "controller" if broker < 0 else chr(ord("A") + broker)
