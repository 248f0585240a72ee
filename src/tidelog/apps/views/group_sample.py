"""All groups of a cluster at one moment, with few requests: three to each broker, however many
groups there are (one more for each group of Kafka's newer protocol, and with brokers before
Kafka 3.0).

Invariant: a group whose state can't be read now is left out, and the error is returned.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from tidelog.apps.views.group import GroupOffset, GroupView
from tidelog.core.coordinator.lookup import OFFSETS_TOPIC
from tidelog.core.types import Offset, TopicPartition
from tidelog.shell.client.client_errors import ClientError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.groups.group_admin import (
    Committed,
    Group,
    ListedGroup,
    committed_offsets_of,
    describe_groups,
    list_groups,
)
from tidelog.shell.client.offsets import LATEST, list_offsets

EndOf: TypeAlias = Callable[[TopicPartition], Offset | None]
GROUPS_MAX = 1_000
"""At most this many groups are described; of the others only the name and state are known."""


class GroupSample(NamedTuple):
    """One group; `view` is None if it was not described."""

    listed: ListedGroup
    view: GroupView | None

    def row(self, end_of: EndOf) -> dict[str, Any]:
        """Return the group as a list shows it; `end_of` returns log ends that are unknown."""
        view = None if self.view is None else with_ends(self.view, end_of)
        return {
            **self.listed._asdict(),
            "members": None if view is None else len(view.group.members),
            "lag": None if view is None else _lag(view),
        }


def _lag(view: GroupView) -> int | None:
    """Return the sum of the lags that are known; None if there are rows and none is known."""
    known = [each.lag for each in view.rows if each.lag is not None]
    return sum(known) if known or not view.rows else None


def with_ends(view: GroupView, end_of: EndOf) -> GroupView:
    """Return the view with log ends from `end_of` where it has none."""
    rows = [
        each._replace(log_end_offset=end_of(each.key)) if each.log_end_offset is None else each
        for each in view.rows
    ]
    return view._replace(rows=rows)


def sample_groups(
    cluster: Cluster, *, with_log_ends: bool
) -> tuple[list[GroupSample], Sequence[ClientError]]:
    """Return all groups, by name, and the errors. Raises ClientError if no broker responds.

    Without log ends, lags are unknown; the leaders report their log ends to the console anyway.
    A cluster without a topic for offsets has no groups, and gets no further request.
    """
    if OFFSETS_TOPIC not in cluster.refresh([OFFSETS_TOPIC]).topics or (
        cluster.metadata.topics[OFFSETS_TOPIC].error
    ):
        return [], []
    listed, errors = list_groups(cluster)
    failed = [*errors]
    described: dict[str, Group] = {}
    committed: dict[str, dict[TopicPartition, Committed]] = {}
    chosen = listed[:GROUPS_MAX]
    for coordinator in sorted({each.coordinator for each in chosen}):
        here = [each for each in chosen if each.coordinator == coordinator]
        try:
            described |= describe_groups(cluster, coordinator, here)
            committed |= committed_offsets_of(cluster, coordinator, [each.group for each in here])
        except ClientError as error:
            failed.append(error)
    keys = {key for each in committed.values() for key in each}
    keys |= {key for each in described.values() for one in each.members for key in one.partitions}
    ends = _log_ends(cluster, keys) if with_log_ends else {}
    found = []
    for each in listed:
        group, offsets = described.get(each.group), committed.get(each.group)
        view = None
        if group is not None and offsets is not None:
            view = _view(cluster, group, offsets, ends)
        found.append(GroupSample(each if group is None else _with_state(each, group), view))
    return found, failed


def _with_state(listed: ListedGroup, group: Group) -> ListedGroup:
    """Prefer the description: brokers before Kafka 2.6 do not list states."""
    return listed._replace(state=group.state)


def _view(
    cluster: Cluster,
    group: Group,
    committed: Mapping[TopicPartition, Committed],
    ends: Mapping[TopicPartition, Offset],
) -> GroupView:
    owners = {key: member for member in group.members for key in member.partitions}
    rows = [
        GroupOffset(
            key,
            committed[key].offset if key in committed else None,
            ends.get(key),
            owners.get(key),
        )
        for key in sorted({*committed, *owners})
    ]
    address = cluster.metadata.brokers.get(group.coordinator)
    return GroupView(group, "-" if address is None else str(address), rows)


def _log_ends(cluster: Cluster, keys: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
    found = list_offsets(cluster, dict.fromkeys(sorted(keys), LATEST))
    return {key: end.offset for key, end in found.items() if not isinstance(end, ClientError)}
