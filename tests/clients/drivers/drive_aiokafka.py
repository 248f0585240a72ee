"""The jobs of driver_lines.py with aiokafka."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

import aiokafka  # type: ignore[import-untyped]
from aiokafka import admin as aiokafka_admin
from aiokafka.errors import (  # type: ignore[import-untyped]
    IllegalStateError,
    InvalidPartitionsError,
    KafkaError,
    ProducerFenced,
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
    run,
    samples,
    say,
    say_record,
    transform_all,
)

NONE, TOPIC_ALREADY_EXISTS = 0, 36


def common(conf: dict[str, Any]) -> dict[str, Any]:
    timeout_ms = int(PATIENCE_S * 1000)
    return {"bootstrap_servers": conf["bootstrap"], "request_timeout_ms": timeout_ms}


async def reader(conf: dict[str, Any], **more: Any) -> Any:
    consumer = aiokafka.AIOKafkaConsumer(
        **common(conf),
        enable_auto_commit=False,
        fetch_max_wait_ms=100,
        **more,
    )
    await consumer.start()
    return consumer


async def writer(conf: dict[str, Any], **more: Any) -> Any:
    producer = aiokafka.AIOKafkaProducer(**common(conf), **more)
    await producer.start()
    return producer


async def eventually(look: Callable[[], Awaitable[Any]]) -> Any:
    """Repeat a call until its result is true: the library does not repeat requests of admins, and
    hides most of the errors in their responses."""
    last: Exception | None = None
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    if found := await look():
                        return found
                except KafkaError as error:
                    last = error
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise SystemExit(f"{look.__name__}: not in time; last error: {last!r}") from None


async def tell(number: int, sent: Awaitable[Any]) -> None:
    try:
        told = await sent
        say(acked=[number, told.partition, told.offset])
    except KafkaError as error:
        say(failed=[number, repr(error)])


async def produced(conf: dict[str, Any]) -> None:
    for codec in CODECS:
        producer = await writer(
            conf,
            enable_idempotence=True,
            acks="all",
            compression_type=None if codec == "none" else codec,
            linger_ms=5,
        )
        answers = []
        for one in samples(conf, codec):
            sent = await producer.send(
                conf["topic"],
                one.value,
                one.key,
                partition=one.partition,
                timestamp_ms=one.timestamp,
                headers=one.headers,
            )
            answers.append(asyncio.ensure_future(tell(one.number, sent)))
            await asyncio.sleep(0)
        await asyncio.gather(*answers)
        await producer.stop()


async def have_read(conf: dict[str, Any]) -> None:
    consumer = await reader(conf, isolation_level=conf["isolation"])
    at = [aiokafka.TopicPartition(conf["topic"], number) for number in range(conf["partitions"])]
    consumer.assign(at)
    if conf["timestamp"] is None:
        await consumer.seek_to_beginning()
    else:
        found = await consumer.offsets_for_times(dict.fromkeys(at, conf["timestamp"]))
        for one, place in found.items():
            if place is None:
                await consumer.seek_to_end(one)
            else:
                consumer.seek(one, place.offset)
    seen: list[Any] = []
    while len(seen) < conf["count"]:
        for records in (await consumer.getmany(timeout_ms=500)).values():
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
    await consumer.stop()


async def found_offsets(conf: dict[str, Any]) -> None:
    consumer = await reader(conf)
    parts = range(conf["partitions"])
    asked = [aiokafka.TopicPartition(conf["topic"], number) for number in parts]
    at = []
    for timestamp in conf["timestamps"]:
        found = await consumer.offsets_for_times(dict.fromkeys(asked, timestamp))
        at.append({one.partition: place and place.offset for one, place in found.items()})
    lows = await consumer.beginning_offsets(asked)
    highs = await consumer.end_offsets(asked)
    say(
        earliest={one.partition: offset for one, offset in lows.items()},
        latest={one.partition: offset for one, offset in highs.items()},
        at=at,
    )
    await consumer.stop()


async def administered(conf: dict[str, Any]) -> None:
    client = aiokafka_admin.AIOKafkaAdminClient(**common(conf))
    await client.start()
    topic, zero = conf["topic"], aiokafka.TopicPartition(conf["topic"], 0)
    made = aiokafka_admin.NewTopic(topic, 2, 3, topic_configs={"retention.ms": "86400000"})
    kind = aiokafka_admin.config_resource.ConfigResourceType.TOPIC
    resource = aiokafka_admin.config_resource.ConfigResource

    async def whole() -> Any:
        found = await client.describe_cluster()
        has_all = len(found["brokers"]) == len(conf["bootstrap"].split(","))
        return found if has_all and found["controller_id"] >= 0 else None

    async def created() -> bool:
        [(_, error, *_)] = (await client.create_topics([made])).topic_errors
        return error in (NONE, TOPIC_ALREADY_EXISTS)

    async def created_again() -> str | None:
        [(_, error, *text)] = (await client.create_topics([made])).topic_errors
        return str(text) if error == TOPIC_ALREADY_EXISTS else None

    async def three() -> Any:
        with suppress(InvalidPartitionsError):  # it has three
            await client.create_partitions({topic: aiokafka_admin.NewPartitions(3)})
        [found] = await client.describe_topics([topic])
        return found["partitions"] if len(found["partitions"]) == 3 else None

    async def altered() -> Any:
        await client.alter_configs([resource(kind, topic, {"retention.ms": RETENTION})])
        [answer] = await client.describe_configs([resource(kind, topic)])
        configs = {entry[0]: entry[1] for entry in answer.resources[0][4]}
        return RETENTION if configs.get("retention.ms") == RETENTION else None

    async def deleted() -> Any:
        return (await client.delete_records({zero: aiokafka_admin.RecordsToDelete(5)}))[zero]

    async def unlisted() -> bool:
        await client.delete_topics([topic])
        return topic not in await client.list_topics()

    cluster = await eventually(whole)
    await eventually(created)
    exists = await eventually(created_again)
    await eventually(lambda: listed_topic(client, topic))
    partitions = await eventually(three)
    retention = await eventually(altered)
    producer = await writer(conf, acks="all")  # else there may be nothing to delete yet
    for number in range(10):
        await producer.send_and_wait(topic, b"%d" % number, partition=0)
    await producer.stop()
    low = await eventually(deleted)
    seen = await groups(conf, client, zero)
    await eventually(unlisted)
    say(
        brokers=sorted(broker["node_id"] for broker in cluster["brokers"]),
        controller=cluster["controller_id"],
        exists=exists,
        partitions=len(partitions),
        replicas=len(partitions[0]["replicas"]),
        retention=retention,
        low=low,
        **seen,
        gone=True,
    )
    await client.close()


async def listed_topic(client: Any, topic: str) -> bool:
    return topic in await client.list_topics()


async def groups(conf: dict[str, Any], client: Any, zero: Any) -> dict[str, Any]:
    group = conf["group"]
    consumer = await reader(conf, group_id=group)
    consumer.assign([zero])
    await consumer.commit({zero: 7})
    await consumer.stop()

    async def listed() -> bool:
        return group in {name for name, _ in await client.list_consumer_groups()}

    async def committed() -> Any:
        return (await client.list_consumer_group_offsets(group)).get(zero)

    async def described() -> Any:
        [(error, _, state, *_)] = (await client.describe_consumer_groups([group]))[0].groups
        return state if error == NONE else None

    was_listed = await eventually(listed)
    offset = (await eventually(committed)).offset
    state = await eventually(described)
    # It can neither alter a group's offsets nor delete a group.
    return {
        "listed": was_listed,
        "state": state,
        "committed": offset,
        "altered": None,
        "listed_after": None,
    }


async def sent_large(conf: dict[str, Any]) -> None:
    producer = await writer(conf, max_request_size=CLIENT_LIMIT, acks="all")
    acked = await producer.send_and_wait(conf["topic"], large_value(LARGE), partition=0)
    try:
        await producer.send_and_wait(conf["topic"], large_value(TOO_LARGE), partition=0)
        error = ""
    except KafkaError as refused:
        error = repr(refused)
    say(acked=acked.offset, error=error)
    await producer.stop()


def transactional(conf: dict[str, Any]) -> Any:
    return aiokafka.AIOKafkaProducer(
        **common(conf),
        transactional_id=conf["id"],
        transaction_timeout_ms=conf["timeout_ms"],
    )


class Copier:
    """A Transformer: the event loop runs in its calls only."""

    failures = KafkaError

    def __init__(
        self, conf: dict[str, Any], run: Callable[[Coroutine[Any, Any, Any]], Any]
    ) -> None:
        self._source, self._topic, self._group = conf["source"], conf["topic"], conf["group"]
        self._run = run
        self._sent: list[Any] = []
        run(self._start(conf))

    async def _start(self, conf: dict[str, Any]) -> None:
        self._producer = transactional(conf)
        await self._producer.start()
        self._consumer = await reader(
            conf,
            group_id=self._group,
            session_timeout_ms=conf["session_ms"],
            heartbeat_interval_ms=conf["session_ms"] // 6,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        self._consumer.subscribe([self._source])

    def poll(self) -> list[tuple[int, int, bytes]]:
        found = self._run(self._consumer.getmany(timeout_ms=200, max_records=BURST))
        return [(at.partition, at.offset, at.value) for batch in found.values() for at in batch]

    def begin(self) -> None:
        self._sent.clear()
        self._run(self._producer.begin_transaction())

    def send(self, partition: int, value: bytes) -> None:
        self._sent.append(self._run(self._producer.send(self._topic, value, partition=partition)))

    def send_offsets(self, offsets: dict[int, int]) -> None:
        at = {
            aiokafka.TopicPartition(self._source, number): offset
            for number, offset in offsets.items()
        }
        self._run(self._producer.send_offsets_to_transaction(at, self._group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())
        self._run(asyncio.wait(self._sent))  # else its failures would be logged as unread

    def rewind(self) -> None:
        self._run(self._rewind())

    async def _rewind(self) -> None:
        """`seek_to_committed` would leave out partitions without a committed offset."""
        for at in self._consumer.assignment():
            with suppress(IllegalStateError):  # a rebalance took the partition away
                self._consumer.seek(at, await self._consumer.committed(at) or 0)

    def must_abort(self, error: KafkaError) -> bool:
        return not isinstance(error, ProducerFenced)


def produce(conf: dict[str, Any]) -> None:
    asyncio.run(produced(conf))


def read(conf: dict[str, Any]) -> None:
    asyncio.run(have_read(conf))


def offsets(conf: dict[str, Any]) -> None:
    asyncio.run(found_offsets(conf))


def admin(conf: dict[str, Any]) -> None:
    asyncio.run(administered(conf))


def large(conf: dict[str, Any]) -> None:
    asyncio.run(sent_large(conf))


def transact(conf: dict[str, Any]) -> None:
    with asyncio.Runner() as runner:

        async def made() -> Any:
            return transactional(conf)

        producer = runner.run(made())

        async def send(partition: int, value: str) -> None:
            await producer.send_and_wait(conf["topic"], value.encode(), partition=partition)

        def action(does: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
            return lambda *words: runner.run(does(*words))

        actions = {
            "init": action(producer.start),
            "begin": action(producer.begin_transaction),
            "send": action(send),
            "commit": action(producer.commit_transaction),
            "abort": action(producer.abort_transaction),
        }
        follow(conf, actions, KafkaError)
        runner.run(producer.stop())


def transform(conf: dict[str, Any]) -> None:
    with asyncio.Runner() as runner:
        transform_all(conf, Copier(conf, runner.run))


if __name__ == "__main__":
    run(produce, read, offsets, admin, large, transact, transform)
