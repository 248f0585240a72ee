"""The APIs that the client calls, by Kafka's numbers."""

from tidelog.core.wire.apis import APIS

PRODUCE = 0
FETCH = 1
LIST_OFFSETS = 2
METADATA = 3
API_VERSIONS = 18
CREATE_TOPICS = 19
DELETE_TOPICS = 20
INIT_PRODUCER_ID = 22
OFFSET_FOR_LEADER_EPOCH = 23
DESCRIBE_CONFIGS = 32
DESCRIBE_LOG_DIRS = 35
CREATE_PARTITIONS = 37
INCREMENTAL_ALTER_CONFIGS = 44
ALTER_PARTITION_REASSIGNMENTS = 45
LIST_PARTITION_REASSIGNMENTS = 46
DESCRIBE_CLUSTER = 60
DESCRIBE_TOPIC_PARTITIONS = 75
DESCRIBE_STATE = 32000
"""Tidelog's own: what a broker knows of its replicas, in JSON."""

SINCE = {
    INCREMENTAL_ALTER_CONFIGS: "2.3",
    ALTER_PARTITION_REASSIGNMENTS: "2.4",
    LIST_PARTITION_REASSIGNMENTS: "2.4",
}
"""The Kafka that first had them, of those that came after 2.1."""


def api_name(api_key: int) -> str:
    """`ListOffsets`; the number for one that has no name."""
    api = APIS.get(api_key)
    return f"API {api_key}" if api is None else api.name
