"""The authoriser decides as Kafka's StandardAuthorizer.

`_kafka_decides` is a second, slow implementation: the rule of the documentation, without an index.
"""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from tidelog.core.authorization.acl import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from tidelog.core.authorization.authorizer import DECISIONS_MAX, Authorizer
from tidelog.core.principal import BROKER, USER, Principal
from tidelog.core.types import LOSSES_TOPIC

ALICE, BOB = Principal(USER, "alice"), Principal(USER, "bob")
HOST = "10.0.0.1"
TOPIC = ResourceType.TOPIC
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


def _acl(
    operation: Operation,
    name: str = "orders",
    *,
    principal: str = "User:alice",
    host: str = "*",
    pattern: PatternType = LITERAL,
    permission: Permission = Permission.ALLOW,
) -> Acl:
    return Acl(TOPIC, name, pattern, principal, host, operation, permission)


def _authorizer(*acls: Acl, super_users: Iterable[str] = (), open_: bool = False) -> Authorizer:
    authorizer = Authorizer(super_users, allow_if_no_acl=open_)
    authorizer.replace_acls(acls)
    return authorizer


def _allows(
    authorizer: Authorizer,
    operation: Operation,
    name: str = "orders",
    who: Principal = ALICE,
    host: str = HOST,
) -> bool:
    return authorizer.allows(who, host, operation, TOPIC, name)


def test_nothing_is_allowed_without_an_acl() -> None:
    assert not _allows(_authorizer(), Operation.READ)


def test_a_resource_without_acls_is_open_to_everyone_if_the_setting_says_so() -> None:
    authorizer = _authorizer(_acl(Operation.READ, "orders"), open_=True)

    assert _allows(authorizer, Operation.WRITE, "others", BOB)
    assert not _allows(authorizer, Operation.WRITE, "orders", BOB)


def test_an_acl_allows_its_principal_only() -> None:
    authorizer = _authorizer(_acl(Operation.READ))

    assert _allows(authorizer, Operation.READ)
    assert not _allows(authorizer, Operation.READ, who=BOB)
    assert not _allows(authorizer, Operation.READ, who=Principal("Group", "alice"))


def test_an_acl_for_everyone_allows_users_without_a_name() -> None:
    authorizer = _authorizer(_acl(Operation.READ, principal="User:*"))

    assert _allows(authorizer, Operation.READ, who=Principal(USER, "ANONYMOUS"))


def test_an_acl_of_a_host_is_for_that_host() -> None:
    authorizer = _authorizer(_acl(Operation.READ, host=HOST))

    assert _allows(authorizer, Operation.READ)
    assert not _allows(authorizer, Operation.READ, host="10.0.0.2")


def test_a_prefix_and_a_wildcard_name_many_resources() -> None:
    prefixed = _authorizer(_acl(Operation.READ, "ord", pattern=PREFIXED))
    wildcard = _authorizer(_acl(Operation.READ, "*"))

    assert _allows(prefixed, Operation.READ, "orders")
    assert not _allows(prefixed, Operation.READ, "or")
    assert _allows(wildcard, Operation.READ, "anything")


def test_a_literal_acl_is_not_a_prefix() -> None:
    assert not _allows(_authorizer(_acl(Operation.READ, "ord")), Operation.READ, "orders")


def test_deny_wins_over_allow_wherever_it_stands() -> None:
    for denied in ("orders", "*"):
        deny = _acl(Operation.READ, denied, permission=Permission.DENY)
        allow = _acl(Operation.READ, "ord", pattern=PREFIXED)
        assert not _allows(_authorizer(deny, allow), Operation.READ)
        assert not _allows(_authorizer(allow, deny), Operation.READ)


def test_allowed_operations_imply_describe_and_denied_ones_do_not() -> None:
    for operation in (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER):
        assert _allows(_authorizer(_acl(operation)), Operation.DESCRIBE)
        denied = _acl(operation, permission=Permission.DENY)
        described = _acl(Operation.DESCRIBE)
        assert _allows(_authorizer(denied, described), Operation.DESCRIBE)
    assert not _allows(_authorizer(_acl(Operation.CREATE)), Operation.DESCRIBE)
    assert _allows(_authorizer(_acl(Operation.ALTER_CONFIGS)), Operation.DESCRIBE_CONFIGS)
    assert not _allows(_authorizer(_acl(Operation.DESCRIBE_CONFIGS)), Operation.DESCRIBE)


def test_all_stands_for_every_operation() -> None:
    assert _allows(_authorizer(_acl(Operation.ALL)), Operation.ALTER_CONFIGS)
    deny = _acl(Operation.ALL, permission=Permission.DENY)
    assert not _allows(_authorizer(_acl(Operation.READ), deny), Operation.READ)


def test_a_super_user_may_do_what_an_acl_denies() -> None:
    deny = _acl(Operation.ALL, "*", permission=Permission.DENY)
    authorizer = _authorizer(deny, super_users=["User:alice"])

    assert _allows(authorizer, Operation.DELETE)
    assert authorizer.allows_on_any(ALICE, HOST, Operation.WRITE, TOPIC)


def test_a_broker_of_the_cluster_may_publish_its_losses_whatever_the_acls_are() -> None:
    deny = _acl(Operation.ALL, "*", principal="User:*", permission=Permission.DENY)
    authorizer = _authorizer(deny)

    for operation in (Operation.CREATE, Operation.DESCRIBE, Operation.WRITE):
        assert _allows(authorizer, operation, LOSSES_TOPIC, BROKER)
        assert not _allows(authorizer, operation, LOSSES_TOPIC, Principal(USER, BROKER.name))


def test_a_broker_of_the_cluster_may_do_nothing_else_as_a_client() -> None:
    everything = [
        Acl(kind, "*", LITERAL, principal, "*", Operation.ALL, Permission.ALLOW)
        for kind in ResourceType
        for principal in ("User:*", str(BROKER))
    ]
    authorizer = _authorizer(*everything, super_users=[str(BROKER)], open_=True)

    allowed = {
        (operation, kind, name)
        for operation in Operation
        for kind in ResourceType
        for name in ("orders", CLUSTER_NAME, LOSSES_TOPIC)
        if authorizer.allows(BROKER, HOST, operation, kind, name)
    }
    operations = (Operation.CREATE, Operation.DESCRIBE, Operation.WRITE)
    assert allowed == {(operation, TOPIC, LOSSES_TOPIC) for operation in operations}
    assert not authorizer.allows_on_any(BROKER, HOST, Operation.WRITE, TOPIC)


def test_a_change_of_the_acls_is_in_force_at_once() -> None:
    authorizer = _authorizer(_acl(Operation.READ))
    assert _allows(authorizer, Operation.READ)

    authorizer.replace_acls(())

    assert not _allows(authorizer, Operation.READ)


def test_remembered_decisions_are_bounded() -> None:
    authorizer = _authorizer(_acl(Operation.READ, "t1", pattern=PREFIXED))
    for number in range(DECISIONS_MAX + 10):
        _allows(authorizer, Operation.READ, f"t{number}")

    assert len(authorizer._decisions) <= DECISIONS_MAX
    assert _allows(authorizer, Operation.READ, "t17")


def test_decisions_on_names_that_no_topic_can_have_are_not_remembered() -> None:
    """A client without any right could fill the memory with them."""
    authorizer = _authorizer()
    for number in range(10):
        assert not _allows(authorizer, Operation.READ, "x" * 30_000 + str(number))
    assert authorizer._decisions == {}


def test_operations_are_kafkas_bit_field() -> None:
    authorizer = _authorizer(_acl(Operation.WRITE), super_users=["User:bob"])

    assert authorizer.operations(ALICE, HOST, TOPIC, "orders") == 0b1_0001_0000
    assert authorizer.operations(BOB, HOST, TOPIC, "orders") == 0b1101_1111_1000
    assert authorizer.operations(BOB, HOST, ResourceType.GROUP, "g") == 0b1101_0100_1000
    every = authorizer.operations(BOB, HOST, ResourceType.CLUSTER, CLUSTER_NAME)
    assert every == 0b1_1111_1010_0000


# -- any resource of a type (KIP-679) ----------------------------------------------------------


def _on_any(*acls: Acl, operation: Operation = Operation.WRITE) -> bool:
    return _authorizer(*acls).allows_on_any(ALICE, HOST, operation, TOPIC)


def test_one_allowed_resource_is_enough_for_any() -> None:
    assert _on_any(_acl(Operation.WRITE))
    assert _on_any(_acl(Operation.WRITE, "ord", pattern=PREFIXED))
    assert not _on_any()
    assert not _on_any(_acl(Operation.READ))
    assert not _on_any(_acl(Operation.WRITE, host="10.9.9.9"))
    assert not _on_any(_acl(Operation.WRITE, principal="User:bob"))


def test_a_denied_resource_or_prefix_does_not_count_for_any() -> None:
    allow = _acl(Operation.WRITE)
    deny = Permission.DENY

    assert not _on_any(allow, _acl(Operation.WRITE, permission=deny))
    assert not _on_any(allow, _acl(Operation.WRITE, "ord", pattern=PREFIXED, permission=deny))
    assert not _on_any(allow, _acl(Operation.ALL, "*", permission=deny))
    assert _on_any(allow, _acl(Operation.WRITE, "orders-", pattern=PREFIXED, permission=deny))
    # An allowed prefix is dominated by a denied prefix, not by a denied name.
    prefix = _acl(Operation.WRITE, "orders", pattern=PREFIXED)
    assert _on_any(prefix, _acl(Operation.WRITE, "orders", permission=deny))


def test_describe_on_any_resource_is_not_implied() -> None:
    assert not _on_any(_acl(Operation.WRITE), operation=Operation.DESCRIBE)


# -- filters -----------------------------------------------------------------------------------


def _filter(name: str | None = None, pattern: PatternType = PatternType.ANY) -> AclFilter:
    return AclFilter(TOPIC, name, pattern, None, None, Operation.ANY, Permission.ANY)


def test_a_filter_with_match_finds_every_acl_that_applies() -> None:
    literal, wildcard = _acl(Operation.READ), _acl(Operation.READ, "*")
    prefixed = _acl(Operation.READ, "ord", pattern=PREFIXED)
    match = _filter("orders", PatternType.MATCH)

    assert all(map(match.matches, (literal, wildcard, prefixed)))
    assert not match.matches(_acl(Operation.READ, "ord"))
    assert not match.matches(_acl(Operation.READ, "orders2", pattern=PREFIXED))


def test_a_filter_with_another_pattern_type_compares_names() -> None:
    literal, prefixed = _acl(Operation.READ), _acl(Operation.READ, "orders", pattern=PREFIXED)

    assert _filter("orders").matches(literal)
    assert _filter("orders").matches(prefixed)
    assert not _filter("orders", LITERAL).matches(prefixed)
    assert not _filter("orders").matches(_acl(Operation.READ, "*"))
    assert _filter().matches(prefixed)


def test_a_filter_selects_by_each_field() -> None:
    acl = _acl(Operation.READ, host=HOST)
    every = AclFilter(
        ResourceType.ANY, None, PatternType.ANY, None, None, Operation.ANY, Permission.ANY
    )

    assert every.matches(acl)
    assert not every._replace(resource_type=ResourceType.GROUP).matches(acl)
    assert not every._replace(principal="User:bob").matches(acl)
    assert not every._replace(host="*").matches(acl)
    assert not every._replace(operation=Operation.ALL).matches(acl)
    assert not every._replace(permission=Permission.DENY).matches(acl)
    assert every._replace(operation=Operation.UNKNOWN).is_unknown


# -- the index against the rule ----------------------------------------------------------------

_NAMES = st.sampled_from(["a", "ab", "abc", "b", "*"])
_ACLS = st.builds(
    Acl,
    st.just(TOPIC),
    _NAMES,
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from(["User:alice", "User:bob", "User:*"]),
    st.sampled_from(["*", HOST, "10.0.0.2"]),
    st.sampled_from(list(Operation)[2:]),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)
_DESCRIBES = {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}


def _kafka_decides(acls: list[Acl], operation: Operation, name: str, default: bool) -> bool:
    of_name = [
        acl
        for acl in acls
        if (
            name.startswith(acl.resource_name)
            if acl.pattern_type is PREFIXED
            else acl.resource_name in (name, "*")
        )
    ]
    if not of_name:
        return default
    mine = [a for a in of_name if a.principal != "User:bob" and a.host in ("*", HOST)]
    if any(
        a.permission is Permission.DENY and a.operation in (Operation.ALL, operation) for a in mine
    ):
        return False
    allowed = {a.operation for a in mine if a.permission is Permission.ALLOW}
    implied = set(allowed)
    if allowed & _DESCRIBES:
        implied.add(Operation.DESCRIBE)
    if Operation.ALTER_CONFIGS in allowed:
        implied.add(Operation.DESCRIBE_CONFIGS)
    return Operation.ALL in allowed or operation in implied


@given(st.lists(_ACLS, max_size=6), st.sampled_from(list(Operation)[3:]), _NAMES, st.booleans())
def test_the_index_decides_by_the_rule(
    acls: list[Acl], operation: Operation, name: str, default: bool
) -> None:
    authorizer = _authorizer(*acls, open_=default)

    expected = _kafka_decides(acls, operation, name, default)
    assert _allows(authorizer, operation, name) is expected
    assert _allows(authorizer, operation, name) is expected, "remembered"
