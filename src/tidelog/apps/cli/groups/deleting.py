"""Groups and committed offsets deleted, each with its own outcome."""

from collections.abc import Sequence

from tidelog.apps.cli.admin.outcomes import Change
from tidelog.apps.near_names import nearest
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.shell.client.client_errors import BrokerError, error_name
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.groups import group_admin


def delete_groups(cluster: Cluster, names: Sequence[str]) -> list[Change]:
    """Delete each; what became of it."""
    changes = []
    for name, error in group_admin.delete_groups(cluster, list(dict.fromkeys(names))).items():
        if error is None:
            changes.append(Change(name, f"group {name} was deleted"))
            continue
        text = str(error)
        code = error.code if isinstance(error, BrokerError) else ErrorCode.NON_EMPTY_GROUP
        if isinstance(error, group_admin.NoSuchGroup):
            code = ErrorCode.GROUP_ID_NOT_FOUND
            known = [each.group for each in group_admin.list_groups(cluster)[0]]
            if meant := nearest(name, known):
                text = f"there is no group {name!r}; {meant}"
        changes.append(Change(name, "", error_name(code), text))
    return changes


def delete_offsets(
    cluster: Cluster, group: str, topics: Sequence[tuple[str, list[int] | None]]
) -> list[Change]:
    """Forget what the group committed for these; what became of each. Raises ClientError."""
    committed = group_admin.committed_offsets(cluster, group)
    keys = []
    for topic, numbers in topics:
        mine = sorted(key for key in committed if key.topic == topic)
        keys += mine if numbers is None else [TopicPartition(topic, each) for each in numbers]
    missing = {topic for topic, numbers in topics if numbers is None} - {key.topic for key in keys}
    if missing:
        group_admin.describe_group(cluster, group)  # if it is not there, that is what to say
    changes = [
        Change(topic, "", "UNKNOWN_TOPIC_OR_PARTITION", f"group {group} has no offsets in {topic}")
        for topic in sorted(missing)
    ]
    answers = group_admin.delete_offsets(cluster, group, keys) if keys else {}
    for key, code in answers.items():
        if not code:
            changes.append(Change(str(key), f"group {group}: the offset in {key} was deleted"))
        elif code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
            text = f"group {group} reads {key.topic}: its offset in {key} stays; stop its consumers"
            changes.append(Change(str(key), "", error_name(code), text))
        else:
            text = f"group {group}: the offset in {key}: {error_name(code)}"
            changes.append(Change(str(key), "", error_name(code), text))
    return changes
