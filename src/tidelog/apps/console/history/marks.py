"""Marks of the scrubber, from events."""

from collections.abc import Iterable
from typing import Any

from tidelog.core.history import HistoryEvent

MARKS_MAX = 2_000
"""The most marks; the newest are kept."""
KINDS = {
    "leader_elected": "leader",
    "leadership_gained": "leader",
    "leader_lost": "leader",
    "isr_shrunk": "isr",
    "isr_expanded": "isr",
    "elr_changed": "isr",
    "unclean_election": "unclean",
    "records_lost": "loss",
    "truncated": "loss",
    "log_damaged": "loss",
    "log_lost": "loss",
    "broker_gone": "broker",
    "broker_alive": "broker",
    "broker_silent": "broker",
    "broker_responds": "broker",
    "broker_restarted": "broker",
    "broker_killed": "broker",
    "registered": "broker",
    "stopped": "broker",
    "crashed": "broker",
    "session_lost": "broker",
    "controller_changed": "other",
    "controller_gained": "other",
    "directory_failed": "other",
    "damage_repaired": "other",
    "damage_truncated": "other",
    "truncation_refused": "other",
    "topic_created": "other",
    "topic_deleted": "other",
    "group_created": "group",
    "group_deleted": "group",
    "group_state_changed": "group",
    "group_members_changed": "group",
    "group_coordinator_changed": "group",
    "group_offsets_moved_back": "group",
    "history_gap": "other",
    "replicas_in_sync": "other",
    "demo_started": "other",
    "model_step": "step",
    "invariant_broken": "broken",
    "fault_began": "fault",
    "fault_ended": "fault",
    "anomaly": "broken",
    "verify_started": "other",
}
"""Events that have a mark, and its kind."""


def marks_of(events: Iterable[HistoryEvent]) -> list[dict[str, Any]]:
    """Return the marks of events in the order of time; an election has one mark."""
    found = []
    elected: set[object] = set()
    for each in events:
        kind = KINDS.get(each.event)
        if kind is None:
            continue
        if each.event in ("leader_elected", "leadership_gained"):
            election = (each.partition, each.fields.get("leader_epoch"))
            if election in elected:
                continue
            elected.add(election)
        found.append({"at_ms": each.at_ms, "kind": kind, "text": each.text or each.event})
    return found[-MARKS_MAX:]


def as_row(event: HistoryEvent) -> dict[str, Any]:
    """Return an event as pages show it."""
    return {**event.as_data(), "at_ms": event.at_ms}
