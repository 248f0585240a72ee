"""Which APIs clients may use here, in which versions, and who handles them.

Produce and Fetch are offered like the others but have a path of their own. Always true: what
is advertised is answered, with one exception. Produce is advertised from version 0 as Kafka
does: older librdkafka takes a higher minimum for a broker that can't compress (KAFKA-18659).

Some APIs are answered with an error only, as Kafka answers them where a feature is off: clients
then fail at once, and tools recognise the Kafka version (docs/adr/0037).

Handlers are named, not imported: most brokers never run most of them, and start fast.
"""

from importlib import import_module
from typing import NamedTuple

from tidelog.core.api.context import Handler

PRODUCE = 0
FETCH = 1
API_VERSIONS = 18


class ApiRange(NamedTuple):
    """Versions served, and the lowest one that clients are told of."""

    name: str
    first: int
    last: int
    advertised_first: int

    def serves(self, version: int) -> bool:
        return self.first <= version <= self.last


def _api(name: str, first: int, last: int, advertised_first: int | None = None) -> ApiRange:
    return ApiRange(name, first, last, first if advertised_first is None else advertised_first)


OFFERED: dict[int, ApiRange] = {
    PRODUCE: _api("Produce", 3, 13, 0),
    FETCH: _api("Fetch", 4, 18),
    2: _api("ListOffsets", 1, 11),
    3: _api("Metadata", 0, 13),
    8: _api("OffsetCommit", 2, 10),
    9: _api("OffsetFetch", 1, 10),
    10: _api("FindCoordinator", 0, 6),
    11: _api("JoinGroup", 0, 9),
    12: _api("Heartbeat", 0, 4),
    13: _api("LeaveGroup", 0, 5),
    14: _api("SyncGroup", 0, 5),
    15: _api("DescribeGroups", 0, 6),
    16: _api("ListGroups", 0, 5),
    17: _api("SaslHandshake", 0, 1),
    API_VERSIONS: _api("ApiVersions", 0, 4),
    19: _api("CreateTopics", 2, 7),
    20: _api("DeleteTopics", 1, 6),
    21: _api("DeleteRecords", 0, 2),
    22: _api("InitProducerId", 0, 5),
    23: _api("OffsetForLeaderEpoch", 2, 4),
    24: _api("AddPartitionsToTxn", 0, 5),
    25: _api("AddOffsetsToTxn", 0, 4),
    26: _api("EndTxn", 0, 5),
    28: _api("TxnOffsetCommit", 0, 5),
    29: _api("DescribeAcls", 1, 3),
    30: _api("CreateAcls", 1, 3),
    31: _api("DeleteAcls", 1, 3),
    32: _api("DescribeConfigs", 1, 4),
    33: _api("AlterConfigs", 0, 2),
    34: _api("AlterReplicaLogDirs", 1, 2),
    35: _api("DescribeLogDirs", 1, 5),
    36: _api("SaslAuthenticate", 0, 2),
    37: _api("CreatePartitions", 0, 3),
    38: _api("CreateDelegationToken", 1, 3),
    39: _api("RenewDelegationToken", 1, 2),
    40: _api("ExpireDelegationToken", 1, 2),
    41: _api("DescribeDelegationToken", 1, 3),
    42: _api("DeleteGroups", 0, 2),
    43: _api("ElectLeaders", 0, 2),
    44: _api("IncrementalAlterConfigs", 0, 1),
    45: _api("AlterPartitionReassignments", 0, 1),
    46: _api("ListPartitionReassignments", 0, 0),
    47: _api("OffsetDelete", 0, 0),
    48: _api("DescribeClientQuotas", 0, 1),
    49: _api("AlterClientQuotas", 0, 1),
    50: _api("DescribeUserScramCredentials", 0, 0),
    51: _api("AlterUserScramCredentials", 0, 0),
    60: _api("DescribeCluster", 0, 2),
    61: _api("DescribeProducers", 0, 0),
    64: _api("UnregisterBroker", 0, 0),
    65: _api("DescribeTransactions", 0, 0),
    66: _api("ListTransactions", 0, 2),
    68: _api("ConsumerGroupHeartbeat", 0, 1),
    69: _api("ConsumerGroupDescribe", 0, 1),
    74: _api("ListConfigResources", 0, 1),
    75: _api("DescribeTopicPartitions", 0, 0),
}

HANDLERS: dict[int, str] = {
    2: "tidelog.core.api.handlers.offsets:list_offsets",
    3: "tidelog.core.api.handlers.metadata:metadata",
    8: "tidelog.core.api.handlers.committed_offsets:offset_commit",
    9: "tidelog.core.api.handlers.committed_offsets:offset_fetch",
    10: "tidelog.core.api.handlers.find_coordinator:find_coordinator",
    11: "tidelog.core.api.handlers.groups:join_group",
    12: "tidelog.core.api.handlers.groups:heartbeat",
    13: "tidelog.core.api.handlers.groups:leave_group",
    14: "tidelog.core.api.handlers.groups:sync_group",
    15: "tidelog.core.api.handlers.groups:describe_groups",
    16: "tidelog.core.api.handlers.groups:list_groups",
    17: "tidelog.core.api.handlers.access:sasl_handshake",
    API_VERSIONS: "tidelog.core.api.handlers.api_versions:api_versions",
    19: "tidelog.core.api.handlers.topics:create_topics",
    20: "tidelog.core.api.handlers.topics:delete_topics",
    21: "tidelog.core.api.handlers.offsets:delete_records",
    22: "tidelog.core.api.handlers.producers:init_producer_id",
    23: "tidelog.core.api.handlers.offsets:offset_for_leader_epoch",
    24: "tidelog.core.api.handlers.transactions:add_partitions_to_txn",
    25: "tidelog.core.api.handlers.transactions:add_offsets_to_txn",
    26: "tidelog.core.api.handlers.transactions:end_txn",
    28: "tidelog.core.api.handlers.transactions:txn_offset_commit",
    29: "tidelog.core.api.handlers.access:describe_acls",
    30: "tidelog.core.api.handlers.access:create_acls",
    31: "tidelog.core.api.handlers.access:delete_acls",
    32: "tidelog.core.api.handlers.configs:describe_configs",
    33: "tidelog.core.api.handlers.configs:alter_configs",
    34: "tidelog.core.api.handlers.log_dirs:alter_replica_log_dirs",
    35: "tidelog.core.api.handlers.log_dirs:describe_log_dirs",
    36: "tidelog.core.api.handlers.access:sasl_authenticate",
    37: "tidelog.core.api.handlers.topics:create_partitions",
    38: "tidelog.core.api.handlers.access:create_delegation_token",
    39: "tidelog.core.api.handlers.access:renew_delegation_token",
    40: "tidelog.core.api.handlers.access:expire_delegation_token",
    41: "tidelog.core.api.handlers.access:describe_delegation_token",
    42: "tidelog.core.api.handlers.groups:delete_groups",
    43: "tidelog.core.api.handlers.elections:elect_leaders",
    44: "tidelog.core.api.handlers.configs:incremental_alter_configs",
    45: "tidelog.core.api.handlers.reassignments:alter_partition_reassignments",
    46: "tidelog.core.api.handlers.reassignments:list_partition_reassignments",
    47: "tidelog.core.api.handlers.committed_offsets:offset_delete",
    48: "tidelog.core.api.handlers.access:describe_client_quotas",
    49: "tidelog.core.api.handlers.access:alter_client_quotas",
    50: "tidelog.core.api.handlers.access:describe_user_scram_credentials",
    51: "tidelog.core.api.handlers.access:alter_user_scram_credentials",
    60: "tidelog.core.api.handlers.brokers:describe_cluster",
    61: "tidelog.core.api.handlers.producers:describe_producers",
    64: "tidelog.core.api.handlers.brokers:unregister_broker",
    65: "tidelog.core.api.handlers.transactions:describe_transactions",
    66: "tidelog.core.api.handlers.transactions:list_transactions",
    68: "tidelog.core.api.handlers.groups:consumer_group_heartbeat",
    69: "tidelog.core.api.handlers.groups:consumer_group_describe",
    74: "tidelog.core.api.handlers.configs:list_config_resources",
    75: "tidelog.core.api.handlers.metadata:describe_topic_partitions",
}
"""Module and function, by API key."""

_resolved: dict[int, Handler] = {}


def resolve(api_key: int) -> Handler:
    """The handler of an API, imported when it is first asked for."""
    handler = _resolved.get(api_key)
    if handler is None:
        module, _, name = HANDLERS[api_key].partition(":")
        handler = getattr(import_module(module), name)
        _resolved[api_key] = handler
    return handler
