"""The authoriser decides, and the APIs answer refusals, as a real Apache Kafka does.

The same requests are sent to one broker of each by four principals: a super user, one whom ACLs
allow everything, one whom they allow half, and a stranger. All responses must be equal, except for
texts and for what differs between any two clusters.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest
from authorized_sides import (
    ADMIN,
    ALLOWED,
    CLIENTS,
    HALF,
    STRANGER,
    TIMEOUT_MS,
    AuthorizedSide,
    running_authorized,
)
from real_cluster import eventually

from tidelog.core import api_table as api
from tidelog.core.authorization.acl import Operation, PatternType, Permission, ResourceType
from tidelog.core.errors import ErrorCode
from tidelog.core.record.encoder import Producer, encode_batch
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import TRANSACTIONAL
from tidelog.core.wire.codec import Struct

pytestmark = pytest.mark.slow

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TXN = ResourceType.TRANSACTIONAL_ID
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
TOPICS = ("open", "seen", "hidden", "app-one", "app-secret", "doomed")
GROUPS = ("g-open", "g-seen", "g-hidden")
NAMES = ("t-open", "t-seen", "t-hidden")
MISSING_IDS = {"missing": b"\x05" * 16, "app-missing": b"\x06" * 16}


def acl(
    who: str,
    kind: ResourceType,
    name: str,
    operation: Operation,
    pattern: PatternType = LITERAL,
    permission: Permission = Permission.ALLOW,
    host: str = "*",
) -> Struct:
    return {
        "resource_type": kind,
        "resource_name": name,
        "resource_pattern_type": pattern,
        "principal": f"User:CN={who}",
        "host": host,
        "operation": operation,
        "permission_type": permission,
    }


ACLS = [
    *(acl(ALLOWED, kind, "*", Operation.ALL) for kind in (TOPIC, GROUP, TXN)),
    acl(ALLOWED, CLUSTER, "kafka-cluster", Operation.ALL),
    acl(HALF, TOPIC, "open", Operation.READ, host="127.0.0.1"),
    acl(HALF, TOPIC, "open", Operation.WRITE),
    acl(HALF, TOPIC, "open", Operation.ALTER_CONFIGS),
    acl(HALF, TOPIC, "seen", Operation.DESCRIBE),
    acl(HALF, TOPIC, "hidden", Operation.ALL, host="10.9.9.9"),
    acl(HALF, TOPIC, "app-", Operation.ALL, PREFIXED),
    acl(HALF, TOPIC, "app-secret", Operation.READ, permission=Permission.DENY),
    acl(HALF, TOPIC, "app-secret", Operation.DELETE, permission=Permission.DENY),
    acl(HALF, GROUP, "g-open", Operation.READ),
    acl(HALF, GROUP, "g-seen", Operation.DESCRIBE),
    acl(HALF, TXN, "t-open", Operation.WRITE),
    acl(HALF, TXN, "t-seen", Operation.DESCRIBE),
]


class Sides(NamedTuple):
    tidelog: AuthorizedSide
    kafka: AuthorizedSide


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    with running_authorized(tmp_path_factory.mktemp("authorized")) as both:
        for side in both:
            side.create(*TOPICS)
            side.await_coordinators(list(GROUPS), list(NAMES))
            results = side.admin(api.CREATE_ACLS, {"creations": ACLS})["results"]
            assert {each["error_code"] for each in results} == {ErrorCode.NONE}
            for group in GROUPS:
                commit = offset_commit(side, group, ["open"], 5)
                assert side.admin(api.OFFSET_COMMIT, commit, 5)
            for name in NAMES:
                side.admin(api.INIT_PRODUCER_ID, init(name), 4)
            eventually(partial(_acls_apply, side), "the ACLs are in force")
        yield Sides(*both)


def _acls_apply(side: AuthorizedSide) -> bool:
    asked = {"topics": [{"topic_id": bytes(16), "name": "app-secret"}]}
    found = side.call(HALF, api.METADATA, asked, 12)["topics"]
    return bool(found[0]["error_code"] == ErrorCode.NONE)


def compare(
    sides: Sides,
    key: int,
    request: Callable[[AuthorizedSide, str], Struct],
    versions: set[int] | None = None,
    who: tuple[str, ...] = CLIENTS,
) -> None:
    """Send a request as each principal, in the first, the last and the given versions."""
    row = api.APIS[key]
    different = []
    for version in sorted({row.first, row.last, *(versions or ())}):
        for name in who:
            answers = [
                side.comparable(side.call(name, key, request(side, name), version))
                for side in sides
            ]
            if answers[0] != answers[1]:
                label = f"{row.name} {version} by {name}"
                different.append(f"{label}\n  Tidelog: {answers[0]}\n  Kafka:   {answers[1]}")
    assert not different, "\n".join(different)


REFUSED = (HALF, STRANGER)
"""For APIs from which an allowed principal gets what is not about authorisation."""

# -- records -----------------------------------------------------------------------------------

EVERY = (*TOPICS[:5], "missing", "app-missing")


def named(side: AuthorizedSide, topics: tuple[str, ...] = EVERY) -> Iterator[dict[str, Any]]:
    """Topics with their ids; a missing one has an id that no topic has."""
    for name in topics:
        yield {"name": name, "topic": name, "topic_id": _topic_id(side, name)}


def _topic_id(side: AuthorizedSide, name: str) -> bytes:
    return side.topic_ids.get(name) or MISSING_IDS.get(name, bytes(16))


def batch() -> bytes:
    return bytes(encode_batch([Record(None, b"v", 1_700_000_000_000)]))


def test_produce(sides: Sides) -> None:
    def request(side: AuthorizedSide, _who: str) -> Struct:
        data = [{"index": 0, "records": batch()}]
        topics = [{**topic, "partition_data": data} for topic in named(side)]
        return {"transactional_id": None, "acks": -1, "timeout_ms": 1000, "topic_data": topics}

    compare(sides, api.PRODUCE, request, {9, 12}, (HALF, STRANGER))


@pytest.mark.parametrize("name", [None, "t-open", "t-seen", "t-hidden"])
def test_transactional_produce(sides: Sides, name: str | None) -> None:
    producer = Producer(999_999, 0, 0)
    records = [Record(None, b"v", 1_700_000_000_000)]
    made = bytes(encode_batch(records, attributes=TRANSACTIONAL, producer=producer))

    def request(side: AuthorizedSide, _who: str) -> Struct:
        data = [{"index": 0, "records": made}]
        topics = [{**each, "partition_data": data} for each in named(side, ("open", "hidden"))]
        return {"transactional_id": name, "acks": -1, "timeout_ms": 1000, "topic_data": topics}

    compare(sides, api.PRODUCE, request, {11, 12}, REFUSED)


@pytest.mark.parametrize("topic", ["open", "hidden"])
def test_produce_without_acks(sides: Sides, topic: str) -> None:
    """A refusal closes the connection: there is no response."""

    def request(side: AuthorizedSide) -> Struct:
        data = [{"index": 0, "records": batch()}]
        topics = [{**each, "partition_data": data} for each in named(side, (topic,))]
        return {"transactional_id": None, "acks": 0, "timeout_ms": 1000, "topic_data": topics}

    for side in sides:
        side.send(HALF, api.PRODUCE, request(side), 9)
        answer = side.call(HALF, api.METADATA, {"topics": []}, 9)
        assert (answer is None) == (topic == "hidden")


def test_fetch(sides: Sides) -> None:
    def request(side: AuthorizedSide, _who: str) -> Struct:
        position = {
            "partition": 0,
            "current_leader_epoch": -1,
            "fetch_offset": 0,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": 1,
        }
        return {
            "replica_id": -1,
            "max_wait_ms": 0,
            "min_bytes": 0,
            "max_bytes": 1,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{**topic, "partitions": [position]} for topic in named(side)],
            "forgotten_topics_data": [],
            "rack_id": "",
        }

    def errors(side: AuthorizedSide, who: str, version: int) -> Any:
        found = side.call(who, api.FETCH, request(side, who), version)
        return sorted(
            (
                side.comparable(topic.get("topic_id") or topic["topic"]),
                int(partition["error_code"]),
            )
            for topic in found["responses"]
            for partition in topic["partitions"]
        )

    for version in (4, 11, 12, 13, 17):
        for who in CLIENTS:
            ours, theirs = (errors(side, who, version) for side in sides)
            assert ours == theirs, f"Fetch {version} by {who}"


def test_list_offsets(sides: Sides) -> None:
    def request(side: AuthorizedSide, _who: str) -> Struct:
        partitions = [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -2}]
        topics = [{**topic, "partitions": partitions} for topic in named(side)]
        return {"replica_id": -1, "isolation_level": 0, "topics": topics, "timeout_ms": 1000}

    compare(sides, api.LIST_OFFSETS, request, {7})


def test_offset_for_leader_epoch(sides: Sides) -> None:
    def request(side: AuthorizedSide, _who: str) -> Struct:
        partitions = [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]
        return {
            "replica_id": -1,
            "topics": [{**topic, "partitions": partitions} for topic in named(side, TOPICS[:5])],
        }

    def without_ends(side: AuthorizedSide, who: str, version: int) -> Any:
        found = side.call(who, api.OFFSET_FOR_LEADER_EPOCH, request(side, who), version)
        return sorted(
            (topic["topic"], int(partition["error_code"]))
            for topic in found["topics"]
            for partition in topic["partitions"]
        )

    for version in (2, 4):
        for who in CLIENTS:
            ours, theirs = (without_ends(side, who, version) for side in sides)
            assert ours == theirs, f"OffsetForLeaderEpoch {version} by {who}"


def test_delete_records(sides: Sides) -> None:
    def request(side: AuthorizedSide, _who: str) -> Struct:
        partitions = [{"partition_index": 0, "offset": 0}]
        topics = [{**topic, "partitions": partitions} for topic in named(side)]
        return {"topics": topics, "timeout_ms": TIMEOUT_MS}

    compare(sides, api.DELETE_RECORDS, request)


def test_describe_producers(sides: Sides) -> None:
    def request(side: AuthorizedSide, _who: str) -> Struct:
        topics = (*EVERY, "a name", "")
        return {
            "topics": [{**topic, "partition_indexes": [0]} for topic in named(side, topics)],
        }

    compare(sides, api.DESCRIBE_PRODUCERS, request)


# -- topics ------------------------------------------------------------------------------------


def test_metadata_by_name(sides: Sides) -> None:
    def request(side: AuthorizedSide, _who: str) -> Struct:
        return {
            "topics": [{"name": each["name"], "topic_id": bytes(16)} for each in named(side)],
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": True,
            "include_topic_authorized_operations": True,
        }

    compare(sides, api.METADATA, request, {1, 8, 9, 10, 12})


def test_metadata_of_all_topics(sides: Sides) -> None:
    def topics(side: AuthorizedSide, who: str, version: int) -> Any:
        wanted: list[str] | None = None if version else []
        request = {"topics": wanted, "include_topic_authorized_operations": True}
        found = side.call(who, api.METADATA, request, version)
        own = [topic for topic in found["topics"] if topic["name"] in TOPICS]
        return side.comparable(own)

    for version in (0, 1, 8, 12, 13):
        for who in CLIENTS:
            ours, theirs = (topics(side, who, version) for side in sides)
            assert ours == theirs, f"Metadata {version} by {who}"


def test_metadata_by_id(sides: Sides) -> None:
    def request(side: AuthorizedSide, _who: str) -> Struct:
        return {
            "topics": [{"name": None, "topic_id": each["topic_id"]} for each in named(side)],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": True,
        }

    for version in (12, 13):
        for who in CLIENTS:
            answers = [
                side.comparable(side.call(who, api.METADATA, request(side, who), version))
                for side in sides
            ]
            assert answers[0] == answers[1], f"Metadata {version} by {who}: {answers}"


def test_describe_topic_partitions(sides: Sides) -> None:
    def request(side: AuthorizedSide, _who: str) -> Struct:
        topics = [{"name": each["name"]} for each in named(side)]
        return {"topics": topics, "response_partition_limit": 100, "cursor": None}

    compare(sides, api.DESCRIBE_TOPIC_PARTITIONS, request)


def creatable(name: str) -> Struct:
    return {
        "name": name,
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
    }


def test_create_topics(sides: Sides) -> None:
    def request(_side: AuthorizedSide, who: str) -> Struct:
        names = (f"new-{who}", f"app-{who}", "open", "hidden", "app-one", "__cluster_metadata")
        topics = [creatable(name) for name in (*names, "twice", "twice")]
        return {"topics": topics, "timeout_ms": TIMEOUT_MS, "validate_only": True}

    compare(sides, api.CREATE_TOPICS, request, {5})


def test_create_partitions(sides: Sides) -> None:
    def request(side: AuthorizedSide, _who: str) -> Struct:
        topics = [{**topic, "count": 2, "assignments": None} for topic in named(side)]
        return {"topics": topics, "timeout_ms": TIMEOUT_MS, "validate_only": True}

    compare(sides, api.CREATE_PARTITIONS, request)


def test_delete_topics_by_name(sides: Sides) -> None:
    def request(_side: AuthorizedSide, _who: str) -> Struct:
        names = [*(name for name in EVERY if name != "app-one"), "twice", "twice"]
        return {
            "topic_names": names,
            "topics": [{"name": name, "topic_id": bytes(16)} for name in names],
            "timeout_ms": TIMEOUT_MS,
        }

    compare(sides, api.DELETE_TOPICS, request, {5}, (HALF, STRANGER))


def test_delete_topics_by_id(sides: Sides) -> None:
    def request(side: AuthorizedSide, _who: str) -> Struct:
        topics = [
            {"name": None, "topic_id": each["topic_id"]}
            for each in named(side)
            if each["name"] != "app-one"
        ]
        return {"topics": topics, "timeout_ms": TIMEOUT_MS}

    for who in (HALF, STRANGER):
        answers = [
            side.comparable(side.call(who, api.DELETE_TOPICS, request(side, who), 6))
            for side in sides
        ]
        assert answers[0] == answers[1], who


def test_delete_topics_by_an_id_that_is_given_twice(sides: Sides) -> None:
    """A principal learns nothing about the topic of the id, and nothing is deleted."""

    def request(side: AuthorizedSide, _who: str) -> Struct:
        topics = [
            {"name": None, "topic_id": each["topic_id"]}
            for each in named(side)
            if each["name"] in ("hidden", "open", "missing")
        ]
        return {"topics": [*topics, *topics], "timeout_ms": TIMEOUT_MS}

    for who in (ADMIN, ALLOWED, HALF, STRANGER):
        answers = [
            side.comparable(side.call(who, api.DELETE_TOPICS, request(side, who), 6))
            for side in sides
        ]
        assert answers[0] == answers[1], who
        found = answers[0]["responses"]
        assert {each["error_code"] for each in found} == {ErrorCode.INVALID_REQUEST}
        assert {each["name"] for each in found} == {None}


# -- settings ----------------------------------------------------------------------------------

RESOURCES = [(2, name) for name in EVERY] + [(4, "1")]


def test_describe_configs(sides: Sides) -> None:
    def request(_side: AuthorizedSide, _who: str) -> Struct:
        resources = [
            {"resource_type": kind, "resource_name": name, "configuration_keys": ["retention.ms"]}
            for kind, name in RESOURCES
        ]
        return {"resources": resources, "include_synonyms": False, "include_documentation": False}

    compare(sides, api.DESCRIBE_CONFIGS, request)


@pytest.mark.parametrize("key", [api.ALTER_CONFIGS, api.INCREMENTAL_ALTER_CONFIGS])
def test_alter_configs(sides: Sides, key: int) -> None:
    def request(_side: AuthorizedSide, _who: str) -> Struct:
        change = {"name": "retention.ms", "config_operation": 0, "value": "100000"}
        resources = [
            {"resource_type": kind, "resource_name": name, "configs": [change] if kind == 2 else []}
            for kind, name in RESOURCES
        ]
        return {"resources": resources, "validate_only": True}

    compare(sides, key, request)


def test_list_config_resources(sides: Sides) -> None:
    compare(sides, api.LIST_CONFIG_RESOURCES, lambda _side, _who: {"resource_types": []})


# -- groups ------------------------------------------------------------------------------------


def offset_commit(side: AuthorizedSide, group: str, topics: list[str], offset: int) -> Struct:
    partition = {
        "partition_index": 0,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    return {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "retention_time_ms": -1,
        "topics": [{**each, "partitions": [partition]} for each in named(side, tuple(topics))],
    }


@pytest.mark.parametrize("group", GROUPS)
def test_offset_commit(sides: Sides, group: str) -> None:
    def request(side: AuthorizedSide, _who: str) -> Struct:
        return offset_commit(side, group, list(EVERY), 5)

    compare(sides, api.OFFSET_COMMIT, request, {9})


@pytest.mark.parametrize("everything", [False, True])
def test_offset_fetch(sides: Sides, everything: bool) -> None:
    def request(side: AuthorizedSide, _who: str) -> Struct:
        topics = [{**each, "partition_indexes": [0]} for each in named(side)]
        asked = None if everything else topics
        groups = [
            {"group_id": group, "member_id": None, "member_epoch": -1, "topics": asked}
            for group in GROUPS
        ]
        return {"group_id": "g-seen", "topics": asked or [], "groups": groups}

    different = []
    for version in (1, 2, 7, 8, 9, 10):
        for who in CLIENTS:
            one = [request(side, who) for side in sides]
            if everything and version == 1:
                continue
            if everything and version < 8:
                one = [{**each, "topics": None} for each in one]
            answers = [
                side.comparable(side.call(who, api.OFFSET_FETCH, asked, version))
                for side, asked in zip(sides, one, strict=True)
            ]
            if answers[0] != answers[1]:
                different.append(f"{version} by {who}\n  {answers[0]}\n  {answers[1]}")
    assert not different, "\n".join(different)


def test_offset_fetch_of_a_hidden_group(sides: Sides) -> None:
    def request(side: AuthorizedSide, _who: str) -> Struct:
        topics = [{**each, "partition_indexes": [0]} for each in named(side)]
        groups = [{"group_id": "g-hidden", "topics": topics}]
        return {"group_id": "g-hidden", "topics": topics, "groups": groups}

    compare(sides, api.OFFSET_FETCH, request, {2, 7, 8, 9})


def test_find_coordinator(sides: Sides) -> None:
    for kind, keys in ((0, GROUPS), (1, NAMES)):
        for single in keys:
            request = {"key": single, "key_type": kind, "coordinator_keys": list(keys)}
            compare(sides, api.FIND_COORDINATOR, lambda _s, _w, r=request: r, {1, 3, 4})  # type: ignore[misc]


MEMBER = {"generation_id": 1, "member_id": "nobody", "group_instance_id": None}


@pytest.mark.parametrize("group", GROUPS)
def test_membership(sides: Sides, group: str) -> None:
    join = {
        "group_id": group,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": "nobody",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
        "reason": None,
    }
    sync = {
        **MEMBER,
        "group_id": group,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [],
    }
    leave = {
        "group_id": group,
        "member_id": "nobody",
        "members": [{"member_id": "nobody", "group_instance_id": None, "reason": None}],
    }
    compare(sides, api.JOIN_GROUP, lambda _s, _w: join, {6, 7})
    compare(sides, api.SYNC_GROUP, lambda _s, _w: sync, {3, 4})
    compare(sides, api.HEARTBEAT, lambda _s, _w: {**MEMBER, "group_id": group})
    compare(sides, api.LEAVE_GROUP, lambda _s, _w: leave, {2, 3})


def test_describe_groups(sides: Sides) -> None:
    request = {"groups": list(GROUPS), "include_authorized_operations": True}
    compare(sides, api.DESCRIBE_GROUPS, lambda _s, _w: request, {3, 5})


def test_list_groups(sides: Sides) -> None:
    compare(sides, api.LIST_GROUPS, lambda _s, _w: {"states_filter": [], "types_filter": []})


def test_delete_groups(sides: Sides) -> None:
    request = {"groups_names": [*GROUPS, "missing"]}
    compare(sides, api.DELETE_GROUPS, lambda _s, _w: request, None, (HALF, STRANGER))


@pytest.mark.parametrize("group", GROUPS)
def test_offset_delete(sides: Sides, group: str) -> None:
    def request(side: AuthorizedSide, _who: str) -> Struct:
        partitions = [{"partition_index": 0}]
        topics = [{**each, "partitions": partitions} for each in named(side, ("seen", "hidden"))]
        return {"group_id": group, "topics": topics}

    compare(sides, api.OFFSET_DELETE, request)


# -- producers and transactions ----------------------------------------------------------------


def init(name: str | None) -> Struct:
    return {
        "transactional_id": name,
        "transaction_timeout_ms": TIMEOUT_MS,
        "producer_id": -1,
        "producer_epoch": -1,
    }


@pytest.mark.parametrize("name", [None, *NAMES])
def test_init_producer_id(sides: Sides, name: str | None) -> None:
    compare(sides, api.INIT_PRODUCER_ID, lambda _s, _w: init(name), {3})


STALE = {"producer_id": 999_999, "producer_epoch": 0}


@pytest.mark.parametrize("name", NAMES)
def test_requests_of_transactions(sides: Sides, name: str) -> None:
    identity = {"transactional_id": name, **STALE}

    def add(side: AuthorizedSide, topics: tuple[str, ...]) -> Struct:
        listed = [{**each, "partitions": [0, 7]} for each in named(side, topics)]
        old = {f"v3_and_below_{key}": value for key, value in identity.items()}
        transaction = {**identity, "verify_only": True, "topics": listed}
        return {**old, "v3_and_below_topics": listed, "transactions": [transaction]}

    every = (*EVERY, "__consumer_offsets")
    compare(sides, api.ADD_PARTITIONS_TO_TXN, lambda side, _w: add(side, every), {3, 4})
    compare(sides, api.ADD_PARTITIONS_TO_TXN, lambda side, _w: add(side, ("open",)), {3, 4})
    compare(sides, api.END_TXN, lambda _s, _w: {**identity, "committed": True}, {3, 4})
    for group in GROUPS:
        compare(sides, api.ADD_OFFSETS_TO_TXN, lambda _s, _w, g=group: {**identity, "group_id": g})  # type: ignore[misc]

        def commit(side: AuthorizedSide, _who: str, group: str = group) -> Struct:
            offsets = offset_commit(side, group, list(EVERY), 5)
            return {**offsets, **identity, "generation_id": -1}

        compare(sides, api.TXN_OFFSET_COMMIT, commit, {3})


def test_write_txn_markers(sides: Sides) -> None:
    marker = {
        "producer_id": 7,
        "producer_epoch": 1,
        "transaction_result": False,
        "topics": [{"name": "missing", "partition_indexes": [0]}],
        "coordinator_epoch": 0,
        "transaction_version": 0,
    }
    compare(sides, api.WRITE_TXN_MARKERS, lambda _s, _w: {"markers": [marker]})


def test_describe_transactions(sides: Sides) -> None:
    request = {"transactional_ids": [*NAMES, "t-missing"]}

    def states(side: AuthorizedSide, who: str) -> Any:
        found = side.call(who, api.DESCRIBE_TRANSACTIONS, request, 0)["transaction_states"]
        return sorted(
            (s["transactional_id"], int(s["error_code"]), s["transaction_state"]) for s in found
        )

    for who in CLIENTS:
        ours, theirs = (states(side, who) for side in sides)
        assert ours == theirs, who


def test_list_transactions(sides: Sides) -> None:
    request = {
        "state_filters": [],
        "producer_id_filters": [],
        "duration_filter": -1,
        "transactional_id_pattern": None,
    }
    compare(sides, api.LIST_TRANSACTIONS, lambda _s, _w: request)


# -- the cluster -------------------------------------------------------------------------------


def test_describe_cluster(sides: Sides) -> None:
    request = {"include_cluster_authorized_operations": True, "endpoint_type": 1}
    compare(sides, api.DESCRIBE_CLUSTER, lambda _s, _w: request)


WHOLE_REQUESTS: dict[int, Struct] = {
    api.DESCRIBE_LOG_DIRS: {"topics": None},
    api.ALTER_REPLICA_LOG_DIRS: {
        "dirs": [{"path": "/x", "topics": [{"name": "open", "partitions": [0]}]}]
    },
    api.ELECT_LEADERS: {
        "election_type": 0,
        "topic_partitions": [{"topic": "open", "partitions": [0]}],
        "timeout_ms": 1000,
    },
    api.ALTER_PARTITION_REASSIGNMENTS: {
        "timeout_ms": 1000,
        "topics": [{"name": "open", "partitions": [{"partition_index": 0, "replicas": [1]}]}],
    },
    api.LIST_PARTITION_REASSIGNMENTS: {
        "timeout_ms": 1000,
        "topics": [{"name": "open", "partition_indexes": [0]}],
    },
    api.DESCRIBE_CLIENT_QUOTAS: {"components": [], "strict": False},
    api.ALTER_CLIENT_QUOTAS: {
        "entries": [
            {
                "entity": [{"entity_type": "user", "entity_name": "u"}],
                "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": False}],
            }
        ],
        "validate_only": True,
    },
    api.DESCRIBE_USER_SCRAM_CREDENTIALS: {"users": [{"name": "u"}]},
    api.ALTER_USER_SCRAM_CREDENTIALS: {
        "deletions": [{"name": "u", "mechanism": 1}],
        "upsertions": [],
    },
    api.UPDATE_FEATURES: {
        "timeout_ms": 1000,
        "feature_updates": [{"feature": "x", "max_version_level": 1, "upgrade_type": 1}],
        "validate_only": True,
    },
    api.UNREGISTER_BROKER: {"broker_id": 9},
    api.CREATE_ACLS: {"creations": [acl("x", TOPIC, "x", Operation.READ)]},
}


@pytest.mark.parametrize("key", sorted(WHOLE_REQUESTS), ids=api.api_name)
def test_requests_that_need_a_right_on_the_cluster(sides: Sides, key: int) -> None:
    compare(sides, key, lambda _s, _w: WHOLE_REQUESTS[key], None, REFUSED)


# -- ACLs --------------------------------------------------------------------------------------


def acl_filter(**fields: Any) -> Struct:
    return {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
        **fields,
    }


FILTERS = [
    acl_filter(),
    acl_filter(resource_type_filter=TOPIC),
    acl_filter(resource_name_filter="open"),
    acl_filter(resource_name_filter="app-one", pattern_type_filter=PatternType.MATCH),
    acl_filter(resource_name_filter="app-secret", pattern_type_filter=PatternType.MATCH),
    acl_filter(resource_name_filter="app-", pattern_type_filter=PREFIXED),
    acl_filter(resource_name_filter="app-", pattern_type_filter=LITERAL),
    acl_filter(principal_filter="User:CN=half", permission_type=Permission.DENY),
    acl_filter(host_filter="127.0.0.1"),
    acl_filter(operation=Operation.ALL),
]


@pytest.mark.parametrize("number", range(len(FILTERS)))
def test_describe_acls(sides: Sides, number: int) -> None:
    compare(sides, api.DESCRIBE_ACLS, lambda _s, _w: FILTERS[number])


UNUSUAL = [
    acl("x", CLUSTER, "other", Operation.ALTER),
    acl("x", TOPIC, "", Operation.READ),
    acl("x", GROUP, "x", Operation.IDEMPOTENT_WRITE),
    acl("x", TXN, "x", Operation.TWO_PHASE_COMMIT),
    acl("x", TOPIC, "*", Operation.READ, PREFIXED),
    acl("x", ResourceType.USER, "User:x", Operation.CREATE_TOKENS),
    acl("x", TOPIC, "not a valid name", Operation.READ),
    {**acl("x", TOPIC, "x", Operation.READ), "principal": "without-a-type"},
]
INDEFINITE = [
    acl("x", ResourceType.ANY, "x", Operation.READ),
    acl("x", TOPIC, "x", Operation.ANY),
    acl("x", TOPIC, "x", Operation.READ, PatternType.ANY),
    acl("x", TOPIC, "x", Operation.READ, PatternType.MATCH),
    acl("x", TOPIC, "x", Operation.READ, permission=Permission.ANY),
]
"""Kafka refuses these with UNKNOWN_SERVER_ERROR for the whole request."""


@pytest.mark.parametrize("creation", INDEFINITE, ids=range(len(INDEFINITE)))
def test_indefinite_acls_are_refused(sides: Sides, creation: Struct) -> None:
    for side, expected in zip(
        sides, (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR), strict=True
    ):
        [result] = side.admin(api.CREATE_ACLS, {"creations": [creation]})["results"]
        assert result["error_code"] == expected


def test_create_and_delete_acls(sides: Sides) -> None:
    for creation in UNUSUAL:
        request = {"creations": [creation]}
        compare(sides, api.CREATE_ACLS, lambda _s, _w, r=request: r, None, (ADMIN,))  # type: ignore[misc]
    made = [acl("x", TOPIC, f"x{number}", Operation.READ) for number in range(3)]
    creations = {"creations": [made[0], UNUSUAL[1], made[1], made[1], made[2]]}
    compare(sides, api.CREATE_ACLS, lambda _s, _w: creations, None, (ADMIN, ALLOWED))
    filters = [
        acl_filter(resource_name_filter="x0"),
        acl_filter(principal_filter="User:CN=x"),
        acl_filter(principal_filter="User:CN=nobody"),
    ]
    for version in (3, 2, 1):
        for who in (STRANGER, HALF, ALLOWED, ADMIN):
            request = {"filters": filters}
            answers = [
                side.comparable(side.call(who, api.DELETE_ACLS, request, version)) for side in sides
            ]
            assert answers[0] == answers[1], f"DeleteAcls {version} by {who}"
    compare(sides, api.DESCRIBE_ACLS, lambda _s, _w: acl_filter(), None, (ADMIN,))


# -- a resource without ACLs is open to everyone -----------------------------------------------


@pytest.fixture(scope="module")
def open_sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    settings = {"allow.everyone.if.no.acl.found": "true"}
    with running_authorized(tmp_path_factory.mktemp("open"), settings) as both:
        for side in both:
            side.create(*TOPICS)
            side.await_coordinators(list(GROUPS), list(NAMES))
            side.admin(api.CREATE_ACLS, {"creations": ACLS})
            eventually(partial(_acls_apply, side), "the ACLs are in force")
        yield Sides(*both)


@pytest.mark.parametrize(
    "check",
    [
        test_produce,
        test_metadata_by_name,
        test_describe_configs,
        test_describe_groups,
        test_describe_cluster,
        test_list_groups,
    ],
)
def test_resources_without_acls(open_sides: Sides, check: Callable[[Sides], None]) -> None:
    check(open_sides)


def test_producer_ids_without_acls(open_sides: Sides) -> None:
    def has_ids(side: AuthorizedSide) -> bool:
        error = side.admin(api.INIT_PRODUCER_ID, init(None))["error_code"]
        return bool(error == ErrorCode.NONE)

    for side in open_sides:
        eventually(partial(has_ids, side), "the broker has a block of producer ids")
    compare(open_sides, api.INIT_PRODUCER_ID, lambda _s, _w: init(None))
