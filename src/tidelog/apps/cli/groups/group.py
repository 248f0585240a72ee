"""`tidelog group`: consumer groups of a running cluster, Tidelog's or any Kafka."""

import time
from typing import TYPE_CHECKING, Any

import click

from tidelog.apps.cli.admin.outcomes import Change, conclude_changes
from tidelog.apps.cli.groups.asked_group import asked_groups
from tidelog.apps.cli.remote.bootstrap import bootstrap_option, timeout_option
from tidelog.apps.cli.remote.completing import complete_group
from tidelog.apps.cli.usage import Section, examples, format_option

if TYPE_CHECKING:
    from tidelog.apps.cli.groups.resetting import Aim
    from tidelog.shell.client.cluster import Cluster
    from tidelog.shell.client.groups.group_admin import ListedGroup

STATES = ("Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Dead")
SECTIONS = ("state", "members", "offsets")
RULES = (
    "to_earliest",
    "to_latest",
    "to_current",
    "to_offset",
    "shift_by",
    "to_datetime",
    "by_duration",
    "from_file",
)
"""Of which `reset` follows one."""


@click.group(
    cls=Section,
    epilog=examples(
        "tidelog group list",
        "tidelog group describe billing",
        "tidelog group reset billing --to-earliest --execute",
    ),
)
def group() -> None:
    """List, describe, reset and delete consumer groups: of Tidelog, or of any Kafka."""


@group.command(
    "list",
    epilog=examples("tidelog group list", "tidelog group list --state Empty --format json"),
)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(STATES, case_sensitive=False),
    help="Only groups in this state; any number of times.",
)
@bootstrap_option()
@timeout_option()
@format_option()
def list_command(
    states: tuple[str, ...], bootstrap: str | None, timeout_s: float, form: str
) -> int:
    """Show the groups of all brokers: state, type, and the broker that coordinates each.

    Exit code 0 means that every broker told of its groups.
    """
    from tidelog.apps.cli import output
    from tidelog.apps.cli.groups import group_view
    from tidelog.shell.client.groups.group_admin import list_groups

    with asked_groups(bootstrap, timeout_s) as cluster:
        groups, failed = list_groups(cluster, states)
        groups = [_with_state(cluster, each) for each in groups]
    for error in failed:
        click.echo(f"tidelog: {error}", err=True)
    if not groups and form == "text":
        click.echo(f"tidelog: there is no {'such ' if states else ''}group", err=True)
    data = {
        "groups": [each._asdict() for each in groups],
        "errors": [str(error) for error in failed],
    }
    return output.conclude(
        form, not failed, data, lambda screen: group_view.show_list(screen, groups)
    )


def _with_state(cluster: "Cluster", listed: "ListedGroup") -> "ListedGroup":
    """Brokers before 2.6 do not tell it in their lists."""
    from tidelog.shell.client.client_errors import ClientError
    from tidelog.shell.client.groups.group_admin import describe_group

    if listed.state is not None:
        return listed
    try:
        return listed._replace(state=describe_group(cluster, listed.group).state)
    except ClientError:
        return listed


@group.command(
    "describe",
    epilog=examples(
        "tidelog group describe billing",
        "tidelog group describe billing --members",
        "tidelog group describe --all --state",
        "tidelog group describe billing audit --format json",
    ),
)
@click.argument("names", metavar="[GROUP]...", nargs=-1, shell_complete=complete_group)
@click.option("--all", "everything", is_flag=True, help="All groups there are.")
@click.option("--offsets", is_flag=True, help="Where the group is in each partition, the default.")
@click.option("--members", is_flag=True, help="Who is in it, and what each one reads.")
@click.option("--state", is_flag=True, help="Its state, coordinator and assignor.")
@bootstrap_option()
@timeout_option()
@format_option()
def describe_command(**given: Any) -> int:
    """Show where groups are in each partition, how far behind, and who reads it.

    The columns are those of kafka-consumer-groups; a dash is what is not known.
    """
    from tidelog.apps.cli import output
    from tidelog.apps.cli.groups import group_view
    from tidelog.apps.cli.groups.describing import describe
    from tidelog.shell.client.groups.group_admin import NoSuchGroup, list_groups

    names = given["names"]
    if bool(names) == given["everything"]:
        raise click.UsageError("name groups, or give --all")
    sections = [section for section in SECTIONS if given[section]] or ["offsets"]
    with asked_groups(given["bootstrap"], given["timeout_s"]) as cluster:
        if given["everything"]:
            names = [each.group for each in list_groups(cluster)[0]]
        groups = []
        for name in dict.fromkeys(names):
            try:
                groups.append(describe(cluster, name))
            except NoSuchGroup:
                if not given["everything"]:  # else it was deleted since it was listed
                    raise
    if given["form"] == "text":
        for each in groups:
            if not each.group.members:
                told = f"group {each.group.group} has no active members"
                click.echo(f"tidelog: {told}; it is {each.group.state}", err=True)
    data = {"groups": [each.as_data() for each in groups]}
    return output.conclude(
        given["form"],
        True,
        data,
        lambda screen: group_view.show_described(screen, groups, sections),
    )


@group.command(
    "reset",
    epilog=examples(
        "tidelog group reset billing --to-earliest",
        "tidelog group reset billing --to-earliest --execute",
        "tidelog group reset billing --topic orders:0,1 --to-datetime 2024-01-31",
        "tidelog group reset billing --shift-by -100 --execute",
        "tidelog group reset billing --to-current --export",
        "tidelog group reset billing --from-file offsets.csv --execute",
    ),
)
@click.argument("name", metavar="GROUP", shell_complete=complete_group)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC",
    help="Only TOPIC, or TOPIC:0,1; any number of times.  [default: all that the group committed]",
)
@click.option("--to-earliest", is_flag=True, help="Where the log begins.")
@click.option("--to-latest", is_flag=True, help="Where the log ends.")
@click.option("--to-current", is_flag=True, help="Where the group is; the end where it never was.")
@click.option("--to-offset", type=click.IntRange(min=0), metavar="N", help="This offset.")
@click.option(
    "--shift-by", type=int, metavar="N", help="So many records on; back if it is negative."
)
@click.option(
    "--to-datetime", metavar="TIME", help="The first record not older: ISO 8601, or milliseconds."
)
@click.option("--by-duration", metavar="TIME", help="The first record not older than PT1H, or 1h.")
@click.option(
    "--from-file", type=click.Path(), metavar="FILE", help="Lines of topic,partition,offset."
)
@click.option("--execute", is_flag=True, help="Do it; without this it is only shown.")
@click.option("--export", is_flag=True, help="Print the new offsets as --from-file reads them.")
@click.option("--new", is_flag=True, help="The group need not be there.")
@bootstrap_option()
@timeout_option()
@format_option()
def reset_command(**given: Any) -> int:
    """Show where a group would go on, and with --execute set it.

    A group that has members is refused: they would overwrite it. An offset that is not in the
    log is drawn to its nearest end, which a line on stderr tells.
    """
    from tidelog.apps.cli import output
    from tidelog.apps.cli.groups import group_view
    from tidelog.apps.cli.groups.resetting import must_be_idle, parse_topics, plan_reset
    from tidelog.shell.client.groups.group_admin import Committed, commit_offsets

    name, execute, form = given["name"], given["execute"], given["form"]
    aim = _aim(given)
    notes: list[str] = []
    try:
        topics = parse_topics(given["topics"])
    except ValueError as error:
        raise click.UsageError(str(error), click.get_current_context()) from error
    with asked_groups(given["bootstrap"], given["timeout_s"]) as cluster:
        must_be_idle(cluster, name, may_be_new=given["new"])
        offsets = plan_reset(cluster, name, topics, aim, notes.append)
        if execute:
            wanted = {each.key: Committed(each.new) for each in offsets}
            commit_offsets(cluster, name, wanted)
    if not execute and not given["export"]:
        notes.append("this is only shown; add --execute to do it")
    for note in notes if form == "text" else ():
        click.echo(f"tidelog: {note}", err=True)
    if given["export"]:
        for each in offsets:
            click.echo(f"{each.key.topic},{each.key.partition},{each.new}")
        return 0
    data = {
        "group": name,
        "executed": execute,
        "offsets": [
            {**each.key._asdict(), "new_offset": each.new, "prior_offset": each.prior}
            for each in offsets
        ],
        "notes": notes,
    }
    return output.conclude(
        form, True, data, lambda screen: group_view.show_reset(screen, name, offsets)
    )


def _aim(given: dict[str, Any]) -> "Aim":
    """Which rule was asked for. Raises UsageError unless it is one."""
    from tidelog.apps.cli.groups import resetting
    from tidelog.apps.cli.records.points_in_time import parse_duration_ms, parse_time

    rules = [rule for rule in RULES if given[rule] is not None and given[rule] is not False]
    if len(rules) != 1:
        options = ", ".join(f"--{rule.replace('_', '-')}" for rule in RULES)
        raise click.UsageError(f"give one of {options}")
    if given["export"] and (given["execute"] or given["form"] == "json"):
        raise click.UsageError("--export prints lines and changes nothing; give it alone")
    (rule,) = rules
    now_ms = int(time.time() * 1000)
    try:
        if rule == "to_datetime":
            return resetting.Aim(resetting.TO_TIME, parse_time(given[rule], now_ms))
        if rule == "by_duration":
            return resetting.Aim(resetting.TO_TIME, max(now_ms - parse_duration_ms(given[rule]), 0))
        if rule == "from_file":
            listed = resetting.read_file(given[rule], given["name"])
            return resetting.Aim(resetting.FROM_FILE, listed=listed)
    except OSError as error:
        raise click.UsageError(f"can't read {given[rule]}: {error.strerror}") from error
    except ValueError as error:
        raise click.UsageError(str(error), click.get_current_context()) from error
    return resetting.Aim(rule, int(given[rule]))


@group.command(
    "delete",
    epilog=examples(
        "tidelog group delete billing",
        "tidelog group delete billing --offsets orders --offsets payments:0,1",
    ),
)
@click.argument("names", metavar="GROUP...", nargs=-1, required=True, shell_complete=complete_group)
@click.option(
    "--offsets",
    "topics",
    multiple=True,
    metavar="TOPIC",
    help="Delete only what the groups committed for TOPIC, or TOPIC:0,1; any number of times.",
)
@bootstrap_option()
@timeout_option()
@format_option()
def delete_command(
    names: tuple[str, ...],
    topics: tuple[str, ...],
    bootstrap: str | None,
    timeout_s: float,
    form: str,
) -> int:
    """Delete groups, or what they committed for some topics.

    A group that has members is refused, and so are offsets of topics that a member reads.
    """
    from tidelog.apps.cli.groups.deleting import delete_groups, delete_offsets
    from tidelog.apps.cli.groups.resetting import parse_topics

    try:
        wanted = parse_topics(topics)
    except ValueError as error:
        raise click.UsageError(str(error), click.get_current_context()) from error
    changes: list[Change]
    with asked_groups(bootstrap, timeout_s) as cluster:
        if wanted:
            changes = [change for name in names for change in delete_offsets(cluster, name, wanted)]
        else:
            changes = delete_groups(cluster, names)
    return conclude_changes(form, "offsets" if wanted else "groups", changes)
