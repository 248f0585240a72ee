"""Helpers for tests of transactions on real brokers, with librdkafka as the client."""

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from real_cluster import PATIENCE_S, consumer, ends, eventually

from tidelog.core.api_table import FIND_COORDINATOR
from tidelog.shell.client.administration.transactions import Transaction, describe_transaction
from tidelog.shell.client.client_errors import ClientError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.connection import KafkaConnection
from tidelog.shell.supervisor.cluster import LocalCluster

COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"
SHOW_END = {"enable.partition.eof": True}
_TRANSACTION = 1
_ONE_KEY = 3
RECOVERY_S = 240.0
TIMEOUT_MS = 600_000
"""No transaction of a test takes so long, also on a busy machine."""
FEW_INTERNAL_PARTITIONS = {
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}


class TransactionalProducer:
    """A transactional producer of librdkafka. Its records are on the brokers after `send`."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = TIMEOUT_MS) -> None:
        conf = {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "log_level": 0,
            "linger.ms": 1,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 200,
        }
        self.client = Producer(conf)
        self.client.init_transactions(RECOVERY_S)

    def begin(self) -> None:
        self.client.begin_transaction()

    def send(self, topic: str, *values: bytes, partition: int = 0) -> None:
        for value in values:
            self.client.produce(topic, value, partition=partition)
        assert self.client.flush(RECOVERY_S) == 0

    def commit(self) -> None:
        self.client.commit_transaction(RECOVERY_S)

    def abort(self) -> None:
        self.client.abort_transaction(RECOVERY_S)

    def write(self, topic: str, *values: bytes, partition: int = 0) -> None:
        """Commit a transaction with these records."""
        self.begin()
        self.send(topic, *values, partition=partition)
        self.commit()


def values_of(
    bootstrap: str, topic: str, partition: int = 0, isolation: str = COMMITTED
) -> list[bytes]:
    """Return the values up to the last stable offset, or with UNCOMMITTED all values."""
    with consumer(bootstrap, {"isolation.level": isolation, **SHOW_END}) as client:
        return [message.value() or b"" for message in all_records(client, topic, partition)]


def all_records(client: Consumer, topic: str, partition: int = 0) -> list[Message]:
    """Return all records of a partition, with a client that has SHOW_END.

    A leader that was just elected may send less at first: its high watermark may be an older one.
    So the end is that of ListOffsets, which such a leader does not answer yet.
    """
    found: list[Message] = []
    low, end = known_ends(client, topic, partition)
    client.assign([TopicPartition(topic, partition, low)])

    def at_end() -> bool:
        for message in client.consume(500, 0.2):
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                return (message.offset() or 0) >= end
        return False

    eventually(at_end, f"the end of {topic}-{partition}", RECOVERY_S)
    return found


def known_ends(client: Consumer, topic: str, partition: int = 0) -> tuple[int, int]:
    """Return the low and high watermark. librdkafka may not know the partition for a moment after
    brokers have restarted."""
    return eventually(
        lambda: ends(client, topic, partition), f"the end of {topic}-{partition}", RECOVERY_S
    )


def stable_end(bootstrap: str, topic: str, partition: int = 0) -> int:
    """Return the last stable offset."""
    with consumer(bootstrap, {"isolation.level": COMMITTED}) as client:
        return known_ends(client, topic, partition)[1]


def is_stable(bootstrap: str, topic: str, partition: int = 0) -> bool:
    """Return whether the partition has no open transaction."""
    with consumer(bootstrap, {"isolation.level": UNCOMMITTED}) as client:
        _, end = known_ends(client, topic, partition)
    return stable_end(bootstrap, topic, partition) == end


def await_stable(bootstrap: str, topic: str, partition: int = 0) -> None:
    eventually(
        lambda: is_stable(bootstrap, topic, partition),
        f"no open transaction on {topic}-{partition}",
        RECOVERY_S,
    )


def coordinator_of(cluster: LocalCluster, transactional_id: str) -> int:
    """Return the coordinator of a transactional id, as a running broker reports it."""

    def look() -> int | None:
        for broker in cluster.ids:
            if not cluster.is_running(broker):
                continue
            try:
                with KafkaConnection("127.0.0.1", cluster.port(broker), timeout_s=5) as connection:
                    request = {"key": transactional_id, "key_type": _TRANSACTION}
                    found = connection.call(FIND_COORDINATOR, request, max_version=_ONE_KEY)
            except ClientError:
                continue  # it is paused, or was just killed
            if found["error_code"] == 0 and cluster.is_running(found["node_id"]):
                return int(found["node_id"])
        return None

    return eventually(look, f"the coordinator of {transactional_id}", RECOVERY_S)


def described(bootstrap: str, transactional_id: str) -> Transaction:
    with Cluster(bootstrap, timeout_s=PATIENCE_S) as client:
        return describe_transaction(client, transactional_id)


def await_state(bootstrap: str, transactional_id: str, state: str) -> Transaction:
    """Wait until the coordinator reports this state, such as CompleteCommit."""

    def look() -> Transaction | None:
        found = described(bootstrap, transactional_id)
        return found if found.state == state else None

    return eventually(look, f"{transactional_id} is in state {state}", RECOVERY_S)
