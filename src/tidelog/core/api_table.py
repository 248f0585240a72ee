"""The API table: one row for each API that brokers, clients and tools of this project speak.

From the rows derive: the codec (versions, flexible version), both dispatchers (listener, handler,
limits), the response to ApiVersions, the client's keys and names, the fuzzer's requests and the
page docs/reference/apis.md. To add an API: a row here, its fields in `core/wire/messages/`, and a
function in `core/api/handlers/`.

Invariant: each offered version is served, with one exception. Produce is advertised from version
0, as in Kafka, but served from version 3: older librdkafka concludes from a higher minimum that a
broker cannot decompress (KAFKA-18659).

Some APIs always respond with an error, as in Kafka where a feature is off: clients then fail at
once, and tools recognise the Kafka version (docs/adr/0037).

Handlers are named, not imported: most brokers never run most of them, and start faster.
"""

from typing import NamedTuple

NEVER = 0x8000
"""No version of an API is this high: it has no flexible version."""

CLIENT = "client"
INTERNAL = "internal"
"""The two listeners of a broker: for clients, and for the other brokers."""
CLIENTS, BROKERS, BOTH, NONE = (CLIENT,), (INTERNAL,), (CLIENT, INTERNAL), ()

RECORDS = "records"
CLUSTER = "cluster"
GROUPS = "groups"
TRANSACTIONS = "transactions"
ACCESS = "access"
JSON = "json"
"""Modules of `core/wire/messages/`; JSON: the request is one JSON document, and so is the
response."""

REQUEST_BYTES_MAX = 4 * 1024 * 1024
"""Only records need more. One thread serves all clients: a request that occupies it for seconds
delays all of them."""
UNLIMITED = 0x7FFFFFFF
"""In `bytes_max`: only the broker setting `socket.request.max.bytes` limits the request."""
ENTRIES_MAX = 100_000
"""Topics, partitions, resources and so on in one request, in all arrays together."""
FEW = 10_000
"""In `entries_max`: for requests whose entries cost more."""

PRODUCE = 0
FETCH = 1
LIST_OFFSETS = 2
METADATA = 3
OFFSET_COMMIT = 8
OFFSET_FETCH = 9
FIND_COORDINATOR = 10
JOIN_GROUP = 11
HEARTBEAT = 12
LEAVE_GROUP = 13
SYNC_GROUP = 14
DESCRIBE_GROUPS = 15
LIST_GROUPS = 16
SASL_HANDSHAKE = 17
API_VERSIONS = 18
CREATE_TOPICS = 19
DELETE_TOPICS = 20
DELETE_RECORDS = 21
INIT_PRODUCER_ID = 22
OFFSET_FOR_LEADER_EPOCH = 23
ADD_PARTITIONS_TO_TXN = 24
ADD_OFFSETS_TO_TXN = 25
END_TXN = 26
WRITE_TXN_MARKERS = 27
TXN_OFFSET_COMMIT = 28
DESCRIBE_ACLS = 29
CREATE_ACLS = 30
DELETE_ACLS = 31
DESCRIBE_CONFIGS = 32
ALTER_CONFIGS = 33
ALTER_REPLICA_LOG_DIRS = 34
DESCRIBE_LOG_DIRS = 35
SASL_AUTHENTICATE = 36
CREATE_PARTITIONS = 37
CREATE_DELEGATION_TOKEN = 38
RENEW_DELEGATION_TOKEN = 39
EXPIRE_DELEGATION_TOKEN = 40
DESCRIBE_DELEGATION_TOKEN = 41
DELETE_GROUPS = 42
ELECT_LEADERS = 43
INCREMENTAL_ALTER_CONFIGS = 44
ALTER_PARTITION_REASSIGNMENTS = 45
LIST_PARTITION_REASSIGNMENTS = 46
OFFSET_DELETE = 47
DESCRIBE_CLIENT_QUOTAS = 48
ALTER_CLIENT_QUOTAS = 49
DESCRIBE_USER_SCRAM_CREDENTIALS = 50
ALTER_USER_SCRAM_CREDENTIALS = 51
DESCRIBE_QUORUM = 55
UPDATE_FEATURES = 57
DESCRIBE_CLUSTER = 60
DESCRIBE_PRODUCERS = 61
UNREGISTER_BROKER = 64
DESCRIBE_TRANSACTIONS = 65
LIST_TRANSACTIONS = 66
CONSUMER_GROUP_HEARTBEAT = 68
CONSUMER_GROUP_DESCRIBE = 69
LIST_CONFIG_RESOURCES = 74
DESCRIBE_TOPIC_PARTITIONS = 75
DESCRIBE_STATE = 32000
HELLO = 32001
CONTROLLER_CALL = 32002
SET_FAULTS = 32003
DESCRIBE_LOSSES = 32004
PRIVATE = range(DESCRIBE_STATE, DESCRIBE_LOSSES + 1)
"""Tidelog's own APIs, between its brokers and from its tools; never advertised."""

HELLO_VERSION = 1
"""Version 0 carried the cluster's secret itself, and is refused."""


class Api(NamedTuple):
    """One API: a row of the table."""

    key: int
    name: str
    first: int
    """The lowest version that brokers serve and clients use."""
    last: int
    """The highest version that brokers serve."""
    flexible: int
    """The first version with tagged fields and compact lengths (KIP-482)."""
    messages: str
    """The module of `core/wire/messages/` that lists its fields."""
    handler: str
    """`module:function` in `core/api/`; empty if no listener serves this API."""
    access: str = ""
    """The operations and resources that an authoriser must allow, by the rules of Kafka 4.2
    (KafkaApis.scala, ControllerApis.scala). `access_rules` parses it; `core/api/guards` asks."""
    entries_max: int = ENTRIES_MAX
    """Entries in one array of a request from a client."""
    listeners: tuple[str, ...] = CLIENTS
    bytes_max: int = REQUEST_BYTES_MAX
    overlaps: bool = False
    """Whether requests of one connection may be in progress together with others of this kind.
    True only if their results do not depend on each other."""
    advertised_first: int | None = None
    """The lowest version in the response to ApiVersions, if it is not `first`."""
    codec_last: int | None = None
    """The highest version that the codec knows, if it is not `last`."""
    since: str = ""
    """The first Kafka release with this API, if it is later than 2.1."""

    def serves(self, version: int) -> bool:
        """Whether brokers serve this version."""
        return self.first <= version <= self.last

    @property
    def codec_versions(self) -> range:
        """The versions that can be encoded and decoded."""
        last = self.last if self.codec_last is None else self.codec_last
        return range(self.first, last + 1)


# fmt: off
_TABLE = (
    Api(PRODUCE, "Produce", 3, 13, 9, RECORDS, "dispatch:Dispatch._produce",
        "WRITE TOPIC; WRITE TRANSACTIONAL_ID if transactional",
        entries_max=FEW, bytes_max=UNLIMITED, overlaps=True, advertised_first=0),
    Api(FETCH, "Fetch", 4, 18, 12, RECORDS, "dispatch:Dispatch.fetch",
        "READ TOPIC if from a consumer; CLUSTER_ACTION CLUSTER if from a follower",
        entries_max=FEW, listeners=BOTH, overlaps=True),
    Api(LIST_OFFSETS, "ListOffsets", 1, 11, 6, RECORDS, "handlers.offsets:list_offsets",
        "DESCRIBE TOPIC"),
    Api(METADATA, "Metadata", 0, 13, 9, CLUSTER, "handlers.metadata:metadata",
        "DESCRIBE TOPIC; CREATE TOPIC or CREATE CLUSTER if it creates a topic; "
        "DESCRIBE CLUSTER if it returns allowed operations", overlaps=True),
    Api(OFFSET_COMMIT, "OffsetCommit", 2, 10, 8, GROUPS, "handlers.committed_offsets:offset_commit",
        "READ GROUP; READ TOPIC"),
    Api(OFFSET_FETCH, "OffsetFetch", 1, 10, 6, GROUPS, "handlers.committed_offsets:offset_fetch",
        "DESCRIBE GROUP; DESCRIBE TOPIC"),
    Api(FIND_COORDINATOR, "FindCoordinator", 0, 6, 3, GROUPS,
        "handlers.coordinators:find_coordinator",
        "DESCRIBE GROUP if of a group; DESCRIBE TRANSACTIONAL_ID if of a transaction",
        entries_max=FEW, overlaps=True),
    Api(JOIN_GROUP, "JoinGroup", 0, 9, 6, GROUPS, "handlers.groups:join_group", "READ GROUP"),
    Api(HEARTBEAT, "Heartbeat", 0, 4, 4, GROUPS, "handlers.groups:heartbeat", "READ GROUP"),
    Api(LEAVE_GROUP, "LeaveGroup", 0, 5, 4, GROUPS, "handlers.groups:leave_group", "READ GROUP"),
    Api(SYNC_GROUP, "SyncGroup", 0, 5, 4, GROUPS, "handlers.groups:sync_group", "READ GROUP"),
    Api(DESCRIBE_GROUPS, "DescribeGroups", 0, 6, 5, GROUPS, "handlers.groups:describe_groups",
        "DESCRIBE GROUP", entries_max=FEW),
    Api(LIST_GROUPS, "ListGroups", 0, 5, 3, GROUPS, "handlers.groups:list_groups",
        "DESCRIBE CLUSTER or DESCRIBE GROUP"),
    Api(SASL_HANDSHAKE, "SaslHandshake", 0, 1, NEVER, ACCESS, "handlers.access:sasl_handshake"),
    Api(API_VERSIONS, "ApiVersions", 0, 4, 3, CLUSTER, "handlers.api_versions:api_versions"),
    Api(CREATE_TOPICS, "CreateTopics", 2, 7, 5, CLUSTER, "handlers.topics:create_topics",
        "CREATE CLUSTER or CREATE TOPIC; DESCRIBE_CONFIGS TOPIC if it returns configs",
        entries_max=FEW),
    Api(DELETE_TOPICS, "DeleteTopics", 1, 6, 4, CLUSTER, "handlers.topics:delete_topics",
        "DELETE CLUSTER or DESCRIBE TOPIC; DELETE CLUSTER or DELETE TOPIC", entries_max=FEW),
    Api(DELETE_RECORDS, "DeleteRecords", 0, 2, 2, RECORDS, "handlers.offsets:delete_records",
        "DELETE TOPIC"),
    Api(INIT_PRODUCER_ID, "InitProducerId", 0, 5, 2, RECORDS,
        "handlers.transactions:init_producer_id",
        "WRITE TRANSACTIONAL_ID if transactional; "
        "IDEMPOTENT_WRITE CLUSTER or WRITE TOPIC if not transactional", codec_last=6),
    Api(OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderEpoch", 2, 4, 4, RECORDS,
        "handlers.offsets:offset_for_leader_epoch", "CLUSTER_ACTION CLUSTER or DESCRIBE TOPIC"),
    Api(ADD_PARTITIONS_TO_TXN, "AddPartitionsToTxn", 0, 5, 3, TRANSACTIONS,
        "handlers.transactions:add_partitions_to_txn",
        "WRITE TRANSACTIONAL_ID if version 0-3; WRITE TOPIC if version 0-3; "
        "CLUSTER_ACTION CLUSTER if version 4-5", listeners=BOTH),
    Api(ADD_OFFSETS_TO_TXN, "AddOffsetsToTxn", 0, 4, 3, TRANSACTIONS,
        "handlers.transactions:add_offsets_to_txn", "WRITE TRANSACTIONAL_ID; READ GROUP"),
    Api(END_TXN, "EndTxn", 0, 5, 3, TRANSACTIONS, "handlers.transactions:end_txn",
        "WRITE TRANSACTIONAL_ID"),
    Api(WRITE_TXN_MARKERS, "WriteTxnMarkers", 1, 2, 1, TRANSACTIONS,
        "handlers.transaction_markers:write_txn_markers",
        "ALTER CLUSTER or CLUSTER_ACTION CLUSTER", listeners=BOTH),
    Api(TXN_OFFSET_COMMIT, "TxnOffsetCommit", 0, 5, 3, TRANSACTIONS,
        "handlers.committed_offsets:txn_offset_commit",
        "WRITE TRANSACTIONAL_ID; READ GROUP; READ TOPIC"),
    Api(DESCRIBE_ACLS, "DescribeAcls", 1, 3, 2, ACCESS, "handlers.acls:describe_acls",
        "DESCRIBE CLUSTER"),
    Api(CREATE_ACLS, "CreateAcls", 1, 3, 2, ACCESS, "handlers.acls:create_acls",
        "ALTER CLUSTER", entries_max=FEW),
    Api(DELETE_ACLS, "DeleteAcls", 1, 3, 2, ACCESS, "handlers.acls:delete_acls",
        "ALTER CLUSTER", entries_max=FEW),
    Api(DESCRIBE_CONFIGS, "DescribeConfigs", 1, 4, 4, CLUSTER, "handlers.configs:describe_configs",
        "DESCRIBE_CONFIGS CLUSTER if of a broker; DESCRIBE_CONFIGS TOPIC if of a topic; "
        "DESCRIBE_CONFIGS GROUP if of a group",
        entries_max=FEW),
    Api(ALTER_CONFIGS, "AlterConfigs", 0, 2, 2, CLUSTER, "handlers.configs:alter_configs",
        "ALTER_CONFIGS CLUSTER if of a broker; ALTER_CONFIGS TOPIC if of a topic; "
        "ALTER_CONFIGS GROUP if of a group", entries_max=FEW),
    Api(ALTER_REPLICA_LOG_DIRS, "AlterReplicaLogDirs", 1, 2, 2, CLUSTER,
        "handlers.replicas:alter_replica_log_dirs", "ALTER CLUSTER"),
    Api(DESCRIBE_LOG_DIRS, "DescribeLogDirs", 1, 5, 2, CLUSTER,
        "handlers.replicas:describe_log_dirs", "DESCRIBE CLUSTER"),
    Api(SASL_AUTHENTICATE, "SaslAuthenticate", 0, 2, 2, ACCESS,
        "handlers.access:sasl_authenticate"),
    Api(CREATE_PARTITIONS, "CreatePartitions", 0, 3, 2, CLUSTER,
        "handlers.topics:create_partitions", "ALTER TOPIC", entries_max=FEW),
    Api(CREATE_DELEGATION_TOKEN, "CreateDelegationToken", 1, 3, 2, ACCESS,
        "handlers.access:create_delegation_token", "CREATE_TOKENS USER if for another user"),
    Api(RENEW_DELEGATION_TOKEN, "RenewDelegationToken", 1, 2, 2, ACCESS,
        "handlers.access:renew_delegation_token"),
    Api(EXPIRE_DELEGATION_TOKEN, "ExpireDelegationToken", 1, 2, 2, ACCESS,
        "handlers.access:expire_delegation_token"),
    Api(DESCRIBE_DELEGATION_TOKEN, "DescribeDelegationToken", 1, 3, 2, ACCESS,
        "handlers.access:describe_delegation_token",
        "DESCRIBE DELEGATION_TOKEN or DESCRIBE_TOKENS USER if of another user"),
    Api(DELETE_GROUPS, "DeleteGroups", 0, 2, 2, GROUPS, "handlers.groups:delete_groups",
        "DELETE GROUP", entries_max=FEW),
    Api(ELECT_LEADERS, "ElectLeaders", 0, 2, 2, CLUSTER, "handlers.replicas:elect_leaders",
        "ALTER CLUSTER", entries_max=FEW, since="2.2"),
    Api(INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigs", 0, 1, 1, CLUSTER,
        "handlers.configs:incremental_alter_configs",
        "ALTER_CONFIGS CLUSTER if of a broker; ALTER_CONFIGS TOPIC if of a topic; "
        "ALTER_CONFIGS GROUP if of a group",
        entries_max=FEW, since="2.3"),
    Api(ALTER_PARTITION_REASSIGNMENTS, "AlterPartitionReassignments", 0, 1, 0, CLUSTER,
        "handlers.replicas:alter_partition_reassignments", "ALTER CLUSTER",
        entries_max=FEW, since="2.4"),
    Api(LIST_PARTITION_REASSIGNMENTS, "ListPartitionReassignments", 0, 0, 0, CLUSTER,
        "handlers.replicas:list_partition_reassignments", "DESCRIBE CLUSTER", since="2.4"),
    Api(OFFSET_DELETE, "OffsetDelete", 0, 0, NEVER, GROUPS,
        "handlers.committed_offsets:offset_delete", "DELETE GROUP; READ TOPIC", since="2.4"),
    Api(DESCRIBE_CLIENT_QUOTAS, "DescribeClientQuotas", 0, 1, 1, ACCESS,
        "handlers.quotas:describe_client_quotas", "DESCRIBE_CONFIGS CLUSTER", entries_max=FEW),
    Api(ALTER_CLIENT_QUOTAS, "AlterClientQuotas", 0, 1, 1, ACCESS,
        "handlers.quotas:alter_client_quotas", "ALTER_CONFIGS CLUSTER", entries_max=FEW),
    Api(DESCRIBE_USER_SCRAM_CREDENTIALS, "DescribeUserScramCredentials", 0, 0, 0, ACCESS,
        "handlers.scram:describe_user_scram_credentials", "DESCRIBE CLUSTER", entries_max=FEW),
    Api(ALTER_USER_SCRAM_CREDENTIALS, "AlterUserScramCredentials", 0, 0, 0, ACCESS,
        "handlers.scram:alter_user_scram_credentials", "ALTER CLUSTER", entries_max=FEW),
    Api(DESCRIBE_QUORUM, "DescribeQuorum", 0, 2, 0, CLUSTER, "",
        "DESCRIBE CLUSTER", listeners=NONE),
    Api(UPDATE_FEATURES, "UpdateFeatures", 0, 2, 0, CLUSTER,
        "handlers.features:update_features", "ALTER CLUSTER", entries_max=FEW),
    Api(DESCRIBE_CLUSTER, "DescribeCluster", 0, 2, 0, CLUSTER,
        "handlers.brokers:describe_cluster", "DESCRIBE CLUSTER if it returns allowed operations"),
    Api(DESCRIBE_PRODUCERS, "DescribeProducers", 0, 0, 0, TRANSACTIONS,
        "handlers.producers:describe_producers", "READ TOPIC"),
    Api(UNREGISTER_BROKER, "UnregisterBroker", 0, 0, 0, CLUSTER,
        "handlers.brokers:unregister_broker", "ALTER CLUSTER", since="3.0"),
    Api(DESCRIBE_TRANSACTIONS, "DescribeTransactions", 0, 0, 0, TRANSACTIONS,
        "handlers.transactions:describe_transactions",
        "DESCRIBE TRANSACTIONAL_ID; DESCRIBE TOPIC"),
    Api(LIST_TRANSACTIONS, "ListTransactions", 0, 2, 0, TRANSACTIONS,
        "handlers.transactions:list_transactions", "DESCRIBE TRANSACTIONAL_ID"),
    Api(CONSUMER_GROUP_HEARTBEAT, "ConsumerGroupHeartbeat", 0, 1, 0, GROUPS,
        "handlers.groups:consumer_group_heartbeat", "READ GROUP; DESCRIBE TOPIC"),
    Api(CONSUMER_GROUP_DESCRIBE, "ConsumerGroupDescribe", 0, 1, 0, GROUPS,
        "handlers.groups:consumer_group_describe", "DESCRIBE GROUP; DESCRIBE TOPIC"),
    Api(LIST_CONFIG_RESOURCES, "ListConfigResources", 0, 1, 0, CLUSTER,
        "handlers.configs:list_config_resources", "DESCRIBE_CONFIGS CLUSTER"),
    Api(DESCRIBE_TOPIC_PARTITIONS, "DescribeTopicPartitions", 0, 0, 0, CLUSTER,
        "handlers.metadata:describe_topic_partitions", "DESCRIBE TOPIC"),
    Api(DESCRIBE_STATE, "DescribeState", 0, 0, NEVER, JSON, "dispatch:Dispatch._describe_state",
        "DESCRIBE CLUSTER", overlaps=True),
    Api(HELLO, "Hello", HELLO_VERSION, HELLO_VERSION, NEVER, JSON,
        "internal_dispatch:InternalDispatch._handshake", listeners=BROKERS),
    Api(CONTROLLER_CALL, "ControllerCall", 0, 0, NEVER, JSON,
        "internal_dispatch:InternalDispatch._call_controller",
        "CLUSTER_ACTION CLUSTER", listeners=BROKERS),
    Api(SET_FAULTS, "SetFaults", 0, 0, NEVER, JSON,
        "internal_dispatch:InternalDispatch._change_faults", "ALTER CLUSTER", listeners=BROKERS),
    Api(DESCRIBE_LOSSES, "DescribeLosses", 0, 0, NEVER, JSON, "dispatch:Dispatch._describe_losses",
        "DESCRIBE CLUSTER", overlaps=True),
)
# fmt: on

APIS = {api.key: api for api in _TABLE}
"""All rows by key."""
CLIENT_APIS = {api.key: api for api in _TABLE if CLIENT in api.listeners}
"""The APIs of the client listener."""
OFFERED = {key: api for key, api in CLIENT_APIS.items() if key not in PRIVATE}
"""The APIs in the response to ApiVersions."""
INTERNAL_APIS = {api.key: api for api in _TABLE if INTERNAL in api.listeners}
"""The APIs of the internal listener."""


def api_name(api_key: int) -> str:
    """The name of an API (`ListOffsets`), or `API 99` if it is unknown."""
    api = APIS.get(api_key)
    return f"API {api_key}" if api is None else api.name


def known_versions(api_key: int) -> tuple[int, int] | None:
    """The lowest and the highest version that the codec knows; None for an unknown API."""
    api = APIS.get(api_key)
    return None if api is None else (api.first, api.codec_versions[-1])


def is_flexible(api_key: int, version: int) -> bool:
    """Whether this version has tagged fields. An unknown API has none."""
    api = APIS.get(api_key)
    return api is not None and version >= api.flexible


class AccessRule(NamedTuple):
    """One rule for a request: one of these rights on the named resource is needed."""

    any_of: tuple[tuple[str, ...], ...]
    """Pairs of operation and resource type, under Kafka's names."""
    condition: str
    """When the rule applies; empty: always."""


def access_rules(api: Api) -> list[AccessRule]:
    """Parse the column `access`: all rules whose condition is true must be met."""
    rules = []
    for clause in api.access.split("; ") if api.access else ():
        rights, _, condition = clause.partition(" if ")
        any_of = tuple(tuple(right.split(" ")) for right in rights.split(" or "))
        rules.append(AccessRule(any_of, condition))
    return rules
