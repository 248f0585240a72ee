"""`tidelog partition`: describe replicas of a partition, elect leaders."""

import sys

import click

from tidelog.apps.cli.connection import (
    LAST_RESORT,
    bootstrap_option,
    complete_topic,
    connected_cluster,
    timeout_option,
)
from tidelog.apps.cli.usage import Section, examples, format_option


@click.group(
    cls=Section,
    epilog=examples(
        "tidelog partition describe orders/0",
        "tidelog partition describe orders --format json",
        "tidelog partition elect --all",
        "tidelog partition recover orders/0 --plan",
    ),
)
def partition() -> None:
    """Describe partitions of a running cluster, and elect their leaders."""


def _parse_name(ctx: click.Context, _param: click.Parameter, text: str) -> tuple[str, int | None]:
    return _name(ctx, text)


def _parse_names(
    ctx: click.Context, _param: click.Parameter, texts: tuple[str, ...]
) -> list[tuple[str, int | None]]:
    return [_name(ctx, text) for text in texts]


def _name(ctx: click.Context, text: str) -> tuple[str, int | None]:
    topic, slash, number = text.partition("/")
    if not topic or (slash and not number.isdecimal()):
        raise click.UsageError(
            f"{text!r} is not in the form TOPIC or TOPIC/PARTITION, such as orders/0", ctx
        )
    return topic, int(number) if slash else None


@partition.command(
    "describe",
    epilog=examples(
        "tidelog partition describe orders/0",
        f"tidelog partition describe orders -b {LAST_RESORT}",
        "tidelog partition describe orders/0 --watch",
    ),
)
@click.argument(
    "name", metavar="TOPIC[/PARTITION]", callback=_parse_name, shell_complete=complete_topic
)
@bootstrap_option()
@timeout_option()
@click.option("--watch", is_flag=True, help="Refresh every second until interrupted.")
@format_option()
def describe_command(
    name: tuple[str, int | None], bootstrap: str | None, timeout_s: float, watch: bool, form: str
) -> int:
    """Show each replica's log start and end, high watermark, leader epochs and lag.

    Asks every broker for its own replica, and shows which brokers can't be reached. For a Kafka
    cluster, shows only what Kafka's protocol reports. Exit code 0 means: each partition has a
    leader, and every replica is in sync and its broker responded.
    """
    from tidelog.apps.cli import output
    from tidelog.apps.cli.rendering import partition as rendering
    from tidelog.apps.views.partition import view_partitions

    with connected_cluster(bootstrap, timeout_s) as cluster:
        report = view_partitions(cluster, *name)
        if watch and form == "text":
            report = rendering.watch(lambda: view_partitions(cluster, *name), report)
    return output.conclude(
        form, report.holds, report.as_data(), lambda screen: rendering.show(screen, report)
    )


@partition.command(
    "elect",
    epilog=examples(
        "tidelog partition elect --all",
        "tidelog partition elect orders/0 payments",
        "tidelog partition elect orders/0 --unclean",
    ),
)
@click.argument(
    "names",
    metavar="[TOPIC[/PARTITION]]...",
    nargs=-1,
    callback=_parse_names,
    shell_complete=complete_topic,
)
@click.option(
    "--all",
    "everywhere",
    is_flag=True,
    help="Elect leaders of all partitions that need an election.",
)
@click.option(
    "--unclean",
    is_flag=True,
    help="For partitions without a leader, also elect a replica that is not in sync."
    " Acknowledged records may be lost.",
)
@bootstrap_option()
@timeout_option()
@format_option()
def elect_command(
    names: list[tuple[str, int | None]],
    everywhere: bool,
    unclean: bool,
    bootstrap: str | None,
    timeout_s: float,
    form: str,
) -> int:
    """Elect the preferred leader: the first replica of a partition, if it is in sync.

    The controller does the same every leader.imbalance.check.interval.seconds. Exit code 0 means
    that every named partition has the requested leader.
    """
    from tidelog.apps.changes.election import elect_leaders
    from tidelog.apps.changes.outcome import done
    from tidelog.apps.cli.output import conclude_changes

    if everywhere == bool(names):
        message = (
            "name partitions, or use --all" if not names else "--all can't be combined with names"
        )
        raise click.UsageError(message, click.get_current_context())
    with connected_cluster(bootstrap, timeout_s) as cluster:
        changes = elect_leaders(cluster, None if everywhere else names, unclean=unclean)
    if not changes and form == "text":
        why = "has a leader" if unclean else "is led by its preferred replica"
        changes = [done("all", f"no election needed: every partition {why}")]
    return conclude_changes(form, "partitions", changes)


@partition.command(
    "recover",
    epilog=examples(
        "tidelog partition recover orders/0 --plan",
        "tidelog partition recover orders/0 --yes",
    ),
)
@click.argument(
    "name", metavar="TOPIC/PARTITION", callback=_parse_name, shell_complete=complete_topic
)
@click.option(
    "--plan", "plan_only", is_flag=True, help="Only show what electing each replica would lose."
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@bootstrap_option()
@timeout_option()
@format_option()
def recover_command(
    name: tuple[str, int | None],
    plan_only: bool,
    yes: bool,
    bootstrap: str | None,
    timeout_s: float,
    form: str,
) -> int:
    """Elect a leader for a partition that has none, after showing what that would lose.

    Compares the logs of all replicas whose brokers respond. The controller then elects the one
    with the most records, even if it was not in sync: records that only other replicas have are
    lost. With --plan, exit code 0 means: a replica can lead, and every log is known.
    """
    from tidelog.apps.changes.election import elect_leaders
    from tidelog.apps.cli import output
    from tidelog.apps.cli.rendering.partition import show_recovery
    from tidelog.apps.views.partition import view_partitions
    from tidelog.apps.views.recovery import view_recovery

    topic, number = name
    if number is None:
        raise click.UsageError(f"name one partition, such as {topic}/0")
    with connected_cluster(bootstrap, timeout_s) as cluster:
        report = view_partitions(cluster, topic, number)
        if report.missing:
            raise click.ClickException(report.missing)
        plan = view_recovery(report.partitions[0])
        if plan_only:
            return output.conclude(
                form,
                plan.complete,
                plan.as_data(),
                lambda screen: show_recovery(screen, plan),
            )
        if not yes and plan.leader is None:
            if form != "text" or not (sys.stdin.isatty() and sys.stderr.isatty()):
                raise click.UsageError(
                    "can't ask for confirmation without a terminal; add --yes or --plan"
                )
            show_recovery(output.screen(), plan)
            click.confirm("Elect the replica with the most records?", abort=True, err=True)
        changes = elect_leaders(cluster, [name], unclean=True)
    return output.conclude_changes(form, "partitions", changes)
