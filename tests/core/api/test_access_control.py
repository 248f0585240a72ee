"""Authorisation on the paths without a handler, and the log of refusals."""

import json
from typing import Any

import pytest
from api_cluster import CREATE_ACLS, DELETE_ACLS, METADATA
from dispatch_cluster import DispatchCluster, Line
from test_dispatch import DESCRIBE_LOSSES, DESCRIBE_STATE, FETCH, PRODUCE
from test_guards import ADMIN, AUTHORIZER

from tidelog.core.api.access_control import (
    LINES_MAX,
    PRINCIPALS_MAX,
    WINDOW_MS,
    RefusalLog,
    super_users,
)
from tidelog.core.authorization.acl import Operation, PatternType, Permission, ResourceType
from tidelog.core.errors import ErrorCode
from tidelog.core.principal import USER, Principal
from tidelog.core.record.encoder import Producer, encode_batch, encode_value
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import TRANSACTIONAL
from tidelog.core.types import TopicPartition
from tidelog.core.wire.codec import encode_request

ALICE, BOB = Principal(USER, "alice"), Principal(USER, "bob")
TOPICS = ("first", "second", "third")
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def acl(operation: Operation, topic: str, who: str = "User:alice") -> dict[str, Any]:
    return {
        "resource_type": ResourceType.TOPIC,
        "resource_name": topic,
        "resource_pattern_type": PatternType.LITERAL,
        "principal": who,
        "host": "*",
        "operation": operation,
        "permission_type": Permission.ALLOW,
    }


@pytest.fixture
def cluster() -> DispatchCluster:
    cluster = DispatchCluster(brokers=(1,), texts=AUTHORIZER, principal=ADMIN)
    cluster.start_all()
    for topic in TOPICS:
        cluster.create(topic)
    allow(cluster, acl(Operation.ALL, "first"), acl(Operation.ALL, "third"))
    return cluster


def allow(cluster: DispatchCluster, *acls: dict[str, Any]) -> None:
    results = cluster.request(1, CREATE_ACLS, {"creations": list(acls)})["results"]
    assert {each["error_code"] for each in results} == {ErrorCode.NONE}


def revoke(cluster: DispatchCluster, topic: str) -> None:
    one = {
        "resource_type_filter": ResourceType.TOPIC,
        "resource_name_filter": topic,
        "pattern_type_filter": PatternType.ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": Operation.ANY,
        "permission_type": Permission.ANY,
    }
    [result] = cluster.request(1, DELETE_ACLS, {"filters": [one]})["filter_results"]
    assert result["matching_acls"]


def line_of(principal: Principal) -> Line:
    line = Line()
    line.session.principal = principal
    return line


def topic_id(cluster: DispatchCluster, topic: str) -> bytes:
    return cluster.nodes[1].image.topics[topic].topic_id


def produce(
    cluster: DispatchCluster,
    acks: int = -1,
    topics: tuple[str, ...] = TOPICS,
    records: bytes | None = None,
    name: str | None = None,
) -> dict[str, Any]:
    data = [{"index": 0, "records": records or bytes(encode_value(b"x"))}]
    return {
        "transactional_id": name,
        "acks": acks,
        "timeout_ms": 1000,
        "topic_data": [
            {"name": topic, "topic_id": topic_id(cluster, topic), "partition_data": data}
            for topic in topics
        ],
    }


def written(cluster: DispatchCluster) -> list[int]:
    replicas = cluster.nodes[1].replicas
    return [replicas[TopicPartition(topic, 0)].log.log_end_offset for topic in TOPICS]


def errors(answer: dict[str, Any]) -> list[int]:
    return [
        int(partition["error_code"])
        for topic in answer["responses"]
        for partition in topic["partition_responses"]
    ]


# -- Produce -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 9, 13])
def test_allowed_topics_of_a_produce_are_written(cluster: DispatchCluster, version: int) -> None:
    dispatch = cluster.dispatch(1)

    answer = cluster.exchange(dispatch, PRODUCE, version, produce(cluster), line_of(ALICE))

    assert errors(answer) == [ErrorCode.NONE, REFUSED, ErrorCode.NONE]
    assert written(cluster) == [1, 0, 1]


def test_a_produce_without_any_allowed_topic_is_refused(cluster: DispatchCluster) -> None:
    answer = cluster.exchange(cluster.dispatch(1), PRODUCE, 9, produce(cluster), line_of(BOB))

    assert errors(answer) == [REFUSED] * 3
    assert written(cluster) == [0, 0, 0]


def test_a_refused_produce_without_acks_closes_the_connection(cluster: DispatchCluster) -> None:
    line, frame = line_of(ALICE), encode_request(PRODUCE, 9, 5, "c", produce(cluster, acks=0))

    cluster.send(cluster.dispatch(1), line, frame[4:])
    cluster.run(10)

    assert line.closed is not None
    assert written(cluster) == [1, 0, 1]


@pytest.mark.parametrize("name", [None, "t"])
def test_a_transactional_batch_needs_the_transactional_id(
    cluster: DispatchCluster, name: str | None
) -> None:
    batch = encode_batch(
        [Record(None, b"v", 1)], attributes=TRANSACTIONAL, producer=Producer(1, 0, 0)
    )
    request = produce(cluster, topics=("first",), records=bytes(batch), name=name)

    answer = cluster.exchange(cluster.dispatch(1), PRODUCE, 9, request, line_of(ALICE))

    assert errors(answer) == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]


def test_an_unknown_topic_id_is_not_a_question_of_rights(cluster: DispatchCluster) -> None:
    request = produce(cluster, topics=("first",))
    request["topic_data"][0]["topic_id"] = b"\x77" * 16

    answer = cluster.exchange(cluster.dispatch(1), PRODUCE, 13, request, line_of(BOB))

    assert errors(answer) == [ErrorCode.UNKNOWN_TOPIC_ID]


# -- Fetch -------------------------------------------------------------------------------------


def fetch(
    cluster: DispatchCluster, topics: tuple[str, ...], session: int = 0, epoch: int = 0
) -> dict[str, Any]:
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1_000_000,
    }
    return {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 1_000_000,
        "session_id": session,
        "session_epoch": epoch,
        "topics": [
            {"topic": topic, "topic_id": topic_id(cluster, topic), "partitions": [partition]}
            for topic in topics
        ],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


def fetched(
    cluster: DispatchCluster, dispatch: Any, request: dict[str, Any], who: Principal
) -> tuple[int, dict[str, int]]:
    """Return the session and the error of each topic in the response."""
    answer = cluster.exchange(dispatch, FETCH, 12, request, line_of(who))
    assert answer["error_code"] == ErrorCode.NONE
    found = {
        topic["topic"]: int(topic["partitions"][0]["error_code"]) for topic in answer["responses"]
    }
    return answer["session_id"], found


def test_a_fetch_reads_the_allowed_topics(cluster: DispatchCluster) -> None:
    request = fetch(cluster, TOPICS)

    _, found = fetched(cluster, cluster.dispatch(1), request, ALICE)

    assert found == {"first": ErrorCode.NONE, "second": REFUSED, "third": ErrorCode.NONE}


def test_a_session_notices_that_a_right_was_revoked(cluster: DispatchCluster) -> None:
    """Also for a partition that rests, which fetches skip."""
    dispatch = cluster.dispatch(1)
    session, _ = fetched(cluster, dispatch, fetch(cluster, ("first", "third")), ALICE)
    for epoch in (1, 2):
        fetched(cluster, dispatch, fetch(cluster, (), session, epoch), ALICE)

    revoke(cluster, "first")

    _, changed = fetched(cluster, dispatch, fetch(cluster, (), session, 3), ALICE)
    assert changed == {"first": REFUSED}


def test_a_session_of_another_principal_is_unknown(cluster: DispatchCluster) -> None:
    dispatch = cluster.dispatch(1)
    session, _ = fetched(cluster, dispatch, fetch(cluster, ("first", "third")), ALICE)
    fetched(cluster, dispatch, fetch(cluster, (), session, 1), ALICE)

    stolen = cluster.exchange(dispatch, FETCH, 12, fetch(cluster, (), session, 2), line_of(BOB))

    assert stolen["error_code"] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert stolen["responses"] == []
    assert fetched(cluster, dispatch, fetch(cluster, (), session, 2), ALICE) == (session, {})


def test_a_fetch_closes_no_session_of_another_principal(cluster: DispatchCluster) -> None:
    dispatch = cluster.dispatch(1)
    session, _ = fetched(cluster, dispatch, fetch(cluster, ("first",)), ALICE)

    fetched(cluster, dispatch, fetch(cluster, ("first",), session, -1), BOB)

    assert fetched(cluster, dispatch, fetch(cluster, (), session, 1), ALICE) == (session, {})


# -- descriptions and cached responses ---------------------------------------------------------


@pytest.mark.parametrize("key", [DESCRIBE_STATE, DESCRIBE_LOSSES])
def test_the_state_of_a_broker_needs_describe_on_the_cluster(
    cluster: DispatchCluster, key: int
) -> None:
    dispatch = cluster.dispatch(1)
    refused = cluster.exchange(dispatch, key, 0, {"document": b"{}"}, line_of(ALICE))["document"]
    shown = cluster.exchange(dispatch, key, 0, {"document": b"{}"}, line_of(ADMIN))["document"]

    assert list(json.loads(bytes(refused))) == ["error"]
    assert "error" not in json.loads(bytes(shown))


def test_a_cached_response_is_for_one_principal(cluster: DispatchCluster) -> None:
    allow(cluster, acl(Operation.DESCRIBE, "many", "User:bob"))
    cluster.create("many", 100)
    dispatch, everything = cluster.dispatch(1), {"topics": None}

    def seen(who: Principal) -> set[str]:
        answer = cluster.exchange(dispatch, METADATA, 12, everything, line_of(who))
        return {topic["name"] for topic in answer["topics"]}

    for _ in range(2):
        assert seen(ADMIN) == {*TOPICS, "many"}
        assert seen(BOB) == {"many"}
        assert seen(ALICE) == {"first", "third"}
    revoke(cluster, "many")
    assert seen(BOB) == set()


# -- the log of refusals -----------------------------------------------------------------------


class Lines:
    def __init__(self) -> None:
        self.now_ms = 0
        self.noted: list[tuple[Any, ...]] = []
        self.log = RefusalLog(lambda *fields: self.noted.append(fields), lambda: self.now_ms)

    def refuse(self, who: Principal = ALICE, name: str = "orders") -> None:
        self.log(who, "10.0.0.1", "Produce", Operation.WRITE, ResourceType.TOPIC, name)


def test_a_refusal_names_who_wanted_what() -> None:
    lines = Lines()
    lines.refuse()

    what = ("User:alice", "10.0.0.1", "Produce", "WRITE", "TOPIC", "orders", 0)
    assert lines.noted == [("operation_refused", *what)]


def test_refusals_of_one_principal_are_bounded_and_counted() -> None:
    lines = Lines()
    for _ in range(LINES_MAX + 7):
        lines.refuse()
    lines.refuse(BOB)
    assert [fields[1] for fields in lines.noted].count("User:alice") == LINES_MAX
    assert lines.noted[-1][1] == "User:bob"

    lines.now_ms = WINDOW_MS
    lines.refuse()
    assert lines.noted[-1][-1] == 7


def test_many_principals_share_a_bound() -> None:
    lines = Lines()
    for number in range(PRINCIPALS_MAX * 2):
        lines.refuse(Principal(USER, f"u{number}"))

    assert len(lines.noted) == PRINCIPALS_MAX + LINES_MAX


def test_long_names_are_cut() -> None:
    lines = Lines()
    lines.refuse(Principal(USER, "u" * 5000), "t" * 5000)

    assert all(len(str(field)) < 300 for field in lines.noted[0])


def test_refused_requests_are_in_the_journal_and_filtered_names_are_not(
    cluster: DispatchCluster,
) -> None:
    journal = cluster.nodes[1].journal
    journal.take()
    dispatch = cluster.dispatch(1)

    cluster.exchange(dispatch, METADATA, 12, {"topics": None}, line_of(BOB))
    assert journal.take() == ([], {})

    cluster.exchange(dispatch, PRODUCE, 9, produce(cluster), line_of(BOB))
    notes, _ = journal.take()
    assert [note.event for note in notes] == ["operation_refused"] * 3
    assert (
        notes[0].text().startswith("User:bob at 127.0.0.1 may not WRITE TOPIC first, which Produce")
    )


def test_super_users_are_separated_by_semicolons() -> None:
    assert super_users(" User:a; User:CN=b,OU=c ;;") == ["User:a", "User:CN=b,OU=c"]
