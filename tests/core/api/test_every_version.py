"""Every offered version of every API: a sensible request is answered, in bytes, without error."""

from typing import Any

import pytest
from api_cluster import (
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
    NO_TOPIC_ID,
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
    ApiCluster,
    creatable,
)

from tidelog.core.api.handlers import HANDLERS
from tidelog.core.api_table import FETCH, OFFERED, PRODUCE, UPDATE_FEATURES, WRITE_TXN_MARKERS
from tidelog.core.errors import ErrorCode

ORDERS_ID = (1).to_bytes(16, "big")
"""The first topic that is made."""
MEMBER = {"group_id": "group", "generation_id": 1, "member_id": "member"}
ONE_PARTITION = {"partition_index": 0, "current_leader_epoch": 0, "timestamp": -1}
ACL_FILTER = {
    "resource_type_filter": 2,
    "resource_name_filter": None,
    "pattern_type_filter": 3,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
ACL = {
    "resource_type": 2,
    "resource_name": "orders",
    "resource_pattern_type": 3,
    "principal": "User:u",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
TRANSACTION = {"transactional_id": "t", "producer_id": 1, "producer_epoch": 0}
IN_TRANSACTION = [{"name": "orders", "partitions": [0]}]
REQUESTS: dict[int, dict[str, Any]] = {
    LIST_OFFSETS: {
        "replica_id": -1,
        "isolation_level": 1,
        "topics": [{"name": "orders", "partitions": [ONE_PARTITION]}],
        "timeout_ms": 1000,
    },
    METADATA: {
        "topics": [{"topic_id": NO_TOPIC_ID, "name": "orders"}],
        "allow_auto_topic_creation": True,
    },
    FIND_COORDINATOR: {"key": "group", "key_type": 0, "coordinator_keys": ["group", "other"]},
    API_VERSIONS: {"client_software_name": "test", "client_software_version": "1.0"},
    CREATE_TOPICS: {
        "topics": [creatable("payments", configs={"retention.ms": "1000"})],
        "timeout_ms": 1000,
        "validate_only": False,
    },
    DELETE_TOPICS: {
        "topics": [{"name": "orders", "topic_id": NO_TOPIC_ID}],
        "topic_names": ["orders"],
        "timeout_ms": 1000,
    },
    DELETE_RECORDS: {
        "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "offset": -1}]}],
        "timeout_ms": 1000,
    },
    INIT_PRODUCER_ID: {
        "transactional_id": None,
        "transaction_timeout_ms": 1000,
        "producer_id": -1,
        "producer_epoch": -1,
    },
    OFFSET_FOR_LEADER_EPOCH: {
        "replica_id": -1,
        "topics": [
            {
                "topic": "orders",
                "partitions": [{"partition": 0, "current_leader_epoch": 0, "leader_epoch": 0}],
            }
        ],
    },
    DESCRIBE_CONFIGS: {
        "resources": [
            {"resource_type": 2, "resource_name": "orders", "configuration_keys": None},
            {"resource_type": 4, "resource_name": "1", "configuration_keys": None},
        ],
        "include_synonyms": True,
        "include_documentation": True,
    },
    CREATE_PARTITIONS: {
        "topics": [{"name": "orders", "count": 3, "assignments": None}],
        "timeout_ms": 1000,
        "validate_only": False,
    },
    ELECT_LEADERS: {
        "election_type": 0,
        "topic_partitions": [{"topic": "orders", "partitions": [0]}],
        "timeout_ms": 1000,
    },
    INCREMENTAL_ALTER_CONFIGS: {
        "resources": [
            {
                "resource_type": 2,
                "resource_name": "orders",
                "configs": [
                    {"name": "retention.ms", "config_operation": 0, "value": "5000"},
                ],
            }
        ],
        "validate_only": False,
    },
    ALTER_CONFIGS: {
        "resources": [
            {
                "resource_type": 2,
                "resource_name": "orders",
                "configs": [{"name": "retention.ms", "value": "5000"}],
            }
        ],
        "validate_only": False,
    },
    DESCRIBE_LOG_DIRS: {"topics": None},
    ALTER_PARTITION_REASSIGNMENTS: {
        "timeout_ms": 1000,
        "topics": [
            {"name": "orders", "partitions": [{"partition_index": 0, "replicas": [1]}]},
        ],
    },
    LIST_PARTITION_REASSIGNMENTS: {"timeout_ms": 1000, "topics": None},
    DESCRIBE_CLUSTER: {"include_cluster_authorized_operations": True},
    SASL_HANDSHAKE: {"mechanism": "PLAIN"},
    SASL_AUTHENTICATE: {"auth_bytes": b"x"},
    DESCRIBE_ACLS: ACL_FILTER,
    CREATE_ACLS: {"creations": [ACL]},
    DELETE_ACLS: {"filters": [ACL_FILTER]},
    ALTER_REPLICA_LOG_DIRS: {
        "dirs": [
            {
                "path": "tidelog-data/broker-1",
                "topics": [{"name": "orders", "partitions": [0]}],
            }
        ]
    },
    DESCRIBE_CLIENT_QUOTAS: {"components": [], "strict": False},
    ALTER_CLIENT_QUOTAS: {
        "entries": [
            {
                "entity": [{"entity_type": "user", "entity_name": "u"}],
                "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": False}],
            }
        ],
        "validate_only": False,
    },
    DESCRIBE_USER_SCRAM_CREDENTIALS: {"users": None},
    ALTER_USER_SCRAM_CREDENTIALS: {
        "deletions": [{"name": "u", "mechanism": 1}],
        "upsertions": [],
    },
    DESCRIBE_PRODUCERS: {"topics": [{"name": "orders", "partition_indexes": [0]}]},
    LIST_CONFIG_RESOURCES: {"resource_types": []},
    OFFSET_COMMIT: {
        "group_id": "group",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [
            {
                "name": "orders",
                "topic_id": ORDERS_ID,
                "partitions": [
                    {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
                ],
            }
        ],
    },
    OFFSET_FETCH: {
        "group_id": "group",
        "topics": [{"name": "orders", "partition_indexes": [0]}],
        "groups": [
            {
                "group_id": "group",
                "topics": [
                    {"name": "orders", "topic_id": ORDERS_ID, "partition_indexes": [0]},
                ],
            }
        ],
    },
    JOIN_GROUP: {
        "group_id": "group",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    },
    HEARTBEAT: MEMBER,
    LEAVE_GROUP: {
        "group_id": "group",
        "member_id": "member",
        "members": [{"member_id": "member", "group_instance_id": None}],
    },
    SYNC_GROUP: {
        **MEMBER,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [],
    },
    DESCRIBE_GROUPS: {"groups": ["group"]},
    LIST_GROUPS: {},
    DELETE_GROUPS: {"groups_names": ["group"]},
    OFFSET_DELETE: {
        "group_id": "group",
        "topics": [{"name": "orders", "partitions": [{"partition_index": 0}]}],
    },
    UNREGISTER_BROKER: {"broker_id": 9},
    UPDATE_FEATURES: {
        "timeout_ms": 1000,
        "feature_updates": [
            {
                "feature": "tidelog.version",
                "max_version_level": 5,
                "allow_downgrade": False,
                "upgrade_type": 1,
            }
        ],
        "validate_only": True,
    },
    ADD_PARTITIONS_TO_TXN: {
        "transactions": [{**TRANSACTION, "verify_only": False, "topics": IN_TRANSACTION}],
        **{f"v3_and_below_{name}": value for name, value in TRANSACTION.items()},
        "v3_and_below_topics": IN_TRANSACTION,
    },
    ADD_OFFSETS_TO_TXN: {**TRANSACTION, "group_id": "group"},
    WRITE_TXN_MARKERS: {
        "markers": [
            {
                "producer_id": 7,
                "producer_epoch": 1,
                "transaction_result": False,
                "topics": [{"name": "orders", "partition_indexes": [0]}],
                "coordinator_epoch": 0,
                "transaction_version": 2,
            }
        ]
    },
    END_TXN: {**TRANSACTION, "committed": True},
    TXN_OFFSET_COMMIT: {
        **TRANSACTION,
        **MEMBER,
        "topics": [
            {
                "name": "orders",
                "partitions": [
                    {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
                ],
            }
        ],
    },
    DESCRIBE_TRANSACTIONS: {"transactional_ids": ["t"]},
    LIST_TRANSACTIONS: {"state_filters": ["Ongoing"], "producer_id_filters": []},
    CREATE_DELEGATION_TOKEN: {
        "owner_principal_type": None,
        "owner_principal_name": None,
        "renewers": [{"principal_type": "User", "principal_name": "u"}],
        "max_lifetime_ms": -1,
    },
    RENEW_DELEGATION_TOKEN: {"hmac": b"x", "renew_period_ms": 1},
    EXPIRE_DELEGATION_TOKEN: {"hmac": b"x", "expiry_time_period_ms": 1},
    DESCRIBE_DELEGATION_TOKEN: {"owners": None},
    CONSUMER_GROUP_HEARTBEAT: {
        "group_id": "group",
        "member_id": "member",
        "member_epoch": 0,
        "subscribed_topic_names": ["orders"],
    },
    CONSUMER_GROUP_DESCRIBE: {"group_ids": ["group"], "include_authorized_operations": False},
    DESCRIBE_TOPIC_PARTITIONS: {"topics": [], "response_partition_limit": 10, "cursor": None},
}
EXPECTED = {
    JOIN_GROUP: {ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED},
    HEARTBEAT: {ErrorCode.UNKNOWN_MEMBER_ID},
    LEAVE_GROUP: {ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID},
    SYNC_GROUP: {ErrorCode.UNKNOWN_MEMBER_ID},
    DESCRIBE_GROUPS: {ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND},
    DELETE_GROUPS: {ErrorCode.GROUP_ID_NOT_FOUND},
    OFFSET_DELETE: {ErrorCode.GROUP_ID_NOT_FOUND},
    TXN_OFFSET_COMMIT: {ErrorCode.INVALID_PRODUCER_ID_MAPPING},
    ELECT_LEADERS: {ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED},
    SASL_HANDSHAKE: {ErrorCode.ILLEGAL_SASL_STATE},
    SASL_AUTHENTICATE: {ErrorCode.ILLEGAL_SASL_STATE},
    DESCRIBE_ACLS: {ErrorCode.SECURITY_DISABLED},
    CREATE_ACLS: {ErrorCode.SECURITY_DISABLED},
    DELETE_ACLS: {ErrorCode.SECURITY_DISABLED},
    ALTER_USER_SCRAM_CREDENTIALS: {ErrorCode.RESOURCE_NOT_FOUND},
    UNREGISTER_BROKER: {ErrorCode.BROKER_ID_NOT_REGISTERED},
    **{
        key: {ErrorCode.UNSUPPORTED_VERSION}
        for key in (
            CONSUMER_GROUP_HEARTBEAT,
            CONSUMER_GROUP_DESCRIBE,
        )
    },
    **{
        key: {ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED}
        for key in (
            CREATE_DELEGATION_TOKEN,
            RENEW_DELEGATION_TOKEN,
            EXPIRE_DELEGATION_TOKEN,
            DESCRIBE_DELEGATION_TOKEN,
        )
    },
    **{key: {ErrorCode.INVALID_PRODUCER_ID_MAPPING} for key in (ADD_OFFSETS_TO_TXN, END_TXN)},
    ADD_PARTITIONS_TO_TXN: {ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_ID_MAPPING},
    DESCRIBE_TRANSACTIONS: {ErrorCode.TRANSACTIONAL_ID_NOT_FOUND},
}
ONE_BROKER = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


def all_error_codes(value: Any) -> set[int]:
    if isinstance(value, list):
        return set().union(*(all_error_codes(each) for each in value))
    if not isinstance(value, dict):
        return set()
    codes = {value[key] for key in ("error_code", "partition_error_code") if key in value}
    return codes.union(*(all_error_codes(each) for each in value.values()))


@pytest.mark.parametrize(
    ("api_key", "version"),
    [
        (key, version)
        for key in HANDLERS
        for version in range(OFFERED[key].first, OFFERED[key].last + 1)
    ],
    ids=str,
)
def test_every_offered_version_is_answered(api_key: int, version: int) -> None:
    brokers = ApiCluster(brokers=(1,), texts=ONE_BROKER).start_all()
    brokers.create("orders")
    if api_key in range(OFFSET_COMMIT, LIST_GROUPS + 1) or api_key in (
        DELETE_GROUPS,
        OFFSET_DELETE,
        TXN_OFFSET_COMMIT,
    ):
        brokers.coordinator("group")
    if api_key in range(ADD_PARTITIONS_TO_TXN, END_TXN + 1) or api_key in (
        TXN_OFFSET_COMMIT,
        DESCRIBE_TRANSACTIONS,
    ):
        brokers.coordinator("group")
        brokers.transaction_coordinator("t")
    answer = brokers.request(1, api_key, REQUESTS[api_key], version)
    codes = all_error_codes(answer)
    assert codes
    assert codes <= EXPECTED.get(api_key, {ErrorCode.NONE})


def test_every_handled_api_is_tested_here() -> None:
    assert set(REQUESTS) == set(HANDLERS)
    assert set(OFFERED) == {*HANDLERS, PRODUCE, FETCH}


LONG = "x" * 32767
"""As long as a text can be in versions before the flexible ones."""


@pytest.mark.parametrize(
    ("api_key", "version", "request_"),
    [
        (CREATE_TOPICS, 4, {"topics": [creatable(LONG)] * 2}),
        (CREATE_TOPICS, 4, {"topics": [creatable(LONG)]}),
        (CREATE_TOPICS, 4, {"topics": [creatable("a", configs={LONG: None})]}),
        (CREATE_TOPICS, 4, {"topics": [creatable("a", configs={"retention.ms": LONG})]}),
        (DELETE_TOPICS, 3, {"topic_names": [LONG, LONG]}),
        (CREATE_PARTITIONS, 1, {"topics": [{"name": LONG, "count": 3, "assignments": None}] * 2}),
        (ELECT_LEADERS, 1, {"topic_partitions": [{"topic": LONG, "partitions": [0]}]}),
        (
            DESCRIBE_CONFIGS,
            3,
            {"resources": [{"resource_type": 4, "resource_name": LONG}]},
        ),
        (
            INCREMENTAL_ALTER_CONFIGS,
            0,
            {
                "resources": [
                    {
                        "resource_type": 2,
                        "resource_name": "orders",
                        "configs": [{"name": LONG, "config_operation": 0, "value": LONG}],
                    }
                ]
            },
        ),
    ],
)
def test_the_longest_names_are_refused_in_answers_that_fit(
    api_key: int, version: int, request_: dict[str, Any]
) -> None:
    brokers = ApiCluster(brokers=(1,)).start_all()
    brokers.create("orders")
    answer = brokers.request(1, api_key, {**REQUESTS[api_key], **request_}, version)
    assert all_error_codes(answer) - {ErrorCode.NONE}
