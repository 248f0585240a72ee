"""The jobs of driver_lines.py with confluent-kafka, that is, librdkafka."""

from collections.abc import Callable
from functools import partial
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
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


def common(conf: dict[str, Any], **more: Any) -> dict[str, Any]:
    quick = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 200, "log_level": 0}
    wanted = {name.replace("_", "."): value for name, value in more.items()}
    return {"bootstrap.servers": conf["bootstrap"], **quick, **wanted}


def reader(conf: dict[str, Any], **more: Any) -> Consumer:
    off = {"enable_auto_commit": False, "group_id": "nobody", "fetch_wait_max_ms": 100}
    return Consumer(common(conf, **{**off, **more}))


def checked(found: list[TopicPartition] | None) -> list[TopicPartition]:
    """Raise KafkaException if one partition has an error."""
    for one in found or []:
        if one.error is not None:
            raise KafkaException(one.error)
    return found or []


def at_times(consumer: Consumer, asked: list[TopicPartition]) -> list[TopicPartition]:
    return repeated(lambda: checked(consumer.offsets_for_times(asked, timeout=PATIENCE_S)))


def told(number: int, error: KafkaError | None, message: Message) -> None:
    if error is not None:
        say(failed=[number, str(error)])
    else:
        say(acked=[number, message.partition(), message.offset()])


def produce(conf: dict[str, Any]) -> None:
    for codec in CODECS:
        more = {"enable_idempotence": True, "acks": "all", "compression_type": codec}
        producer = Producer(common(conf, linger_ms=5, **more))
        for one in samples(conf, codec):
            producer.produce(
                conf["topic"],
                one.value,
                one.key,
                one.partition,
                on_delivery=partial(told, one.number),
                timestamp=one.timestamp,
                headers=list(one.headers),
            )
            producer.poll(0)
        if producer.flush(PATIENCE_S):
            raise SystemExit("some records have no answer")


def read(conf: dict[str, Any]) -> None:
    consumer = reader(conf, isolation_level=conf["isolation"])
    at = [TopicPartition(conf["topic"], partition, 0) for partition in range(conf["partitions"])]
    if conf["timestamp"] is not None:
        for one in at:
            one.offset = conf["timestamp"]
        at = at_times(consumer, at)
    consumer.assign(at)
    seen: list[Message] = []
    while len(seen) < conf["count"]:
        seen += [m for m in consumer.consume(500, 0.5) if m.error() is None]
    for message in seen:
        _kind, timestamp = message.timestamp()
        say_record(
            message.partition(),  # type: ignore[arg-type]
            message.offset(),  # type: ignore[arg-type]
            message.key(),  # type: ignore[arg-type]
            message.value(),  # type: ignore[arg-type]
            message.headers(),
            timestamp,
        )
    consumer.close()


def offsets(conf: dict[str, Any]) -> None:
    consumer = reader(conf)

    def ends_of(partition: int) -> tuple[int, int]:
        at = TopicPartition(conf["topic"], partition)
        found = repeated(lambda: consumer.get_watermark_offsets(at, timeout=PATIENCE_S))
        assert found is not None
        return found

    ends = {partition: ends_of(partition) for partition in range(conf["partitions"])}
    at = []
    for timestamp in conf["timestamps"]:
        asked = [TopicPartition(conf["topic"], partition, timestamp) for partition in ends]
        found = at_times(consumer, asked)
        at.append({one.partition: one.offset if one.offset >= 0 else None for one in found})
    say(
        earliest={partition: low for partition, (low, _) in ends.items()},
        latest={partition: high for partition, (_, high) in ends.items()},
        at=at,
    )
    consumer.close()


def admin(conf: dict[str, Any]) -> None:
    client = AdminClient(common(conf))
    topic, group = conf["topic"], conf["group"]

    def result(send: Callable[..., Any], what: Any) -> Any:
        def attempt() -> Any:
            [future] = send([what]).values()
            return future.result(PATIENCE_S)

        return repeated(attempt)

    def whole() -> Any:
        found = client.describe_cluster().result(PATIENCE_S)
        addresses = conf["bootstrap"].split(",")
        return found if len(found.nodes) == len(addresses) and found.controller else None

    cluster = until(whole, "all brokers and a controller")
    made = NewTopic(topic, 2, 3, config={"retention.ms": "86400000"})
    result(client.create_topics, made)
    try:
        result(client.create_topics, made)
        exists = ""
    except KafkaException as error:
        exists = str(error)
    until(lambda: topic in client.list_topics(timeout=PATIENCE_S).topics, "the topic")
    result(client.create_partitions, NewPartitions(topic, 3))
    entry = ConfigEntry("retention.ms", RETENTION, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    result(client.incremental_alter_configs, resource)

    def three() -> Any:
        found = result(lambda names: client.describe_topics(TopicCollection(names)), topic)
        return found if len(found.partitions) == 3 else None

    def altered() -> Any:
        found = result(client.describe_configs, ConfigResource(ResourceType.TOPIC, topic))
        value = found["retention.ms"].value
        return value if value == RETENTION else None

    described = until(three, "three partitions")
    retention = until(altered, "the new retention")
    producer = Producer(common(conf))
    for number in range(10):
        producer.produce(topic, b"%d" % number, partition=0)
    producer.flush(PATIENCE_S)
    low = result(client.delete_records, TopicPartition(topic, 0, 5)).low_watermark
    say(
        brokers=sorted(node.id for node in cluster.nodes),
        controller=cluster.controller.id,
        exists=exists,
        partitions=len(described.partitions),
        replicas=len(described.partitions[0].replicas),
        retention=retention,
        low=low,
        **groups(conf, client, group, topic),
        gone=delete(client, topic),
    )


def groups(conf: dict[str, Any], client: Any, group: str, topic: str) -> dict[str, Any]:
    consumer = reader(conf, group_id=group)
    offsets = [TopicPartition(topic, 0, 7)]
    repeated(lambda: checked(consumer.commit(offsets=offsets, asynchronous=False)))
    consumer.close()

    def listed() -> bool:
        found = client.list_consumer_groups().result(PATIENCE_S)
        return group in {one.group_id for one in found.valid}

    def result(send: Callable[..., Any], what: Any = group) -> Any:
        return repeated(lambda: send([what])[group].result(PATIENCE_S))

    def committed() -> int:
        asked = ConsumerGroupTopicPartitions(group)
        return int(result(client.list_consumer_group_offsets, asked).topic_partitions[0].offset)

    was_listed = until(listed, "the group")
    described = result(client.describe_consumer_groups)
    before = committed()
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 6)])
    result(client.alter_consumer_group_offsets, wanted)
    after = committed()
    result(client.delete_consumer_groups)
    until(lambda: not listed(), "no group")
    return {
        "listed": was_listed,
        "state": described.state.name,
        "committed": before,
        "altered": after,
        "listed_after": False,
    }


def delete(client: Any, topic: str) -> bool:
    repeated(lambda: client.delete_topics([topic])[topic].result(PATIENCE_S))
    until(lambda: topic not in client.list_topics(timeout=PATIENCE_S).topics, "no topic")
    return True


def large(conf: dict[str, Any]) -> None:
    outcome: list[tuple[KafkaError | None, Message]] = []
    producer = Producer(common(conf, message_max_bytes=CLIENT_LIMIT))
    for size in (LARGE, TOO_LARGE):
        producer.produce(
            conf["topic"],
            large_value(size),
            partition=0,
            on_delivery=lambda error, message: outcome.append((error, message)),
        )
        producer.flush(PATIENCE_S)
    say(acked=outcome[0][1].offset(), error=str(outcome[1][0]))


def transactional(conf: dict[str, Any]) -> Producer:
    more = {"transactional_id": conf["id"], "transaction_timeout_ms": conf["timeout_ms"]}
    return Producer(common(conf, linger_ms=5, **more))


def transact(conf: dict[str, Any]) -> None:
    producer = transactional(conf)

    def send(partition: int, value: str) -> None:
        producer.produce(conf["topic"], value.encode(), partition=partition)
        producer.flush(PATIENCE_S)

    actions: dict[str, Callable[..., Any]] = {
        "init": lambda: producer.init_transactions(PATIENCE_S),
        "begin": producer.begin_transaction,
        "send": send,
        "commit": lambda: producer.commit_transaction(PATIENCE_S),
        "abort": lambda: producer.abort_transaction(PATIENCE_S),
    }
    follow(conf, actions, KafkaException)


class Copier:
    """A Transformer."""

    failures = KafkaException

    def __init__(self, conf: dict[str, Any]) -> None:
        self._source, self._topic = conf["source"], conf["topic"]
        self._producer = transactional(conf)
        self._producer.init_transactions(PATIENCE_S)
        joined = {"group_id": conf["group"], "session_timeout_ms": conf["session_ms"]}
        more = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
        self._consumer = reader(conf, **joined, **more)
        self._consumer.subscribe([self._source])

    def poll(self) -> list[tuple[int, int, bytes]]:
        found = self._consumer.consume(BURST, 0.2)
        return [
            (message.partition(), message.offset(), message.value())  # type: ignore[misc]
            for message in found
            if message.error() is None
        ]

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, partition: int, value: bytes) -> None:
        self._producer.produce(self._topic, value, partition=partition)

    def send_offsets(self, offsets: dict[int, int]) -> None:
        at = [TopicPartition(self._source, number, offset) for number, offset in offsets.items()]
        member = self._consumer.consumer_group_metadata()
        self._producer.send_offsets_to_transaction(at, member, PATIENCE_S)

    def commit(self) -> None:
        self._producer.commit_transaction(PATIENCE_S)

    def abort(self) -> None:
        self._producer.abort_transaction(PATIENCE_S)

    def rewind(self) -> None:
        assigned = self._consumer.assignment()
        if not assigned:
            return  # a rebalance took the partitions away
        for at in repeated(lambda: checked(self._consumer.committed(assigned, PATIENCE_S))):
            at.offset = max(at.offset, 0)
            self._consumer.seek(at)

    def must_abort(self, error: KafkaException) -> bool:
        return bool(error.args[0].txn_requires_abort())


def transform(conf: dict[str, Any]) -> None:
    transform_all(conf, Copier(conf))


if __name__ == "__main__":
    run(produce, read, offsets, admin, large, transact, transform)
