"""The jobs of driver_lines.py with kafka-python."""

from collections.abc import Callable
from typing import Any

import kafka  # type: ignore[import-untyped]
from driver_lines import (
    BURST,
    CLIENT_LIMIT,
    CODECS,
    LARGE,
    PATIENCE_S,
    RETENTION,
    TOO_LARGE,
    follow,
    large_value,
    repeated,
    run,
    samples,
    say,
    say_record,
    transform_all,
    until,
)
from kafka import admin as kafka_admin
from kafka import errors as kafka_errors
from kafka.errors import (  # type: ignore[import-untyped]
    KafkaConnectionError,
    KafkaError,
    ProducerFencedError,
)

PATIENCE_MS = int(PATIENCE_S * 1000)


def common(conf: dict[str, Any]) -> dict[str, Any]:
    bootstrap = conf["bootstrap"].split(",")
    return {"bootstrap_servers": bootstrap, "bootstrap_timeout_ms": PATIENCE_MS}


def reader(conf: dict[str, Any], **more: Any) -> Any:
    return kafka.KafkaConsumer(
        **common(conf),
        enable_auto_commit=False,
        fetch_max_wait_ms=100,
        **more,
    )


def writer(conf: dict[str, Any], **more: Any) -> Any:
    return kafka.KafkaProducer(**common(conf), max_block_ms=PATIENCE_MS, **more)


def produce(conf: dict[str, Any]) -> None:
    for codec in CODECS:
        producer = writer(
            conf,
            acks="all",
            enable_idempotence=True,
            compression_type=None if codec == "none" else codec,
            linger_ms=5,
        )
        for one in samples(conf, codec):
            sent = producer.send(
                conf["topic"],
                value=one.value,
                key=one.key,
                headers=one.headers,
                partition=one.partition,
                timestamp_ms=one.timestamp,
            )
            number = one.number
            sent.add_callback(
                lambda told, number=number: say(acked=[number, told.partition, told.offset])
            )
            sent.add_errback(lambda error, number=number: say(failed=[number, repr(error)]))
        producer.flush(PATIENCE_S)
        producer.close(PATIENCE_S)


def read(conf: dict[str, Any]) -> None:
    consumer = reader(conf, isolation_level=conf["isolation"])
    at = [kafka.TopicPartition(conf["topic"], number) for number in range(conf["partitions"])]
    consumer.assign(at)
    if conf["timestamp"] is None:
        consumer.seek_to_beginning()
    else:
        found = consumer.offsets_for_times(dict.fromkeys(at, conf["timestamp"]))
        for one, place in found.items():
            if place is None:
                consumer.seek_to_end(one)
            else:
                consumer.seek(one, place.offset)
    seen: list[Any] = []
    while len(seen) < conf["count"]:
        for records in consumer.poll(500).values():
            seen += records
    for record in seen:
        say_record(
            record.partition,
            record.offset,
            record.key,
            record.value,
            record.headers,
            record.timestamp,
        )
    consumer.close()


def offsets(conf: dict[str, Any]) -> None:
    consumer = reader(conf)
    asked = [kafka.TopicPartition(conf["topic"], number) for number in range(conf["partitions"])]
    at = []
    for timestamp in conf["timestamps"]:
        found = consumer.offsets_for_times(dict.fromkeys(asked, timestamp))
        at.append({one.partition: place and place.offset for one, place in found.items()})
    say(
        earliest={one.partition: o for one, o in consumer.beginning_offsets(asked).items()},
        latest={one.partition: o for one, o in consumer.end_offsets(asked).items()},
        at=at,
    )
    consumer.close()


def administrator(conf: dict[str, Any]) -> Any:
    return kafka_admin.KafkaAdminClient(**common(conf), request_timeout_ms=PATIENCE_MS)


def admin(conf: dict[str, Any]) -> None:
    client = administrator(conf)
    topic, zero = conf["topic"], kafka.TopicPartition(conf["topic"], 0)

    def whole() -> Any:
        found = client.describe_cluster()
        has_all = len(found["brokers"]) == len(conf["bootstrap"].split(","))
        return found if has_all and found["controller_id"] >= 0 else None

    cluster = until(whole, "all brokers and a controller")
    made = kafka_admin.NewTopic(topic, 2, 3, topic_configs={"retention.ms": "86400000"})
    repeated(lambda: client.create_topics([made]))
    try:
        repeated(lambda: client.create_topics([made]))
        exists = ""
    except KafkaError as error:
        exists = repr(error)
    client.wait_for_topics([topic], PATIENCE_MS)
    repeated(lambda: client.create_partitions({topic: 3}))
    kind = kafka_admin.ConfigResourceType.TOPIC

    def altered() -> Any:
        """Repeat the change too: the client hides errors, such as that of a missing topic."""
        changed = kafka_admin.ConfigResource(kind, topic, {"retention.ms": RETENTION})
        repeated(lambda: client.alter_configs([changed]))
        asked = kafka_admin.ConfigResource(kind, topic)
        found = repeated(lambda: client.describe_configs([asked]))["topic"][topic]
        value = found.get("retention.ms", {}).get("value")
        return value if value == RETENTION else None

    retention = until(altered, "the new retention")

    def three() -> Any:
        [found] = client.describe_topics([topic])
        return found["partitions"] if len(found["partitions"]) == 3 else None

    partitions = until(three, "three partitions")
    producer = writer(conf)
    for number in range(10):
        producer.send(topic, b"%d" % number, partition=0)
    producer.close(PATIENCE_S)
    low = repeated(lambda: client.delete_records({zero: 5}))[zero]["low_watermark"]
    seen = groups(conf, zero)
    repeated(lambda: client.delete_topics([topic]))
    until(lambda: topic not in client.list_topics(), "no topic")
    say(
        brokers=sorted(broker["broker_id"] for broker in cluster["brokers"]),
        controller=cluster["controller_id"],
        exists=exists,
        partitions=len(partitions),
        replicas=len(partitions[0]["replica_nodes"]),
        retention=retention,
        low=low,
        **seen,
        gone=True,
    )
    client.close()


def groups(conf: dict[str, Any], zero: Any) -> dict[str, Any]:
    group = conf["group"]

    def asked(call: Callable[[Any], Any]) -> Any:
        """Make a call, if necessary again by another client: a client keeps its coordinators."""

        def attempt() -> Any:
            client = administrator(conf)
            try:
                return call(client)
            finally:
                client.close()

        return repeated(attempt)

    consumer = reader(conf, group_id=group)
    consumer.assign([zero])
    consumer.commit({zero: kafka.OffsetAndMetadata(7, "", -1)})
    consumer.close()

    def listed() -> bool:
        return group in {one["group_id"] for one in asked(lambda client: client.list_groups())}

    def committed() -> int:
        found = asked(lambda client: client.list_group_offsets(group))
        return int(found[group][zero].offset)

    def described() -> Any:
        found = asked(lambda client: client.describe_groups([group]))[group]
        return None if found["error"] else found["group_state"]

    def alter(client: Any) -> None:
        wanted = {zero: kafka.OffsetAndMetadata(6, "", -1)}
        error = client.alter_group_offsets(group, wanted)[zero]
        if error.errno:
            raise error

    def delete(client: Any) -> None:
        error = client.delete_groups([group])[group]
        if error != "OK":
            raise getattr(kafka_errors, error)

    was_listed, before = until(listed, "the group"), committed()
    state = until(described, "the group's state")
    asked(alter)
    after = committed()
    asked(delete)
    until(lambda: not listed(), "no group")
    return {
        "listed": was_listed,
        "state": state,
        "committed": before,
        "altered": after,
        "listed_after": False,
    }


def large(conf: dict[str, Any]) -> None:
    producer = writer(conf, max_request_size=CLIENT_LIMIT, acks="all")
    acked = producer.send(conf["topic"], large_value(LARGE), partition=0).get(PATIENCE_S)
    try:
        producer.send(conf["topic"], large_value(TOO_LARGE), partition=0).get(PATIENCE_S)
        error = ""
    except KafkaError as refused:
        error = repr(refused)
    say(acked=acked.offset, error=error)
    producer.close(PATIENCE_S)


def transactional(conf: dict[str, Any]) -> Any:
    return writer(
        conf,
        transactional_id=conf["id"],
        transaction_timeout_ms=conf["timeout_ms"],
        acks="all",
        linger_ms=5,
    )


def transact(conf: dict[str, Any]) -> None:
    producer = transactional(conf)

    def send(partition: int, value: str) -> None:
        producer.send(conf["topic"], value.encode(), partition=partition).get(PATIENCE_S)

    actions = {
        "init": producer.init_transactions,
        "begin": producer.begin_transaction,
        "send": send,
        "commit": producer.commit_transaction,
        "abort": producer.abort_transaction,
    }
    follow(conf, actions, KafkaError)
    producer.close(0)


class Copier:
    """A Transformer."""

    failures = KafkaError

    def __init__(self, conf: dict[str, Any]) -> None:
        self._source, self._topic = conf["source"], conf["topic"]
        self._producer = transactional(conf)
        self._producer.init_transactions()
        self._consumer = reader(
            conf,
            group_id=conf["group"],
            session_timeout_ms=conf["session_ms"],
            heartbeat_interval_ms=conf["session_ms"] // 6,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        self._consumer.subscribe([self._source])

    def poll(self) -> list[tuple[int, int, bytes]]:
        try:
            found = self._consumer.poll(200, max_records=BURST)
        except KafkaConnectionError:  # raised for a broker that was just killed
            return []
        return [(at.partition, at.offset, at.value) for batch in found.values() for at in batch]

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, partition: int, value: bytes) -> None:
        self._producer.send(self._topic, value, partition=partition)

    def send_offsets(self, offsets: dict[int, int]) -> None:
        at = {
            kafka.TopicPartition(self._source, number): kafka.OffsetAndMetadata(offset, "", -1)
            for number, offset in offsets.items()
        }
        self._producer.send_offsets_to_transaction(at, self._consumer.group_metadata())

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def rewind(self) -> None:
        for at in self._consumer.assignment():
            self._consumer.seek(at, self._consumer.committed(at) or 0)

    def must_abort(self, error: KafkaError) -> bool:
        return not isinstance(error, ProducerFencedError)


def transform(conf: dict[str, Any]) -> None:
    transform_all(conf, Copier(conf))


if __name__ == "__main__":
    run(produce, read, offsets, admin, large, transact, transform)
