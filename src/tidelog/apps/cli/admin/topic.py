"""`tidelog topic`: topics of a running cluster, made, listed, described, changed, deleted."""

import sys
from typing import TYPE_CHECKING

import click

from tidelog.apps.cli.admin import arguments
from tidelog.apps.cli.admin.outcomes import conclude_changes
from tidelog.apps.cli.remote.bootstrap import asked_cluster, bootstrap_option, timeout_option
from tidelog.apps.cli.remote.completing import complete_topic
from tidelog.apps.cli.usage import Section, examples, format_option

if TYPE_CHECKING:
    from tidelog.apps.cli.admin.topic_report import Listed

NOT_DELETED = 1
ASSIGNMENT_HELP = (
    "Brokers of each {what}partition: colons between brokers, commas between partitions."
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
    """Create, list, describe, alter and delete topics: of Tidelog, or of any Kafka."""


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
    help="Partitions of each topic.  [default: num.partitions of the cluster]",
)
@click.option(
    "--replication-factor",
    "-r",
    type=click.IntRange(1, arguments.REPLICAS_MAX),
    help="Replicas of each partition.  [default: default.replication.factor of the cluster]",
)
@arguments.config_option("--config", "-c", help_text="A setting of the topic; any number of times.")
@click.option(
    "--replica-assignment",
    "assignment",
    callback=arguments.read_assignment,
    metavar="1:2,2:3",
    help=ASSIGNMENT_HELP.format(what=""),
)
@click.option("--if-not-exists", is_flag=True, help="Leave a topic that is there as it is.")
@click.option("--validate-only", is_flag=True, help="Only ask whether they could be created.")
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
    """Create topics, all of the same kind.

    Exit code 0 means that each of them was created, or was there already and
    --if-not-exists was given.
    """
    from tidelog.apps.cli.admin import topic_changes
    from tidelog.shell.client.administration.topics import CLUSTER_DEFAULT, NewTopic

    if assignment and (partitions or replication_factor):
        raise click.UsageError(
            "--replica-assignment says how many partitions and replicas there are;"
            " leave out --partitions and --replication-factor",
            click.get_current_context(),
        )
    size = (partitions or CLUSTER_DEFAULT, replication_factor or CLUSTER_DEFAULT)
    wanted = [NewTopic(name, *size, assignment, settings) for name in dict.fromkeys(names)]
    with asked_cluster(bootstrap, timeout_s) as cluster:
        changes = topic_changes.create(
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
@arguments.regex_option("Topics are regular expressions, each for a whole name.")
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
    """List topics, with their partitions and replicas."""
    from tidelog.apps.cli import output
    from tidelog.apps.cli.admin import topic_report, topic_view

    with asked_cluster(bootstrap, timeout_s) as cluster:
        found = topic_report.select(cluster, names, regex=regex, internal=internal)
    topics = topic_report.listed(found)
    return output.conclude(
        form,
        True,
        {"topics": [each._asdict() for each in topics]},
        lambda screen: topic_view.show_list(screen, topics),
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
@arguments.regex_option("Topics are regular expressions, each for a whole name.")
@arguments.internal_option()
@click.option(
    "--under-replicated-partitions",
    "under_replicated",
    is_flag=True,
    help="Only partitions with fewer in sync than they have replicas.",
)
@click.option(
    "--unavailable-partitions",
    "unavailable",
    is_flag=True,
    help="Only partitions without a leader that is there.",
)
@click.option(
    "--under-min-isr-partitions",
    "under_min_isr",
    is_flag=True,
    help="Only partitions that refuse writes with acks=all.",
)
@click.option(
    "--at-min-isr-partitions",
    "at_min_isr",
    is_flag=True,
    help="Only partitions that will refuse them with one broker less.",
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
    """Show each partition: leader, epoch, replicas, ISR, ELR, where its log begins and ends.

    `text` is Kafka's own lines, then a table; `kafka` and `table` are one of them alone.
    Exit code 0 means: no option that looks for ailing partitions has found one. Such an
    option looks at internal topics too.
    """
    from tidelog.apps.cli import output
    from tidelog.apps.cli.admin import topic_report, topic_view

    filters = topic_report.Filters(under_replicated, unavailable, under_min_isr, at_min_isr)
    internal = internal or any(filters)
    with asked_cluster(bootstrap, timeout_s) as cluster:
        found = topic_report.select(cluster, names, regex=regex, internal=internal)
        if regex and not found:
            _match_nothing(names)
        topics = topic_report.describe(cluster, [each.name for each in found], filters)
    return output.conclude(
        form,
        not (any(filters) and topics),
        {"topics": [each.as_data() for each in topics]},
        lambda screen: topic_view.show_topics(screen, topics, form, headed=not any(filters)),
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
    help="How many partitions there shall be.",
)
@click.option(
    "--replica-assignment",
    "assignment",
    callback=arguments.read_assignment,
    metavar="1:2,2:3",
    help=ASSIGNMENT_HELP.format(what="new "),
)
@arguments.config_option("--config", "-c", help_text="A setting to change; any number of times.")
@click.option(
    "--delete-config",
    "unset",
    multiple=True,
    metavar="KEY",
    help="A setting to take back to its default; any number of times.",
)
@click.option("--validate-only", is_flag=True, help="Only ask whether it could be done.")
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
    """Add partitions to topics, and change their settings."""
    from tidelog.apps.cli.admin import topic_changes, topic_report

    context = click.get_current_context()
    if assignment and not partitions:
        raise click.UsageError("--replica-assignment goes with --partitions", context)
    if not (partitions or settings or unset):
        raise click.UsageError("nothing to change; give --partitions or --config", context)
    if twice := sorted(settings.keys() & set(unset)):
        raise click.UsageError(f"{twice[0]} is both set and deleted; choose one", context)
    with asked_cluster(bootstrap, timeout_s) as cluster:
        found = topic_report.select(cluster, names, regex=False, internal=True)
        changes = topic_changes.alter(
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
@arguments.regex_option("Topics are regular expressions, each for a whole name.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
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

    On a terminal it asks first. Where there is none to ask on, topics that are named are
    deleted; expressions and internal topics need --yes. Expressions never match an internal
    topic.
    """
    from tidelog.apps.cli.admin import topic_changes, topic_report

    with asked_cluster(bootstrap, timeout_s) as cluster:
        found = topic_report.select(cluster, names, regex=regex, internal=False)
        if not found:
            _match_nothing(names)
        if not yes:
            _confirm(topic_report.listed(found), regex)
        changes = topic_changes.delete(cluster, [each.name for each in found])
    return conclude_changes(form, "topics", changes)


def _match_nothing(names: tuple[str, ...]) -> None:
    told = " or ".join(repr(name) for name in names)
    raise click.ClickException(f"no topic matches {told}; `tidelog topic list` shows topics")


def _confirm(topics: "list[Listed]", regex: bool) -> None:
    """Ask the one who sits there. Ends the command if the answer is no."""
    context = click.get_current_context()
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        if regex:
            raise click.UsageError("there is no terminal to ask on; add --yes", context)
        for each in topics:
            if each.internal:
                told = f"{each.name} is the cluster's own topic; add --yes to delete it"
                raise click.UsageError(told, context)
        return
    for each in topics:
        own = " (the cluster's own)" if each.internal else ""
        click.echo(f"  {each.name}{own}, partitions: {each.partitions}", err=True)
    count = "this topic" if len(topics) == 1 else f"these {len(topics)} topics"
    if not click.confirm(f"Delete {count} and all records?", err=True):
        click.echo("tidelog: nothing was deleted", err=True)
        context.exit(NOT_DELETED)
