"""The reference page of APIs, written from the API table (`core/api_table.py`).

`python -m tidelog.apps.apis_page docs/reference/apis.md` writes it; a test fails when the page
is out of date.

The list of Kafka's APIs comes from Kafka's message schemas and its own response to ApiVersions.
APIs that only Kafka's brokers and controllers use among themselves are left out: Tidelog's brokers
use other requests.
"""

import sys
from pathlib import Path
from typing import NamedTuple

from tidelog.core.api.dispatch import FETCH_WAIT_MAX_MS
from tidelog.core.api_table import (
    APIS,
    ENTRIES_MAX,
    FETCH,
    FEW,
    NEVER,
    OFFERED,
    PRIVATE,
    PRODUCE,
    REQUEST_BYTES_MAX,
    Api,
)

INTRO = """# APIs

All APIs that a broker of Apache Kafka 4.3 serves to clients, and what a Tidelog broker does.

- "Here" and "Kafka 4.3" are the versions that each serves. ApiVersions returns those in the column
  "here"; most clients use the highest version that both sides know.
- An API with "no" in that column is not advertised. A request for it, or in a version that is not
  served, closes the connection, as in Kafka; clients that use ApiVersions report an error before.
  Only ApiVersions is answered in any version.
- "Flexible" is the first version with tagged fields (KIP-482).
- "Rights" are the operations and resources that Kafka 4.2 authorises; "or" means that one of them
  is enough. They are asked for if the broker has an [authoriser](../how-to/use-acls.md).

This page is written from the code: `python -m tidelog.apps.apis_page docs/reference/apis.md`.

| key | API | here | Kafka 4.3 | flexible | notes | rights |
|---|---|---|---|---|---|---|
"""

NOTES = {
    "Produce": "acks 0, 1, all; idempotent; in transactions: from 12 on the first batch adds its "
    "partition, before that the leader verifies it. Batches stay compressed, unless the topic "
    "needs another codec or keys. Advertised from 0, as in Kafka; served from 3. Topic ids from 13",
    "Fetch": "sessions; read-committed with a list of aborted transactions; from a follower in the "
    "consumer's rack (KIP-392). Topic ids from 13",
    "ListOffsets": "earliest, latest, by timestamp, largest timestamp. No tiered storage",
    "Metadata": "creates a missing topic if `auto.create.topics.enable`; waits for an ongoing "
    "election ([why](../adr/0017-metadata-waits-for-the-election.md))",
    "OffsetCommit": "replicated to all in-sync replicas. Topic ids from 10",
    "OffsetFetch": "many groups from 8; topic ids from 10",
    "FindCoordinator": "of groups and transactional ids; the first request of each kind creates "
    "`__consumer_offsets` or `__transaction_state`",
    "JoinGroup": "classic groups; static members; any protocol type",
    "Heartbeat": "keeps a member in its group",
    "LeaveGroup": "many members from 3",
    "SyncGroup": "the group's leader assigns, the broker distributes",
    "DescribeGroups": "state, protocol, members and their assignments",
    "ListGroups": "the groups that this broker coordinates, by state and type",
    "DeleteGroups": "groups without members, with their offsets",
    "OffsetDelete": "of topics that the group is not subscribed to",
    "ApiVersions": "finalised: `metadata.version` 30 (4.3-IV0), "
    "`eligible.leader.replicas.version` 1 "
    "([why](../adr/0037-api-versions-of-missing-features.md)), and `transaction.version` and "
    "`tidelog.version` as in the metadata store ([upgrade](../how-to/upgrade.md))",
    "CreateTopics": "at most 10,000 partitions in a request",
    "DeleteTopics": "by name or id",
    "DeleteRecords": "returns the low watermark",
    "InitProducerId": "for idempotent and transactional producers; keeps the producer's identity "
    "from 3 on (KIP-360)",
    "AddPartitionsToTxn": "up to 3 for clients; from 4 on for brokers, which may also only verify",
    "AddOffsetsToTxn": "up to transaction version 1; in version 2 TxnOffsetCommit adds the group",
    "EndTxn": "from 5 on with transaction version 2: returns the next epoch (KIP-890)",
    "WriteTxnMarkers": "ends a transaction on partitions of this broker, also for "
    "`kafka-transactions.sh abort`",
    "TxnOffsetCommit": "in the producer's transaction; from 5 on it adds the group to it",
    "DescribeTransactions": "state, producer, time-out and the partitions that have no marker yet",
    "ListTransactions": "by state, producer id, duration (from 1) and pattern (from 2)",
    "CreateDelegationToken": "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: clients are not authenticated",
    "RenewDelegationToken": "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
    "ExpireDelegationToken": "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
    "DescribeDelegationToken": "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
    "ConsumerGroupHeartbeat": "UNSUPPORTED_VERSION, as Kafka with `group.version=0`: only the "
    "classic protocol. Clients with `group.protocol=consumer` do not fall back: Java and "
    "librdkafka fail at once",
    "ConsumerGroupDescribe": "UNSUPPORTED_VERSION; Java's admin client then uses DescribeGroups",
    "OffsetForLeaderEpoch": "the end offset of an epoch",
    "DescribeConfigs": "topics and this broker, with the source of each value",
    "DescribeLogDirs": "the directories of a broker, and the size of their disks",
    "AlterConfigs": "topics and brokers: replaces all dynamic settings",
    "AlterReplicaLogDirs": "a move ends with the process: repeat it after a restart",
    "SaslHandshake": "on listeners with SASL; elsewhere ILLEGAL_SASL_STATE",
    "SaslAuthenticate": "PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512",
    "DescribeAcls": "without an authoriser SECURITY_DISABLED, as in Kafka",
    "CreateAcls": "as DescribeAcls",
    "DeleteAcls": "as DescribeAcls",
    "DescribeClientQuotas": "by exact name, default or presence of a user, client id or ip",
    "AlterClientQuotas": "[quotas](../how-to/limit-clients.md); needs `tidelog.version` 5",
    "DescribeUserScramCredentials": "users of SCRAM, without their keys",
    "AlterUserScramCredentials": "stores and deletes users of SCRAM, from `tidelog.version` 4 on",
    "DescribeProducers": "idempotent and transactional producers, as this broker's replica knows "
    "them",
    "UnregisterBroker": "a running broker leaves the cluster until it is restarted",
    "UpdateFeatures": "levels change all or none, if every broker supports them "
    "([upgrade](../how-to/upgrade.md))",
    "ListConfigResources": "topics and brokers; nothing else has settings",
    "DescribeTopicPartitions": "page by page, with eligible leader replicas",
    "CreatePartitions": "with `validate_only` only a check",
    "ElectLeaders": "preferred and unclean",
    "IncrementalAlterConfigs": "topics and brokers: set, delete, append, subtract",
    "AlterPartitionReassignments": "starts moves, or cancels them",
    "ListPartitionReassignments": "ongoing moves",
    "DescribeCluster": "brokers; there are no separate controllers",
    "DescribeState": "a broker's view of itself, for `tidelog partition describe`",
    "DescribeLosses": "the losses that a broker recorded, for `tidelog loss list`",
    "Hello": "the handshake in which two brokers prove that they know the cluster's secret",
    "ControllerCall": "heartbeats, ISR changes, and clients' requests for the controller",
    "SetFaults": "with `tidelog.fault.switches=true`: faults for `tidelog verify`",
}

ORDER = """
## Order on one connection

Responses are sent in the order of their requests. Kafka also handles one request of a connection
at a time. Here {overlapping}
requests of one connection overlap. Every other request starts when all earlier requests of its
connection are answered, and later requests start when it is answered. So an OffsetCommit behind a
JoinGroup sees the generation that the join ends with.
"""

LIMITS = f"""
## Limits

One thread serves all clients of a broker, so no request may occupy it for long. A request that
exceeds one of these limits closes its connection:

- {REQUEST_BYTES_MAX >> 20} MiB; for Produce `socket.request.max.bytes` instead;
- {APIS[PRODUCE].entries_max:,} partitions in a Produce, {APIS[FETCH].entries_max:,} in a Fetch;
- {FEW:,} topics, groups or resources to create, find, change, delete or describe;
- {ENTRIES_MAX:,} topics in any other request.

A fetch waits for at most {FETCH_WAIT_MAX_MS // 1000} seconds, whatever it requests.
"""

OWN = """
## Tidelog's own

Between brokers, and from Tidelog's tools; never advertised. A request is one JSON document, and so
is the response ([why](../adr/0016-internal-listener.md)). They may change with any release.

| key | API | listener | purpose |
|---|---|---|---|
"""


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


def _kafka_row(line: str) -> tuple[int, KafkaApi]:
    key, name, versions = line.split()
    first, _, last = versions.partition("-")
    return int(key), KafkaApi(name, int(first), int(last))


KAFKA_APIS: dict[int, KafkaApi] = dict(_kafka_row(line) for line in _TABLE.split("\n") if line)

_SHARE = "no share groups"
_STREAMS = "no streams groups; Kafka Streams uses classic ones"
_QUORUM = (
    "no controller quorum: the store elects the controller "
    "([why](../adr/0047-feature-levels-in-the-store.md))"
)
_TELEMETRY = "no client metrics; Kafka offers it only with a plug-in"

WHY_NOT: dict[int, str] = {
    **dict.fromkeys((55, 80, 81), _QUORUM),
    **dict.fromkeys((71, 72), _TELEMETRY),
    **dict.fromkeys((76, 77, 78, 79, 83, 84, 85, 86, 87, 90, 91, 92), _SHARE),
    **dict.fromkeys((88, 89), _STREAMS),
}
"""The reason for each API of Kafka's that is not offered, by key."""


def page() -> str:
    """Return the whole page."""
    rows = [_row(key, api) for key, api in sorted(KAFKA_APIS.items())]
    overlapping = [api.name for api in OFFERED.values() if api.overlaps]
    order = ORDER.format(overlapping=f"{', '.join(overlapping[:-1])} and {overlapping[-1]}")
    own = [_own_row(APIS[key]) for key in PRIVATE]
    return "".join([INTRO, *rows, order, LIMITS, OWN, *own])


def _row(key: int, kafkas: KafkaApi) -> str:
    theirs = versions(kafkas.first, kafkas.last)
    ours = OFFERED.get(key)
    if ours is None:
        return f"| {key} | {kafkas.name} | no | {theirs} | | {WHY_NOT[key]} | |\n"
    here = versions(ours.first, ours.last)
    cells = (key, ours.name, here, theirs, flexible(key), NOTES[ours.name], ours.access or "none")
    return f"| {' | '.join(map(str, cells))} |\n"


def _own_row(api: Api) -> str:
    return f"| {api.key} | {api.name} | {' and '.join(api.listeners)} | {NOTES[api.name]} |\n"


def versions(first: int, last: int) -> str:
    """Format a range of versions: `3`, or `3–13`."""
    return str(first) if first == last else f"{first}–{last}"


def flexible(key: int) -> str:
    """Return the first served version with tagged fields."""
    first = APIS[key].flexible
    return "never" if first == NEVER else str(max(first, OFFERED[key].first))


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
