"""The same requests about quotas to Tidelog and to a real Apache Kafka get equal responses."""

from collections.abc import Iterator
from typing import Any

import pytest
from real_cluster import eventually
from real_kafka import Sides, running_sides
from two_sides import TIMEOUT_MS, Side

from tidelog.core import api_table as api
from tidelog.core.errors import ErrorCode
from tidelog.core.record.encoder import encode_value

pytestmark = pytest.mark.slow

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
USER, CLIENT_ID, IP = "user", "client-id", "ip"
Parts = list[tuple[str, str | None]]


@pytest.fixture(scope="module")
def sides() -> Iterator[Sides]:
    with running_sides() as both:
        yield both


def entry(parts: Parts, *ops: tuple[str, float | None]) -> dict[str, Any]:
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in parts],
        "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in ops],
    }


def comparable(answer: dict[str, Any]) -> Any:
    """Texts are left out, and lists that Kafka sends in the order of a hash table are sorted."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            left_out = ("throttle_time_ms", "error_message", "unknown_tagged_fields")
            return {key: plain(each) for key, each in value.items() if key not in left_out}
        if isinstance(value, list):
            return sorted((plain(each) for each in value), key=str)
        return value

    return plain(answer)


def alter(side: Side, *entries: dict[str, Any], version: int = 1, dry: bool = False) -> Any:
    request = {"entries": list(entries), "validate_only": dry}
    return comparable(side.quietly(api.ALTER_CLIENT_QUOTAS, request, version))


def describe(
    side: Side, *parts: tuple[str, int, str | None], version: int = 1, strict: bool = False
) -> Any:
    components = [
        {"entity_type": kind, "match_type": match_type, "match": match}
        for kind, match_type, match in parts
    ]
    request = {"components": components, "strict": strict}
    return comparable(side.quietly(api.DESCRIBE_CLIENT_QUOTAS, request, version))


ALTERATIONS: list[list[dict[str, Any]]] = [
    [entry([(USER, "u")], ("producer_byte_rate", 1000))],
    [entry([(USER, "u")], ("consumer_byte_rate", 2000), ("request_percentage", 12.5))],
    [entry([(USER, None)], ("controller_mutation_rate", 0.5))],
    [entry([(CLIENT_ID, "名前")], ("producer_byte_rate", 2.0**40))],
    [entry([(CLIENT_ID, None)], ("consumer_byte_rate", 7))],
    [entry([(USER, "u"), (CLIENT_ID, "c")], ("request_percentage", 200))],
    [entry([(CLIENT_ID, None), (USER, None)], ("request_percentage", 300))],
    [entry([(IP, "10.0.0.1")], ("connection_creation_rate", 5))],
    [entry([(IP, None)], ("connection_creation_rate", 1_000_000))],
    [
        entry([(USER, "u")], ("producer_byte_rate", None)),
        entry([(USER, "v")], ("producer_byte_rate", 0.0)),
        entry([(USER, "w")], ("producer_byte_rate", 8)),
    ],
    [entry([(USER, "missing")], ("producer_byte_rate", None))],
    [entry([], ("producer_byte_rate", 1))],
    [entry([("planet", "x")], ("producer_byte_rate", 1))],
    [entry([(USER, "")], ("producer_byte_rate", 1))],
    [entry([(IP, "10.0.0.1"), (USER, "u")], ("connection_creation_rate", 1))],
    [entry([(IP, "no address at all")], ("connection_creation_rate", 1))],
    [entry([(IP, "10.0.0.2")], ("producer_byte_rate", 1))],
    [entry([(USER, "u")], ("connection_creation_rate", 1))],
    [entry([(USER, "u")], ("no such key", 1))],
    [entry([(USER, "u")], ("producer_byte_rate", -1))],
    [entry([(USER, "u")], ("producer_byte_rate", 1.5))],
    [entry([(IP, "10.0.0.3")], ("connection_creation_rate", 2.0**40))],
    [entry([(USER, "twice")], ("producer_byte_rate", 1), ("producer_byte_rate", 2))],
]
FILTERS: list[tuple[tuple[str, int, str | None], ...]] = [
    (),
    ((USER, EXACT, "u"),),
    ((USER, DEFAULT, None),),
    ((USER, SPECIFIED, None),),
    ((CLIENT_ID, EXACT, "名前"),),
    ((USER, SPECIFIED, None), (CLIENT_ID, SPECIFIED, None)),
    ((USER, EXACT, "u"), (CLIENT_ID, EXACT, "c")),
    ((IP, SPECIFIED, None),),
    ((IP, DEFAULT, None),),
    ((IP, EXACT, "10.0.0.1"), (USER, EXACT, "u")),
    ((USER, EXACT, "u"), (USER, EXACT, "u")),
    ((USER, EXACT, None),),
    ((USER, DEFAULT, "u"),),
    ((USER, 7, None),),
    (("", EXACT, "x"),),
    (("planet", EXACT, "x"),),
]


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("dry", [True, False])
def test_alterations_are_accepted_and_refused_alike(sides: Sides, version: int, dry: bool) -> None:
    ours, theirs = sides
    for entries in ALTERATIONS:
        expected = alter(theirs, *entries, version=version, dry=dry)
        assert alter(ours, *entries, version=version, dry=dry) == expected, entries


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("parts", FILTERS, ids=str)
def test_filters_select_alike(
    sides: Sides, parts: tuple[tuple[str, int, str | None], ...], strict: bool
) -> None:
    ours, theirs = sides
    for entries in ALTERATIONS:
        for side in sides:
            alter(side, *entries)

    def are_equal() -> bool:
        return bool(describe(ours) == describe(theirs))

    eventually(are_equal, "both describe the same quotas")
    for version in (0, 1):
        assert describe(ours, *parts, version=version, strict=strict) == describe(
            theirs, *parts, version=version, strict=strict
        )


def throttle_of_one_produce(side: Side, topic: str, size: int) -> int:
    [found] = side.quietly(
        api.METADATA, {"topics": [{"name": topic}], "allow_auto_topic_creation": False}, 5
    )["topics"]
    assert found["error_code"] == ErrorCode.NONE
    partition = {"index": 0, "records": bytes(encode_value(bytes(size)))}
    request = {
        "transactional_id": None,
        "acks": -1,
        "timeout_ms": TIMEOUT_MS,
        "topic_data": [{"name": topic, "partition_data": [partition]}],
    }
    answer = side.quietly(api.PRODUCE, request, 11)
    return int(answer["throttle_time_ms"])


def await_limited(side: Side) -> None:
    """Wait until the broker knows the quota of the user."""

    def is_limited() -> bool:
        return bool(describe(side, (USER, EXACT, "ANONYMOUS"))["entries"])

    eventually(is_limited, "the quota is known")


def reconnect(side: Side) -> None:
    """Use another connection: the old one is muted."""
    side.close()
    side._connection = side._connect()


def test_a_produce_beyond_the_rate_gets_the_same_throttle_time(sides: Sides) -> None:
    limits = entry([(USER, "ANONYMOUS")], ("producer_byte_rate", 10_000))
    unlimited = entry([(USER, "ANONYMOUS")], ("producer_byte_rate", None))
    times = []
    for side in sides:
        topic = side.prepare("bytes", 1)
        alter(side, limits)
        await_limited(side)
        times.append(throttle_of_one_produce(side, topic, 500_000))
        reconnect(side)
        alter(side, unlimited)

    ours, theirs = times
    # 500,000 bytes in a window of 10 s are five times the quota: four windows more.
    assert 39_000 < theirs < 41_500
    assert abs(ours - theirs) < 500


def test_changes_of_topics_beyond_the_rate_are_refused_alike(sides: Sides) -> None:
    def created(side: Side, version: int) -> tuple[Any, int]:
        made = [
            {
                "name": f"mutation-{version}-{number}",
                "num_partitions": 10,
                "replication_factor": 1,
                "assignments": [],
                "configs": [],
            }
            for number in range(3)
        ]
        request = {"topics": made, "timeout_ms": TIMEOUT_MS, "validate_only": False}
        answer = side.quietly(api.CREATE_TOPICS, request, version)
        codes = sorted(ErrorCode(each["error_code"]).name for each in answer["topics"])
        return codes, int(answer["throttle_time_ms"])

    for version in (5, 7):
        found = []
        for side in sides:
            alter(side, entry([(USER, "ANONYMOUS")], ("controller_mutation_rate", 1.0)))
            await_limited(side)
            found.append(created(side, version))
            reconnect(side)
            alter(side, entry([(USER, "ANONYMOUS")], ("controller_mutation_rate", None)))
        (ours, our_ms), (theirs, their_ms) = found
        assert ours == theirs
        assert abs(our_ms - their_ms) < 1500
