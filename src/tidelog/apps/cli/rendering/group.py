"""Text output of `tidelog group`, in the columns of kafka-consumer-groups; a dash means unknown.

Invariant: a table is a heading and lines of words separated by blanks, so that scripts written
for kafka-consumer-groups can read it.
"""

from collections.abc import Iterable, Sequence

from rich.console import Console

from tidelog.apps.changes.group_offsets import NewOffset
from tidelog.apps.views.group import GroupView
from tidelog.core.types import TopicPartition
from tidelog.shell.client.groups.group_admin import ListedGroup

UNKNOWN = "-"
OFFSETS = (
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


def columns(screen: Console, heading: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table of words and blanks, at any width."""
    table = [heading, *([_word(cell) for cell in row] for row in rows)]
    widths = [max(len(line[place]) for line in table) for place in range(len(heading))]
    for line in table:
        text = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        screen.print(text.rstrip(), soft_wrap=True)


def _word(cell: object) -> str:
    return UNKNOWN if cell is None or cell == "" else str(cell)


def show_list(screen: Console, groups: Sequence[ListedGroup]) -> None:
    """Print a list of groups."""
    rows = [(each.group, each.state, each.kind, each.coordinator) for each in groups]
    columns(screen, ("GROUP", "STATE", "TYPE", "COORDINATOR"), rows)


def show_described(screen: Console, groups: Sequence[GroupView], sections: Sequence[str]) -> None:
    """Print these sections for all groups."""
    show = {"state": _show_state, "members": _show_members, "offsets": _show_offsets}
    for number, section in enumerate(sections):
        if number:
            screen.print()
        show[section](screen, groups)


def _show_offsets(screen: Console, groups: Sequence[GroupView]) -> None:
    rows = []
    for each in groups:
        for row in each.rows:
            member = row.member
            who = (None,) * 3
            if member is not None:
                who = (member.member_id, member.host, member.client_id)  # type: ignore[assignment]
            ends = (row.current_offset, row.log_end_offset, row.lag)
            rows.append((each.group.group, *row.key, *ends, *who))
    columns(screen, OFFSETS, rows)


def _show_members(screen: Console, groups: Sequence[GroupView]) -> None:
    named = any(member.instance_id for each in groups for member in each.group.members)
    instance = ("GROUP-INSTANCE-ID",) if named else ()
    heading = ("GROUP", "CONSUMER-ID", *instance, "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT")
    rows = []
    for each in groups:
        for member in each.group.members:
            its = (member.instance_id,) if named else ()
            count, assignment = len(member.partitions), assignment_text(member.partitions)
            who = (each.group.group, member.member_id, *its, member.host, member.client_id)
            rows.append((*who, count, assignment))
    columns(screen, heading, rows)


def _show_state(screen: Console, groups: Sequence[GroupView]) -> None:
    heading = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS")
    rows = []
    for each in groups:
        group = each.group
        coordinator = f"{each.address} ({group.coordinator})"
        rows.append((group.group, coordinator, group.assignor, group.state, len(group.members)))
    columns(screen, heading, rows)


def assignment_text(partitions: Iterable[TopicPartition]) -> str:
    """Format partitions as `orders(0,1),payments(2)`."""
    topics: dict[str, list[str]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(str(partition))
    return ",".join(f"{topic}({','.join(numbers)})" for topic, numbers in topics.items())


def show_reset(screen: Console, group: str, offsets: Sequence[NewOffset]) -> None:
    """Print new and prior offsets of a group."""
    rows = [(group, *each.key, each.new, each.prior) for each in offsets]
    columns(screen, ("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET", "PRIOR-OFFSET"), rows)
