"""Text output of `tidelog reassign`: plans, rollback plans, reassignments in progress.

Invariant: a plan is printed as one line of Kafka's JSON, to be copied into a file.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from tidelog.apps.changes.reassignment import (
    DONE,
    ELSEWHERE,
    MOVING,
    MoveProgress,
    MoveState,
    wait,
)
from tidelog.apps.changes.reassignment_plan import Plan, as_document
from tidelog.apps.cli import output
from tidelog.apps.cli.rendering.cluster import size
from tidelog.apps.cli.rendering.topic import brokers
from tidelog.core.types import TopicPartition
from tidelog.shell.client.administration.partitions import Reassignment
from tidelog.shell.client.cluster import Cluster

PARTS = 100
"""Steps of the progress bar for each partition."""


def wait_with_progress(cluster: Cluster, plan: Plan, timeout_s: float) -> list[MoveState]:
    """Wait for the plan's reassignments, with a progress bar if stderr is a terminal."""
    with output.progress("moving replicas", PARTS * len(plan)) as show_progress:

        def report(progress: MoveProgress) -> None:
            moving = PARTS * progress.partitions * progress.copied // (progress.total or 1)
            done = PARTS * (len(plan) - progress.partitions) + moving
            show_progress(done, f"{size(progress.copied)} of {size(progress.total)}")

        return wait(cluster, plan, timeout_s, report if sys.stderr.isatty() else None)


def show_plan(screen: Console, before: Plan, plan: Plan) -> None:
    """Print current and planned replicas of each partition, then both as JSON plans."""
    table = output.table(("PARTITION", "REPLICAS", "PLANNED", ""))
    moved = 0
    for key, wanted in sorted(plan.items()):
        new = [broker for broker in wanted if broker not in before[key]]
        moved += len(new)
        note = f"copies to {brokers(new)}" if new else ""
        if not new and wanted != before[key]:
            note = "different order" if len(wanted) == len(before[key]) else "fewer replicas"
        table.add_row(str(key), brokers(before[key]), brokers(wanted), note)
    output.show_table(screen, table)
    screen.print(f"replicas to copy: {moved}; add --execute to start. The plan:")
    click.echo(json.dumps(as_document(plan)))
    screen.print("The rollback plan:")
    click.echo(json.dumps(as_document(before)))


def show_rollback(screen: Console, before: Plan, rollback_file: str | None) -> None:
    """Print the rollback plan, before anything moves."""
    if rollback_file is not None:
        screen.print(f"rollback plan written to {rollback_file}", soft_wrap=True)
        return
    screen.print("rollback plan: to roll back, save this line in a file and run it with --execute")
    click.echo(json.dumps(as_document(before)))


def show_moves(screen: Console, moves: Mapping[TopicPartition, Reassignment]) -> None:
    """Print the reassignments in progress."""
    if not moves:
        screen.print("no reassignment in progress")
        return
    table = output.table(("PARTITION", "REPLICAS", "ADDING", "REMOVING"))
    for key, move in sorted(moves.items()):
        cells = (move.replicas, move.adding, move.removing)
        table.add_row(str(key), *(brokers(each) for each in cells))
    output.show_table(screen, table)


def conclude_states(form: str, states: Sequence[MoveState], **more: Any) -> int:
    """Print the state of each partition; return the exit code."""
    holds = all(each.state == DONE for each in states)
    data = {"moves": [each.as_data() for each in states], **more}
    return output.conclude(form, holds, data, lambda screen: _show_states(screen, states, holds))


def _show_states(screen: Console, states: Sequence[MoveState], holds: bool) -> None:
    styles = {DONE: output.GOOD, MOVING: output.WARN, ELSEWHERE: output.BAD}
    table = output.table(("PARTITION", "STATE", "REPLICAS", "PLANNED"))
    for each in states:
        state = Text(each.state, styles[each.state])
        table.add_row(each.name, state, brokers(each.replicas), brokers(each.wanted))
    output.show_table(screen, table)
    count = {state: sum(each.state == state for each in states) for state in styles}
    text = f"{count[DONE]} of {len(states)} done"
    if count[MOVING]:
        text += f", {count[MOVING]} moving: run --verify again, or add --wait 600"
    if count[ELSEWHERE]:
        text += f", {count[ELSEWHERE]} elsewhere: no reassignment in progress, --execute starts one"
    screen.print(output.verdict_line(holds, text))
