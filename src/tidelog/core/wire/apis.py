"""Which APIs the codec speaks, in which versions, and from which on they are flexible.

What a broker offers its clients is less than this, and decided elsewhere.
"""

from typing import NamedTuple

from tidelog.core.wire.schema.notation import VERSION_MAX

NEVER = VERSION_MAX + 1


class Api(NamedTuple):
    """One API, all its versions."""

    name: str
    first: int
    last: int
    flexible: int
    """The first version with tagged fields and compact lengths (KIP-482)."""
    family: str
    """Which table of messages/ spells it."""


RECORDS = "records"
CLUSTER = "cluster"
TOPICS = "topics"
GROUPS = "groups"
TRANSACTIONS = "transactions"
ACCESS = "access"
OWN = "own"

PRODUCE = 0
FETCH = 1
METADATA = 3
FIND_COORDINATOR = 10
API_VERSIONS = 18
ELECT_LEADERS = 43
ALTER_PARTITION_REASSIGNMENTS = 45
DESCRIBE_TOPIC_PARTITIONS = 75
DESCRIBE_STATE = 32000
HELLO = 32001
HELLO_VERSION = 1
"""Version 0 carried the cluster's secret itself, and is refused."""
CONTROLLER_CALL = 32002
SET_FAULTS = 32003
PRIVATE = range(DESCRIBE_STATE, SET_FAULTS + 1)
"""Brokers and tools of this project among themselves; never advertised."""

APIS = {
    0: Api("Produce", 3, 13, 9, RECORDS),
    1: Api("Fetch", 4, 18, 12, RECORDS),
    2: Api("ListOffsets", 1, 11, 6, RECORDS),
    3: Api("Metadata", 0, 13, 9, CLUSTER),
    8: Api("OffsetCommit", 2, 10, 8, GROUPS),
    9: Api("OffsetFetch", 1, 10, 6, GROUPS),
    10: Api("FindCoordinator", 0, 6, 3, GROUPS),
    11: Api("JoinGroup", 0, 9, 6, GROUPS),
    12: Api("Heartbeat", 0, 4, 4, GROUPS),
    13: Api("LeaveGroup", 0, 5, 4, GROUPS),
    14: Api("SyncGroup", 0, 5, 4, GROUPS),
    15: Api("DescribeGroups", 0, 6, 5, GROUPS),
    16: Api("ListGroups", 0, 5, 3, GROUPS),
    17: Api("SaslHandshake", 0, 1, NEVER, ACCESS),
    18: Api("ApiVersions", 0, 4, 3, CLUSTER),
    19: Api("CreateTopics", 2, 7, 5, TOPICS),
    20: Api("DeleteTopics", 1, 6, 4, TOPICS),
    21: Api("DeleteRecords", 0, 2, 2, RECORDS),
    22: Api("InitProducerId", 0, 6, 2, RECORDS),
    23: Api("OffsetForLeaderEpoch", 2, 4, 4, RECORDS),
    24: Api("AddPartitionsToTxn", 0, 5, 3, TRANSACTIONS),
    25: Api("AddOffsetsToTxn", 0, 4, 3, TRANSACTIONS),
    26: Api("EndTxn", 0, 5, 3, TRANSACTIONS),
    27: Api("WriteTxnMarkers", 1, 2, 1, TRANSACTIONS),
    28: Api("TxnOffsetCommit", 0, 5, 3, TRANSACTIONS),
    29: Api("DescribeAcls", 1, 3, 2, ACCESS),
    30: Api("CreateAcls", 1, 3, 2, ACCESS),
    31: Api("DeleteAcls", 1, 3, 2, ACCESS),
    32: Api("DescribeConfigs", 1, 4, 4, CLUSTER),
    33: Api("AlterConfigs", 0, 2, 2, CLUSTER),
    34: Api("AlterReplicaLogDirs", 1, 2, 2, CLUSTER),
    35: Api("DescribeLogDirs", 1, 5, 2, CLUSTER),
    36: Api("SaslAuthenticate", 0, 2, 2, ACCESS),
    37: Api("CreatePartitions", 0, 3, 2, TOPICS),
    38: Api("CreateDelegationToken", 1, 3, 2, ACCESS),
    39: Api("RenewDelegationToken", 1, 2, 2, ACCESS),
    40: Api("ExpireDelegationToken", 1, 2, 2, ACCESS),
    41: Api("DescribeDelegationToken", 1, 3, 2, ACCESS),
    42: Api("DeleteGroups", 0, 2, 2, GROUPS),
    43: Api("ElectLeaders", 0, 2, 2, CLUSTER),
    44: Api("IncrementalAlterConfigs", 0, 1, 1, CLUSTER),
    45: Api("AlterPartitionReassignments", 0, 1, 0, CLUSTER),
    46: Api("ListPartitionReassignments", 0, 0, 0, CLUSTER),
    47: Api("OffsetDelete", 0, 0, NEVER, GROUPS),
    48: Api("DescribeClientQuotas", 0, 1, 1, ACCESS),
    49: Api("AlterClientQuotas", 0, 1, 1, ACCESS),
    50: Api("DescribeUserScramCredentials", 0, 0, 0, ACCESS),
    51: Api("AlterUserScramCredentials", 0, 0, 0, ACCESS),
    55: Api("DescribeQuorum", 0, 2, 0, CLUSTER),
    60: Api("DescribeCluster", 0, 2, 0, CLUSTER),
    61: Api("DescribeProducers", 0, 0, 0, TRANSACTIONS),
    64: Api("UnregisterBroker", 0, 0, 0, CLUSTER),
    65: Api("DescribeTransactions", 0, 0, 0, TRANSACTIONS),
    66: Api("ListTransactions", 0, 2, 0, TRANSACTIONS),
    68: Api("ConsumerGroupHeartbeat", 0, 1, 0, GROUPS),
    69: Api("ConsumerGroupDescribe", 0, 1, 0, GROUPS),
    74: Api("ListConfigResources", 0, 1, 0, CLUSTER),
    75: Api("DescribeTopicPartitions", 0, 0, 0, CLUSTER),
    DESCRIBE_STATE: Api("DescribeState", 0, 0, NEVER, OWN),
    HELLO: Api("Hello", HELLO_VERSION, HELLO_VERSION, NEVER, OWN),
    CONTROLLER_CALL: Api("ControllerCall", 0, 0, NEVER, OWN),
    SET_FAULTS: Api("SetFaults", 0, 0, NEVER, OWN),
}


def spoken_versions(api_key: int) -> tuple[int, int] | None:
    """The lowest and the highest, or None for an API that the codec does not know."""
    api = APIS.get(api_key)
    return None if api is None else (api.first, api.last)


def is_flexible(api_key: int, version: int) -> bool:
    """An API nobody knows is not."""
    api = APIS.get(api_key)
    return api is not None and version >= api.flexible
