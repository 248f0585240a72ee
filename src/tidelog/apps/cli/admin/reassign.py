"""`tidelog reassign`: replicas moved from broker to broker, by a plan."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from tidelog.apps.cli.admin import arguments
from tidelog.apps.cli.admin.outcomes import conclude_changes
from tidelog.apps.cli.remote.bootstrap import (
    WAIT_MAX_S,
    asked_cluster,
    bootstrap_option,
    timeout_option,
)
from tidelog.apps.cli.remote.completing import complete_topic
from tidelog.apps.cli.usage import F, examples, format_option

if TYPE_CHECKING:
    from tidelog.apps.cli.admin.reassign_plan import Plan
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
    help="A topic to move, instead of a plan; any number of times.",
)
@click.option(
    "--brokers",
    callback=arguments.read_brokers,
    metavar="1,2,3",
    help="Where the topics shall be.",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1, arguments.REPLICAS_MAX),
    help="How many replicas each partition shall have.  [default: as many as now]",
)
@_action("execute", "Begin to move.")
@_action("verify", "See how far the moves are.")
@_action("cancel", "Take back moves under way.")
@_action("list", "List all moves under way.")
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0.1, WAIT_MAX_S),
    metavar="SECONDS",
    help="Wait until the moves are done, so long at most; they go on all the same.",
)
@click.option(
    "--rollback",
    "rollback_file",
    type=click.Path(dir_okay=False, writable=True),
    metavar="FILE",
    help="Where to write the plan that leads back.",
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

    PLAN is a file in the format of Kafka's own tool. Without it, --topic and --brokers make
    a plan that moves as little as it can; alone they only show it. Before anything moves, the
    plan that leads back is printed. Exit code 0 means: begun, or done if --verify or --wait
    was given.
    """
    action = _check_usage(plan_file, topics, brokers, actions, wait_s)
    with asked_cluster(bootstrap, timeout_s) as cluster:
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
    """The one thing to do; None: only show the plan."""
    context = click.get_current_context()
    if len(set(actions)) > 1:
        told = " or ".join(f"--{action}" for action in actions)
        raise click.UsageError(f"one thing at a time: {told}", context)
    action = actions[0] if actions else None
    if action == "list":
        return action
    if (plan_file is None) == (not topics):
        told = "give a plan or --topic" + (", not both" if topics else "; --list shows what moves")
        raise click.UsageError(told, context)
    if wait_s is not None and action not in ("execute", "verify"):
        raise click.UsageError("--wait goes with --execute or --verify", context)
    makes_plan = topics and action in (None, "execute")
    if makes_plan and brokers is None:
        raise click.UsageError("where to? add --brokers, such as --brokers 1,2,3", context)
    if brokers is not None and not makes_plan:
        raise click.UsageError("--brokers makes a plan for --topic; leave it out here", context)
    return action


# -- plans -----------------------------------------------------------------------------------


def _named_plan(cluster: "Cluster", plan_file: str | None, topics: tuple[str, ...]) -> "Plan":
    """The plan of the file; of topics, where they are or are just moving to. Raises
    NoSuchTopic."""
    from tidelog.apps.cli.admin.reassign_moves import targets
    from tidelog.apps.cli.admin.reassign_plan import BadPlan, read_plan

    if plan_file is None:
        return targets(cluster, topics)
    try:
        with open(plan_file, encoding="utf-8") as file:
            plan = read_plan(file.read())
    except OSError as error:
        raise click.UsageError(f"can't read {plan_file}: {error.strerror}") from error
    except BadPlan as error:
        raise click.UsageError(
            f"{plan_file} is no plan: {error}", click.get_current_context()
        ) from error
    cluster.refresh()
    for key in plan:
        cluster.partition(*key)
    return plan


def _made_plan(
    cluster: "Cluster", topics: tuple[str, ...], brokers: list[int], factor: int | None
) -> "Plan":
    from tidelog.apps.cli.admin.reassign_moves import origins
    from tidelog.apps.cli.admin.reassign_plan import BadPlan, make_plan
    from tidelog.shell.client.administration.brokers import registered_brokers

    context = click.get_current_context()
    cluster.refresh()
    known = registered_brokers(cluster)
    for broker in brokers:
        if broker not in known:
            ids = ", ".join(map(str, sorted(known)))
            raise click.UsageError(f"there is no broker {broker}; choose from: {ids}", context)
    racks = {broker: address.rack for broker, address in known.items()}
    try:
        return make_plan(origins(cluster, topics), brokers, racks, factor)
    except BadPlan as error:
        raise click.UsageError(str(error), context) from error


# -- what to do with them --------------------------------------------------------------------


def _propose(cluster: "Cluster", form: str, plan: "Plan", rollback_file: str | None) -> int:
    """Show the plan. Its JSON is a plan that this command and Kafka's own tool take."""
    from tidelog.apps.cli import output
    from tidelog.apps.cli.admin import reassign_view
    from tidelog.apps.cli.admin.reassign_moves import origins
    from tidelog.apps.cli.admin.reassign_plan import as_document

    before = _keep(origins(cluster, {key.topic for key in plan}), plan, rollback_file)
    return output.conclude(
        form,
        True,
        {**as_document(plan), "rollback": as_document(before)},
        lambda screen: reassign_view.show_plan(screen, before, plan),
    )


def _keep(before: "Plan", plan: "Plan", rollback_file: str | None) -> "Plan":
    """Where the partitions of a plan are now; written to a file if that is wanted."""
    import json

    from tidelog.apps.cli.admin.reassign_plan import as_document
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
    patience_s: float | None,
) -> int:
    from tidelog.apps.cli import output
    from tidelog.apps.cli.admin import reassign_moves, reassign_view
    from tidelog.apps.cli.admin.reassign_plan import as_document

    before = reassign_moves.origins(cluster, {key.topic for key in plan})
    before = _keep(before, plan, rollback_file)
    if form == "text":
        reassign_view.show_rollback(output.screen(), before, rollback_file)
    changes = reassign_moves.begin(cluster, plan)
    rollback = as_document(before)
    if patience_s is None or not all(change.holds for change in changes):
        return conclude_changes(form, "moves", changes, rollback=rollback)
    states = reassign_moves.wait(cluster, plan, patience_s)
    return reassign_view.conclude_states(form, states, rollback=rollback)


def _verify(cluster: "Cluster", form: str, plan: "Plan", patience_s: float | None) -> int:
    from tidelog.apps.cli.admin import reassign_moves, reassign_view

    states = (
        reassign_moves.look(cluster, plan)
        if patience_s is None
        else reassign_moves.wait(cluster, plan, patience_s)
    )
    return reassign_view.conclude_states(form, states)


def _cancel(cluster: "Cluster", form: str, plan: "Plan") -> int:
    from tidelog.apps.cli.admin import reassign_moves

    changes = reassign_moves.cancel(cluster, plan)
    if not changes and form == "text":
        click.echo("nothing of this is being moved")
    return conclude_changes(form, "moves", changes)


def _list(cluster: "Cluster", form: str) -> int:
    from tidelog.apps.cli import output
    from tidelog.apps.cli.admin import reassign_view
    from tidelog.shell.client.administration.reassignments import list_reassignments

    moves = list_reassignments(cluster)
    data = [
        {"topic": key.topic, "partition": key.partition, **move._asdict()}
        for key, move in sorted(moves.items())
    ]
    return output.conclude(
        form, True, {"moves": data}, lambda screen: reassign_view.show_moves(screen, moves)
    )
