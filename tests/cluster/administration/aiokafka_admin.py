"""Script that calls the methods of aiokafka's admin client; runs in its own process.

`python aiokafka_admin.py BOOTSTRAP TOPIC` exits with 0 if every result is as expected.
"""

import asyncio
import sys

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
from aiokafka.structs import TopicPartition  # type: ignore[import-untyped]

PATIENCE_S = 120.0
INVALID_CONFIG = 40


async def all_calls(bootstrap: str, name: str) -> None:
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    created = await client.create_topics([NewTopic(name, 3, 3)])
    assert [error[1] for error in created.topic_errors] == [0], created
    assert name in await client.list_topics()
    [described] = await client.describe_topics([name])
    assert len(described["partitions"]) == 3
    assert len((await client.describe_cluster())["brokers"]) == 3
    await settings(client, name)
    grown = await client.create_partitions({name: NewPartitions(5)})
    assert [error[1] for error in grown.topic_errors] == [0], grown
    zero = TopicPartition(name, 0)
    assert await client.delete_records({zero: RecordsToDelete(before_offset=0)}) == {zero: 0}
    assert await client.list_consumer_group_offsets("nobody") == {}
    assert await client.find_coordinator("nobody") in (1, 2, 3)
    await client.list_consumer_groups()
    [group] = await client.describe_consumer_groups(["nobody"])
    assert group.groups[0][1:3] == ("nobody", "Dead"), group
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
    # Any broker may respond, and a busy broker applies the change a little later. The timeout
    # around all calls ends this loop.
    while (await values_of(topic()))["retention.ms"] != "9000":
        await asyncio.sleep(0.05)
    assert (await values_of(ConfigResource(ConfigResourceType.BROKER, "1")))["node.id"] == "1"


if __name__ == "__main__":
    asyncio.run(asyncio.wait_for(all_calls(*sys.argv[1:]), PATIENCE_S))
