"""Helpers for tests on real brokers, with librdkafka as the client.

Every wait is bounded. Client log output is off: tests kill brokers on purpose, and each client
would log it.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tidelog.core.api_table import METADATA
from tidelog.shell.client import admin
from tidelog.shell.client.administration.configs import (
    SET,
    ConfigChange,
    Resource,
    alter_configs,
)
from tidelog.shell.client.client_errors import BrokerError, ClientError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.cluster_metadata import read_metadata
from tidelog.shell.client.connection import KafkaConnection
from tidelog.shell.client.security import ClientSecurity
from tidelog.shell.supervisor.cluster import LocalCluster
from tidelog.shell.supervisor.metadata_probe import MetadataView, ProbeFailed

T = TypeVar("T")
PATIENCE_S = 120.0
CALL_S = 20.0
"""The bound of one call that is repeated until PATIENCE_S is over."""
LAST_WORDS = 3000
LOOK_S = 0.02
DESCRIBE_CLUSTER = 60
QUICK_SESSIONS = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}
"""The session of a broker that hangs ends after two seconds instead of nine."""
LONG_SESSIONS = {"broker.session.timeout.ms": "120000", "replica.lag.time.max.ms": "120000"}
"""No session ends and no ISR shrinks while the machine gives a broker no CPU for some seconds.

The end of a broker's process is still noticed at once.
"""
SOON_S = 60.0
"""Enough on a busy machine, and half of what a wait for the end of a long session takes."""
PASSING_ERRORS = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._UNKNOWN_PARTITION,
)
"""Errors while a leader changes, or while a broker does not know a new topic yet."""


def _quiet(bootstrap: str, conf: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "log_level": 0,
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 200,
        **(conf or {}),
    }


def eventually(look: Callable[[], T | None], what: str, timeout_s: float = PATIENCE_S) -> T:
    """Call `look` until its result is true, and return that result.

    Client errors, OSError and a missing key (a broker does not know a topic yet) count as "not
    yet": the call is repeated.
    """
    until = time.monotonic() + timeout_s
    last: object = None
    while time.monotonic() < until:
        try:
            last = found = look()
            if found:
                return found
        except (ClientError, ProbeFailed, KafkaException, OSError, LookupError) as error:
            last = error
        time.sleep(LOOK_S)
    raise AssertionError(f"not within {timeout_s:g} s: {what}; last seen: {last!r}")


# -- records ---------------------------------------------------------------------------------


class Sent:
    """A librdkafka producer and the outcome of each record that it sent."""

    def __init__(self, bootstrap: str, topic: str, conf: Mapping[str, Any] | None = None) -> None:
        self.topic = topic
        self.acknowledged: dict[bytes, int] = {}
        """Value -> offset."""
        self.failed: dict[bytes, KafkaError] = {}
        self.client = Producer(_quiet(bootstrap, {"linger.ms": 1, **(conf or {})}))

    def send(self, value: bytes, partition: int = 0, **more: Any) -> None:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failed[value] = error
            else:
                offset = message.offset()
                self.acknowledged[value] = -1 if offset is None else offset

        while True:
            try:
                self.client.produce(
                    self.topic, value, partition=partition, on_delivery=delivered, **more
                )
            except BufferError:
                self.client.poll(0.1)
                continue
            self.client.poll(0)
            return

    def settle(self, timeout_s: float = PATIENCE_S) -> "Sent":
        left = self.client.flush(timeout_s)
        assert left == 0, f"{left} records have no answer after {timeout_s:g} s"
        return self


def send_all(
    bootstrap: str,
    topic: str,
    values: Iterable[bytes],
    partition: int = 0,
    conf: Mapping[str, Any] | None = None,
    **more: Any,
) -> list[int]:
    """Write each record once and return the offsets under which they were acknowledged.

    With acks=all the producer is idempotent: its retries during an election add no duplicates.
    That costs half a second, which librdkafka waits before it gets its producer id.
    """
    conf = conf or {}
    idempotent = {"enable.idempotence": conf.get("acks") == "all"}
    sent = Sent(bootstrap, topic, {**idempotent, **conf})
    values = list(values)
    for value in values:
        sent.send(value, partition, **more)
    sent.settle()
    assert not sent.failed, next(iter(sent.failed.items()))
    return [sent.acknowledged[value] for value in values]


@contextmanager
def consumer(bootstrap: str, conf: Mapping[str, Any] | None = None) -> Iterator[Consumer]:
    """A consumer that does not join a group; the caller assigns its partitions."""
    wanted = {
        "group.id": "none",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "fetch.wait.max.ms": 100,
        "check.crcs": True,
    }
    client = Consumer(_quiet(bootstrap, {**wanted, **(conf or {})}))
    try:
        yield client
    finally:
        client.close()


def read(
    bootstrap: str,
    topic: str,
    count: int,
    partition: int = 0,
    offset: int = 0,
    conf: Mapping[str, Any] | None = None,
) -> list[Message]:
    """Return the next `count` records, starting at `offset`."""
    with consumer(bootstrap, conf) as client:
        client.assign([TopicPartition(topic, partition, offset)])
        return take(client, count)


def take(client: Consumer, count: int, timeout_s: float = PATIENCE_S) -> list[Message]:
    found: list[Message] = []
    until = time.monotonic() + timeout_s
    while len(found) < count:
        assert time.monotonic() < until, f"{len(found)} of {count} records came"
        for message in client.consume(count - len(found), 0.2):
            error = message.error()
            assert error is None or error.retriable(), error
            if error is None:
                found.append(message)
    return found


def read_values(
    bootstrap: str, topic: str, partition: int = 0, conf: Mapping[str, Any] | None = None
) -> list[bytes]:
    """Return all values from the low watermark to the current high watermark."""
    with consumer(bootstrap, conf) as client:
        low, high = ends(client, topic, partition)
        client.assign([TopicPartition(topic, partition, low)])
        return [message.value() or b"" for message in take(client, high - low)]


def ends(client: Consumer, topic: str, partition: int = 0) -> tuple[int, int]:
    """Return the low and high watermark; retry because librdkafka does not retry this call.

    A newly elected leader returns OFFSET_NOT_AVAILABLE until its high watermark is in its own
    leader epoch.
    """
    give_up = time.monotonic() + PATIENCE_S
    while True:
        try:
            found = client.get_watermark_offsets(TopicPartition(topic, partition), timeout=CALL_S)
        except KafkaException as error:
            passing = error.args[0].code() in PASSING_ERRORS
            if not passing or time.monotonic() > give_up:
                raise
            time.sleep(0.05)
        else:
            assert found is not None
            return found


# -- groups ----------------------------------------------------------------------------------


def committed_offsets(client: Consumer, wanted: list[TopicPartition]) -> list[TopicPartition]:
    """Return the committed offsets of the client's group; retry because librdkafka doesn't.

    As in Kafka, a broker that is not yet or no longer the coordinator, or still reads the log,
    returns NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS. The Java client retries after these.
    """
    return eventually(
        lambda: _without_errors(client.committed(wanted, timeout=CALL_S)), "committed offsets"
    )


def commit_offsets(client: Consumer, offsets: list[TopicPartition]) -> None:
    """Commit offsets, and retry as `committed_offsets` does."""
    eventually(
        lambda: _without_errors(client.commit(offsets=offsets, asynchronous=False)), "a commit"
    )


def _without_errors(partitions: list[TopicPartition] | None) -> list[TopicPartition]:
    """Return partitions of a response. Raises KafkaException if one has an error."""
    found = partitions or []
    for one in found:
        if one.error is not None:
            raise KafkaException(one.error)
    return found


# -- topics ----------------------------------------------------------------------------------


def admin_client(bootstrap: str) -> AdminClient:
    return AdminClient(_quiet(bootstrap, None))


def make_topic(
    bootstrap: str,
    name: str,
    partitions: int = 1,
    replicas: int = -1,
    configs: Mapping[str, str] | None = None,
    security: ClientSecurity | None = None,
) -> str:
    """Create a topic; return when all brokers know it and all replicas are in the ISR."""
    with Cluster(bootstrap, timeout_s=PATIENCE_S, security=security) as client:

        def create() -> bool:
            admin.create_topic(client, name, partitions, replicas, configs, exist_ok=True)
            return True

        # Retry: a broker whose session ended because it got no CPU has to register again first.
        eventually(create, f"topic {name} is created")
        eventually(lambda: _is_everywhere(client, name), f"topic {name} on all brokers")
    return name


def set_topic_config(cluster: LocalCluster, topic: str, key: str, value: str) -> None:
    """Set a topic's setting; ask again while the controller changes."""

    def altered() -> bool:
        with Cluster(cluster.bootstrap, timeout_s=CALL_S) as client:
            changes = [ConfigChange(SET, key, value)]
            outcome = alter_configs(client, Resource(admin.TOPIC_RESOURCE, topic), changes)
            if outcome.error:
                raise BrokerError(f"setting {key} of {topic}", outcome.error, outcome.message)
            return True

    eventually(altered, f"{key}={value} of {topic}")


def _is_everywhere(client: Cluster, name: str) -> bool:
    """Return whether all live brokers know the topic's leaders, and host their replicas of it."""
    request = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
    for broker in client.refresh([name]).brokers:
        known = read_metadata(client.broker(broker).call(METADATA, request)).topics[name].partitions
        state = admin.describe_state(client, broker, name)
        assert state is not None
        roles = {each["partition"]: each["role"] for each in state["partitions"]}
        for number, each in known.items():
            if each.leader < 0 or len(each.isr) < len(each.replicas):
                return False
            if broker in each.replicas and roles.get(number) is None:
                return False
            if (broker == each.leader) != (roles.get(number) == "leader"):
                return False
        if not known:
            return False
    return True


def leader_of(cluster: LocalCluster, topic: str, partition: int = 0) -> int:
    """Return the leader that the running brokers report; wait until there is one."""
    return eventually(
        lambda: _leader(cluster, topic, partition), f"a leader of {topic}-{partition}"
    )


def _leader(cluster: LocalCluster, topic: str, partition: int) -> int | None:
    with Cluster(cluster.bootstrap, timeout_s=5) as client:
        found = client.refresh([topic]).topics[topic].partitions[partition].leader
        return found if found > 0 else None


def isr_of(cluster: LocalCluster, topic: str, partition: int = 0) -> list[int]:
    with Cluster(cluster.bootstrap, timeout_s=5) as client:
        return sorted(client.refresh([topic]).topics[topic].partitions[partition].isr)


def await_isr(
    cluster: LocalCluster,
    topic: str,
    wanted: Iterable[int],
    partition: int = 0,
    timeout_s: float = PATIENCE_S,
) -> None:
    want = sorted(wanted)
    eventually(
        lambda: isr_of(cluster, topic, partition) == want,
        f"the ISR of {topic}-{partition} is {want}",
        timeout_s,
    )


def await_members(cluster: LocalCluster) -> None:
    """Wait until DescribeCluster lists all brokers on every broker; Metadata is less strict."""

    def all_counted() -> bool:
        for broker in cluster.ids:
            with KafkaConnection("localhost", cluster.port(broker), timeout_s=5) as connection:
                told = connection.call(DESCRIBE_CLUSTER, {})
            if sorted(one["broker_id"] for one in told["brokers"]) != cluster.ids:
                return False
        return True

    try:
        eventually(all_counted, "all brokers are members")
    except AssertionError:
        assert_all_run(cluster)
        raise


def metadata_of(
    cluster: LocalCluster, broker: int, topics: list[str] | None = None
) -> MetadataView:
    """Return the broker's Metadata response; ask again if the broker does not answer in time."""
    return eventually(lambda: cluster.metadata(broker, topics), f"metadata of broker {broker}")


def controller_of(cluster: LocalCluster) -> int:
    """Return the controller, once all running brokers report the same one."""

    def agreed() -> int | None:
        running = [broker for broker in cluster.ids if cluster.is_running(broker)]
        (found, *others) = {cluster.metadata(broker, []).controller_id for broker in running}
        return found if not others and found in running else None

    return eventually(agreed, "all brokers report the same controller")


def state_of(cluster: LocalCluster, broker: int, topic: str, partition: int = 0) -> dict[str, Any]:
    """Return the state of one replica as its broker describes it; wait until it does."""
    return eventually(
        lambda: _state(cluster, broker, topic, partition),
        f"the state of {topic}-{partition} on broker {broker}",
    )


def _state(cluster: LocalCluster, broker: int, topic: str, partition: int) -> dict[str, Any]:
    with Cluster(cluster.bootstrap, timeout_s=5) as client:
        client.refresh([topic])
        state = admin.describe_state(client, broker, topic, partition)
        assert state is not None
        return dict(state["partitions"][0])


# -- files -----------------------------------------------------------------------------------


def partition_dir(cluster: LocalCluster, broker: int, topic: str, partition: int = 0) -> Path:
    return Path(cluster.log_dir(broker), f"{topic}-{partition}")


def segment_bytes(cluster: LocalCluster, broker: int, topic: str, partition: int = 0) -> bytes:
    """Return the bytes of all segments of a log, in order."""
    files = sorted(partition_dir(cluster, broker, topic, partition).glob("*.log"))
    return b"".join(file.read_bytes() for file in files)


def said(cluster: LocalCluster, broker: int) -> str:
    """Return the content of the broker's text log."""
    return Path(cluster.log_path(broker)).read_text()


def assert_all_run(cluster: LocalCluster) -> None:
    """Assert that all brokers run; else fail with the log tail of each broker that ended.

    The logs are deleted together with the cluster.
    """
    ended = [broker for broker in cluster.ids if not cluster.is_running(broker)]
    assert not ended, "\n".join(said(cluster, broker)[-LAST_WORDS:] for broker in ended)


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024
