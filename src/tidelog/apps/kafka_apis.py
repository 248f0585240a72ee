"""Every API that a broker of Apache Kafka 4.3 answers its clients, and why some are not here.

From Kafka's message schemas and its own ApiVersions answer. What its brokers say only to its
controllers is left out: Tidelog's brokers have another way of talking to each other.
"""

from typing import NamedTuple


class KafkaApi(NamedTuple):
    """One API with the versions that Kafka 4.3 serves."""

    name: str
    first: int
    last: int


_TABLE = """
0 Produce 3-13
1 Fetch 4-18
2 ListOffsets 1-11
3 Metadata 0-13
8 OffsetCommit 2-10
9 OffsetFetch 1-10
10 FindCoordinator 0-6
11 JoinGroup 0-9
12 Heartbeat 0-4
13 LeaveGroup 0-5
14 SyncGroup 0-5
15 DescribeGroups 0-6
16 ListGroups 0-5
17 SaslHandshake 0-1
18 ApiVersions 0-4
19 CreateTopics 2-7
20 DeleteTopics 1-6
21 DeleteRecords 0-2
22 InitProducerId 0-5
23 OffsetForLeaderEpoch 2-4
24 AddPartitionsToTxn 0-5
25 AddOffsetsToTxn 0-4
26 EndTxn 0-5
27 WriteTxnMarkers 1-2
28 TxnOffsetCommit 0-5
29 DescribeAcls 1-3
30 CreateAcls 1-3
31 DeleteAcls 1-3
32 DescribeConfigs 1-4
33 AlterConfigs 0-2
34 AlterReplicaLogDirs 1-2
35 DescribeLogDirs 1-5
36 SaslAuthenticate 0-2
37 CreatePartitions 0-3
38 CreateDelegationToken 1-3
39 RenewDelegationToken 1-2
40 ExpireDelegationToken 1-2
41 DescribeDelegationToken 1-3
42 DeleteGroups 0-2
43 ElectLeaders 0-2
44 IncrementalAlterConfigs 0-1
45 AlterPartitionReassignments 0-1
46 ListPartitionReassignments 0-0
47 OffsetDelete 0-0
48 DescribeClientQuotas 0-1
49 AlterClientQuotas 0-1
50 DescribeUserScramCredentials 0-0
51 AlterUserScramCredentials 0-0
55 DescribeQuorum 0-2
57 UpdateFeatures 0-2
60 DescribeCluster 0-2
61 DescribeProducers 0-0
64 UnregisterBroker 0-0
65 DescribeTransactions 0-0
66 ListTransactions 0-2
68 ConsumerGroupHeartbeat 0-1
69 ConsumerGroupDescribe 0-1
71 GetTelemetrySubscriptions 0-0
72 PushTelemetry 0-0
74 ListConfigResources 0-1
75 DescribeTopicPartitions 0-0
76 ShareGroupHeartbeat 1-1
77 ShareGroupDescribe 1-1
78 ShareFetch 1-2
79 ShareAcknowledge 1-2
80 AddRaftVoter 0-1
81 RemoveRaftVoter 0-0
83 InitializeShareGroupState 0-0
84 ReadShareGroupState 0-0
85 WriteShareGroupState 0-1
86 DeleteShareGroupState 0-0
87 ReadShareGroupStateSummary 0-1
88 StreamsGroupHeartbeat 0-0
89 StreamsGroupDescribe 0-0
90 DescribeShareGroupOffsets 0-1
91 AlterShareGroupOffsets 0-0
92 DeleteShareGroupOffsets 0-0
"""


def _row(line: str) -> tuple[int, KafkaApi]:
    key, name, versions = line.split()
    first, _, last = versions.partition("-")
    return int(key), KafkaApi(name, int(first), int(last))


KAFKA_APIS: dict[int, KafkaApi] = dict(_row(line) for line in _TABLE.split("\n") if line)

_SHARE = "no share groups"
_STREAMS = "no streams groups; Kafka Streams uses classic ones"
_QUORUM = "there is no quorum of controllers: metadata lies in a store"
_TELEMETRY = "no client metrics; Kafka too offers it only with a plug-in for them"

WHY_NOT: dict[int, str] = {
    27: "no transactions yet; in Kafka only brokers send it",
    **dict.fromkeys((55, 80, 81), _QUORUM),
    57: "there are no features to be switched on or off",
    **dict.fromkeys((71, 72), _TELEMETRY),
    **dict.fromkeys((76, 77, 78, 79, 83, 84, 85, 86, 87, 90, 91, 92), _SHARE),
    **dict.fromkeys((88, 89), _STREAMS),
}
"""By key, for those that are not offered."""
