"""Which quota applies to a client, and what is remembered of clients."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.core.quotas.client_quotas import (
    CLIENT_ID_BYTES_MAX,
    CLIENTS_MAX,
    IDLE_MS_MAX,
    ClientQuota,
    ClientQuotas,
    ConnectionRates,
    Sharers,
    Windows,
    short_client_id,
)
from tidelog.core.quotas.entity import Entity

RATE = "producer_byte_rate"
NOW_MS = 1_000_000

USERS: tuple[str | None, ...] = ("", "alice", None)
CLIENTS: tuple[str | None, ...] = ("", "app", None)
NAMES = [name for name in product(USERS, CLIENTS) if name != ("", "")]


def entity(user: str | None, client_id: str | None) -> Entity:
    parts = [("client-id", client_id)] if client_id != "" else []
    return tuple(parts + ([("user", user)] if user != "" else []))


def quota_of(limits: dict[tuple[str | None, str | None], float]) -> ClientQuota:
    quota = ClientQuota(RATE, Windows())
    quota.set_limits({entity(*name): {RATE: value} for name, value in limits.items()})
    return quota


ORDER = [
    ("alice", "app"),
    ("alice", None),
    ("alice", ""),
    (None, "app"),
    (None, None),
    (None, ""),
    ("", "app"),
    ("", None),
]


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_the_most_specific_quota_applies_in_kafkas_order(first: int) -> None:
    limits = {name: float(place + 1) for place, name in enumerate(ORDER) if place >= first}

    found = quota_of(limits).limit_of("alice", "app")

    assert found is not None
    assert found[0] == first + 1


def kafkas(
    limits: dict[tuple[str | None, str | None], float], user: str, client_id: str
) -> tuple[float, Sharers] | None:
    """The two steps of Kafka's DefaultQuotaCallback: first the tags, then their limit."""
    named = {name for name in limits if name[1] != "" or client_id == ""} | set(limits)
    steps: list[tuple[tuple[str | None, str | None], Sharers]] = [
        ((user, client_id or "no such client"), (user, client_id)),
        ((user, None), (user, client_id)),
        ((user, ""), (user, "")),
        ((None, client_id or "no such client"), (user, client_id)),
        ((None, None), (user, client_id)),
        ((None, ""), (user, "")),
    ]
    tags = next((found for name, found in steps if name in named), ("", client_id))
    by_tags: list[tuple[str | None, str | None]] = []
    if tags[0] and tags[1]:
        by_tags = [tags, (user, None), (None, client_id), (None, None)]
    elif tags[0]:
        by_tags = [(user, ""), (None, "")]
    elif tags[1]:
        by_tags = [("", client_id), ("", None)]
    return next(((limits[name], tags) for name in by_tags if name in limits), None)


@given(
    st.dictionaries(st.sampled_from(NAMES), st.floats(1, 100)),
    st.sampled_from(["alice", "bob"]),
    st.sampled_from(["app", "other", ""]),
)
def test_limits_and_who_shares_them_are_those_of_kafkas_two_steps(
    limits: dict[tuple[str | None, str | None], float], user: str, client_id: str
) -> None:
    ours = quota_of(limits).limit_of(user, client_id)

    if client_id:
        assert ours == kafkas(limits, user, client_id)
    else:  # Kafka finds no limit where only a default client id is named; so it is here
        value = limits.get((user, ""), limits.get((None, "")))
        assert ours == (None if value is None else (value, (user, "")))


def test_clients_of_one_limited_user_share_what_it_allows() -> None:
    quota = quota_of({("alice", ""): 100})

    one = quota.find("alice", "app", NOW_MS)
    other = quota.find("alice", "other", NOW_MS)

    assert one is not None
    assert other is not None
    assert one.usage is other.usage
    assert quota.find("bob", "app", NOW_MS) is None


def test_each_client_has_the_default_quota_of_its_own() -> None:
    quota = quota_of({("", None): 100})

    one, other = quota.find("u", "a", NOW_MS), quota.find("u", "b", NOW_MS)

    assert one is not None
    assert other is not None
    assert one.usage is not other.usage


def test_a_client_that_sent_nothing_for_an_hour_is_forgotten() -> None:
    quota = quota_of({("", None): 100})
    quota.find("u", "a", NOW_MS)
    quota.find("u", "b", NOW_MS + IDLE_MS_MAX - 1)

    assert [sharers for sharers, _ in quota.usages(NOW_MS + IDLE_MS_MAX)] == [("", "b")]


def test_the_number_of_remembered_clients_is_bounded() -> None:
    quota = quota_of({("", None): 100})
    for number in range(CLIENTS_MAX + 10):
        quota.find("u", f"c{number}", NOW_MS)

    sharers = [sharers for sharers, _ in quota.usages(NOW_MS)]
    assert len(sharers) == CLIENTS_MAX
    assert sharers[-1] == ("", f"c{CLIENTS_MAX + 9}")


@given(st.text(max_size=2000) | st.text(alphabet="xä€😀", min_size=60, max_size=300))
def test_client_ids_are_bounded_in_bytes_and_short_ones_stay(client_id: str) -> None:
    short = short_client_id(client_id)

    assert len(short.encode()) <= CLIENT_ID_BYTES_MAX
    assert short_client_id(short) == short
    if len(client_id.encode()) <= CLIENT_ID_BYTES_MAX:
        assert short == client_id


def test_long_client_ids_stay_apart() -> None:
    assert short_client_id("x" * 32_000) != short_client_id("x" * 32_001)


def test_without_a_limit_nothing_is_remembered() -> None:
    quota = quota_of({("", None): 100})
    quota.find("u", "a", NOW_MS)

    quota.set_limits({})

    assert quota.usages(NOW_MS) == []


class Source:
    """Metadata with quotas."""

    def __init__(self) -> None:
        self.quotas: dict[Entity, dict[str, float]] = {}
        self.quota_changes = 0

    def set(self, entity: Entity, **quotas: float) -> None:
        self.quotas[entity] = quotas
        self.quota_changes += 1


def test_a_changed_quota_applies_at_once_and_keeps_what_was_used() -> None:
    source = Source()
    quotas = ClientQuotas(source, Windows())
    source.set((("user", "alice"),), producer_byte_rate=100)
    before = quotas.current().produce.find("alice", "app", NOW_MS)
    assert before is not None

    source.set((("user", "alice"),), producer_byte_rate=50, consumer_byte_rate=7)
    after = quotas.current().produce.find("alice", "app", NOW_MS)

    assert after is not None
    assert (after.value, after.usage) == (50, before.usage)
    assert quotas.fetch.limit_of("alice", "app") == (7, ("alice", ""))
    assert quotas.request.limit_of("alice", "app") is None


def test_a_fetch_may_return_what_the_whole_windows_allow() -> None:
    quota = ClientQuota(RATE, Windows(samples=4))
    quota.set_limits({entity(None, ""): {RATE: 10}})

    assert quota.window_total("alice", "app") == 30
    assert quota_of({}).window_total("alice", "app") is None


def rates(**limits: float) -> ConnectionRates:
    found = ConnectionRates(Windows())
    found.set_limits(
        {
            (("ip", None if ip == "default" else ip.replace("_", ".")),): {
                "connection_creation_rate": limit
            }
            for ip, limit in limits.items()
        }
    )
    return found


def test_connections_beyond_the_rate_of_their_address_wait_one_second_at_most() -> None:
    limited = rates(**{"10_0_0_1": 2})

    waits = [limited.wait_ms("10.0.0.1", NOW_MS) for _ in range(22)]

    assert waits[:20] == [0] * 20
    assert all(0 < wait_ms <= 1000 for wait_ms in waits[20:])
    assert limited.wait_ms("10.0.0.2", NOW_MS) == 0
    assert limited.wait_ms("10.0.0.1", NOW_MS + 60_000) == 0


def test_refused_connections_do_not_count() -> None:
    limited = rates(**{"10_0_0_1": 2})
    for _ in range(500):
        limited.wait_ms("10.0.0.1", NOW_MS)

    assert limited.wait_ms("10.0.0.1", NOW_MS + 10_600) == 0


def test_the_default_rate_is_for_each_address_without_one() -> None:
    limited = rates(default=1, **{"10_0_0_1": 1000})

    assert [bool(limited.wait_ms("10.0.0.2", NOW_MS)) for _ in range(11)][-2:] == [False, True]
    assert limited.wait_ms("10.0.0.3", NOW_MS) == 0
    assert not any(limited.wait_ms("10.0.0.1", NOW_MS) for _ in range(50))


def test_addresses_are_compared_in_one_spelling() -> None:
    limited = ConnectionRates(Windows())
    limited.set_limits({(("ip", "2001:DB8::0:1"),): {"connection_creation_rate": 1}})

    assert any(limited.wait_ms("2001:db8::1", NOW_MS) for _ in range(20))


def test_an_ipv4_mapped_address_is_that_of_ipv4() -> None:
    limited = ConnectionRates(Windows())
    limited.set_limits({(("ip", "::ffff:10.0.0.1"),): {"connection_creation_rate": 1}})

    assert any(limited.wait_ms("10.0.0.1", NOW_MS) for _ in range(20))
