"""What guards ask of the authoriser, and what a principal gets that is refused.

Every version of every API is sent by a super user, who gets the same responses as without an
authoriser, and by a stranger, who is refused. What the guards ask is compared with the column
`access` of the API table.
"""

from typing import Any

import pytest
from api_cluster import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    DELETE_GROUPS,
    DELETE_TOPICS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    TXN_OFFSET_COMMIT,
    ApiCluster,
)
from test_every_version import EXPECTED, ONE_BROKER, REQUESTS, all_error_codes

from tidelog.core.api.access_control import Access
from tidelog.core.api.guards import GUARDS, UNGUARDED
from tidelog.core.api.handlers import HANDLERS
from tidelog.core.api_table import (
    CREATE_ACLS,
    DELETE_ACLS,
    DESCRIBE_ACLS,
    DESCRIBE_CLUSTER,
    INTERNAL,
    LIST_TRANSACTIONS,
    METADATA,
    OFFERED,
    access_rules,
)
from tidelog.core.authorization.acl import Operation, PatternType, Permission, ResourceType
from tidelog.core.authorization.authorizer import STANDARD_AUTHORIZER
from tidelog.core.errors import ErrorCode
from tidelog.core.principal import USER, Principal

ADMIN, STRANGER = Principal(USER, "admin"), Principal(USER, "stranger")
AUTHORIZER = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:x; User:admin"}
REFUSALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
FILTERED = {LIST_GROUPS, LIST_TRANSACTIONS, DESCRIBE_CLUSTER}
"""APIs without a refusal: they leave out what the principal may not see."""
VERSIONS = [
    (key, version)
    for key in sorted(GUARDS)
    for version in range(OFFERED[key].first, OFFERED[key].last + 1)
]


def prepared(api_key: int) -> ApiCluster:
    brokers = ApiCluster(brokers=(1,), texts={**ONE_BROKER, **AUTHORIZER}, principal=ADMIN)
    brokers.start_all()
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
        ADD_OFFSETS_TO_TXN,
    ):
        brokers.coordinator("group")
        brokers.transaction_coordinator("t")
    return brokers


@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
def test_a_super_user_is_served_and_a_stranger_is_refused(api_key: int, version: int) -> None:
    brokers = prepared(api_key)
    request = REQUESTS[api_key]

    refused = brokers.request(1, api_key, request, version, principal=STRANGER)

    codes = all_error_codes(refused)
    if api_key in FILTERED:
        assert codes == {ErrorCode.NONE}
    else:
        found = codes & REFUSALS
        assert found or refused_silently(refused), refused
        assert codes <= REFUSALS | {ErrorCode.NONE}, refused
    served = brokers.request(1, api_key, request, version, principal=ADMIN)
    expected = EXPECTED.get(api_key, {ErrorCode.NONE})
    if api_key in (DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS):
        expected = {ErrorCode.NONE, ErrorCode.INVALID_REQUEST}
    assert all_error_codes(served) <= expected


def refused_silently(response: dict[str, Any]) -> bool:
    """Whether a response of an old version, which has no code for an error, is empty."""
    lists = [value for value in response.values() if isinstance(value, list)]
    return not any(lists)


def test_every_handler_has_a_guard_or_needs_none() -> None:
    assert set(GUARDS) | UNGUARDED == set(HANDLERS)
    assert not set(GUARDS) & UNGUARDED
    unrestricted = {key for key in GUARDS if not OFFERED[key].access}
    assert not unrestricted


class Asked:
    """Notes what a guard asks, and answers by a rule."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
        self.rights: set[tuple[str, str]] = set()

        def may(
            _access: Access,
            operation: Operation,
            kind: ResourceType,
            _name: str,
            *,
            log: bool = True,
        ) -> bool:
            self.rights.add((operation.name, kind.name))
            return bool(answer(operation, kind))

        def may_on_any(_access: Access, operation: Operation, kind: ResourceType) -> bool:
            self.rights.add((operation.name, kind.name))
            return bool(answer(operation, kind))

        monkeypatch.setattr(Access, "may", may)
        monkeypatch.setattr(Access, "may_on_any", may_on_any)


NOT_IN_REQUESTS = {
    "Metadata": {("CREATE", "CLUSTER"), ("CREATE", "TOPIC")},
    "ListGroups": {("DESCRIBE", "GROUP")},
    "DescribeConfigs": {("DESCRIBE_CONFIGS", "CLUSTER"), ("DESCRIBE_CONFIGS", "GROUP")},
    "AlterConfigs": {("ALTER_CONFIGS", "CLUSTER"), ("ALTER_CONFIGS", "GROUP")},
    "IncrementalAlterConfigs": {("ALTER_CONFIGS", "CLUSTER"), ("ALTER_CONFIGS", "GROUP")},
    "DescribeTransactions": {("DESCRIBE", "TOPIC")},
    "ListTransactions": {("DESCRIBE", "TRANSACTIONAL_ID")},
    "FindCoordinator": {("DESCRIBE", "TRANSACTIONAL_ID")},
    "InitProducerId": {("WRITE", "TRANSACTIONAL_ID")},
}
"""Rights of the table that the requests of the tests do not need: tests of their own ask for
them."""


@pytest.mark.parametrize("api_key", sorted(GUARDS))
def test_a_guard_asks_for_what_the_api_table_says(
    api_key: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = OFFERED[api_key]
    table = {right for rule in access_rules(api) for right in rule.any_of}
    brokers = prepared(api_key)
    asked: set[tuple[str, str]] = set()
    cluster = ResourceType.CLUSTER
    rules = (
        lambda _o, _k: True,
        lambda _o, _k: False,
        lambda _o, kind: kind is not cluster,
        lambda _o, kind: kind is not ResourceType.TOPIC and kind is not cluster,
    )
    request = dict(REQUESTS[api_key])
    for name in ("include_cluster_authorized_operations", "include_topic_authorized_operations"):
        if api_key in (METADATA, DESCRIBE_CLUSTER):
            request[name] = True
    for version in {api.first, min(8, api.last), api.last}:
        for rule in rules:
            seen = Asked(monkeypatch, rule)
            one = {**request}
            brokers.request(1, api_key, one, version, principal=STRANGER)
            asked |= seen.rights
    expected = {(operation, kind) for operation, kind in table}
    assert asked <= expected, f"{api.name} asks for {asked - expected}, not in its row"
    missing = expected - asked - NOT_IN_REQUESTS.get(api.name, set())
    assert not missing, f"{api.name} never asks for {missing}"
    assert INTERNAL not in api.listeners or asked


def test_a_group_that_is_named_twice_gets_the_refusals_of_each_time() -> None:
    brokers = prepared(OFFSET_COMMIT)
    brokers.create("other")
    allowed = {
        "resource_type": ResourceType.GROUP,
        "resource_name": "group",
        "resource_pattern_type": PatternType.LITERAL,
        "principal": "User:stranger",
        "host": "*",
        "operation": Operation.DESCRIBE,
        "permission_type": Permission.ALLOW,
    }
    brokers.request(1, CREATE_ACLS, {"creations": [allowed]})
    groups = [
        {"group_id": "group", "topics": [{"name": name, "partition_indexes": [0]}]}
        for name in ("orders", "other")
    ]

    found = brokers.request(1, OFFSET_FETCH, {"groups": groups}, 8, principal=STRANGER)["groups"]

    assert [each["topics"][0]["name"] for each in found] == ["orders", "other"]
    assert all_error_codes(found[0]) == {ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED}


def test_a_topic_that_only_the_controller_knows_is_not_deleted_by_its_id() -> None:
    """The image of this broker lacks its name, so the right to delete it is unknown."""
    brokers = prepared(DELETE_TOPICS)
    request = {"topics": [{"name": None, "topic_id": b"\x44" * 16}], "timeout_ms": 1000}

    [found] = brokers.request(1, DELETE_TOPICS, request, 6, principal=STRANGER)["responses"]

    assert found["error_code"] == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("known", [True, False])
def test_an_id_that_is_given_twice_does_not_name_its_topic(known: bool) -> None:
    """Kafka answers with the id only; whether the topic exists must not show either."""
    brokers = prepared(DELETE_TOPICS)
    topic_id = brokers.nodes[1].image.topics["orders"].topic_id if known else b"\x44" * 16
    twice = {"name": None, "topic_id": topic_id}
    request = {"topics": [twice, twice], "timeout_ms": 1000}

    [found] = brokers.request(1, DELETE_TOPICS, request, 6, principal=STRANGER)["responses"]

    assert found == {
        "name": None,
        "topic_id": topic_id,
        "error_code": ErrorCode.INVALID_REQUEST,
        "error_message": "The topic id is given more than once in the request.",
    }
