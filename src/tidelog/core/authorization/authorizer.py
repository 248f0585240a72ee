"""The authoriser: whether a principal may do an operation on a resource.

A broker that logs in by the cluster's secret may do what it needs to publish its losses, whatever
the ACLs say, and nothing else: a false broker can relay such a login.

For users the rules are those of Kafka's StandardAuthorizer: super users may do everything; an ACL
that denies wins over all that allow; without an ACL that matches, the operation is denied, unless
the resource has no ACL at all and `allow.everyone.if.no.acl.found` is true. An ACL that allows
READ, WRITE, DELETE or ALTER also allows DESCRIBE, and ALTER_CONFIGS also allows DESCRIBE_CONFIGS;
an ACL that denies denies only its own operation.

Decisions are remembered, so that a client that does the same all day costs one lookup in a dict a
request. Any change of an ACL forgets them all: ACLs change rarely.
"""

from collections.abc import Iterable

from tidelog.core.authorization.acl import (
    EVERYONE,
    WILDCARD,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    operations_on,
)
from tidelog.core.principal import BROKER, Principal
from tidelog.core.types import LOSSES_TOPIC

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""The value of `authorizer.class.name` that turns authorisation on."""
DECISIONS_MAX = 50_000
"""Remembered decisions: each takes about 200 bytes."""
REMEMBERED_NAME_MAX = 249
"""The longest name of a topic. Decisions on longer names are not remembered: a client could fill
the memory with names that do not exist."""

_ANY_NAME = "hardcode"
"""The name by which Kafka asks whether a principal may do an operation on any resource of a type.
An ACL for a topic of this name has the same effect as in Kafka."""
_OF_BROKERS = (Operation.CREATE, Operation.DESCRIBE, Operation.WRITE)
"""What brokers may do on the topic of losses (shell/broker/loss_publisher.py)."""
_IMPLYING = {
    Operation.DESCRIBE: (
        Operation.DESCRIBE,
        Operation.READ,
        Operation.WRITE,
        Operation.DELETE,
        Operation.ALTER,
    ),
    Operation.DESCRIBE_CONFIGS: (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
}
"""By operation: the operations of ACLs that allow it, beside ALL."""


class _Patterns:
    """The ACLs of one resource type, by the names of their resources."""

    __slots__ = ("lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, list[Acl]] = {}
        self.prefixed: dict[str, list[Acl]] = {}
        self.lengths: tuple[int, ...] = ()
        """The lengths of all prefixes."""

    def of(self, name: str) -> list[Acl]:
        """The ACLs that apply to a resource, whoever the principal is."""
        found = [*self.literal.get(name, ()), *self.literal.get(WILDCARD, ())]
        for length in self.lengths:
            if length <= len(name):
                found += self.prefixed.get(name[:length], ())
        return found


class Authorizer:
    """Decides by a set of ACLs."""

    __slots__ = ("_by_type", "_decisions", "_default", "_super_users")

    def __init__(self, super_users: Iterable[str] = (), *, allow_if_no_acl: bool = False) -> None:
        """`super_users` are principals with their type, as `User:admin`."""
        self._super_users = frozenset(super_users)
        self._default = allow_if_no_acl
        self._by_type: dict[ResourceType, _Patterns] = {}
        self._decisions: dict[tuple[Principal, str, Operation, ResourceType, str], bool] = {}

    def is_super_user(self, principal: Principal) -> bool:
        """Whether a principal may do everything, whatever the ACLs say."""
        return str(principal) in self._super_users

    def replace_acls(self, acls: Iterable[Acl]) -> None:
        """Decide by these ACLs from now on."""
        by_type: dict[ResourceType, _Patterns] = {}
        for acl in acls:
            patterns = by_type.setdefault(acl.resource_type, _Patterns())
            literal = acl.pattern_type is PatternType.LITERAL
            names = patterns.literal if literal else patterns.prefixed
            names.setdefault(acl.resource_name, []).append(acl)
        for patterns in by_type.values():
            patterns.lengths = tuple(sorted({len(prefix) for prefix in patterns.prefixed}))
        self._by_type = by_type
        self._decisions.clear()

    def allows(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        resource_name: str,
    ) -> bool:
        """Whether the principal may do this from this host."""
        key = principal, host, operation, resource_type, resource_name
        known = self._decisions.get(key)
        if known is not None:
            return known
        decision = self._decide(*key)
        if len(resource_name) <= REMEMBERED_NAME_MAX:
            if len(self._decisions) >= DECISIONS_MAX:
                self._decisions.clear()
            self._decisions[key] = decision
        return decision

    def _decide(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        resource_name: str,
    ) -> bool:
        if principal == BROKER:
            is_topic_of_losses = (resource_type, resource_name) == (
                ResourceType.TOPIC,
                LOSSES_TOPIC,
            )
            return is_topic_of_losses and operation in _OF_BROKERS
        if self.is_super_user(principal):
            return True
        patterns = self._by_type.get(resource_type)
        acls = [] if patterns is None else patterns.of(resource_name)
        if not acls:
            return self._default
        allowed = False
        implying = _IMPLYING.get(operation, (operation,))
        principals = str(principal), EVERYONE
        for acl in acls:
            if acl.principal not in principals or acl.host not in (host, WILDCARD):
                continue
            if acl.permission is Permission.ALLOW:
                allowed = allowed or acl.operation is Operation.ALL or acl.operation in implying
            elif acl.operation in (Operation.ALL, operation):
                return False
        return allowed

    def allows_on_any(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Whether there may be a resource of this type on which the principal may do this.

        As in Kafka, implied operations do not count here. A broker sends no request that needs
        this.
        """
        if principal == BROKER:
            return False
        if self.allows(principal, host, operation, resource_type, _ANY_NAME):
            return True
        patterns = self._by_type.get(resource_type, _Patterns())
        principals = str(principal), EVERYONE
        relevant = [
            acl
            for acls in (*patterns.literal.values(), *patterns.prefixed.values())
            for acl in acls
            if acl.principal in principals
            and acl.host in (host, WILDCARD)
            and acl.operation in (operation, Operation.ALL)
        ]
        denied = {
            (acl.pattern_type, acl.resource_name)
            for acl in relevant
            if acl.permission is Permission.DENY
        }
        if (PatternType.LITERAL, WILDCARD) in denied:
            return False
        allowed = [acl for acl in relevant if acl.permission is Permission.ALLOW]
        return any(not _is_dominated(acl, denied) for acl in allowed)

    def operations(
        self, principal: Principal, host: str, resource_type: ResourceType, resource_name: str
    ) -> int:
        """The operations that the principal may do on a resource, as a bit field."""
        bits = 0
        for operation in operations_on(resource_type):
            if self.allows(principal, host, operation, resource_type, resource_name):
                bits |= 1 << operation
        return bits


def _is_dominated(acl: Acl, denied: set[tuple[PatternType, str]]) -> bool:
    """Whether ACLs deny every resource that this ACL allows."""
    name = acl.resource_name
    if acl.pattern_type is PatternType.LITERAL:
        if name == WILDCARD:
            return False
        if (PatternType.LITERAL, name) in denied:
            return True
    return any((PatternType.PREFIXED, name[:end]) in denied for end in range(1, len(name) + 1))
