"""Convert a history to a form for drawing: lines, leader periods, replica states.

Seconds count from the start of the demo. Invariant: a line has a gap where its broker did not
respond; only observed values are drawn.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidelog.apps.demo.history import (
    IN_SYNC_AGAIN,
    KILLED,
    LANDED,
    RESTARTED,
    clock_of,
    rounds_of,
)
from tidelog.apps.demo.observer import Round, Sample
from tidelog.core.history import HistoryEvent

IN_SYNC = "in sync"
OUT = "out of sync"
DOWN = "down"
_NO_LEADER = -1
_MARK_KINDS = {KILLED: "kill", RESTARTED: "start", IN_SYNC_AGAIN: "whole"}

Piece = list[tuple[float, int]]
"""A part of a line without gaps: points (seconds, offset)."""


class LeaderPeriod(NamedTuple):
    """The period in which one broker leads under one epoch."""

    epoch: int
    leader: int
    from_s: float
    to_s: float


class Span(NamedTuple):
    """A period in which a replica's state does not change."""

    what: str
    from_s: float
    to_s: float


class Mark(NamedTuple):
    """An event of the demo: a fault, or a state that the cluster reached."""

    at_s: float
    text: str
    kind: str
    """`kill`, `start` or `whole`: the broker was killed, it restarts, all replicas are in sync."""


class Batch(NamedTuple):
    """A micro-batch of the Spark job, from its progress event."""

    query: str
    number: int
    at_s: float
    """When the batch was complete."""
    rows: int
    from_offset: int
    to_offset: int
    took_ms: int
    behind: int
    """Orders acknowledged by then that are not in this batch or an earlier one."""
    phase: str


class Moment(NamedTuple):
    """The replicas at one moment."""

    at_s: float
    leader: int | None
    leader_epoch: int | None
    isr: tuple[int, ...]
    logs: Mapping[int, tuple[int, int, tuple[tuple[int, int], ...]]]
    """Log end offset, high watermark and (epoch, start offset) pairs of the brokers that
    responded."""


class Timeline(NamedTuple):
    """All data that the report draws."""

    seconds: float
    brokers: list[int]
    log_ends: dict[int, list[Piece]]
    high_watermarks: dict[int, list[Piece]]
    """The high watermark that each replica knows."""
    committed: list[Piece]
    """The leader's high watermark."""
    states: dict[int, list[Span]]
    leader_periods: list[LeaderPeriod]
    epochs: dict[int, list[tuple[int, int]]]
    """(epoch, start offset) by replica, as each replica had them at the end."""
    marks: list[Mark]
    landed: Piece
    """The number of orders in the lake after each micro-batch."""
    moments: list[Moment]

    @property
    def gaps(self) -> dict[int, list[Piece]]:
        """Each replica's log end minus its own high watermark."""
        return {
            broker: [
                [(at_s, end - mark) for (at_s, end), (_, mark) in zip(ends, marks, strict=True)]
                for ends, marks in zip(pieces, self.high_watermarks[broker], strict=True)
            ]
            for broker, pieces in self.log_ends.items()
        }

    @property
    def newest(self) -> int:
        """The highest log end offset of any replica."""
        return max(
            (point[1] for line in self.log_ends.values() for p in line for point in p), default=0
        )


def build_timeline(history: Sequence[HistoryEvent]) -> Timeline:
    """Build the timeline from the history of a run."""
    rounds = rounds_of(history)
    seconds = clock_of(history)
    landed = [(seconds(each), each.fields["orders"]) for each in history if each.event == LANDED]
    brokers = sorted({broker for each in rounds for broker in each.samples})
    last = {b: s for each in rounds for b, s in each.samples.items() if s is not None}
    leaders = [leader_of(each) for each in rounds]
    times = [each.at_s for each in rounds]
    return Timeline(
        seconds=max(times, default=0.0),
        brokers=brokers,
        log_ends={
            b: _pieces(times, [s and s.log_end_offset for s in _own(rounds, b)]) for b in brokers
        },
        high_watermarks={
            b: _pieces(times, [s and s.high_watermark for s in _own(rounds, b)]) for b in brokers
        },
        committed=_pieces(times, [leader and leader.high_watermark for leader in leaders]),
        states={b: _spans(times, [_state(each, b) for each in rounds]) for b in brokers},
        leader_periods=_leader_periods(times, leaders),
        epochs={b: list(sample.epochs) for b, sample in sorted(last.items())},
        marks=marks_of(history),
        landed=[(landed[0][0], 0), *landed] if landed else [],
        moments=[_moment(each, leader) for each, leader in zip(rounds, leaders, strict=True)],
    )


def _moment(seen: Round, leader: Sample | None) -> Moment:
    leads = leader is not None and leader.leader != _NO_LEADER
    return Moment(
        seen.at_s,
        leader.leader if leader is not None and leads else None,
        leader.leader_epoch if leader is not None and leads else None,
        in_sync(seen),
        {
            broker: (sample.log_end_offset, sample.high_watermark, sample.epochs)
            for broker, sample in seen.samples.items()
            if sample is not None
        },
    )


def marks_of(history: Sequence[HistoryEvent]) -> list[Mark]:
    """Return the events that the picture marks, in the order of time."""
    seconds = clock_of(history)
    return sorted(
        Mark(seconds(each), each.text, _MARK_KINDS[each.event])
        for each in history
        if each.event in _MARK_KINDS
    )


def leader_of(seen: Round) -> Sample | None:
    """Return the sample of the leader; if several claim to lead, the one with the newest epoch."""
    leading = [s for s in seen.samples.values() if s is not None and s.is_leader]
    return max(leading, key=lambda sample: sample.leader_epoch, default=None)


def in_sync(seen: Round) -> tuple[int, ...]:
    """Return the ISR, from the replica with the newest leader epoch and partition epoch."""
    known = [s for s in seen.samples.values() if s is not None]
    best = max(known, key=lambda s: (s.leader_epoch, s.partition_epoch), default=None)
    return best.isr if best is not None else ()


def _own(rounds: Sequence[Round], broker: int) -> list[Sample | None]:
    return [each.samples.get(broker) for each in rounds]


def _state(seen: Round, broker: int) -> str:
    if seen.samples.get(broker) is None:
        return DOWN
    return IN_SYNC if broker in in_sync(seen) else OUT


def _pieces(times: Sequence[float], values: Sequence[int | None]) -> list[Piece]:
    pieces: list[Piece] = [[]]
    for at_s, value in zip(times, values, strict=True):
        if value is not None:
            pieces[-1].append((at_s, value))
        elif pieces[-1]:
            pieces.append([])
    return [piece for piece in pieces if piece]


def _spans(times: Sequence[float], states: Sequence[str]) -> list[Span]:
    spans: list[Span] = []
    for at_s, what in zip(times, states, strict=True):
        if spans and spans[-1].what == what:
            spans[-1] = spans[-1]._replace(to_s=at_s)
        else:
            if spans:
                spans[-1] = spans[-1]._replace(to_s=at_s)
            spans.append(Span(what, at_s, at_s))
    return spans


def _leader_periods(times: Sequence[float], leaders: Sequence[Sample | None]) -> list[LeaderPeriod]:
    leader_periods: list[LeaderPeriod] = []
    for at_s, leader in zip(times, leaders, strict=True):
        if leader is None or leader.leader == _NO_LEADER:
            continue
        key = (leader.leader_epoch, leader.leader)
        if leader_periods and (leader_periods[-1].epoch, leader_periods[-1].leader) == key:
            leader_periods[-1] = leader_periods[-1]._replace(to_s=at_s)
        else:
            leader_periods.append(LeaderPeriod(*key, at_s, at_s))
    return leader_periods
