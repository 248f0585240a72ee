"""Script that calls the methods of aiokafka's admin client; runs in its own process.

`python aiokafka_admin.py BOOTSTRAP TOPIC` exits with 0 if every result is as expected.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable

from aiokafka.admin import (  # type: ignore[import-untyped]
    AIOKafkaAdminClient,
    NewPartitions,
    NewTopic,
)
from aiokafka.admin.config_resource import (  # type: ignore[import-untyped]
    ConfigResource,
    ConfigResourceType,
)
from aiokafka.admin.records_to_delete import RecordsToDelete  # type: ignore[import-untyped]
from aiokafka.errors import KafkaError  # type: ignore[import-untyped]
from aiokafka.structs import TopicPartition  # type: ignore[import-untyped]

PATIENCE_S = 120.0
INVALID_CONFIG = 40


async def await_that(look: Callable[[], Awaitable[bool]]) -> None:
    """Wait until `look` returns true. Any broker may respond, and a busy broker applies a change
    a little later. The timeout around all calls ends this loop."""
    while True:
        try:
            if await look():
                return
        except KafkaError as error:
            if not error.retriable:
                raise
        await asyncio.sleep(0.05)


async def all_calls(bootstrap: str, name: str) -> None:
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    created = await client.create_topics([NewTopic(name, 3, 3)])
    assert [error[1] for error in created.topic_errors] == [0], created

    async def is_listed() -> bool:
        [described] = await client.describe_topics([name])
        return len(described["partitions"]) == 3 and name in await client.list_topics()

    async def all_brokers_are_listed() -> bool:
        return len((await client.describe_cluster())["brokers"]) == 3

    await await_that(is_listed)
    await await_that(all_brokers_are_listed)
    await settings(client, name)
    grown = await client.create_partitions({name: NewPartitions(5)})
    assert [error[1] for error in grown.topic_errors] == [0], grown
    zero = TopicPartition(name, 0)
    assert await client.delete_records({zero: RecordsToDelete(before_offset=0)}) == {zero: 0}

    async def has_no_offsets() -> bool:
        return not await client.list_consumer_group_offsets("nobody")

    await await_that(has_no_offsets)

    async def has_a_coordinator() -> bool:
        return await client.find_coordinator("nobody") in (1, 2, 3)

    async def is_dead() -> bool:
        [group] = await client.describe_consumer_groups(["nobody"])
        return bool(group.groups[0][1:3] == ("nobody", "Dead"))

    await await_that(has_a_coordinator)
    await client.list_consumer_groups()
    await await_that(is_dead)
    gone = await client.delete_topics([name])
    assert [error[1] for error in gone.topic_error_codes] == [0], gone
    await client.close()


async def settings(client: AIOKafkaAdminClient, name: str) -> None:
    def topic(**configs: str) -> ConfigResource:
        given = {key.replace("_", "."): value for key, value in configs.items()}
        return ConfigResource(ConfigResourceType.TOPIC, name, configs=given or None)

    async def values_of(resource: ConfigResource) -> dict[str, str]:
        [found] = await client.describe_configs([resource])
        return {config[0]: config[1] for config in found.resources[0][4]}

    [altered] = await client.alter_configs([topic(retention_ms="9000")])
    assert altered.resources[0][:2] == (0, None), altered
    [refused] = await client.alter_configs([topic(retention_ms="soon")])
    error, message = refused.resources[0][:2]
    assert error == INVALID_CONFIG
    assert "retention.ms='soon'" in message

    async def is_altered() -> bool:
        return (await values_of(topic()))["retention.ms"] == "9000"

    await await_that(is_altered)
    assert (await values_of(ConfigResource(ConfigResourceType.BROKER, "1")))["node.id"] == "1"


if __name__ == "__main__":
    asyncio.run(asyncio.wait_for(all_calls(*sys.argv[1:]), PATIENCE_S))
