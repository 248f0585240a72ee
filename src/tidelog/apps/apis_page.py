"""The reference page of APIs, written from the tables by which brokers answer.

`python -m tidelog.apps.apis_page docs/reference/apis.md` writes it; a test fails when it is
behind the code.
"""

import sys
from pathlib import Path

from tidelog.apps.kafka_apis import KAFKA_APIS, WHY_NOT, KafkaApi
from tidelog.core.api.dispatch import (
    ADMIN_ENTRIES_MAX,
    ENTRIES_MAX,
    FETCH_WAIT_MAX_MS,
    FETCHED_PARTITIONS_MAX,
    QUESTION_BYTES_MAX,
)
from tidelog.core.api.offered import OFFERED
from tidelog.core.wire.apis import APIS, NEVER, PRIVATE
from tidelog.core.wire.produce import PARTITIONS_MAX

INTRO = """# APIs

Every API that a broker of Apache Kafka 4.3 answers its clients, and what a broker here does.
ApiVersions tells clients the versions in the column "here"; most pick the highest version that both
know. What has none there is not advertised. A request for it, or in a version that is not served,
closes the connection, as with Kafka; clients that asked ApiVersions say before that they can't.
Only ApiVersions is answered in any version.

"Flexible" is the first version with tagged fields (KIP-482).

This page is written from the code: `python -m tidelog.apps.apis_page docs/reference/apis.md`.

| key | API | here | Kafka 4.3 | flexible | notes |
|---|---|---|---|---|---|
"""

NOTES = {
    "Produce": "acks 0, 1, all; idempotent. Batches stay closed, unless the topic wants another "
    "codec or keys. Advertised from 0 on, as Kafka does; served from 3. Topic ids from 13 on",
    "Fetch": "sessions; from a follower in the reader's rack (KIP-392). Topic ids from 13 on",
    "ListOffsets": "earliest, latest, by timestamp, largest timestamp. Nothing is tiered",
    "Metadata": "makes a missing topic if `auto.create.topics.enable`; waits for an election under "
    "way ([why](../adr/0017-metadata-waits-for-a-proved-death.md))",
    "OffsetCommit": "kept by all in-sync replicas. Topic ids from 10 on",
    "OffsetFetch": "many groups from 8 on; topic ids from 10 on",
    "FindCoordinator": "of groups; the first question makes `__consumer_offsets`. There are no "
    "transactions yet: UNSUPPORTED_VERSION with a text; for librdkafka "
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED, because it retries all others; for kafkajs (version 2) "
    "this broker, which refuses InitProducerId ([why](../adr/0037-what-api-versions-says.md))",
    "JoinGroup": "classic groups; static members; any protocol type",
    "Heartbeat": "of a member",
    "LeaveGroup": "many members from 3 on",
    "SyncGroup": "the leader assigns, brokers pass on",
    "DescribeGroups": "state, protocol, members and their assignments",
    "ListGroups": "those that this broker coordinates, by state and type",
    "DeleteGroups": "groups without members, with their offsets",
    "OffsetDelete": "of topics that the group has no subscription to",
    "ApiVersions": "finalised: `metadata.version` 30 (4.3-IV0), "
    "`eligible.leader.replicas.version` 1 ([why](../adr/0037-what-api-versions-says.md))",
    "CreateTopics": "at most 10,000 partitions in a request",
    "DeleteTopics": "by name or id",
    "DeleteRecords": "answers the low watermark",
    "InitProducerId": "for idempotent producers; with a transactional id UNSUPPORTED_VERSION, "
    "for librdkafka TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "AddPartitionsToTxn": "UNSUPPORTED_VERSION: no transactions yet",
    "AddOffsetsToTxn": "UNSUPPORTED_VERSION",
    "EndTxn": "UNSUPPORTED_VERSION",
    "TxnOffsetCommit": "UNSUPPORTED_VERSION",
    "DescribeTransactions": "TRANSACTIONAL_ID_NOT_FOUND: no transactions yet",
    "ListTransactions": "an empty list",
    "CreateDelegationToken": "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: clients are not authenticated",
    "RenewDelegationToken": "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
    "ExpireDelegationToken": "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
    "DescribeDelegationToken": "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
    "ConsumerGroupHeartbeat": "UNSUPPORTED_VERSION, as Kafka with `group.version=0`: groups of the "
    "classic protocol only. Clients with `group.protocol=consumer` do not fall back: Java and "
    "librdkafka fail at once",
    "ConsumerGroupDescribe": "UNSUPPORTED_VERSION; Java's admin client then uses DescribeGroups",
    "OffsetForLeaderEpoch": "where an epoch ends",
    "DescribeConfigs": "topics and this broker, with the source of each value",
    "DescribeLogDirs": "the one folder of a broker, and its disk's bytes",
    "AlterConfigs": "topics and brokers: all that was set is replaced",
    "AlterReplicaLogDirs": "a broker has one folder: where a replica is, it may stay",
    "SaslHandshake": "ILLEGAL_SASL_STATE: nobody is authenticated",
    "SaslAuthenticate": "ILLEGAL_SASL_STATE",
    "DescribeAcls": "SECURITY_DISABLED, as Kafka without an authoriser",
    "CreateAcls": "SECURITY_DISABLED",
    "DeleteAcls": "SECURITY_DISABLED",
    "DescribeClientQuotas": "there are none",
    "AlterClientQuotas": "each entry is declined: UNSUPPORTED_VERSION, with a text",
    "DescribeUserScramCredentials": "nobody has a password",
    "AlterUserScramCredentials": "UNSUPPORTED_SASL_MECHANISM: nobody is authenticated",
    "DescribeProducers": "idempotent producers, as a replica here knows them",
    "UnregisterBroker": "a running broker leaves the cluster until it is restarted",
    "ListConfigResources": "topics and brokers; there are no settings of anything else",
    "DescribeTopicPartitions": "page by page, with eligible leader replicas",
    "CreatePartitions": "with `validate_only` nothing is made",
    "ElectLeaders": "preferred and unclean",
    "IncrementalAlterConfigs": "topics and brokers: set, unset, lengthen, shorten",
    "AlterPartitionReassignments": "begin moves, or take them back",
    "ListPartitionReassignments": "moves under way",
    "DescribeCluster": "brokers; there are no controllers apart from them",
    "DescribeState": "client listener: a broker's view of itself, for `tidelog partition describe`",
    "Hello": "internal listener: the handshake by which two brokers prove themselves",
    "ControllerCall": "internal listener: heartbeats, ISR proposals, what clients want of the "
    "controller",
    "SetFaults": "internal listener, with `tidelog.fault.switches=true`: faults for "
    "`tidelog verify`",
}

ORDER = """
## Order on one connection

Responses leave in the order of their requests. Kafka also handles one request of a connection at a
time. Here Produce, Fetch, Metadata and FindCoordinator of one connection overlap; every other
request starts when all earlier requests of its connection are answered, and later requests start
when it is answered. So an OffsetCommit behind a JoinGroup sees the generation that the join ends
with.
"""

LIMITS = f"""
## Limits

One thread serves all clients of a broker, so no request may keep it for long. A request past
one of these closes its connection:

- {QUESTION_BYTES_MAX >> 20} MiB, but for Produce, which has `socket.request.max.bytes`;
- {PARTITIONS_MAX:,} partitions in a Produce, {FETCHED_PARTITIONS_MAX:,} in a Fetch;
- {ADMIN_ENTRIES_MAX:,} topics, groups or resources to make, find, change, delete or describe;
- {ENTRIES_MAX:,} topics in any other.

A fetch waits for {FETCH_WAIT_MAX_MS // 1000} seconds at most, whatever it asks for.
"""

OWN = """
## Tidelog's own

Between brokers, and from our tools; never advertised. A request is one JSON document, and so is
the answer ([why](../adr/0016-internal-listener.md)). They may change with any release.

| key | API | where and what |
|---|---|---|
"""


def page() -> str:
    """The whole text."""
    rows = [_row(key, api) for key, api in sorted(KAFKA_APIS.items())]
    own = [f"| {key} | {APIS[key].name} | {NOTES[APIS[key].name]} |\n" for key in PRIVATE]
    return "".join([INTRO, *rows, ORDER, LIMITS, OWN, *own])


def _row(key: int, kafkas: KafkaApi) -> str:
    theirs = versions(kafkas.first, kafkas.last)
    ours = OFFERED.get(key)
    if ours is None:
        return f"| {key} | {kafkas.name} | no | {theirs} | | {WHY_NOT[key]} |\n"
    here = versions(ours.first, ours.last)
    return f"| {key} | {ours.name} | {here} | {theirs} | {flexible(key)} | {NOTES[ours.name]} |\n"


def versions(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}–{last}"


def flexible(key: int) -> str:
    """The first served version with tagged fields."""
    first = APIS[key].flexible
    return "never" if first == NEVER else str(max(first, OFFERED[key].first))


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
