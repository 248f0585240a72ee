"""`tidelog group`: list, describe, reset and delete consumer groups of a running cluster."""

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from tidelog.apps.cli import output
from tidelog.apps.cli.connection import cluster_options, complete_group, connected_to_groups
from tidelog.apps.cli.usage import Section, examples, usage_error

if TYPE_CHECKING:
    from rich.console import Console

    from tidelog.apps.changes.group_offsets import NewOffset, ResetRule
    from tidelog.apps.views.group import GroupView
    from tidelog.core.types import TopicPartition
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
"""The options of `reset` of which exactly one must be given."""
OFFSET_COLUMNS = (
    "GROUP",
    "TOPIC",
    "PARTITION",
    "CURRENT-OFFSET",
    "LOG-END-OFFSET",
    "LAG",
    "CONSUMER-ID",
    "HOST",
    "CLIENT-ID",
)
"""The columns of kafka-consumer-groups."""


@click.group(
    cls=Section,
    epilog=examples(
        "tidelog group list",
        "tidelog group describe billing",
        "tidelog group reset billing --to-earliest --execute",
    ),
)
def group() -> None:
    """List, describe, reset and delete consumer groups (Tidelog or Kafka)."""


@group.command(
    "list", epilog=examples("tidelog group list", "tidelog group list --state Empty --format json")
)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(STATES, case_sensitive=False),
    help="List only groups in this state; repeatable.",
)
@cluster_options()
def list_command(
    states: tuple[str, ...], bootstrap: str | None, timeout_s: float, form: str
) -> int:
    """List consumer groups with state, type and coordinator.

    Exit code 0 means that every broker listed its groups.
    """
    from tidelog.apps.views.group import view_groups

    with connected_to_groups(bootstrap, timeout_s) as cluster:
        groups, failed = view_groups(cluster, states)
    for error in failed:
        click.echo(f"tidelog: {error}", err=True)
    if not groups and form == "text":
        click.echo(f"tidelog: no groups{' in this state' if states else ''}", err=True)
    data = {
        "groups": [each._asdict() for each in groups],
        "errors": [str(error) for error in failed],
    }
    return output.conclude(form, not failed, data, lambda screen: _show_list(screen, groups))


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
@click.option("--all", "everything", is_flag=True, help="Describe all groups.")
@click.option("--offsets", is_flag=True, help="Show offsets and lag in each partition (default).")
@click.option("--members", is_flag=True, help="Show the members and their partitions.")
@click.option("--state", is_flag=True, help="Show state, coordinator and assignor.")
@cluster_options()
def describe_command(**given: Any) -> int:
    """Show a group's committed offset, lag and member in each partition.

    The columns are those of kafka-consumer-groups; a dash means unknown.
    """
    from tidelog.apps.views.group import view_group
    from tidelog.shell.client.groups.group_admin import NoSuchGroup, list_groups

    names = given["names"]
    if bool(names) == given["everything"]:
        raise click.UsageError("name groups, or use --all")
    sections = [section for section in SECTIONS if given[section]] or ["offsets"]
    with connected_to_groups(given["bootstrap"], given["timeout_s"]) as cluster:
        if given["everything"]:
            names = [each.group for each in list_groups(cluster)[0]]
        groups = []
        for name in dict.fromkeys(names):
            try:
                groups.append(view_group(cluster, name))
            except NoSuchGroup:
                if not given["everything"]:  # else it was deleted since it was listed
                    raise
    if given["form"] == "text":
        for each in groups:
            if not each.group.members:
                text = f"group {each.group.group} has no active members"
                click.echo(f"tidelog: {text}; its state is {each.group.state}", err=True)
    data = {"groups": [each.as_data() for each in groups]}
    return output.conclude(
        given["form"], True, data, lambda screen: _show_described(screen, groups, sections)
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
    help="Reset only this topic, or only some partitions (TOPIC:0,1); repeatable.  [default: all"
    " topics that the group committed offsets for]",
)
@click.option("--to-earliest", is_flag=True, help="Reset to the start of the log.")
@click.option("--to-latest", is_flag=True, help="Reset to the end of the log.")
@click.option(
    "--to-current",
    is_flag=True,
    help="Keep the committed offset; without one, use the end of the log.",
)
@click.option("--to-offset", type=click.IntRange(min=0), metavar="N", help="Reset to offset N.")
@click.option(
    "--shift-by",
    type=int,
    metavar="N",
    help="Shift each offset by N records; a negative N shifts back.",
)
@click.option(
    "--to-datetime",
    metavar="TIME",
    help="Reset to the first record at or after TIME: ISO 8601, or milliseconds since 1970.",
)
@click.option(
    "--by-duration",
    metavar="DURATION",
    help="Reset to the first record of the last DURATION, such as PT1H or 1h.",
)
@click.option(
    "--from-file",
    type=click.Path(),
    metavar="FILE",
    help="Read new offsets from FILE: lines of topic,partition,offset.",
)
@click.option(
    "--execute",
    is_flag=True,
    help="Commit the new offsets. Without this option they are only shown.",
)
@click.option("--export", is_flag=True, help="Print the new offsets in the format of --from-file.")
@click.option("--new", is_flag=True, help="Create the group if it does not exist.")
@cluster_options()
def reset_command(**given: Any) -> int:
    """Reset the committed offsets of a group, by exactly one of the rules below.

    Without --execute, the new offsets are only shown. Stop the group's consumers first: a group
    with members is rejected, because they would overwrite the offsets. A new offset outside the
    log is moved to the start or end of the log, with a note on stderr.
    """
    from tidelog.apps.changes.group_offsets import check_idle, parse_topics, plan_reset
    from tidelog.shell.client.groups.group_admin import Committed, commit_offsets

    name, execute, form = given["name"], given["execute"], given["form"]
    rule = _rule(given)
    notes: list[str] = []
    try:
        topics = parse_topics(given["topics"])
    except ValueError as error:
        raise usage_error(str(error)) from error
    with connected_to_groups(given["bootstrap"], given["timeout_s"]) as cluster:
        check_idle(cluster, name, may_be_new=given["new"])
        offsets = plan_reset(cluster, name, topics, rule, notes.append)
        if execute:
            wanted = {each.key: Committed(each.new) for each in offsets}
            commit_offsets(cluster, name, wanted)
    if not execute and not given["export"]:
        notes.append("nothing was changed; add --execute to commit these offsets")
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
    return output.conclude(form, True, data, lambda screen: _show_reset(screen, name, offsets))


def _rule(given: dict[str, Any]) -> "ResetRule":
    """Return the rule that was given. Raises UsageError unless it is exactly one."""
    from tidelog.apps.changes import group_offsets
    from tidelog.apps.cli.records.points_in_time import parse_duration_ms, parse_time

    rules = [rule for rule in RULES if given[rule] is not None and given[rule] is not False]
    if len(rules) != 1:
        options = ", ".join(f"--{rule.replace('_', '-')}" for rule in RULES)
        raise click.UsageError(f"give exactly one of {options}")
    if given["export"] and (given["execute"] or given["form"] == "json"):
        raise click.UsageError("--export can't be combined with --execute or --format json")
    (rule,) = rules
    now_ms = int(time.time() * 1000)
    try:
        if rule == "to_datetime":
            return group_offsets.ResetRule(group_offsets.TO_TIME, parse_time(given[rule], now_ms))
        if rule == "by_duration":
            return group_offsets.ResetRule(
                group_offsets.TO_TIME, max(now_ms - parse_duration_ms(given[rule]), 0)
            )
        if rule == "from_file":
            listed = group_offsets.read_file(given[rule], given["name"])
            return group_offsets.ResetRule(group_offsets.FROM_FILE, listed=listed)
    except OSError as error:
        raise click.UsageError(f"can't read {given[rule]}: {error.strerror}") from error
    except ValueError as error:
        raise usage_error(str(error)) from error
    return group_offsets.ResetRule(rule, int(given[rule]))


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
    help="Delete only the groups' offsets in this topic, or in some partitions (TOPIC:0,1);"
    " repeatable.",
)
@cluster_options()
def delete_command(
    names: tuple[str, ...],
    topics: tuple[str, ...],
    bootstrap: str | None,
    timeout_s: float,
    form: str,
) -> int:
    """Delete groups, or with --offsets only their committed offsets in some topics.

    Groups with members are not deleted, nor offsets in topics that a member reads.
    """
    from tidelog.apps.changes.group_offsets import delete_groups, delete_offsets, parse_topics

    try:
        wanted = parse_topics(topics)
    except ValueError as error:
        raise usage_error(str(error)) from error
    with connected_to_groups(bootstrap, timeout_s) as cluster:
        if wanted:
            changes = [change for name in names for change in delete_offsets(cluster, name, wanted)]
        else:
            changes = delete_groups(cluster, names)
    return output.conclude_changes(form, "offsets" if wanted else "groups", changes)


# -- text output -----------------------------------------------------------------------------


def _show_list(screen: "Console", groups: "Sequence[ListedGroup]") -> None:
    """Print a list of groups."""
    rows = [(each.group, each.state, each.kind, each.coordinator) for each in groups]
    output.print_columns(screen, ("GROUP", "STATE", "TYPE", "COORDINATOR"), rows)


def _show_described(
    screen: "Console", groups: "Sequence[GroupView]", sections: Sequence[str]
) -> None:
    """Print sections (state, members, offsets) of all groups."""
    show = {"state": _show_state, "members": _show_members, "offsets": _show_offsets}
    for number, section in enumerate(sections):
        if number:
            screen.print()
        show[section](screen, groups)


def _show_offsets(screen: "Console", groups: "Sequence[GroupView]") -> None:
    rows = []
    for each in groups:
        for row in each.rows:
            member = row.member
            who = (None,) * 3
            if member is not None:
                who = (member.member_id, member.host, member.client_id)  # type: ignore[assignment]
            ends = (row.current_offset, row.log_end_offset, row.lag)
            rows.append((each.group.group, *row.key, *ends, *who))
    output.print_columns(screen, OFFSET_COLUMNS, rows)


def _show_members(screen: "Console", groups: "Sequence[GroupView]") -> None:
    named = any(member.instance_id for each in groups for member in each.group.members)
    instance = ("GROUP-INSTANCE-ID",) if named else ()
    heading = ("GROUP", "CONSUMER-ID", *instance, "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT")
    rows = []
    for each in groups:
        for member in each.group.members:
            its = (member.instance_id,) if named else ()
            count, assignment = len(member.partitions), _assignment_text(member.partitions)
            who = (each.group.group, member.member_id, *its, member.host, member.client_id)
            rows.append((*who, count, assignment))
    output.print_columns(screen, heading, rows)


def _show_state(screen: "Console", groups: "Sequence[GroupView]") -> None:
    heading = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS")
    rows = []
    for each in groups:
        group = each.group
        coordinator = f"{each.address} ({group.coordinator})"
        rows.append((group.group, coordinator, group.assignor, group.state, len(group.members)))
    output.print_columns(screen, heading, rows)


def _assignment_text(partitions: "Iterable[TopicPartition]") -> str:
    """Format partitions as `orders(0,1),payments(2)`."""
    topics: dict[str, list[str]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(str(partition))
    return ",".join(f"{topic}({','.join(numbers)})" for topic, numbers in topics.items())


def _show_reset(screen: "Console", group: str, offsets: "Sequence[NewOffset]") -> None:
    """Print new and prior offsets of a group."""
    rows = [(group, *each.key, each.new, each.prior) for each in offsets]
    output.print_columns(
        screen, ("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET", "PRIOR-OFFSET"), rows
    )
