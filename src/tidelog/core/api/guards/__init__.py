"""Guards: what each API asks of the authoriser, and what a principal that is refused gets.

A guard stands in front of the handler of its API. It removes what the principal may not do from
the request, passes the rest to the handler, and adds the refusals to the response; or it refuses
the whole request. So handlers know nothing of authorisation, and a broker without an authoriser
does not even import a guard.

Which operations on which resources an API needs is in the column `access` of `core/api_table.py`;
a test compares it with what the guards ask. Produce and Fetch, which have no handler, are guarded
in `produce_guard.py` and `core/node/serving/fetch.py`.

The rules and responses are those of Kafka 4.3.1 (KafkaApis, ControllerApis); a slow test sends the
same requests to both.
"""

from collections.abc import Callable
from importlib import import_module
from typing import TypeAlias

from tidelog.core.api.access_control import Access
from tidelog.core.api.context import BrokerContext, Handling, Struct
from tidelog.core.api_table import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    ALTER_CLIENT_QUOTAS,
    ALTER_CONFIGS,
    ALTER_PARTITION_REASSIGNMENTS,
    ALTER_REPLICA_LOG_DIRS,
    ALTER_USER_SCRAM_CREDENTIALS,
    API_VERSIONS,
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    CREATE_ACLS,
    CREATE_DELEGATION_TOKEN,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_ACLS,
    DELETE_GROUPS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_ACLS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_DELEGATION_TOKEN,
    DESCRIBE_GROUPS,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TOPIC_PARTITIONS,
    DESCRIBE_TRANSACTIONS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    ELECT_LEADERS,
    END_TXN,
    EXPIRE_DELEGATION_TOKEN,
    FIND_COORDINATOR,
    HEARTBEAT,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_CONFIG_RESOURCES,
    LIST_GROUPS,
    LIST_OFFSETS,
    LIST_PARTITION_REASSIGNMENTS,
    LIST_TRANSACTIONS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    RENEW_DELEGATION_TOKEN,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SYNC_GROUP,
    TXN_OFFSET_COMMIT,
    UNREGISTER_BROKER,
    UPDATE_FEATURES,
    WRITE_TXN_MARKERS,
)

Serve: TypeAlias = Callable[[Struct], Handling | Struct]
"""Runs the handler of the API on a request."""
Guard: TypeAlias = Callable[[Access, BrokerContext, Struct, Serve], Handling]

GUARDS = {
    LIST_OFFSETS: "guards.offsets:list_offsets",
    METADATA: "guards.metadata:metadata",
    OFFSET_COMMIT: "guards.committed_offsets:offset_commit",
    OFFSET_FETCH: "guards.committed_offsets:offset_fetch",
    FIND_COORDINATOR: "guards.groups:find_coordinator",
    JOIN_GROUP: "guards.groups:join_group",
    HEARTBEAT: "guards.groups:heartbeat",
    LEAVE_GROUP: "guards.groups:leave_group",
    SYNC_GROUP: "guards.groups:sync_group",
    DESCRIBE_GROUPS: "guards.groups:describe_groups",
    LIST_GROUPS: "guards.groups:list_groups",
    CREATE_TOPICS: "guards.topics:create_topics",
    DELETE_TOPICS: "guards.topics:delete_topics",
    DELETE_RECORDS: "guards.offsets:delete_records",
    INIT_PRODUCER_ID: "guards.transactions:init_producer_id",
    OFFSET_FOR_LEADER_EPOCH: "guards.offsets:offset_for_leader_epoch",
    ADD_PARTITIONS_TO_TXN: "guards.transactions:add_partitions_to_txn",
    ADD_OFFSETS_TO_TXN: "guards.transactions:add_offsets_to_txn",
    END_TXN: "guards.transactions:end_txn",
    WRITE_TXN_MARKERS: "guards.transactions:write_txn_markers",
    TXN_OFFSET_COMMIT: "guards.committed_offsets:txn_offset_commit",
    DESCRIBE_ACLS: "guards.cluster:describe_acls",
    CREATE_ACLS: "guards.cluster:create_acls",
    DELETE_ACLS: "guards.cluster:delete_acls",
    DESCRIBE_CONFIGS: "guards.configs:describe_configs",
    ALTER_CONFIGS: "guards.configs:alter_configs",
    ALTER_REPLICA_LOG_DIRS: "guards.cluster:alter_replica_log_dirs",
    DESCRIBE_LOG_DIRS: "guards.cluster:describe_log_dirs",
    CREATE_PARTITIONS: "guards.topics:create_partitions",
    DELETE_GROUPS: "guards.groups:delete_groups",
    ELECT_LEADERS: "guards.cluster:elect_leaders",
    INCREMENTAL_ALTER_CONFIGS: "guards.configs:alter_configs",
    ALTER_PARTITION_REASSIGNMENTS: "guards.cluster:alter_partition_reassignments",
    LIST_PARTITION_REASSIGNMENTS: "guards.cluster:list_partition_reassignments",
    OFFSET_DELETE: "guards.committed_offsets:offset_delete",
    DESCRIBE_CLIENT_QUOTAS: "guards.cluster:describe_client_quotas",
    ALTER_CLIENT_QUOTAS: "guards.cluster:alter_client_quotas",
    DESCRIBE_USER_SCRAM_CREDENTIALS: "guards.cluster:describe_user_scram_credentials",
    ALTER_USER_SCRAM_CREDENTIALS: "guards.cluster:alter_user_scram_credentials",
    UPDATE_FEATURES: "guards.cluster:update_features",
    DESCRIBE_CLUSTER: "guards.cluster:describe_cluster",
    DESCRIBE_PRODUCERS: "guards.offsets:describe_producers",
    UNREGISTER_BROKER: "guards.cluster:unregister_broker",
    DESCRIBE_TRANSACTIONS: "guards.transactions:describe_transactions",
    LIST_TRANSACTIONS: "guards.transactions:list_transactions",
    LIST_CONFIG_RESOURCES: "guards.configs:list_config_resources",
    DESCRIBE_TOPIC_PARTITIONS: "guards.metadata:describe_topic_partitions",
}
"""`module:function` by API key."""

UNGUARDED = frozenset(
    {
        API_VERSIONS,
        SASL_HANDSHAKE,
        SASL_AUTHENTICATE,
        # Always refused here, before Kafka would ask the authoriser.
        CREATE_DELEGATION_TOKEN,
        RENEW_DELEGATION_TOKEN,
        EXPIRE_DELEGATION_TOKEN,
        DESCRIBE_DELEGATION_TOKEN,
        CONSUMER_GROUP_HEARTBEAT,
        CONSUMER_GROUP_DESCRIBE,
    }
)
"""The APIs with a handler that every principal may use."""

_imported: dict[int, Guard] = {}


def guarded(
    api_key: int, access: Access, broker: BrokerContext, request: Struct, serve: Serve
) -> Handling | Struct:
    """Run a handler on what the principal may do. Raises KeyError for an API without a guard that
    is not in `UNGUARDED`: it must not be served."""
    if api_key in UNGUARDED:
        return serve(request)
    guard = _imported.get(api_key)
    if guard is None:
        module, _, name = GUARDS[api_key].partition(":")
        guard = getattr(import_module(f"tidelog.core.api.{module}"), name)
        _imported[api_key] = guard
    return guard(access, broker, request, serve)


def run(handling: Handling | Struct) -> Handling:
    """Return the response of a handler, which may be a generator."""
    if isinstance(handling, dict):
        return handling
    return (yield from handling)
