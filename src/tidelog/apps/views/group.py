"""Views of consumer groups: members, committed offsets and lag.

Invariant: each partition that the group committed an offset for, or that a member reads, has a
row.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from tidelog.core.types import Offset, TopicPartition
from tidelog.shell.client.client_errors import ClientError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.groups.group_admin import (
    Group,
    ListedGroup,
    Member,
    committed_offsets,
    describe_group,
    list_groups,
)
from tidelog.shell.client.offsets import LATEST, list_offsets


class GroupOffset(NamedTuple):
    """The offset of a group in one partition; None means unknown."""

    key: TopicPartition
    current_offset: Offset | None
    log_end_offset: Offset | None
    member: Member | None

    @property
    def lag(self) -> int | None:
        if self.current_offset is None or self.log_end_offset is None:
            return None
        return max(self.log_end_offset - self.current_offset, 0)

    def as_data(self) -> dict[str, Any]:
        member = self.member
        return {
            "topic": self.key.topic,
            "partition": self.key.partition,
            "current_offset": self.current_offset,
            "log_end_offset": self.log_end_offset,
            "lag": self.lag,
            "member_id": None if member is None else member.member_id,
            "host": None if member is None else member.host,
            "client_id": None if member is None else member.client_id,
        }


class GroupView(NamedTuple):
    """A group with its members and offsets."""

    group: Group
    address: str
    """The address of its coordinator."""
    rows: list[GroupOffset]

    @property
    def lag(self) -> int:
        return sum(row.lag or 0 for row in self.rows)

    def as_data(self) -> dict[str, Any]:
        group = self.group
        return {
            "group": group.group,
            "state": group.state,
            "coordinator": {"id": group.coordinator, "address": self.address},
            "protocol_type": group.protocol_type,
            "assignor": group.assignor,
            "members": [_member(member) for member in group.members],
            "offsets": [row.as_data() for row in self.rows],
            "lag": self.lag,
        }


def _member(member: Member) -> dict[str, Any]:
    partitions = [list(key) for key in sorted(member.partitions)]
    return {**member._asdict(), "partitions": partitions}


def view_group(cluster: Cluster, name: str) -> GroupView:
    """Describe a group: its coordinator and the leaders of its partitions are queried.

    Raises NoSuchGroup.
    """
    group = describe_group(cluster, name)
    committed = committed_offsets(cluster, name)
    owners = {key: member for member in group.members for key in member.partitions}
    keys = sorted({*committed, *owners})
    ends = list_offsets(cluster, dict.fromkeys(keys, LATEST))
    rows = []
    for key in keys:
        end = ends[key]
        known_end = None if isinstance(end, ClientError) else end.offset
        current = committed[key].offset if key in committed else None
        rows.append(GroupOffset(key, current, known_end, owners.get(key)))
    coordinator = cluster.metadata.brokers.get(group.coordinator)
    return GroupView(group, "-" if coordinator is None else str(coordinator), rows)


def view_groups(
    cluster: Cluster, states: Sequence[str] = ()
) -> tuple[list[ListedGroup], Sequence[ClientError]]:
    """List the groups of all brokers, and the errors of brokers that could not list theirs."""
    groups, failed = list_groups(cluster, states)
    return [_with_state(cluster, each) for each in groups], failed


def _with_state(cluster: Cluster, listed: ListedGroup) -> ListedGroup:
    """Add the state, which brokers before Kafka 2.6 do not list."""
    if listed.state is not None:
        return listed
    try:
        return listed._replace(state=describe_group(cluster, listed.group).state)
    except ClientError:
        return listed
