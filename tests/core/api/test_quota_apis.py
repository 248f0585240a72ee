"""DescribeClientQuotas and AlterClientQuotas: what is stored, described and refused."""

from typing import Any

import pytest
from api_cluster import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS, ApiCluster

from tidelog.core.controller.metadata.features import QUOTAS
from tidelog.core.errors import ErrorCode

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
NONE, INVALID = ErrorCode.NONE, ErrorCode.INVALID_REQUEST

Parts = dict[str, str | None]
ALICE: Parts = {"user": "alice"}
EVERY_USER: Parts = {"user": None}
APP: Parts = {"client-id": "app"}
ALICE_APP: Parts = {"client-id": "app", "user": "alice"}
ADDRESS: Parts = {"ip": "10.0.0.1"}


@pytest.fixture
def cluster() -> ApiCluster:
    return ApiCluster(brokers=(1, 2)).start_all()


def entry(parts: Parts, **quotas: float | None) -> dict[str, Any]:
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in parts.items()],
        "ops": [
            {"key": key, "value": value or 0.0, "remove": value is None}
            for key, value in quotas.items()
        ],
    }


def alter(
    cluster: ApiCluster, *entries: dict[str, Any], validate_only: bool = False
) -> list[tuple[ErrorCode, str | None]]:
    """Send the request to broker 2, which may not be the controller."""
    request = {"entries": list(entries), "validate_only": validate_only}
    answer = cluster.request(2, ALTER_CLIENT_QUOTAS, request)
    cluster.settle()
    return [(ErrorCode(each["error_code"]), each["error_message"]) for each in answer["entries"]]


def component(kind: str, match_type: int = EXACT, match: str | None = "x") -> dict[str, Any]:
    return {"entity_type": kind, "match_type": match_type, "match": match}


def describe(
    cluster: ApiCluster, *components: dict[str, Any], strict: bool = False
) -> list[tuple[Parts, dict[str, float]]]:
    request = {"components": list(components), "strict": strict}
    answer = cluster.request(1, DESCRIBE_CLIENT_QUOTAS, request)
    assert answer["error_code"] == NONE, answer
    return [
        (
            {part["entity_type"]: part["entity_name"] for part in each["entity"]},
            {value["key"]: value["value"] for value in each["values"]},
        )
        for each in answer["entries"]
    ]


def test_quotas_are_stored_and_every_broker_describes_them(cluster: ApiCluster) -> None:
    assert describe(cluster) == []

    assert (
        alter(
            cluster,
            entry(ALICE, producer_byte_rate=1024, request_percentage=12.5),
            entry(ADDRESS, connection_creation_rate=7),
        )
        == [(NONE, None)] * 2
    )

    assert describe(cluster) == [
        (ALICE, {"producer_byte_rate": 1024.0, "request_percentage": 12.5}),
        (ADDRESS, {"connection_creation_rate": 7.0}),
    ]


def test_a_quota_is_replaced_and_the_last_one_removed_removes_the_entity(
    cluster: ApiCluster,
) -> None:
    alter(cluster, entry(ALICE, producer_byte_rate=1, consumer_byte_rate=2))

    alter(cluster, entry(ALICE, producer_byte_rate=3, consumer_byte_rate=None))
    assert describe(cluster) == [(ALICE, {"producer_byte_rate": 3.0})]

    assert alter(cluster, entry(ALICE, producer_byte_rate=None)) == [(NONE, None)]
    assert describe(cluster) == []
    assert alter(cluster, entry(ALICE, producer_byte_rate=None)) == [(NONE, None)]


def test_nothing_is_stored_when_a_request_is_only_validated(cluster: ApiCluster) -> None:
    results = alter(
        cluster,
        entry(ALICE, producer_byte_rate=1),
        entry(APP, producer_byte_rate=-1),
        validate_only=True,
    )

    assert [error for error, _ in results] == [NONE, INVALID]
    assert describe(cluster) == []


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (entry({}, producer_byte_rate=1), "empty client quota entity"),
        (entry({"planet": "x"}, producer_byte_rate=1), "entity type: planet"),
        (entry({"user": ""}, producer_byte_rate=1), "Empty user"),
        (entry({"ip": "10.0.0.1", "user": "u"}, producer_byte_rate=1), "combin"),
        (entry({"ip": "not an address"}, connection_creation_rate=1), "not a valid IP"),
        (entry(ADDRESS, producer_byte_rate=1), "Invalid configuration key producer_byte_rate"),
        (entry(ALICE, connection_creation_rate=1), "Invalid configuration key"),
        (entry(ALICE, producer_byte_rate=0.0), "must be greater than 0"),
        (entry(ALICE, request_percentage=float("nan")), "must be greater than 0"),
        (entry(ALICE, request_percentage=float("inf")), "finite"),
        (entry(ALICE, producer_byte_rate=1.5), "cannot be a fractional value"),
        (entry(ALICE, producer_byte_rate=1e-310), "cannot be a fractional value"),
        (entry(ADDRESS, connection_creation_rate=1e-7), "cannot be a fractional value"),
        (entry(ALICE, consumer_byte_rate=1e30), "too large"),
        (entry(ADDRESS, connection_creation_rate=2.0**31), "too large"),
    ],
)
def test_an_invalid_entity_is_refused_and_the_others_are_stored(
    cluster: ApiCluster, wrong: dict[str, Any], text: str
) -> None:
    (error, message), good = alter(cluster, wrong, entry(APP, producer_byte_rate=5))

    assert error is INVALID
    assert message is not None
    assert text in message
    assert good == (NONE, None)
    assert describe(cluster) == [(APP, {"producer_byte_rate": 5.0})]


def test_a_low_level_is_refused_before_the_request_is_forwarded(cluster: ApiCluster) -> None:
    cluster.nodes[2].image.features["tidelog.version"] = QUOTAS - 1

    [(error, message)] = alter(cluster, entry(ALICE, producer_byte_rate=1))

    assert error is ErrorCode.UNSUPPORTED_VERSION
    assert f"tidelog features upgrade --feature tidelog.version={QUOTAS}" in str(message)
    assert describe(cluster) == []


def test_a_key_or_an_entity_twice_is_refused(cluster: ApiCluster) -> None:
    twice = entry(ALICE, producer_byte_rate=1)
    twice["ops"] *= 2
    [(error, message)] = alter(cluster, twice)
    assert error is INVALID
    assert "Duplicate quota key" in str(message)

    results = alter(cluster, *[entry(APP, producer_byte_rate=1)] * 2)
    assert [error for error, _ in results] == [INVALID]


def test_spellings_of_an_address_are_one_entity(cluster: ApiCluster) -> None:
    alter(cluster, entry({"ip": "2001:DB8::0:1"}, connection_creation_rate=1))
    alter(cluster, entry({"ip": "2001:db8:0::1"}, connection_creation_rate=2))
    alter(cluster, entry({"ip": "::ffff:10.0.0.1"}, connection_creation_rate=3))

    v6: Parts = {"ip": "2001:db8::1"}
    assert describe(cluster) == [
        (v6, {"connection_creation_rate": 2.0}),
        (ADDRESS, {"connection_creation_rate": 3.0}),
    ]
    assert selected(cluster, component("ip", match="2001:DB8::1")) == [v6]

    alter(cluster, entry({"ip": "2001:DB8::1"}, connection_creation_rate=None))
    assert selected(cluster) == [ADDRESS]


def test_results_have_the_spelling_of_the_client(cluster: ApiCluster) -> None:
    one: Parts = {"ip": "::FFFF:10.0.0.1"}

    def results(*parts: Parts) -> dict[Any, ErrorCode]:
        entries = [entry(each, connection_creation_rate=1) for each in parts]
        request = {"entries": entries, "validate_only": True}
        answer = cluster.request(1, ALTER_CLIENT_QUOTAS, request)
        return {each["entity"][0]["entity_name"]: each["error_code"] for each in answer["entries"]}

    assert results(one) == {"::FFFF:10.0.0.1": NONE}
    assert results(one, ADDRESS) == {"::FFFF:10.0.0.1": INVALID, "10.0.0.1": INVALID}


def selected(cluster: ApiCluster, *components: dict[str, Any], strict: bool = False) -> list[Parts]:
    return [parts for parts, _ in describe(cluster, *components, strict=strict)]


def test_filters_select_by_name_default_and_presence(cluster: ApiCluster) -> None:
    every = (ALICE, EVERY_USER, APP, ALICE_APP)
    alter(cluster, *(entry(parts, producer_byte_rate=1) for parts in every))
    alice = component("user", match="alice")
    any_user = component("user", SPECIFIED, None)

    assert selected(cluster, alice) == [ALICE, ALICE_APP]
    assert selected(cluster, alice, strict=True) == [ALICE]
    assert selected(cluster, component("user", DEFAULT, None)) == [EVERY_USER]
    assert selected(cluster, any_user) == [ALICE, EVERY_USER, ALICE_APP]
    assert selected(cluster, any_user, component("client-id", SPECIFIED, None)) == [ALICE_APP]
    assert selected(cluster, component("ip", SPECIFIED, None)) == []
    assert selected(cluster, strict=True) == []


@pytest.mark.parametrize(
    ("components", "error"),
    [
        ([component("ip"), component("user")], INVALID),
        ([component("user"), component("user")], INVALID),
        ([component("user", match=None)], INVALID),
        ([component("user", SPECIFIED)], INVALID),
        ([component("user", 7)], INVALID),
        ([component("")], INVALID),
        ([component("planet")], ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_invalid_filters_are_refused(
    cluster: ApiCluster, components: list[dict[str, Any]], error: ErrorCode
) -> None:
    request = {"components": components, "strict": False}
    answer = cluster.request(1, DESCRIBE_CLIENT_QUOTAS, request)

    assert answer["error_code"] == error
    assert answer["error_message"]
    assert answer["entries"] is None
