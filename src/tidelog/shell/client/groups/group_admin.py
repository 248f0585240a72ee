"""Administer consumer groups: list and describe them, read, set and delete offsets, delete groups.

Requests go to the group's coordinator, also when the coordinator moves. Works with Kafka from 2.1
on; a field that an older broker does not return is None. Groups of Kafka's newer protocol
(KIP-848, type `consumer`) are described too, if the broker supports it.

Invariants: while the group has members, the broker refuses every change, and the error says so. No
attempt begins after the cluster's `timeout_s`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from tidelog.core.api_table import (
    CONSUMER_GROUP_DESCRIBE,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
)
from tidelog.core.errors import ErrorCode
from tidelog.core.types import BrokerId, LeaderEpoch, Offset, TopicPartition
from tidelog.core.wire.codec import Struct
from tidelog.core.wire.primitives import MalformedRequest
from tidelog.shell.client.client_errors import BrokerError, ClientError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.connection import KafkaConnection
from tidelog.shell.client.coordinators import MOVED, ask_coordinator
from tidelog.shell.client.groups.consumer_protocol import PROTOCOL_TYPE, decode_assignment

LAST_VERSION_WITH_NAMES = 9
"""The last version of OffsetCommit and OffsetFetch with topic names; later ones use topic ids."""
_MANY_GROUPS = 8
"""The first version of OffsetFetch that names several groups."""
AT_ONCE = 200
"""Groups in one request."""
DEAD, EMPTY = "Dead", "Empty"
NOT_A_MEMBER = ("", -1)
"""Member id and generation of a commit by a client that is not a member."""
UNKNOWN_EPOCH = -1


class NoSuchGroup(ClientError):
    """The cluster has no group of that name."""

    def __init__(self, group: str) -> None:
        super().__init__(f"there is no group {group!r}; `tidelog group list` shows groups")
        self.group = group


class GroupInUse(ClientError):
    """The group has members, and the request is allowed only for groups without members."""

    def __init__(self, group: str, what: str) -> None:
        super().__init__(f"group {group} has members: {what}; stop its consumers first")
        self.group = group


class ListedGroup(NamedTuple):
    """A group as its coordinator lists it; None if the broker does not return the field."""

    group: str
    protocol_type: str
    state: str | None
    kind: str | None
    coordinator: BrokerId


class Member(NamedTuple):
    """A member and its assigned partitions."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: list[TopicPartition]


class Group(NamedTuple):
    """A group as its coordinator describes it."""

    group: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: BrokerId
    members: list[Member]

    @property
    def is_active(self) -> bool:
        return self.state not in (DEAD, EMPTY)


class Committed(NamedTuple):
    """A committed offset."""

    offset: Offset
    leader_epoch: LeaderEpoch = UNKNOWN_EPOCH
    metadata: str | None = ""


# -- groups -------------------------------------------------------------------------------------


def list_groups(
    cluster: Cluster, states: Collection[str] = ()
) -> tuple[list[ListedGroup], list[ClientError]]:
    """Return the groups of all brokers, and the errors of brokers that could not list theirs."""
    found: list[ListedGroup] = []
    failed: list[ClientError] = []
    request = {"states_filter": list(states), "types_filter": []}
    for broker_id in sorted(cluster.refresh([]).brokers):
        try:
            answer = cluster.broker(broker_id).call(LIST_GROUPS, request)
            if answer["error_code"]:
                raise BrokerError(f"listing the groups of broker {broker_id}", answer["error_code"])
        except ClientError as error:
            failed.append(error)
            continue
        found += [
            ListedGroup(
                group["group_id"],
                group["protocol_type"],
                group.get("group_state") or None,
                group.get("group_type") or None,
                broker_id,
            )
            for group in answer["groups"]
        ]
    wanted = {state.lower() for state in states}
    kept = [each for each in found if not wanted or (each.state or "").lower() in wanted]
    return sorted(kept), failed


def describe_group(cluster: Cluster, group: str) -> Group:
    """Return the state and members of a group. Raises NoSuchGroup."""

    def ask(broker: KafkaConnection) -> Group:
        coordinator = _id_of(cluster, broker)
        newer = _describe_newer(broker, group, coordinator)
        return newer or _describe_classic(broker, group, coordinator)

    found = ask_coordinator(cluster, group, ask)
    if found.state == DEAD:
        raise NoSuchGroup(group)
    return found


def _id_of(cluster: Cluster, broker: KafkaConnection) -> BrokerId:
    known = cluster.metadata.brokers.values()
    return next((each.id for each in known if str(each) == broker.address), BrokerId(-1))


def _describe_newer(broker: KafkaConnection, group: str, coordinator: BrokerId) -> Group | None:
    """Describe a group of the newer protocol (KIP-848).

    Return None if the group is not of that kind, or the broker does not support them.
    """
    if not broker.offers(CONSUMER_GROUP_DESCRIBE):
        return None
    request = {"group_ids": [group], "include_authorized_operations": False}
    (found,) = broker.call(CONSUMER_GROUP_DESCRIBE, request)["groups"]
    if found["error_code"] in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
        return None
    _raise_error(f"describing group {group}", found)
    members = [
        Member(
            member["member_id"],
            member.get("instance_id"),
            member["client_id"],
            member["client_host"],
            [
                TopicPartition(topic["topic_name"], partition)
                for topic in member["assignment"]["topic_partitions"]
                for partition in topic["partitions"]
            ],
        )
        for member in found["members"]
    ]
    state, assignor = found["group_state"], found["assignor_name"]
    return Group(group, state, PROTOCOL_TYPE, assignor, coordinator, members)


def describe_groups(
    cluster: Cluster, coordinator: BrokerId, groups: Sequence[ListedGroup]
) -> dict[str, Group]:
    """Return the groups that a broker coordinates, with one request for a few hundred of them.

    Groups that ended meanwhile, or moved to another broker, are left out. Raises ClientError.
    """
    broker = cluster.broker(coordinator)
    found: dict[str, Group] = {}
    classic = []
    for each in groups:
        newer = None
        if (each.kind or "").lower() == PROTOCOL_TYPE:
            newer = _describe_newer(broker, each.group, coordinator)
        if newer is None:
            classic.append(each.group)
        else:
            found[each.group] = newer
    for start in range(0, len(classic), AT_ONCE):
        names = classic[start : start + AT_ONCE]
        request = {"groups": names, "include_authorized_operations": False}
        for answer in broker.call(DESCRIBE_GROUPS, request)["groups"]:
            name = answer["group_id"]
            if not answer["error_code"] and answer["group_state"] != DEAD:
                found[name] = _classic(name, coordinator, answer)
    return found


def _describe_classic(broker: KafkaConnection, group: str, coordinator: BrokerId) -> Group:
    request = {"groups": [group], "include_authorized_operations": False}
    (found,) = broker.call(DESCRIBE_GROUPS, request)["groups"]
    if found["error_code"] == ErrorCode.GROUP_ID_NOT_FOUND:
        raise NoSuchGroup(group)
    _raise_error(f"describing group {group}", found)
    return _classic(group, coordinator, found)


def _classic(group: str, coordinator: BrokerId, found: Struct) -> Group:
    members = [
        Member(
            member["member_id"],
            member.get("group_instance_id"),
            member["client_id"],
            member["client_host"],
            _partitions(found["protocol_type"], bytes(member["member_assignment"])),
        )
        for member in found["members"]
    ]
    return Group(
        group,
        found["group_state"],
        found["protocol_type"],
        found["protocol_data"],
        coordinator,
        members,
    )


def _partitions(protocol_type: str, assignment: bytes) -> list[TopicPartition]:
    """Decode a member's assignment; empty for other kinds of groups (Connect)."""
    try:
        return decode_assignment(assignment) if protocol_type == PROTOCOL_TYPE else []
    except MalformedRequest:
        return []


def _raise_error(what: str, answer: Struct) -> None:
    if answer["error_code"]:
        raise BrokerError(what, answer["error_code"], answer.get("error_message"))


# -- offsets ------------------------------------------------------------------------------------


def committed_offsets(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, Committed]:
    """Return the group's committed offsets, of these partitions or (None) of all."""
    topics = None if partitions is None else _by_topic(partitions, "partition_indexes")
    request = {
        "group_id": group,
        "topics": topics,
        "groups": [{"group_id": group, "topics": topics}],
        "require_stable": False,
    }

    def ask(broker: KafkaConnection) -> dict[TopicPartition, Committed]:
        answer = broker.call(OFFSET_FETCH, request, LAST_VERSION_WITH_NAMES)
        found = answer["groups"][0] if "groups" in answer else answer
        if found.get("error_code"):
            raise BrokerError(f"reading the offsets of group {group}", found["error_code"])
        offsets = {}
        for topic in found["topics"]:
            for each in topic["partitions"]:
                key = TopicPartition(topic["name"], each["partition_index"])
                if each["error_code"]:
                    what = f"reading the offset of group {group} in {key}"
                    raise BrokerError(what, each["error_code"])
                if each["committed_offset"] >= 0:
                    epoch = each.get("committed_leader_epoch", UNKNOWN_EPOCH)
                    offsets[key] = Committed(each["committed_offset"], epoch, each["metadata"])
        return offsets

    return ask_coordinator(cluster, group, ask)


def committed_offsets_of(
    cluster: Cluster, coordinator: BrokerId, groups: Sequence[str]
) -> dict[str, dict[TopicPartition, Committed]]:
    """Return all committed offsets of groups that a broker coordinates.

    Groups that moved to another broker are left out. Raises ClientError.
    """
    broker = cluster.broker(coordinator)
    if broker.version(OFFSET_FETCH, LAST_VERSION_WITH_NAMES) < _MANY_GROUPS:
        return {group: committed_offsets(cluster, group) for group in groups}
    found: dict[str, dict[TopicPartition, Committed]] = {}
    for start in range(0, len(groups), AT_ONCE):
        names = groups[start : start + AT_ONCE]
        request = {
            "groups": [{"group_id": name, "topics": None} for name in names],
            "require_stable": False,
        }
        answer = broker.call(OFFSET_FETCH, request, LAST_VERSION_WITH_NAMES)
        for group in answer["groups"]:
            if not group["error_code"]:
                found[group["group_id"]] = {
                    TopicPartition(topic["name"], each["partition_index"]): Committed(
                        each["committed_offset"], each["committed_leader_epoch"], each["metadata"]
                    )
                    for topic in group["topics"]
                    for each in topic["partitions"]
                    if not each["error_code"] and each["committed_offset"] >= 0
                }
    return found


def _by_topic(partitions: Iterable[TopicPartition], field: str) -> list[Struct]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return [{"name": topic, field: numbers} for topic, numbers in topics.items()]


def commit_offsets(
    cluster: Cluster,
    group: str,
    offsets: Mapping[TopicPartition, Committed],
    member: tuple[str, int] = NOT_A_MEMBER,
) -> None:
    """Commit offsets of a group; a client that is not a member can do so only without members.

    Raises GroupInUse, BrokerError.
    """
    topics: dict[str, list[Struct]] = {}
    for key, committed in offsets.items():
        partition = {
            "partition_index": key.partition,
            "committed_offset": committed.offset,
            "committed_leader_epoch": committed.leader_epoch,
            "committed_metadata": committed.metadata,
        }
        topics.setdefault(key.topic, []).append(partition)
    member_id, generation = member
    request = {
        "group_id": group,
        "generation_id_or_member_epoch": generation,
        "member_id": member_id,
        "topics": [{"name": name, "partitions": each} for name, each in topics.items()],
    }

    def ask(broker: KafkaConnection) -> None:
        answer = broker.call(OFFSET_COMMIT, request, LAST_VERSION_WITH_NAMES)
        for topic in answer["topics"]:
            for each in topic["partitions"]:
                code = each["error_code"]
                if code == ErrorCode.UNKNOWN_MEMBER_ID and member == NOT_A_MEMBER:
                    raise GroupInUse(group, "its offsets can't be set")
                if code:
                    key = TopicPartition(topic["name"], each["partition_index"])
                    raise BrokerError(f"committing the offset of group {group} in {key}", code)

    ask_coordinator(cluster, group, ask)


def delete_offsets(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Delete the committed offsets of these partitions; return the error code of each.

    Raises ClientError.
    """
    listed = [
        {"name": each["name"], "partitions": [{"partition_index": n} for n in each["partitions"]]}
        for each in _by_topic(partitions, "partitions")
    ]

    def ask(broker: KafkaConnection) -> dict[TopicPartition, int]:
        answer = broker.call(OFFSET_DELETE, {"group_id": group, "topics": listed})
        if answer["error_code"] == ErrorCode.GROUP_ID_NOT_FOUND:
            raise NoSuchGroup(group)
        if answer["error_code"] == ErrorCode.NON_EMPTY_GROUP:
            raise GroupInUse(group, "its offsets can't be deleted")
        _raise_error(f"deleting the offsets of group {group}", answer)
        return {
            TopicPartition(topic["name"], each["partition_index"]): each["error_code"]
            for topic in answer["topics"]
            for each in topic["partitions"]
        }

    return ask_coordinator(cluster, group, ask)


def delete_groups(cluster: Cluster, groups: Sequence[str]) -> dict[str, ClientError | None]:
    """Delete groups that have no members; return for each the error, or None."""
    return {group: _delete(cluster, group) for group in groups}


def _delete(cluster: Cluster, group: str) -> ClientError | None:
    def ask(broker: KafkaConnection) -> int:
        (found,) = broker.call(DELETE_GROUPS, {"groups_names": [group]})["results"]
        code: int = found["error_code"]
        if code in MOVED:
            raise BrokerError(f"deleting group {group}", code)
        return code

    try:
        code = ask_coordinator(cluster, group, ask)
    except ClientError as error:
        return error
    if code == ErrorCode.GROUP_ID_NOT_FOUND:
        return NoSuchGroup(group)
    if code == ErrorCode.NON_EMPTY_GROUP:
        return GroupInUse(group, "it can't be deleted")
    return BrokerError(f"deleting group {group}", code) if code else None
