"""`tidelog partition recover`: what electing each replica of a partition would lose.

Logs are compared as the controller does it: by the leader epoch of the last record, then by log
end; a damaged log counts up to its damage. A replica loses the records of the best log behind
the last offset that both share. What replicas have that did not answer is not known.
"""

from typing import Any, NamedTuple

from rich.console import Console
from rich.text import Text

from tidelog.apps.cli import output
from tidelog.apps.cli.remote.partition_report import Partition, Replica
from tidelog.core.types import BrokerId, LeaderEpoch, Offset

UNKNOWN = "–"
NO_EPOCH = -1


class Candidate(NamedTuple):
    """One replica as a leader; None is not known."""

    broker: BrokerId
    last_epoch: LeaderEpoch | None
    """Of its last sound record; -1 without records."""
    log_end_offset: Offset | None
    sound_upto: Offset | None
    """Where its log is whole: its end, or where damage begins."""
    loses: int | None
    """Records of the best log that it does not have."""
    state: str


class Plan(NamedTuple):
    """The choices for one partition, the best one first."""

    name: str
    leader: BrokerId | None
    candidates: list[Candidate]
    committed_upto: Offset | None
    """The largest high watermark that any replica knows."""

    @property
    def best(self) -> Candidate | None:
        """The replica that the controller would elect, as far as these logs tell."""
        return next((each for each in self.candidates if each.last_epoch is not None), None)

    @property
    def committed_and_gone(self) -> int:
        """At least this many committed records are on no replica that answered."""
        if self.best is None or self.best.sound_upto is None or self.committed_upto is None:
            return 0
        return max(0, self.committed_upto - self.best.sound_upto)

    @property
    def silent(self) -> list[BrokerId]:
        """Replicas whose logs are not known."""
        return sorted(each.broker for each in self.candidates if each.loses is None)

    @property
    def complete(self) -> bool:
        """Whether a replica can lead, and no log is unknown that may have more records."""
        return self.best is not None and not self.silent

    def as_data(self) -> dict[str, Any]:
        candidates = [each._asdict() for each in self.candidates]
        best = None if self.best is None else self.best.broker
        return {**self._asdict(), "candidates": candidates, "best": best, "silent": self.silent}


def make_plan(partition: Partition) -> Plan:
    """Compare the logs of all replicas that answered."""
    known = [replica for replica in partition.replicas if _is_known(replica)]
    known.sort(key=lambda replica: (_last_epoch(replica), _sound_upto(replica)), reverse=True)
    silent = [replica for replica in partition.replicas if not _is_known(replica)]
    best = known[0] if known else None
    marks = [r.high_watermark for r in known if r.high_watermark is not None]
    lost = partition.lost or []
    return Plan(
        partition.name,
        partition.leader,
        [
            _without_log(replica, best) if replica.broker in lost else _candidate(replica, best)
            for replica in [*known, *silent]
        ],
        max(marks, default=None),
    )


def _is_known(replica: Replica) -> bool:
    return replica.unreachable is None and replica.epochs is not None


def _candidate(replica: Replica, best: Replica | None) -> Candidate:
    end = replica.log_end_offset
    if best is None or not _is_known(replica):
        state = replica.unreachable or "its log is not known"
        return Candidate(replica.broker, None, end, None, None, state)
    sound = _sound_upto(replica)
    state = "in sync" if replica.in_isr else "alive"
    if replica.damage is not None:
        state = f"damaged from offset {replica.damage['offset']} on: {replica.damage['reason']}"
    loses = _sound_upto(best) - _shared_upto(replica, best)
    return Candidate(replica.broker, _last_epoch(replica), end, sound, loses, state)


def _without_log(replica: Replica, best: Replica | None) -> Candidate:
    """A replica whose folder was missing at startup and has not been copied since."""
    loses = 0 if best is None else _sound_upto(best) - (best.log_start_offset or 0)
    return Candidate(replica.broker, None, None, None, loses, "lost its log")


def _sound_upto(replica: Replica) -> Offset:
    end = replica.log_end_offset or 0
    return end if replica.damage is None else min(end, int(replica.damage["offset"]))


def _last_epoch(replica: Replica) -> LeaderEpoch:
    """The leader epoch of its last sound record."""
    end = _sound_upto(replica)
    return max((epoch for epoch, start in replica.epochs or () if start < end), default=NO_EPOCH)


def _shared_upto(replica: Replica, best: Replica) -> Offset:
    """Where the two logs part: in the latest leader epoch that both have."""
    start = best.log_start_offset or 0
    ours, theirs = _epoch_ends(replica), _epoch_ends(best)
    shared = [min(end, theirs[entry]) for entry, end in ours.items() if entry in theirs]
    return max(shared, default=start)


def _epoch_ends(replica: Replica) -> dict[tuple[int, Offset], Offset]:
    """Where each leader epoch ends, by epoch and start."""
    sound = _sound_upto(replica)
    entries = [(epoch, start) for epoch, start in replica.epochs or () if start < sound]
    starts = [start for _, start in entries[1:]]
    return dict(zip(entries, [*starts, sound], strict=False))


def show(screen: Console, plan: Plan) -> None:
    """The choices as a table, the largest loss last, and what the table can't tell."""
    numbers = ["last epoch", "log end", "loses"]
    table = output.table(["broker", *numbers, "state"], numbers=numbers)
    for each in plan.candidates:
        figures = (each.last_epoch, each.log_end_offset, each.loses)
        cells = [UNKNOWN if figure is None else f"{figure:,}" for figure in figures]
        table.add_row(str(each.broker), *cells, each.state)
    screen.print(output.heading(plan.name))
    output.show_table(screen, table)
    if plan.committed_upto is not None:
        screen.print(output.faint(f"committed at least up to offset {plan.committed_upto:,}"))
    if plan.committed_and_gone:
        text = (
            f"at least {plan.committed_and_gone:,} committed records are on none of these replicas"
        )
        screen.print(Text(text, output.BAD))
    screen.print(output.verdict_line(plan.complete, verdict(plan)))
    if plan.leader is None and plan.best is not None:
        for line in _next_steps(plan):
            screen.print(output.faint(line))


def _next_steps(plan: Plan) -> list[str]:
    steps = [f"to elect it: tidelog partition recover {plan.name}"]
    if plan.silent:
        steps.insert(0, f"start broker {', '.join(map(str, plan.silent))} first, if you can")
    return steps


def verdict(plan: Plan) -> str:
    """What an election would do now, in one line."""
    silent = ", ".join(map(str, plan.silent))
    if plan.best is None:
        if not silent:
            return "no replica has any records: every folder was lost; restore one of them"
        return f"no replica can lead: no log of broker {silent} is known; start one of them"
    told = f"broker {plan.best.broker} has the most records of those that answered"
    if plan.leader is not None:
        told = f"broker {plan.leader} leads: no recovery needed"
    return f"{told}; not known: what broker {silent} has" if silent else told
