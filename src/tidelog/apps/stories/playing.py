"""A played story as data: each step under each rule, with the replicas after it.

    story_data(story, text, performances)    everything that a player draws

JSON calls a rule `policy`, as the option --policy does.
"""

from collections.abc import Sequence
from typing import Any

from tidelog.core.types import INTERNAL_TOPICS, BrokerId
from tidelog.lab.spec.snapshot import LogEntry
from tidelog.lab.story.grammar import Step, Story
from tidelog.lab.story.legend import used
from tidelog.lab.story.library import broken_invariants, kept_invariants
from tidelog.lab.story.rules import RULES
from tidelog.lab.story.runner import Frame, Performance, Replica

RECORDS_MAX = 300
"""The most records of one replica in a frame: the newest ones."""
CHECKING = ("check", "expect")
"""Commands that only check."""


def story_data(story: Story, text: str, performances: Sequence[Performance]) -> dict[str, Any]:
    """Return a story that was played under one or more rules."""
    frames = _frames_by_line(performances)
    steps = [_step_data(frames[line], performances) for line in sorted(frames)]
    differing = [index for index, step in enumerate(steps) if step["differs"]]
    parting = iter([index for index in differing if not steps[index]["given"]] or differing)
    printed = [
        shown
        for played in frames.values()
        for frame in played.values()
        for shown in (frame.step.text, *frame.output)
    ]
    return {
        "title": story.title,
        "prose": list(story.prose),
        "closing": list(story.closing),
        "covers": list(story.covers),
        "policies": [performance.policy for performance in performances],
        "text": text,
        "passed": all(performance.passed for performance in performances),
        "parts_at": next(parting, None),
        "legend": [{"sign": each.sign, "meaning": each.meaning} for each in used(printed)],
        "verdicts": [_verdict_data(performance) for performance in performances],
        "problems": [
            {"policy": performance.policy, "line": problem.line, "message": problem.message}
            for performance in performances
            for problem in performance.problems
        ],
        "steps": steps,
    }


def _frames_by_line(performances: Sequence[Performance]) -> dict[int, dict[str, Frame]]:
    """Return the frames of each line by rule."""
    frames: dict[int, dict[str, Frame]] = {}
    for performance in performances:
        for frame in performance.frames:
            frames.setdefault(frame.step.line, {})[performance.policy] = frame
    return frames


def _verdict_data(performance: Performance) -> dict[str, Any]:
    return {
        "policy": performance.policy,
        "shipped": RULES[performance.policy].shipped,
        "passed": performance.passed,
        "kept": kept_invariants(performance),
        "broken": [
            {"invariant": name, "what": what} for name, what in broken_invariants(performance)
        ],
    }


def _step_data(played: dict[str, Frame], performances: Sequence[Performance]) -> dict[str, Any]:
    step: Step = next(iter(played.values())).step
    return {
        "line": step.line,
        "command": step.text,
        "given": step.given,
        "checks": step.word in CHECKING,
        "prose": list(step.prose),
        "differs": len({frame.output for frame in played.values()}) > 1,
        "frames": {
            performance.policy: _frame_data(played[performance.policy], performance)
            for performance in performances
            if performance.policy in played
        },
    }


def _frame_data(frame: Frame, performance: Performance) -> dict[str, Any]:
    return {
        "lines": [
            {"text": line.content, "from": line.sender, "to": line.receiver, "mark": line.mark}
            for line in frame.lines
        ],
        "problems": list(frame.problems),
        "replicas": list(map(_replica_data, frame.replicas)),
        "registration": _registration_data(frame, performance.labels),
        "lost": [list(entry) for entry in lost_records(frame, performance)],
    }


def _replica_data(replica: Replica) -> dict[str, Any]:
    snapshot, known = replica.snapshot, replica.registration
    log = list(snapshot.log)
    return {
        "name": replica.name,
        "role": replica.role,
        "topic": replica.topic,
        "internal": replica.topic in INTERNAL_TOPICS,
        "leads": known is not None and known.leader == snapshot.broker,
        "alive": snapshot.alive,
        "assigned": known is not None and snapshot.broker in known.replicas,
        "in_isr": known is not None and snapshot.broker in known.isr,
        "in_elr": known is not None and snapshot.broker in known.elr,
        "leader_epoch": snapshot.leader_epoch if snapshot.alive else None,
        "log_start_offset": snapshot.log_start_offset,
        "log_end_offset": snapshot.log_end_offset,
        "high_watermark": snapshot.high_watermark,
        "last_stable_offset": snapshot.last_stable_offset,
        "epochs": [[entry.epoch, entry.start_offset] for entry in snapshot.epochs],
        "log": [list(entry) for entry in log[-RECORDS_MAX:]],
        "omitted": max(0, len(log) - RECORDS_MAX),
    }


def _registration_data(frame: Frame, labels: dict[BrokerId, str]) -> dict[str, Any] | None:
    known = frame.registration
    if known is None:
        return None
    sets = {"replicas": known.replicas, "isr": known.isr, "elr": known.elr}
    sets |= {"adding": known.adding, "removing": known.removing}
    return {
        "leader": None if known.leader is None else labels[known.leader],
        "leader_epoch": known.leader_epoch,
        "partition_epoch": known.partition_epoch,
        **{name: [labels[broker] for broker in found] for name, found in sets.items()},
    }


def lost_records(frame: Frame, performance: Performance) -> list[LogEntry]:
    """Return the records acknowledged with acks=all that the acting leader's log does not have.

    Records below its log start were deleted on purpose. Without an acting leader nothing is lost
    yet: another replica may still have the record.
    """
    known = frame.registration
    if known is None:
        return []
    for replica in frame.replicas:
        snapshot = replica.snapshot
        if snapshot.broker == known.leader and snapshot.alive and replica.role == "leader":
            present, start = set(snapshot.log), snapshot.log_start_offset
            acked = dict.fromkeys(performance.acked[: frame.acked])
            return [entry for entry in acked if entry.offset >= start and entry not in present]
    return []
