"""Requests of clients with quotas: throttle times in responses, and muted connections."""

from typing import Any

import pytest
from api_cluster import (
    ALTER_CLIENT_QUOTAS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CLUSTER,
    METADATA,
    creatable,
)
from dispatch_cluster import DispatchCluster, Line
from scraped import Scraped

from tidelog.core.api.dispatch import REPLICAS_PER_TURN, Dispatch
from tidelog.core.api.sasl_exchange import SaslRules
from tidelog.core.api.sasl_gate import SaslGate
from tidelog.core.api_table import API_VERSIONS, DESCRIBE_LOSSES, DESCRIBE_STATE
from tidelog.core.errors import ErrorCode
from tidelog.core.node.measuring.request_times import RequestTimes, TurnTimes
from tidelog.core.principal import BROKER, Principal
from tidelog.core.quotas.client_quotas import CLIENT_ID_BYTES_MAX
from tidelog.core.quotas.rate import THROTTLE_MS_MAX
from tidelog.core.record.encoder import encode_value
from tidelog.core.wire.codec import encode_request

PRODUCE, FETCH = 0, 1
EXCEEDED = ErrorCode.THROTTLING_QUOTA_EXCEEDED
MS = 1_000_000
"""Nanoseconds."""


class Timed(DispatchCluster):
    """A cluster whose requests take a given time."""

    request_ns = 0
    clock_ns = 0

    def dispatch(self, broker: int) -> Dispatch:
        dispatch = super().dispatch(broker)
        dispatch._times = RequestTimes(self._read_clock, TurnTimes(self._read_clock))
        return dispatch

    def _read_clock(self) -> int:
        self.clock_ns += self.request_ns
        return self.clock_ns


@pytest.fixture
def cluster() -> Timed:
    cluster = Timed(brokers=(1,))
    cluster.start_all()
    cluster.create("orders", -1, -1, assignments={0: [1]})
    return cluster


def limit(cluster: Timed, entity: dict[str, str | None], **quotas: float | None) -> None:
    entry = {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
        "ops": [
            {"key": key, "value": value or 0.0, "remove": value is None}
            for key, value in quotas.items()
        ],
    }
    request = {"entries": [entry], "validate_only": False}
    [result] = cluster.request(1, ALTER_CLIENT_QUOTAS, request)["entries"]
    assert result["error_code"] == ErrorCode.NONE, result
    cluster.settle()


def topic_id(cluster: Timed) -> bytes:
    return cluster.nodes[1].image.topics["orders"].topic_id


def produce(cluster: Timed, size: int, acks: int = -1) -> dict[str, Any]:
    partition = {"index": 0, "records": bytes(encode_value(bytes(size)))}
    topic = {"topic_id": topic_id(cluster), "name": "orders", "partition_data": [partition]}
    return {"transactional_id": None, "acks": acks, "timeout_ms": 1000, "topic_data": [topic]}


def fetch(
    cluster: Timed, offset: int = 0, session_id: int = 0, session_epoch: int = -1
) -> dict[str, Any]:
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1_000_000,
    }
    topic = {"topic": "orders", "topic_id": topic_id(cluster), "partitions": [partition]}
    return {
        "replica_id": -1,
        "replica_state": {"replica_id": -1, "replica_epoch": -1},
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 1_000_000,
        "session_id": session_id,
        "session_epoch": session_epoch,
        "topics": [topic],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


# -- bytes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 8, 9, 13])
def test_a_producer_beyond_its_rate_gets_its_records_appended_and_must_wait(
    cluster: Timed, version: int
) -> None:
    limit(cluster, {"client-id": "test"}, producer_byte_rate=1000)
    dispatch, line = cluster.dispatch(1), Line()

    within = cluster.exchange(dispatch, PRODUCE, version, produce(cluster, 5000), line)
    beyond = cluster.exchange(dispatch, PRODUCE, version, produce(cluster, 15_000), line)

    assert within["throttle_time_ms"] == 0
    assert 10_000 < beyond["throttle_time_ms"] < 12_000
    assert line.muted_ms == [beyond["throttle_time_ms"]]
    [partition] = beyond["responses"][0]["partition_responses"]
    assert (partition["error_code"], partition["base_offset"]) == (ErrorCode.NONE, 1)


def test_a_producer_without_acks_is_muted(cluster: Timed) -> None:
    limit(cluster, {"client-id": "test"}, producer_byte_rate=1000, request_percentage=0.001)
    cluster.request_ns = 10 * MS
    dispatch, line = cluster.dispatch(1), Line()
    request = encode_request(PRODUCE, 13, 5, "test", produce(cluster, 500, acks=0))[4:]
    cluster.send(dispatch, line, request)
    assert line.muted_ms == []  # the time of such a request delays nobody

    large = encode_request(PRODUCE, 13, 5, "test", produce(cluster, 20_000, acks=0))[4:]
    cluster.send(dispatch, line, large)

    assert len(line.muted_ms) == 1
    assert line.answers == []


def test_the_time_of_a_produce_without_acks_does_not_delay_later_requests(cluster: Timed) -> None:
    limit(cluster, {"client-id": "test"}, request_percentage=1)
    dispatch, line = cluster.dispatch(1), Line()
    cluster.request_ns = 5000 * MS
    request = encode_request(PRODUCE, 13, 5, "test", produce(cluster, 500, acks=0))[4:]
    cluster.send(dispatch, line, request)

    cluster.request_ns = 0
    body = {"include_cluster_authorized_operations": False}
    answer = cluster.exchange(dispatch, DESCRIBE_CLUSTER, 0, body, line)

    assert answer["throttle_time_ms"] == 0
    assert line.muted_ms == []


def test_other_clients_are_not_throttled(cluster: Timed) -> None:
    limit(cluster, {"client-id": "other"}, producer_byte_rate=1)
    limit(cluster, {"user": "alice"}, producer_byte_rate=1)
    line = Line()

    answer = cluster.exchange(cluster.dispatch(1), PRODUCE, 13, produce(cluster, 5000), line)

    assert answer["throttle_time_ms"] == 0
    assert line.muted_ms == []


def test_the_quota_of_a_user_applies_to_the_principal_of_the_connection(cluster: Timed) -> None:
    limit(cluster, {"user": "alice"}, producer_byte_rate=1)
    line = Line()
    line.session.principal = Principal("User", "alice")

    answer = cluster.exchange(cluster.dispatch(1), PRODUCE, 13, produce(cluster, 5000), line)

    assert line.muted_ms == [answer["throttle_time_ms"]]


def test_a_broker_as_a_client_is_never_throttled(cluster: Timed) -> None:
    limit(cluster, {"client-id": None}, producer_byte_rate=1)
    limit(cluster, {"user": None}, producer_byte_rate=1)
    line = Line()
    line.session.principal = BROKER

    cluster.exchange(cluster.dispatch(1), PRODUCE, 13, produce(cluster, 5000), line)

    assert line.muted_ms == []


def test_a_removed_quota_throttles_no_more(cluster: Timed) -> None:
    limit(cluster, {"client-id": "test"}, producer_byte_rate=1)
    limit(cluster, {"client-id": "test"}, producer_byte_rate=None)
    line = Line()

    cluster.exchange(cluster.dispatch(1), PRODUCE, 13, produce(cluster, 5000), line)

    assert line.muted_ms == []


def test_a_throttled_fetch_is_empty_and_the_next_one_gets_the_records(cluster: Timed) -> None:
    dispatch, line = cluster.dispatch(1), Line()
    cluster.exchange(dispatch, PRODUCE, 13, produce(cluster, 6000))
    limit(cluster, {"client-id": "test"}, consumer_byte_rate=1000)

    first = cluster.exchange(dispatch, FETCH, 18, fetch(cluster), line)
    throttled = cluster.exchange(dispatch, FETCH, 18, fetch(cluster), line)

    assert first["responses"][0]["partitions"][0]["records"]
    assert first["throttle_time_ms"] == 0
    assert throttled["responses"] == []
    assert line.muted_ms == [throttled["throttle_time_ms"]]

    # What is not sent does not count.
    again = cluster.exchange(dispatch, FETCH, 18, fetch(cluster), line)
    assert again["throttle_time_ms"] <= throttled["throttle_time_ms"]

    cluster.run(11_000)
    assert cluster.exchange(dispatch, FETCH, 18, fetch(cluster), line)["responses"]


def test_a_session_is_kept_while_its_client_is_throttled(cluster: Timed) -> None:
    dispatch, line = cluster.dispatch(1), Line()
    cluster.exchange(dispatch, PRODUCE, 13, produce(cluster, 6000))
    limit(cluster, {"client-id": "test"}, consumer_byte_rate=1000)
    opened = cluster.exchange(dispatch, FETCH, 18, fetch(cluster, session_epoch=0), line)
    session = opened["session_id"]
    assert session
    [kept] = cluster.nodes[1]._fetches._sessions._sessions.values()
    assert kept.request.allowance is None, "a session keeps no connection"

    again = fetch(cluster, session_id=session, session_epoch=1)
    throttled = cluster.exchange(dispatch, FETCH, 18, again, line)
    assert (throttled["session_id"], throttled["responses"]) == (session, [])

    cluster.run(11_000)
    resumed = {**fetch(cluster, session_id=session, session_epoch=2), "topics": []}
    answer = cluster.exchange(dispatch, FETCH, 18, resumed, line)
    assert answer["error_code"] == ErrorCode.NONE
    assert answer["responses"][0]["partitions"][0]["records"]


def test_a_session_that_begins_with_a_throttled_fetch_is_not_opened(cluster: Timed) -> None:
    dispatch = cluster.dispatch(1)
    cluster.exchange(dispatch, PRODUCE, 13, produce(cluster, 6000))
    limit(cluster, {"client-id": "test"}, consumer_byte_rate=1)

    answer = cluster.exchange(dispatch, FETCH, 18, fetch(cluster, session_epoch=0))

    assert answer["throttle_time_ms"] > 0
    assert (answer["session_id"], answer["responses"]) == (0, [])
    assert len(cluster.nodes[1]._fetches._sessions) == 0


def test_the_smallest_quotas_throttle_and_stop_nothing(cluster: Timed) -> None:
    smallest = 5e-324
    limit(cluster, {"client-id": "test"}, request_percentage=smallest)
    limit(cluster, {"client-id": "test"}, controller_mutation_rate=smallest)
    cluster.request_ns = MS
    line = Line()

    answer = create(cluster, 7, "a", "b", line=line)

    assert errors(answer) == [ErrorCode.NONE, EXCEEDED]
    assert line.muted_ms == [THROTTLE_MS_MAX]


def test_partitions_of_a_session_that_are_not_sent_do_not_count(cluster: Timed) -> None:
    dispatch, line = cluster.dispatch(1), Line()
    cluster.create("many", -1, -1, assignments={index: [1] for index in range(100)})
    request = fetch(cluster, session_epoch=0)
    [topic] = request["topics"]
    [partition] = topic["partitions"]
    partitions = [{**partition, "partition": index} for index in range(100)]
    many = cluster.nodes[1].image.topics["many"].topic_id
    request["topics"] = [{"topic": "many", "topic_id": many, "partitions": partitions}]
    opened = cluster.exchange(dispatch, FETCH, 18, request, line)
    limit(cluster, {"client-id": "test"}, consumer_byte_rate=50)

    for epoch in range(1, 11):
        again = {**request, "session_id": opened["session_id"], "session_epoch": epoch}
        answer = cluster.exchange(dispatch, FETCH, 18, again, line)
        assert answer["responses"] == []

    assert line.muted_ms == []


# -- the time of requests --------------------------------------------------------------------


def test_any_request_that_takes_too_long_delays_the_next_ones_for_a_window(cluster: Timed) -> None:
    limit(cluster, {"client-id": "test"}, request_percentage=1)
    dispatch, line = cluster.dispatch(1), Line()
    request = {"include_cluster_authorized_operations": False}

    assert cluster.exchange(dispatch, DESCRIBE_CLUSTER, 0, request)["throttle_time_ms"] == 0
    cluster.request_ns = 5000 * MS
    answer = cluster.exchange(dispatch, DESCRIBE_CLUSTER, 0, request, line)

    assert answer["throttle_time_ms"] == 1000
    assert line.muted_ms == [1000]


def test_a_cached_response_has_the_throttle_time_of_its_own_request(cluster: Timed) -> None:
    for number in range(60):
        cluster.create(f"topic-{number}", -1, -1, assignments={0: [1]})
    limit(cluster, {"client-id": "test"}, request_percentage=1)
    dispatch = cluster.dispatch(1)
    request = {
        "topics": None,
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
    }

    def throttle_ms(request_ns: int) -> int:
        cluster.request_ns = request_ns
        answer = cluster.exchange(dispatch, METADATA, 12, request)
        assert len(answer["topics"]) == 61
        return int(answer["throttle_time_ms"])

    assert throttle_ms(0) == 0
    assert throttle_ms(0) == 0
    assert throttle_ms(3000 * MS) > 0
    cluster.run(60_000)
    assert throttle_ms(0) == 0


@pytest.mark.parametrize("api_key", [DESCRIBE_STATE, DESCRIBE_LOSSES])
def test_requests_of_tidelogs_own_apis_count_too(cluster: Timed, api_key: int) -> None:
    limit(cluster, {"client-id": "test"}, request_percentage=1)
    dispatch, line = cluster.dispatch(1), Line()
    cluster.exchange(dispatch, api_key, 0, {"document": b""}, line)
    assert line.muted_ms == []

    cluster.request_ns = 5000 * MS
    cluster.exchange(dispatch, api_key, 0, {"document": b""}, line)

    assert line.muted_ms == [1000]


def test_each_part_of_a_paused_description_counts(cluster: Timed) -> None:
    replicas = 3 * REPLICAS_PER_TURN
    cluster.create("many", -1, -1, assignments={index: [1] for index in range(replicas)})
    limit(cluster, {"client-id": "test"}, request_percentage=100)
    cluster.request_ns = 1000 * MS

    cluster.exchange(cluster.dispatch(1), DESCRIBE_STATE, 0, {"document": b""})

    client = {"user": "", "client_id": "test"}
    # Each part takes a second of the ten that are measured.
    assert Scraped(cluster, 1)("kafka_server_request_request_time", **client) >= 30


def test_requests_before_the_authentication_count_towards_nobody(cluster: Timed) -> None:
    limit(cluster, {"client-id": "test"}, request_percentage=0.001)
    limit(cluster, {"user": "ANONYMOUS"}, request_percentage=0.001)
    cluster.request_ns = 5000 * MS
    dispatch, line = cluster.dispatch(1), Line()
    gate = SaslGate(
        SaslRules((), lambda _mechanism: None, {}, frame_max=1024),
        dispatch.frame,
        lambda _line: None,
        lambda _line, _reason: None,
        lambda: cluster.now_ms,
        lambda ms, act: cluster.at(cluster.now_ms + ms, act),
    )

    answer = cluster.exchange(gate, API_VERSIONS, 0, {}, line)
    assert answer["error_code"] == ErrorCode.NONE
    assert line.muted_ms == []

    line.session.sasl.principal = line.session.principal = Principal("User", "alice")
    cluster.exchange(dispatch, API_VERSIONS, 0, {}, line)
    assert line.muted_ms == [1000]


# -- changes of topics -----------------------------------------------------------------------


def create(cluster: Timed, version: int, *names: str, line: Line | None = None) -> dict[str, Any]:
    request = {
        "topics": [creatable(name, 10, 1) for name in names],
        "timeout_ms": 1000,
        "validate_only": False,
    }
    answer: dict[str, Any] = cluster.exchange(
        cluster.dispatch(1), CREATE_TOPICS, version, request, line
    )
    cluster.settle()
    return answer


def errors(answer: dict[str, Any], key: str = "topics") -> list[ErrorCode]:
    return [ErrorCode(each["error_code"]) for each in answer[key]]


def test_changes_of_partitions_beyond_the_rate_are_refused(cluster: Timed) -> None:
    limit(cluster, {"client-id": "test"}, controller_mutation_rate=1)
    line = Line()

    # 11 tokens: the second topic leaves a debt of 9.
    answer = create(cluster, 7, "a", "b", "c", line=line)

    assert errors(answer) == [ErrorCode.NONE, ErrorCode.NONE, EXCEEDED]
    assert answer["throttle_time_ms"] == 9000
    assert line.muted_ms == [9000]
    assert set(cluster.nodes[1].image.topics) >= {"a", "b"}
    assert "c" not in cluster.nodes[1].image.topics

    cluster.run(9_000)
    assert errors(create(cluster, 7, "c")) == [ErrorCode.NONE]


def test_topics_that_exist_do_not_count(cluster: Timed) -> None:
    create(cluster, 7, "a")
    limit(cluster, {"client-id": "test"}, controller_mutation_rate=1)

    for _ in range(5):
        assert errors(create(cluster, 7, "a")) == [ErrorCode.TOPIC_ALREADY_EXISTS]

    assert errors(create(cluster, 7, "b")) == [ErrorCode.NONE]


def test_old_clients_wait_instead_because_they_do_not_know_the_error(cluster: Timed) -> None:
    limit(cluster, {"client-id": "test"}, controller_mutation_rate=1)
    line = Line()

    answer = create(cluster, 5, "a", "b", "c", line=line)

    assert errors(answer) == [ErrorCode.NONE] * 3
    assert line.muted_ms == [19_000]
    assert answer["throttle_time_ms"] == 19_000


def test_deleting_topics_and_adding_partitions_counts_too(cluster: Timed) -> None:
    create(cluster, 7, "a", "b", "c")
    limit(cluster, {"client-id": "test"}, controller_mutation_rate=1)
    dispatch = cluster.dispatch(1)
    more = {
        "topics": [{"name": "a", "count": 30, "assignments": None}],
        "timeout_ms": 1000,
        "validate_only": False,
    }
    added = cluster.exchange(dispatch, CREATE_PARTITIONS, 3, more)
    assert errors(added, "results") == [ErrorCode.NONE]

    topics = [{"name": name, "topic_id": bytes(16)} for name in ("b", "c")]
    deletion = {"topics": topics, "timeout_ms": 1000}
    refused = cluster.exchange(dispatch, DELETE_TOPICS, 6, deletion)
    assert errors(refused, "responses") == [EXCEEDED] * 2
    assert 8900 < refused["throttle_time_ms"] <= 9000

    cluster.run(9_000)
    deleted = cluster.exchange(dispatch, DELETE_TOPICS, 6, deletion)
    assert errors(deleted, "responses") == [ErrorCode.NONE, EXCEEDED]


@pytest.mark.parametrize("version", [4, 12])
def test_metadata_creates_no_topics_beyond_the_rate(cluster: Timed, version: int) -> None:
    cluster.texts.update({"num.partitions": "10", "default.replication.factor": "1"})
    limit(cluster, {"client-id": "test"}, controller_mutation_rate=1)
    dispatch, line = cluster.dispatch(1), Line()

    def ask(*names: str) -> dict[str, ErrorCode]:
        request = {
            "topics": [{"topic_id": bytes(16), "name": name} for name in names],
            "allow_auto_topic_creation": True,
            "include_topic_authorized_operations": False,
        }
        answer = cluster.exchange(dispatch, METADATA, version, request, line)
        cluster.settle()
        return {topic["name"]: ErrorCode(topic["error_code"]) for topic in answer["topics"]}

    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    created = ask("a", "b", "c")
    assert missing not in (created["a"], created["b"])
    assert created["c"] is missing
    assert set(cluster.nodes[1].image.topics) == {"orders", "a", "b"}
    assert ask("c", "d", "a") == {"c": missing, "d": missing, "a": ErrorCode.NONE}

    cluster.run(9_000)
    ask("c", "d")
    assert set(cluster.nodes[1].image.topics) == {"orders", "a", "b", "c"}


# -- metrics ---------------------------------------------------------------------------------


def test_metrics_show_what_clients_use_and_how_long_they_wait(cluster: Timed) -> None:
    limit(cluster, {"client-id": "test"}, producer_byte_rate=1000, controller_mutation_rate=1)
    limit(cluster, {"user": "ANONYMOUS"}, consumer_byte_rate=10_000)
    dispatch = cluster.dispatch(1)
    answer = cluster.exchange(dispatch, PRODUCE, 13, produce(cluster, 15_000))
    cluster.exchange(dispatch, FETCH, 18, fetch(cluster))
    create(cluster, 7, "a", "b", "c")

    scraped = Scraped(cluster, 1)

    client = {"user": "", "client_id": "test"}
    assert 1000 < scraped("kafka_server_produce_byte_rate", **client) < 2000
    assert scraped("kafka_server_produce_throttle_time_sum", **client) == answer["throttle_time_ms"]
    assert scraped("kafka_server_produce_throttle_time_count", **client) == 1
    user = {"user": "ANONYMOUS", "client_id": ""}
    assert scraped("kafka_server_fetch_byte_rate", **user) > 1000
    assert scraped("kafka_server_fetch_throttle_time_count", **user) == 0
    assert -9 <= scraped("kafka_server_controllermutation_tokens", **client) < -8
    rate = scraped("kafka_server_controllermutation_mutation_rate", **client)
    assert rate == pytest.approx(2, rel=0.1)
    assert scraped("kafka_server_controllermutation_throttle_time_sum", **client) == 9000
    assert not scraped.has("kafka_server_request_request_time")


def test_a_long_client_id_is_limited_by_its_quota_and_shown_short(cluster: Timed) -> None:
    long = "ä" * 16_000
    limit(cluster, {"client-id": long}, producer_byte_rate=1000)
    dispatch, line = cluster.dispatch(1), Line()
    for client_id in (long, long[:-1] + "b"):
        request = encode_request(PRODUCE, 13, 5, client_id, produce(cluster, 15_000))[4:]
        cluster.send(dispatch, line, request)

    assert len(line.muted_ms) == 1
    [(user, shown)] = cluster.nodes[1].client_quotas.produce._usages
    assert user == ""
    assert shown.startswith("ä" * 100)
    assert len(shown.encode()) <= CLIENT_ID_BYTES_MAX
    client = {"user": "", "client_id": shown}
    assert Scraped(cluster, 1)("kafka_server_produce_throttle_time_count", **client) == 1
