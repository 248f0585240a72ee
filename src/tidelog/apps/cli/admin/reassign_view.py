"""How `tidelog reassign` shows plans, the way back, and moves under way.

Always true: a plan is printed as one line of Kafka's JSON, to be copied into a file.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from tidelog.apps.cli import output
from tidelog.apps.cli.admin.reassign_moves import DONE, ELSEWHERE, MOVING, MoveState
from tidelog.apps.cli.admin.reassign_plan import Plan, as_document
from tidelog.apps.cli.admin.topic_view import brokers
from tidelog.core.types import TopicPartition
from tidelog.shell.client.administration.reassignments import Reassignment


def show_plan(screen: Console, before: Plan, plan: Plan) -> None:
    """Each partition, where it is and where it shall be; then both as plans."""
    table = output.table(("PARTITION", "REPLICAS", "WANTED", ""))
    moved = 0
    for key, wanted in sorted(plan.items()):
        new = [broker for broker in wanted if broker not in before[key]]
        moved += len(new)
        note = f"copies to {brokers(new)}" if new else ""
        if not new and wanted != before[key]:
            note = "another order" if len(wanted) == len(before[key]) else "fewer replicas"
        table.add_row(str(key), brokers(before[key]), brokers(wanted), note)
    output.show_table(screen, table)
    screen.print(f"replicas to copy: {moved}; add --execute to begin. The plan:")
    click.echo(json.dumps(as_document(plan)))
    screen.print("The way back:")
    click.echo(json.dumps(as_document(before)))


def show_rollback(screen: Console, before: Plan, rollback_file: str | None) -> None:
    """Printed before anything moves."""
    if rollback_file is not None:
        screen.print(f"the way back is in {rollback_file}", soft_wrap=True)
        return
    screen.print("the way back: save this line in a file, and run it with --execute")
    click.echo(json.dumps(as_document(before)))


def show_moves(screen: Console, moves: Mapping[TopicPartition, Reassignment]) -> None:
    """All that is under way."""
    if not moves:
        screen.print("no replica is being moved")
        return
    table = output.table(("PARTITION", "REPLICAS", "ADDING", "REMOVING"))
    for key, move in sorted(moves.items()):
        cells = (move.replicas, move.adding, move.removing)
        table.add_row(str(key), *(brokers(each) for each in cells))
    output.show_table(screen, table)


def conclude_states(form: str, states: Sequence[MoveState], **more: Any) -> int:
    """Print how far each partition is; the exit code."""
    holds = all(each.state == DONE for each in states)
    data = {"moves": [each.as_data() for each in states], **more}
    return output.conclude(form, holds, data, lambda screen: _show_states(screen, states, holds))


def _show_states(screen: Console, states: Sequence[MoveState], holds: bool) -> None:
    styles = {DONE: output.GOOD, MOVING: output.WARN, ELSEWHERE: output.BAD}
    table = output.table(("PARTITION", "STATE", "REPLICAS", "WANTED"))
    for each in states:
        state = Text(each.state, styles[each.state])
        table.add_row(each.name, state, brokers(each.replicas), brokers(each.wanted))
    output.show_table(screen, table)
    count = {state: sum(each.state == state for each in states) for state in styles}
    told = f"{count[DONE]} of {len(states)} done"
    if count[MOVING]:
        told += f", {count[MOVING]} moving: look again, or add --wait 600"
    if count[ELSEWHERE]:
        told += f", {count[ELSEWHERE]} elsewhere: no move is under way, --execute begins one"
    screen.print(output.verdict_line(holds, told))
