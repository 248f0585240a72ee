"""`tidelog reassign`: move replicas between brokers, by a plan.

Invariant: a plan is printed as one line of Kafka's JSON, to be copied into a file.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from tidelog.apps.cli import output, usage
from tidelog.apps.cli.connection import (
    WAIT_MAX_S,
    cluster_options,
    complete_topic,
    connected_cluster,
)
from tidelog.apps.cli.usage import F, examples, usage_error, write_file

if TYPE_CHECKING:
    from rich.console import Console

    from tidelog.apps.changes.reassignment import MoveProgress, MoveState
    from tidelog.apps.changes.reassignment_plan import Plan
    from tidelog.core.types import TopicPartition
    from tidelog.shell.client.administration.partitions import Reassignment
    from tidelog.shell.client.cluster import Cluster

PARTS = 100
"""Steps of the progress bar for each partition."""


def _action(name: str, text: str) -> Callable[[F], F]:
    return click.option(f"--{name}", "actions", flag_value=name, multiple=True, help=text)


@click.command(
    "reassign",
    epilog=examples(
        "tidelog reassign --topic orders --brokers 1,2,3",
        "tidelog reassign --topic orders --brokers 1,2,3 --execute --wait 600",
        "tidelog reassign --topic orders --brokers 2,3 --format json",
        "tidelog reassign plan.json --execute",
        "tidelog reassign plan.json --verify",
        "tidelog reassign --list",
    ),
)
@click.argument("plan_file", metavar="[PLAN]", required=False, type=click.Path(dir_okay=False))
@click.option(
    "--topic",
    "topics",
    multiple=True,
    shell_complete=complete_topic,
    metavar="TOPIC",
    help="Make a plan for this topic instead of reading one; repeatable.",
)
@click.option(
    "--brokers", callback=usage.read_brokers, metavar="1,2,3", help="Brokers to move the topics to."
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1, usage.REPLICAS_MAX),
    help="New replica count of each partition.  [default: the current count]",
)
@_action("execute", "Start the reassignment.")
@_action("verify", "Show the state of each partition of the plan.")
@_action("cancel", "Cancel reassignments that are in progress.")
@_action("list", "List all reassignments in progress.")
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0.1, WAIT_MAX_S),
    metavar="SECONDS",
    help="With --execute or --verify: wait until the replicas are moved, for SECONDS at most. The"
    " reassignment continues after that.",
)
@click.option(
    "--throttle",
    type=click.IntRange(1),
    metavar="BYTES",
    help="With --execute: copy at most BYTES a second on each broker. --verify, --wait and --cancel"
    " remove this limit when no replica of the plan moves any more.",
)
@click.option(
    "--rollback",
    "rollback_file",
    type=click.Path(dir_okay=False, writable=True),
    metavar="FILE",
    help="Write the current assignment to FILE, as a plan to roll back.",
)
@cluster_options()
def reassign(
    plan_file: str | None,
    topics: tuple[str, ...],
    brokers: list[int] | None,
    replication_factor: int | None,
    actions: tuple[str, ...],
    wait_s: float | None,
    throttle: int | None,
    rollback_file: str | None,
    bootstrap: str | None,
    timeout_s: float,
    form: str,
) -> int:
    """Move replicas to other brokers.

    PLAN is a file in the format of kafka-reassign-partitions. Without PLAN, --topic and --brokers
    make a plan that moves as few replicas as possible; without --execute the plan is only shown.
    Before anything moves, the current assignment is printed as a plan to roll back. Exit code 0
    means that the reassignment is started, or with --verify or --wait that it is done.
    """
    action = _check_usage(plan_file, topics, brokers, actions, wait_s)
    if throttle is not None and action != "execute":
        raise usage_error("--throttle requires --execute")
    with connected_cluster(bootstrap, timeout_s) as cluster:
        if action == "list":
            return _list(cluster, form)
        if action == "cancel":
            return _cancel(cluster, form, _named_plan(cluster, plan_file, topics))
        if action == "verify":
            return _verify(cluster, form, _named_plan(cluster, plan_file, topics), wait_s)
        if plan_file is not None:
            plan = _named_plan(cluster, plan_file, topics)
        else:
            plan = _made_plan(cluster, topics, brokers or [], replication_factor)
        if action is None:
            return _propose(cluster, form, plan, rollback_file)
        return _execute(cluster, form, plan, rollback_file, wait_s, throttle)


def _check_usage(
    plan_file: str | None,
    topics: tuple[str, ...],
    brokers: list[int] | None,
    actions: tuple[str, ...],
    wait_s: float | None,
) -> str | None:
    """Return the action; None means: only show the plan."""
    if len(set(actions)) > 1:
        names = " and ".join(f"--{action}" for action in actions)
        raise usage_error(f"{names} can't be combined")
    action = actions[0] if actions else None
    if action == "list":
        return action
    if (plan_file is None) == (not topics):
        hint = ", not both" if topics else "; --list shows reassignments in progress"
        raise usage_error(f"give a PLAN file or --topic{hint}")
    if wait_s is not None and action not in ("execute", "verify"):
        raise usage_error("--wait requires --execute or --verify")
    makes_plan = topics and action in (None, "execute")
    if makes_plan and brokers is None:
        raise usage_error("--topic requires --brokers, such as --brokers 1,2,3")
    if brokers is not None and not makes_plan:
        raise usage_error("--brokers is only used to make a plan for --topic; remove it")
    return action


# -- plans -----------------------------------------------------------------------------------


def _named_plan(cluster: "Cluster", plan_file: str | None, topics: tuple[str, ...]) -> "Plan":
    """Return the plan of the file; for topics, their replicas after reassignments in progress.

    Raises NoSuchTopic.
    """
    from tidelog.apps.changes.reassignment import targets
    from tidelog.apps.changes.reassignment_plan import BadPlan, read_plan

    if plan_file is None:
        return targets(cluster, topics)
    try:
        with open(plan_file, encoding="utf-8") as file:
            plan = read_plan(file.read())
    except OSError as error:
        raise click.UsageError(f"can't read {plan_file}: {error.strerror}") from error
    except BadPlan as error:
        raise usage_error(f"{plan_file} is not a valid plan: {error}") from error
    cluster.refresh()
    for key in plan:
        cluster.partition(*key)
    return plan


def _made_plan(
    cluster: "Cluster", topics: tuple[str, ...], brokers: list[int], factor: int | None
) -> "Plan":
    from tidelog.apps.changes.reassignment import origins
    from tidelog.apps.changes.reassignment_plan import BadPlan, make_plan
    from tidelog.shell.client.admin import registered_brokers

    cluster.refresh()
    known = registered_brokers(cluster)
    for broker in brokers:
        if broker not in known:
            ids = ", ".join(map(str, sorted(known)))
            raise usage_error(f"broker {broker} is not registered; choose from: {ids}")
    racks = {broker: address.rack for broker, address in known.items()}
    try:
        return make_plan(origins(cluster, topics), brokers, racks, factor)
    except BadPlan as error:
        raise usage_error(str(error)) from error


# -- actions ---------------------------------------------------------------------------------


def _propose(cluster: "Cluster", form: str, plan: "Plan", rollback_file: str | None) -> int:
    """Show the plan. Its JSON is a plan that this command and Kafka's own tool read."""
    from tidelog.apps.changes.reassignment import origins
    from tidelog.apps.changes.reassignment_plan import as_document

    before = _rollback_plan(origins(cluster, {key.topic for key in plan}), plan, rollback_file)
    return output.conclude(
        form,
        True,
        {**as_document(plan), "rollback": as_document(before)},
        lambda screen: _show_plan(screen, before, plan),
    )


def _rollback_plan(before: "Plan", plan: "Plan", rollback_file: str | None) -> "Plan":
    """Return the current replicas of the plan's partitions; write them to the rollback file."""
    kept = {key: before[key] for key in plan}
    if rollback_file is not None:
        write_file(rollback_file, _one_line(kept) + "\n")
    return kept


def _execute(
    cluster: "Cluster",
    form: str,
    plan: "Plan",
    rollback_file: str | None,
    timeout_s: float | None,
    throttle: int | None,
) -> int:
    from tidelog.apps.changes import reassignment
    from tidelog.apps.changes.reassignment_plan import as_document

    before = reassignment.origins(cluster, {key.topic for key in plan})
    before = _rollback_plan(before, plan, rollback_file)
    if form == "text":
        _show_rollback(output.screen(), before, rollback_file)
    changes = []
    if throttle is not None:
        from tidelog.apps.changes.throttle import set_throttle

        changes = set_throttle(cluster, before, plan, throttle)
    if not changes:
        changes = reassignment.begin(cluster, plan)
    rollback = as_document(before)
    if timeout_s is None or not all(change.holds for change in changes):
        return output.conclude_changes(form, "moves", changes, rollback=rollback)
    states = wait_with_progress(cluster, plan, timeout_s)
    _clear_throttle(cluster, plan, states)
    return _conclude_states(form, states, rollback=rollback)


def _verify(cluster: "Cluster", form: str, plan: "Plan", timeout_s: float | None) -> int:
    from tidelog.apps.changes.reassignment import move_states

    states = (
        move_states(cluster, plan)
        if timeout_s is None
        else wait_with_progress(cluster, plan, timeout_s)
    )
    _clear_throttle(cluster, plan, states)
    return _conclude_states(form, states)


def _clear_throttle(cluster: "Cluster", plan: "Plan", states: "Sequence[MoveState]") -> None:
    """Remove the throttles of the plan if none of its partitions moves; warn if that fails."""
    from tidelog.apps.changes.reassignment import MOVING
    from tidelog.apps.changes.throttle import clear_throttle

    if all(each.state != MOVING for each in states):
        for change in clear_throttle(cluster, plan):
            click.echo(f"tidelog: {change.message}", err=True)


def _cancel(cluster: "Cluster", form: str, plan: "Plan") -> int:
    from tidelog.apps.changes import reassignment

    changes = reassignment.cancel(cluster, plan)
    if all(change.holds for change in changes):
        _clear_throttle(cluster, plan, ())
    if not changes and form == "text":
        click.echo("no reassignment of these partitions is in progress")
    return output.conclude_changes(form, "moves", changes)


def _list(cluster: "Cluster", form: str) -> int:
    from tidelog.shell.client.administration.partitions import list_reassignments

    moves = list_reassignments(cluster)
    data = [
        {"topic": key.topic, "partition": key.partition, **move._asdict()}
        for key, move in sorted(moves.items())
    ]
    return output.conclude(form, True, {"moves": data}, lambda screen: _show_moves(screen, moves))


# -- text output -----------------------------------------------------------------------------


def _one_line(plan: "Plan") -> str:
    """Return a plan as one line of Kafka's JSON."""
    import json

    from tidelog.apps.changes.reassignment_plan import as_document

    return json.dumps(as_document(plan))


def wait_with_progress(cluster: "Cluster", plan: "Plan", timeout_s: float) -> "list[MoveState]":
    """Wait for the plan's reassignments, with a progress bar if stderr is a terminal."""
    from tidelog.apps.changes.reassignment import wait

    with output.progress("moving replicas", PARTS * len(plan)) as show_progress:

        def report(progress: "MoveProgress") -> None:
            moving = PARTS * progress.partitions * progress.copied // (progress.total or 1)
            done = PARTS * (len(plan) - progress.partitions) + moving
            show_progress(done, f"{output.size(progress.copied)} of {output.size(progress.total)}")

        return wait(cluster, plan, timeout_s, report if sys.stderr.isatty() else None)


def _show_plan(screen: "Console", before: "Plan", plan: "Plan") -> None:
    """Print current and planned replicas of each partition, then both as JSON plans."""
    table = output.table(("PARTITION", "REPLICAS", "PLANNED", ""))
    moved = 0
    for key, wanted in sorted(plan.items()):
        new = [broker for broker in wanted if broker not in before[key]]
        moved += len(new)
        note = f"copies to {output.brokers(new)}" if new else ""
        if not new and wanted != before[key]:
            note = "different order" if len(wanted) == len(before[key]) else "fewer replicas"
        table.add_row(str(key), output.brokers(before[key]), output.brokers(wanted), note)
    output.show_table(screen, table)
    screen.print(f"replicas to copy: {moved}; add --execute to start. The plan:")
    click.echo(_one_line(plan))
    screen.print("The rollback plan:")
    click.echo(_one_line(before))


def _show_rollback(screen: "Console", before: "Plan", rollback_file: str | None) -> None:
    """Print the rollback plan, before anything moves."""
    if rollback_file is not None:
        screen.print(f"rollback plan written to {rollback_file}", soft_wrap=True)
        return
    screen.print("rollback plan: to roll back, save this line in a file and run it with --execute")
    click.echo(_one_line(before))


def _show_moves(screen: "Console", moves: "Mapping[TopicPartition, Reassignment]") -> None:
    """Print the reassignments in progress."""
    if not moves:
        screen.print("no reassignment in progress")
        return
    table = output.table(("PARTITION", "REPLICAS", "ADDING", "REMOVING"))
    for key, move in sorted(moves.items()):
        cells = (move.replicas, move.adding, move.removing)
        table.add_row(str(key), *(output.brokers(each) for each in cells))
    output.show_table(screen, table)


def _conclude_states(form: str, states: "Sequence[MoveState]", **more: Any) -> int:
    """Print the state of each partition; return the exit code."""
    from tidelog.apps.changes.reassignment import DONE

    holds = all(each.state == DONE for each in states)
    data = {"moves": [each.as_data() for each in states], **more}
    return output.conclude(form, holds, data, lambda screen: _show_states(screen, states, holds))


def _show_states(screen: "Console", states: "Sequence[MoveState]", holds: bool) -> None:
    from tidelog.apps.changes.reassignment import DONE, ELSEWHERE, MOVING

    styles = {DONE: output.GOOD, MOVING: output.WARN, ELSEWHERE: output.BAD}
    table = output.table(("PARTITION", "STATE", "REPLICAS", "PLANNED"))
    for each in states:
        state = output.styled(each.state, styles[each.state])
        table.add_row(each.name, state, output.brokers(each.replicas), output.brokers(each.wanted))
    output.show_table(screen, table)
    count = {state: sum(each.state == state for each in states) for state in styles}
    text = f"{count[DONE]} of {len(states)} done"
    if count[MOVING]:
        text += f", {count[MOVING]} moving: run --verify again, or add --wait 600"
    if count[ELSEWHERE]:
        text += f", {count[ELSEWHERE]} elsewhere: no reassignment in progress, --execute starts one"
    screen.print(output.verdict_line(holds, text))
