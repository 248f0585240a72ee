"""`tidelog topic`: create, list, describe, alter and delete topics of a running cluster.

Invariant: the fields of the lines in kafka-topics' format are separated by tabs, as scripts expect,
at any screen width.
"""

import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from tidelog.apps.cli import output, usage
from tidelog.apps.cli.connection import cluster_options, complete_topic, connected_cluster
from tidelog.apps.cli.usage import Section, examples, usage_error

if TYPE_CHECKING:
    from rich.console import Console

    from tidelog.apps.views.topic import TopicPartitionView, TopicSummary, TopicView

NOT_DELETED = 1


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
    type=click.IntRange(1, usage.PARTITIONS_MAX),
    help="Partition count.  [default: num.partitions of the cluster]",
)
@click.option(
    "--replication-factor",
    "-r",
    type=click.IntRange(1, usage.REPLICAS_MAX),
    help="Replicas of each partition.  [default: default.replication.factor of the cluster]",
)
@usage.config_option("--config", "-c", help_text="Set a topic config; repeatable.")
@usage.assignment_option("each partition")
@click.option(
    "--if-not-exists",
    is_flag=True,
    help="Accept topics that exist already, and do not change them.",
)
@click.option("--validate-only", is_flag=True, help="Validate the request, create nothing.")
@cluster_options()
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
    from tidelog.shell.client.administration.topics import CLUSTER_DEFAULT, NewTopic

    if assignment and (partitions or replication_factor):
        raise usage_error(
            "--replica-assignment can't be combined with --partitions or --replication-factor:"
            " it sets both counts"
        )
    size = (partitions or CLUSTER_DEFAULT, replication_factor or CLUSTER_DEFAULT)
    wanted = [NewTopic(name, *size, assignment, settings) for name in dict.fromkeys(names)]
    with connected_cluster(bootstrap, timeout_s) as cluster:
        changes = create_topics(
            cluster, wanted, if_not_exists=if_not_exists, validate_only=validate_only
        )
    return output.conclude_changes(form, "topics", changes)


@topic.command(
    "list",
    epilog=examples(
        "tidelog topic list",
        "tidelog topic list --regex 'orders.*'",
        "tidelog topic list --internal --format json",
    ),
)
@click.argument("names", metavar="[TOPIC]...", nargs=-1, shell_complete=complete_topic)
@usage.regex_option()
@usage.internal_option()
@cluster_options()
def list_command(
    names: tuple[str, ...],
    regex: bool,
    internal: bool,
    bootstrap: str | None,
    timeout_s: float,
    form: str,
) -> int:
    """List topics with their partition and replica counts."""
    from tidelog.apps.views.topic import select_topics, summarize_topics

    with connected_cluster(bootstrap, timeout_s) as cluster:
        found = select_topics(cluster, names, _patterns(names, regex), internal=internal)
    topics = summarize_topics(found)
    return output.conclude(
        form,
        True,
        {"topics": [each._asdict() for each in topics]},
        lambda screen: _show_list(screen, topics),
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
@usage.regex_option()
@usage.internal_option()
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
@cluster_options("kafka", "table")
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
        lambda screen: _show_topics(screen, topics, form, headed=not any(filters)),
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
    "--partitions", "-p", type=click.IntRange(1, usage.PARTITIONS_MAX), help="New partition count."
)
@usage.assignment_option("each new partition")
@usage.config_option("--config", "-c", help_text="Set a topic config; repeatable.")
@click.option(
    "--delete-config",
    "unset",
    multiple=True,
    metavar="KEY",
    help="Reset a topic config to its default; repeatable.",
)
@click.option("--validate-only", is_flag=True, help="Validate the request, change nothing.")
@cluster_options()
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
    from tidelog.apps.views.topic import select_topics

    if assignment and not partitions:
        raise usage_error("--replica-assignment requires --partitions")
    if not (partitions or settings or unset):
        raise usage_error("nothing to change; use --partitions, --config or --delete-config")
    if twice := sorted(settings.keys() & set(unset)):
        raise usage_error(f"{twice[0]} is given to both --config and --delete-config; remove one")
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
    return output.conclude_changes(form, "topics", changes)


@topic.command(
    "delete",
    epilog=examples("tidelog topic delete orders", "tidelog topic delete --regex 'test-.*' --yes"),
)
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True, shell_complete=complete_topic)
@usage.regex_option()
@usage.yes_option()
@cluster_options()
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
    from tidelog.apps.views.topic import select_topics, summarize_topics

    with connected_cluster(bootstrap, timeout_s) as cluster:
        found = select_topics(cluster, names, _patterns(names, regex), internal=False)
        if not found:
            _match_nothing(names)
        if not yes:
            _confirm(summarize_topics(found), regex)
        changes = delete_topics(cluster, [each.name for each in found])
    return output.conclude_changes(form, "topics", changes)


def _patterns(names: tuple[str, ...], regex: bool) -> list[re.Pattern[str]]:
    """Compile the names with --regex; return an empty list without it. Raises UsageError."""
    patterns = []
    for name in names if regex else ():
        try:
            patterns.append(re.compile(name))
        except re.error as error:
            raise usage_error(f"{name!r} is not a valid regular expression: {error}") from error
    return patterns


def _match_nothing(names: tuple[str, ...]) -> None:
    patterns = " or ".join(repr(name) for name in names)
    raise click.ClickException(f"no topic matches {patterns}; `tidelog topic list` shows topics")


def _confirm(topics: "list[TopicSummary]", regex: bool) -> None:
    """Ask for confirmation on the terminal; exit if the answer is no."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        if regex:
            raise usage_error("can't ask for confirmation without a terminal; add --yes")
        for each in topics:
            if each.internal:
                raise usage_error(f"{each.name} is an internal topic; add --yes to delete it")
        return
    for each in topics:
        note = " (internal)" if each.internal else ""
        click.echo(f"  {each.name}{note}, partitions: {each.partitions}", err=True)
    count = "this topic" if len(topics) == 1 else f"these {len(topics)} topics"
    if not click.confirm(f"Delete {count} and all records?", err=True):
        click.echo("tidelog: nothing was deleted", err=True)
        click.get_current_context().exit(NOT_DELETED)


# -- text output -----------------------------------------------------------------------------


def _show_list(screen: "Console", topics: "Sequence[TopicSummary]") -> None:
    """Print a line for each topic, and the totals."""
    numbers = ("PARTITIONS", "REPLICAS")
    table = output.table(("NAME", *numbers, ""), numbers=numbers)
    for topic in topics:
        note = "internal" if topic.internal else ""
        table.add_row(topic.name, str(topic.partitions), str(topic.replication_factor), note)
    if topics:
        output.show_table(screen, table)
    partitions = sum(topic.partitions for topic in topics)
    screen.print(output.faint(f"topics: {len(topics)}, partitions: {partitions}"))


def _show_topics(
    screen: "Console", topics: "Sequence[TopicView]", form: str, *, headed: bool
) -> None:
    """Print Kafka's lines, a table, or both (form `text`).

    `headed` is false if there are filters: kafka-topics then omits the line of the topic itself.
    """
    for number, topic in enumerate(topics):
        if form != "table":
            if headed:
                click.echo(_topic_line(topic))
            for each in topic.partitions:
                click.echo(_partition_line(each))
        if form != "kafka":
            screen.print(output.heading(topic.name if form == "table" else ""))
            _show_partitions(screen, topic.partitions)
            if number + 1 < len(topics):
                screen.print()
    if not topics and form != "kafka":
        screen.print(output.faint("no partition matches"))


def _topic_line(topic: "TopicView") -> str:
    """Return the line of a topic, as kafka-topics --describe prints it."""
    configs = ",".join(f"{name}={'' if v is None else v}" for name, v in topic.configs.items())
    fields = [
        f"Topic: {topic.name}",
        *([] if topic.id is None else [f"TopicId: {topic.id}"]),
        f"PartitionCount: {topic.partition_count}",
        f"ReplicationFactor: {topic.replication_factor}",
        f"Configs: {configs}",
    ]
    return "\t".join(fields)


def _partition_line(each: "TopicPartitionView") -> str:
    """Return the line of a partition, as kafka-topics --describe prints it."""
    moving = each.adding or each.removing
    fields = [
        "",
        f"Topic: {each.topic}",
        f"Partition: {each.partition}",
        f"Leader: {'none' if each.leader is None else each.leader}",
        f"Replicas: {output.brokers(each.replicas)}",
        f"Isr: {output.brokers(each.isr)}",
        *([f"Adding Replicas: {output.brokers(each.adding)}"] if moving else []),
        *([f"Removing Replicas: {output.brokers(each.removing)}"] if moving else []),
        f"Elr: {output.brokers(each.elr)}",
        f"LastKnownElr: {output.brokers(each.last_known_elr)}",
    ]
    return "\t".join(fields)


def _show_partitions(screen: "Console", partitions: "Sequence[TopicPartitionView]") -> None:
    """Print rpk's columns and the ISR; optional columns only if they have a value."""
    numbers = ("PARTITION", "LEADER", "EPOCH", "LOG-START-OFFSET", "HIGH-WATERMARK")
    columns: dict[str, Callable[[TopicPartitionView], str]] = {
        "PARTITION": lambda each: str(each.partition),
        "LEADER": lambda each: _known(each.leader),
        "EPOCH": lambda each: _known(each.leader_epoch),
        "REPLICAS": lambda each: output.brokers(each.replicas),
        "ISR": lambda each: output.brokers(each.isr),
        "LOG-START-OFFSET": lambda each: _known(each.log_start_offset),
        "HIGH-WATERMARK": lambda each: _known(each.high_watermark),
    }
    optional: dict[str, Callable[[TopicPartitionView], str]] = {
        "OFFLINE-REPLICAS": lambda each: output.brokers(each.offline_replicas),
        "ADDING": lambda each: output.brokers(each.adding),
        "REMOVING": lambda each: output.brokers(each.removing),
        "ERROR": lambda each: each.error or "",
    }
    used = {name: cell for name, cell in optional.items() if any(map(cell, partitions))}
    columns |= used
    table = output.table(list(columns), numbers=numbers)
    table.box, table.padding = None, (0, 2, 0, 0)  # as rpk's: it fits 80 columns
    for each in partitions:
        table.add_row(*(cell(each) for cell in columns.values()))
    output.show_table(screen, table)


def _known(value: int | None) -> str:
    return output.UNKNOWN if value is None else str(value)
