"""`tidelog topic`: create, list, describe, alter and delete topics of a running cluster."""

import re
import sys
from typing import TYPE_CHECKING

import click

from tidelog.apps.cli import arguments
from tidelog.apps.cli.connection import (
    bootstrap_option,
    complete_topic,
    connected_cluster,
    timeout_option,
)
from tidelog.apps.cli.usage import Section, examples, format_option

if TYPE_CHECKING:
    from tidelog.apps.views.topic import TopicSummary

NOT_DELETED = 1
ASSIGNMENT_HELP = (
    "Replicas of each {what}partition: broker ids separated by colons, partitions by commas."
)


@click.group(
    cls=Section,
    epilog=examples(
        "tidelog topic create orders --partitions 6",
        "tidelog topic list",
        "tidelog topic describe orders",
    ),
)
def topic() -> None:
    """Create, list, describe, alter and delete topics (Tidelog or Kafka)."""


@topic.command(
    "create",
    epilog=examples(
        "tidelog topic create orders",
        "tidelog topic create orders payments -p 6 -r 3 -c min.insync.replicas=2",
        "tidelog topic create audit -c cleanup.policy=compact --if-not-exists",
        "tidelog topic create pinned --replica-assignment 1:2,2:3",
    ),
)
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True)
@click.option(
    "--partitions",
    "-p",
    type=click.IntRange(1, arguments.PARTITIONS_MAX),
    help="Partition count.  [default: num.partitions of the cluster]",
)
@click.option(
    "--replication-factor",
    "-r",
    type=click.IntRange(1, arguments.REPLICAS_MAX),
    help="Replicas of each partition.  [default: default.replication.factor of the cluster]",
)
@arguments.config_option("--config", "-c", help_text="Set a topic config; repeatable.")
@click.option(
    "--replica-assignment",
    "assignment",
    callback=arguments.read_assignment,
    metavar="1:2,2:3",
    help=ASSIGNMENT_HELP.format(what=""),
)
@click.option(
    "--if-not-exists",
    is_flag=True,
    help="Accept topics that exist already, and do not change them.",
)
@click.option("--validate-only", is_flag=True, help="Validate the request, create nothing.")
@bootstrap_option()
@timeout_option()
@format_option()
def create_command(
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    settings: dict[str, str],
    assignment: list[list[int]],
    if_not_exists: bool,
    validate_only: bool,
    bootstrap: str | None,
    timeout_s: float,
    form: str,
) -> int:
    """Create topics, all with the same options.

    Exit code 0 means that each topic was created, or that it existed already and
    --if-not-exists was given.
    """
    from tidelog.apps.changes.topic import create_topics
    from tidelog.apps.cli.output import conclude_changes
    from tidelog.shell.client.administration.topics import CLUSTER_DEFAULT, NewTopic

    if assignment and (partitions or replication_factor):
        raise click.UsageError(
            "--replica-assignment can't be combined with --partitions or --replication-factor:"
            " it sets both counts",
            click.get_current_context(),
        )
    size = (partitions or CLUSTER_DEFAULT, replication_factor or CLUSTER_DEFAULT)
    wanted = [NewTopic(name, *size, assignment, settings) for name in dict.fromkeys(names)]
    with connected_cluster(bootstrap, timeout_s) as cluster:
        changes = create_topics(
            cluster, wanted, if_not_exists=if_not_exists, validate_only=validate_only
        )
    return conclude_changes(form, "topics", changes)


@topic.command(
    "list",
    epilog=examples(
        "tidelog topic list",
        "tidelog topic list --regex 'orders.*'",
        "tidelog topic list --internal --format json",
    ),
)
@click.argument("names", metavar="[TOPIC]...", nargs=-1, shell_complete=complete_topic)
@arguments.regex_option("TOPIC is a regular expression that matches the whole name.")
@arguments.internal_option()
@bootstrap_option()
@timeout_option()
@format_option()
def list_command(
    names: tuple[str, ...],
    regex: bool,
    internal: bool,
    bootstrap: str | None,
    timeout_s: float,
    form: str,
) -> int:
    """List topics with their partition and replica counts."""
    from tidelog.apps.cli import output
    from tidelog.apps.cli.rendering import topic as rendering
    from tidelog.apps.views.topic import select_topics, summarize_topics

    with connected_cluster(bootstrap, timeout_s) as cluster:
        found = select_topics(cluster, names, _patterns(names, regex), internal=internal)
    topics = summarize_topics(found)
    return output.conclude(
        form,
        True,
        {"topics": [each._asdict() for each in topics]},
        lambda screen: rendering.show_list(screen, topics),
    )


@topic.command(
    "describe",
    epilog=examples(
        "tidelog topic describe orders",
        "tidelog topic describe --regex 'orders.*' --format table",
        "tidelog topic describe --under-replicated-partitions",
        "tidelog topic describe orders --format kafka",
    ),
)
@click.argument("names", metavar="[TOPIC]...", nargs=-1, shell_complete=complete_topic)
@arguments.regex_option("TOPIC is a regular expression that matches the whole name.")
@arguments.internal_option()
@click.option(
    "--under-replicated-partitions",
    "under_replicated",
    is_flag=True,
    help="Show only partitions with fewer in-sync replicas than replicas.",
)
@click.option(
    "--unavailable-partitions",
    "unavailable",
    is_flag=True,
    help="Show only partitions without a live leader.",
)
@click.option(
    "--under-min-isr-partitions",
    "under_min_isr",
    is_flag=True,
    help="Show only partitions below min.insync.replicas: they reject writes with acks=all.",
)
@click.option(
    "--at-min-isr-partitions",
    "at_min_isr",
    is_flag=True,
    help="Show only partitions with exactly min.insync.replicas in sync.",
)
@bootstrap_option()
@timeout_option()
@format_option("kafka", "table")
def describe_command(
    names: tuple[str, ...],
    regex: bool,
    internal: bool,
    under_replicated: bool,
    unavailable: bool,
    under_min_isr: bool,
    at_min_isr: bool,
    bootstrap: str | None,
    timeout_s: float,
    form: str,
) -> int:
    """Show each partition: leader, epoch, replicas, ISR, ELR, log start and high watermark.

    `--format text` prints the lines of kafka-topics, then a table; `kafka` and `table` print only
    one of them. With one of the four filters (--under-replicated-partitions and so on), internal
    topics are included, and exit code 0 means that no partition matches.
    """
    from tidelog.apps.cli import output
    from tidelog.apps.cli.rendering import topic as rendering
    from tidelog.apps.views.topic import PartitionFilters, select_topics, view_topics

    filters = PartitionFilters(under_replicated, unavailable, under_min_isr, at_min_isr)
    internal = internal or any(filters)
    with connected_cluster(bootstrap, timeout_s) as cluster:
        found = select_topics(cluster, names, _patterns(names, regex), internal=internal)
        if regex and not found:
            _match_nothing(names)
        topics = view_topics(cluster, [each.name for each in found], filters)
    return output.conclude(
        form,
        not (any(filters) and topics),
        {"topics": [each.as_data() for each in topics]},
        lambda screen: rendering.show_topics(screen, topics, form, headed=not any(filters)),
    )


@topic.command(
    "alter",
    epilog=examples(
        "tidelog topic alter orders --partitions 12",
        "tidelog topic alter orders --config retention.ms=60000 --delete-config segment.bytes",
        "tidelog topic alter orders payments --config min.insync.replicas=2 --validate-only",
    ),
)
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True, shell_complete=complete_topic)
@click.option(
    "--partitions",
    "-p",
    type=click.IntRange(1, arguments.PARTITIONS_MAX),
    help="New partition count.",
)
@click.option(
    "--replica-assignment",
    "assignment",
    callback=arguments.read_assignment,
    metavar="1:2,2:3",
    help=ASSIGNMENT_HELP.format(what="new "),
)
@arguments.config_option("--config", "-c", help_text="Set a topic config; repeatable.")
@click.option(
    "--delete-config",
    "unset",
    multiple=True,
    metavar="KEY",
    help="Reset a topic config to its default; repeatable.",
)
@click.option("--validate-only", is_flag=True, help="Validate the request, change nothing.")
@bootstrap_option()
@timeout_option()
@format_option()
def alter_command(
    names: tuple[str, ...],
    partitions: int | None,
    assignment: list[list[int]],
    settings: dict[str, str],
    unset: tuple[str, ...],
    validate_only: bool,
    bootstrap: str | None,
    timeout_s: float,
    form: str,
) -> int:
    """Add partitions to topics, and change their configs."""
    from tidelog.apps.changes.topic import alter_topics
    from tidelog.apps.cli.output import conclude_changes
    from tidelog.apps.views.topic import select_topics

    context = click.get_current_context()
    if assignment and not partitions:
        raise click.UsageError("--replica-assignment requires --partitions", context)
    if not (partitions or settings or unset):
        raise click.UsageError(
            "nothing to change; use --partitions, --config or --delete-config", context
        )
    if twice := sorted(settings.keys() & set(unset)):
        raise click.UsageError(
            f"{twice[0]} is given to both --config and --delete-config; remove one", context
        )
    with connected_cluster(bootstrap, timeout_s) as cluster:
        found = select_topics(cluster, names, internal=True)
        changes = alter_topics(
            cluster,
            [each.name for each in found],
            partitions=partitions,
            assignment=assignment,
            settings=settings,
            unset=unset,
            validate_only=validate_only,
        )
    return conclude_changes(form, "topics", changes)


@topic.command(
    "delete",
    epilog=examples(
        "tidelog topic delete orders",
        "tidelog topic delete --regex 'test-.*' --yes",
    ),
)
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True, shell_complete=complete_topic)
@arguments.regex_option("TOPIC is a regular expression that matches the whole name.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@bootstrap_option()
@timeout_option()
@format_option()
def delete_command(
    names: tuple[str, ...],
    regex: bool,
    yes: bool,
    bootstrap: str | None,
    timeout_s: float,
    form: str,
) -> int:
    """Delete topics and all their records.

    Asks for confirmation on a terminal. Without a terminal, --regex and internal topics require
    --yes. Regular expressions never match an internal topic.
    """
    from tidelog.apps.changes.topic import delete_topics
    from tidelog.apps.cli.output import conclude_changes
    from tidelog.apps.views.topic import select_topics, summarize_topics

    with connected_cluster(bootstrap, timeout_s) as cluster:
        found = select_topics(cluster, names, _patterns(names, regex), internal=False)
        if not found:
            _match_nothing(names)
        if not yes:
            _confirm(summarize_topics(found), regex)
        changes = delete_topics(cluster, [each.name for each in found])
    return conclude_changes(form, "topics", changes)


def _patterns(names: tuple[str, ...], regex: bool) -> list[re.Pattern[str]]:
    return arguments.expressions(names) if regex else []


def _match_nothing(names: tuple[str, ...]) -> None:
    patterns = " or ".join(repr(name) for name in names)
    raise click.ClickException(f"no topic matches {patterns}; `tidelog topic list` shows topics")


def _confirm(topics: "list[TopicSummary]", regex: bool) -> None:
    """Ask for confirmation on the terminal; exit if the answer is no."""
    context = click.get_current_context()
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        if regex:
            raise click.UsageError(
                "can't ask for confirmation without a terminal; add --yes", context
            )
        for each in topics:
            if each.internal:
                message = f"{each.name} is an internal topic; add --yes to delete it"
                raise click.UsageError(message, context)
        return
    for each in topics:
        note = " (internal)" if each.internal else ""
        click.echo(f"  {each.name}{note}, partitions: {each.partitions}", err=True)
    count = "this topic" if len(topics) == 1 else f"these {len(topics)} topics"
    if not click.confirm(f"Delete {count} and all records?", err=True):
        click.echo("tidelog: nothing was deleted", err=True)
        context.exit(NOT_DELETED)
