"""`tidelog reassign`: move replicas between brokers, by a plan."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from tidelog.apps.cli import arguments
from tidelog.apps.cli.connection import (
    WAIT_MAX_S,
    bootstrap_option,
    complete_topic,
    connected_cluster,
    timeout_option,
)
from tidelog.apps.cli.usage import F, examples, format_option

if TYPE_CHECKING:
    from tidelog.apps.changes.reassignment_plan import Plan
    from tidelog.shell.client.cluster import Cluster


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
    "--brokers",
    callback=arguments.read_brokers,
    metavar="1,2,3",
    help="Brokers to move the topics to.",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1, arguments.REPLICAS_MAX),
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
    "--rollback",
    "rollback_file",
    type=click.Path(dir_okay=False, writable=True),
    metavar="FILE",
    help="Write the current assignment to FILE, as a plan to roll back.",
)
@bootstrap_option()
@timeout_option()
@format_option()
def reassign(
    plan_file: str | None,
    topics: tuple[str, ...],
    brokers: list[int] | None,
    replication_factor: int | None,
    actions: tuple[str, ...],
    wait_s: float | None,
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
        return _execute(cluster, form, plan, rollback_file, wait_s)


def _check_usage(
    plan_file: str | None,
    topics: tuple[str, ...],
    brokers: list[int] | None,
    actions: tuple[str, ...],
    wait_s: float | None,
) -> str | None:
    """Return the action; None means: only show the plan."""
    context = click.get_current_context()
    if len(set(actions)) > 1:
        names = " and ".join(f"--{action}" for action in actions)
        raise click.UsageError(f"{names} can't be combined", context)
    action = actions[0] if actions else None
    if action == "list":
        return action
    if (plan_file is None) == (not topics):
        hint = ", not both" if topics else "; --list shows reassignments in progress"
        raise click.UsageError(f"give a PLAN file or --topic{hint}", context)
    if wait_s is not None and action not in ("execute", "verify"):
        raise click.UsageError("--wait requires --execute or --verify", context)
    makes_plan = topics and action in (None, "execute")
    if makes_plan and brokers is None:
        raise click.UsageError("--topic requires --brokers, such as --brokers 1,2,3", context)
    if brokers is not None and not makes_plan:
        raise click.UsageError(
            "--brokers is only used to make a plan for --topic; remove it", context
        )
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
        raise click.UsageError(
            f"{plan_file} is not a valid plan: {error}", click.get_current_context()
        ) from error
    cluster.refresh()
    for key in plan:
        cluster.partition(*key)
    return plan


def _made_plan(
    cluster: "Cluster", topics: tuple[str, ...], brokers: list[int], factor: int | None
) -> "Plan":
    from tidelog.apps.changes.reassignment import origins
    from tidelog.apps.changes.reassignment_plan import BadPlan, make_plan
    from tidelog.shell.client.administration.brokers import registered_brokers

    context = click.get_current_context()
    cluster.refresh()
    known = registered_brokers(cluster)
    for broker in brokers:
        if broker not in known:
            ids = ", ".join(map(str, sorted(known)))
            raise click.UsageError(
                f"broker {broker} is not registered; choose from: {ids}", context
            )
    racks = {broker: address.rack for broker, address in known.items()}
    try:
        return make_plan(origins(cluster, topics), brokers, racks, factor)
    except BadPlan as error:
        raise click.UsageError(str(error), context) from error


# -- actions ---------------------------------------------------------------------------------


def _propose(cluster: "Cluster", form: str, plan: "Plan", rollback_file: str | None) -> int:
    """Show the plan. Its JSON is a plan that this command and Kafka's own tool read."""
    from tidelog.apps.changes.reassignment import origins
    from tidelog.apps.changes.reassignment_plan import as_document
    from tidelog.apps.cli import output
    from tidelog.apps.cli.rendering import reassign as rendering

    before = _rollback_plan(origins(cluster, {key.topic for key in plan}), plan, rollback_file)
    return output.conclude(
        form,
        True,
        {**as_document(plan), "rollback": as_document(before)},
        lambda screen: rendering.show_plan(screen, before, plan),
    )


def _rollback_plan(before: "Plan", plan: "Plan", rollback_file: str | None) -> "Plan":
    """Return the current replicas of the plan's partitions; write them to the rollback file."""
    import json

    from tidelog.apps.changes.reassignment_plan import as_document
    from tidelog.apps.cli.usage import write_file

    kept = {key: before[key] for key in plan}
    if rollback_file is not None:
        write_file(rollback_file, json.dumps(as_document(kept)) + "\n")
    return kept


def _execute(
    cluster: "Cluster",
    form: str,
    plan: "Plan",
    rollback_file: str | None,
    timeout_s: float | None,
) -> int:
    from tidelog.apps.changes import reassignment
    from tidelog.apps.changes.reassignment_plan import as_document
    from tidelog.apps.cli import output
    from tidelog.apps.cli.rendering import reassign as rendering

    before = reassignment.origins(cluster, {key.topic for key in plan})
    before = _rollback_plan(before, plan, rollback_file)
    if form == "text":
        rendering.show_rollback(output.screen(), before, rollback_file)
    changes = reassignment.begin(cluster, plan)
    rollback = as_document(before)
    if timeout_s is None or not all(change.holds for change in changes):
        return output.conclude_changes(form, "moves", changes, rollback=rollback)
    states = rendering.wait_with_progress(cluster, plan, timeout_s)
    return rendering.conclude_states(form, states, rollback=rollback)


def _verify(cluster: "Cluster", form: str, plan: "Plan", timeout_s: float | None) -> int:
    from tidelog.apps.changes.reassignment import move_states
    from tidelog.apps.cli.rendering import reassign as rendering

    states = (
        move_states(cluster, plan)
        if timeout_s is None
        else rendering.wait_with_progress(cluster, plan, timeout_s)
    )
    return rendering.conclude_states(form, states)


def _cancel(cluster: "Cluster", form: str, plan: "Plan") -> int:
    from tidelog.apps.changes import reassignment
    from tidelog.apps.cli.output import conclude_changes

    changes = reassignment.cancel(cluster, plan)
    if not changes and form == "text":
        click.echo("no reassignment of these partitions is in progress")
    return conclude_changes(form, "moves", changes)


def _list(cluster: "Cluster", form: str) -> int:
    from tidelog.apps.cli import output
    from tidelog.apps.cli.rendering import reassign as rendering
    from tidelog.shell.client.administration.reassignments import list_reassignments

    moves = list_reassignments(cluster)
    data = [
        {"topic": key.topic, "partition": key.partition, **move._asdict()}
        for key, move in sorted(moves.items())
    ]
    return output.conclude(
        form, True, {"moves": data}, lambda screen: rendering.show_moves(screen, moves)
    )
