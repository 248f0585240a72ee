"""Script that calls the methods of kafka-python's admin client; runs in its own process.

`python kafka_python_admin.py PART BOOTSTRAP TOPIC LOG_DIR...` exits with 0 if every result is as
expected. The log directories are those of brokers 1, 2 and so on.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import kafka  # type: ignore[import-untyped]
from kafka import admin
from kafka import errors as say

PATIENCE_S = 120.0
AT_ONCE_S = 60.0
"""Below the time-out of requests."""


@contextmanager
def client(bootstrap: str) -> Iterator[Any]:
    connected = kafka.KafkaAdminClient(
        bootstrap_servers=bootstrap.split(","), request_timeout_ms=int(PATIENCE_S * 1000)
    )
    yield connected
    connected.close()


def await_that(look: Callable[[], Any]) -> None:
    """Wait until `look` returns true. Any broker may respond; one may know of a change later."""
    until = time.monotonic() + PATIENCE_S
    while not holds(look):
        assert time.monotonic() < until, "it never came"
        time.sleep(0.05)


def holds(look: Callable[[], Any]) -> bool:
    try:
        return bool(look())
    except say.KafkaError as error:
        if not error.retriable:
            raise
        return False


def fails_at_once(call: Callable[[], Any], kind: type[Exception], hint: str) -> None:
    began, said = time.monotonic(), ""
    try:
        call()
    except kind as error:
        said = str(error)
    assert hint.lower() in said.lower(), f"{hint!r} is not in {said!r}"
    assert time.monotonic() - began < AT_ONCE_S


def create(python: Any, name: str, partitions: int = 1) -> None:
    python.create_topics([admin.NewTopic(name, partitions, 3)])
    python.wait_for_topics([name])


def topics(bootstrap: str, name: str, *log_dirs: str) -> None:
    with client(bootstrap) as python:
        create(python, name, 3)
        await_that(lambda: name in python.list_topics())
        await_that(lambda: len(python.describe_topics([name])[0]["partitions"]) == 3)
        described = {topic["name"]: topic for topic in python.describe_topics([name, "nowhere"])}
        assert described["nowhere"]["error_code"] == say.UnknownTopicOrPartitionError.errno
        python.create_partitions({name: 40})
        await_that(lambda: len(python.describe_topics([name])[0]["partitions"]) == 40)
        wanted = [list(range(16)), list(range(16, 32)), list(range(32, 40))]
        await_that(lambda: pages(python, name, 16) == wanted)
        assert python.describe_cluster()["controller_id"] in range(1, len(log_dirs) + 1)
        python.delete_topics([name])
        await_that(lambda: name not in python.list_topics())


def pages(python: Any, name: str, limit: int) -> list[list[int]]:
    """Return the partitions of each DescribeTopicPartitions response."""
    seen: list[list[int]] = []
    cursor = None
    while cursor is not None or not seen:
        page = python.describe_topic_partitions(
            [name], response_partition_limit=limit, cursor=cursor
        )
        [topic] = page["topics"]
        assert all(not p["eligible_leader_replicas"] for p in topic["partitions"]), topic
        seen.append([partition["partition_index"] for partition in topic["partitions"]])
        cursor = page["next_cursor"]
        cursor = cursor and {key: cursor[key] for key in ("topic_name", "partition_index")}
    return seen


def replicas(bootstrap: str, name: str, *log_dirs: str) -> None:
    brokers = list(range(1, len(log_dirs) + 1))
    zero = kafka.TopicPartition(name, 0)
    with client(bootstrap) as python:
        producer = kafka.KafkaProducer(bootstrap_servers=bootstrap.split(","), acks="all")
        for number in range(20):
            producer.send(name, b"%d" % number, partition=0)
        producer.flush(PATIENCE_S)
        producer.close()
        await_that(lambda: python.list_partition_offsets({zero: -1})[zero].offset == 20)
        [state] = python.describe_producers([zero])[zero].active_producers
        assert state.last_sequence == 19, state
        assert python.delete_records({zero: 5})[zero]["low_watermark"] == 5
        check_log_dirs(python.describe_log_dirs(), name, brokers)
        stay = {(name, 0, broker): log_dirs[broker - 1] for broker in brokers}
        assert set(python.alter_replica_log_dirs(stay).values()) == {say.NoError}
        elsewhere = python.alter_replica_log_dirs({(name, 0, 1): "/elsewhere"})
        assert set(elsewhere.values()) == {say.LogDirNotFoundError}
        assert python.alter_partition_reassignments({zero: brokers}) == {zero: None}
        await_that(lambda: not python.list_partition_reassignments())
        elected = python.elect_leaders(0, {name: [0]}, raise_errors=False)
        [result] = elected.replica_election_results[0].partition_result
        assert result.error_code in (0, say.ElectionNotNeededError.errno), elected


def check_log_dirs(logs: list[Any], name: str, brokers: list[int]) -> None:
    assert sorted(found["broker"] for found in logs) == brokers
    sizes = [
        (partition["partition_size"], folder["total_bytes"] >= folder["usable_bytes"] > 0)
        for found in logs
        for folder in found["log_dirs"]
        for topic in folder["topics"]
        if topic["name"] == name
        for partition in topic["partitions"]
    ]
    assert len(sizes) == len(brokers)
    assert all(size > 0 and known for size, known in sizes)


def settings(bootstrap: str, name: str, *_log_dirs: str) -> None:
    topic = admin.ConfigResourceType.TOPIC
    with client(bootstrap) as python:

        def own() -> dict[str, str]:
            found = python.describe_configs([admin.ConfigResource(topic, name)])["topic"][name]
            dynamic = "DYNAMIC_TOPIC_CONFIG"
            return {k: c["value"] for k, c in found.items() if c["config_source"] == dynamic}

        def alter(configs: dict[str, Any], **more: Any) -> str:
            resource = admin.ConfigResource(topic, name, configs=configs)
            return str(python.alter_configs([resource], **more)["topic"][name])

        assert alter({"retention.ms": "5000", "cleanup.policy": ("APPEND", "compact")}) == "OK"
        wanted = {"retention.ms": "5000", "cleanup.policy": "delete,compact"}
        await_that(lambda: own() == wanted)
        assert alter({"retention.ms": "6000"}, incremental=False) == "OK"
        await_that(lambda: own() == {**wanted, "retention.ms": "6000"})
        assert "retention.ms='soon'" in alter({"retention.ms": "soon"})
        python.reset_configs([admin.ConfigResource(topic, name, ["retention.ms"])])
        await_that(lambda: "retention.ms" not in own())
        broker = admin.ConfigResource(admin.ConfigResourceType.BROKER, "1")
        found = python.describe_configs([broker], include_synonyms=True, config_filter="all")
        assert found["broker"]["1"]["node.id"]["value"] == "1"
        resources = python.list_config_resources()
        assert name in resources["topic"]
        assert "1" in resources["broker"]


def what_is_not_there(bootstrap: str, _name: str, *_log_dirs: str) -> None:
    acls = admin.ACLFilter(
        principal=None,
        host=None,
        operation=admin.ACLOperation.ANY,
        permission_type=admin.ACLPermissionType.ANY,
        resource_pattern=admin.ResourcePatternFilter(
            admin.ResourceType.TOPIC, "t", admin.ACLResourcePatternType.ANY
        ),
    )
    acl = admin.ACL(
        principal="User:u",
        host="*",
        operation=admin.ACLOperation.READ,
        permission_type=admin.ACLPermissionType.ALLOW,
        resource_pattern=admin.ResourcePattern(admin.ResourceType.TOPIC, "t"),
    )
    old = say.IncompatibleBrokerVersion
    with client(bootstrap) as python:
        fails_at_once(
            lambda: python.describe_acls(acls), say.SecurityDisabledError, "no access control"
        )
        assert python.create_acls([acl])["failed"] == [say.SecurityDisabledError]
        assert python.delete_acls([acls])[0][2] is say.SecurityDisabledError
        assert "metadata.version" in str(python.describe_features())
        assert not python.describe_user_scram_credentials()
        fails_at_once(python.describe_metadata_quorum, old, "DescribeQuorum")
        assert not any(dict(python.list_transactions()).values())
        await_that(lambda: is_unknown_transactional_id(python, "t"))


def is_unknown_transactional_id(python: Any, name: str) -> bool:
    """False while the coordinator, whose topic this very request creates, is not ready."""
    try:
        python.describe_transactions([name])
    except say.TransactionalIdNotFoundError:
        return True
    except (say.NotCoordinatorError, say.CoordinatorLoadInProgressError):
        return False
    raise AssertionError("a transactional id that no producer used was described")


PARTS = (topics, replicas, settings, what_is_not_there)

if __name__ == "__main__":
    {part.__name__: part for part in PARTS}[sys.argv[1]](*sys.argv[2:])
