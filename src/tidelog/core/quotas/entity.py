"""The entities that quotas are for, and which quotas each of them may have.

An entity names a user, a client id, both, or an address. A name of None is the default: the quota
of all users (client ids, addresses) that have none of their own.
"""

from collections.abc import Mapping
from math import isfinite
from typing import NamedTuple, TypeAlias

USER, CLIENT_ID, IP = "user", "client-id", "ip"
TYPES = (USER, CLIENT_ID, IP)

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

_INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1
_FRACTION = 1e-6
"""A smaller fraction counts as a whole number, as in Kafka; but 0 and a fraction is no quota."""
_CLIENT_KEYS: dict[str, int | None] = {
    PRODUCER_BYTE_RATE: _LONG_MAX,
    CONSUMER_BYTE_RATE: _LONG_MAX,
    REQUEST_PERCENTAGE: None,
    CONTROLLER_MUTATION_RATE: None,
}
"""The largest value of quotas in whole numbers; None: fractions are allowed."""
_IP_KEYS: dict[str, int | None] = {CONNECTION_CREATION_RATE: _INT_MAX}
_NAME_BYTES_MAX = 0x7FFF
"""The longest name: as much as the versions before the flexible ones can hold."""

Entity: TypeAlias = tuple[tuple[str, str | None], ...]
"""Type and name of each part, sorted by type; each type at most once."""
Quotas: TypeAlias = Mapping[Entity, Mapping[str, float]]
"""The values of every entity, by the name of the quota."""


class QuotaAlteration(NamedTuple):
    """Changes of one entity's quotas: new values by name; None removes a quota."""

    entity: Entity
    changes: tuple[tuple[str, float | None], ...]


class QuotaFilter(NamedTuple):
    """Selects entities."""

    exact: Mapping[str, str | None]
    """The name that a part must have, by type; None: the default."""
    specified: frozenset[str]
    """Types that an entity must have, under any name or as the default."""
    strict: bool
    """Whether an entity must have no other part."""

    def matches(self, entity: Entity) -> bool:
        """Whether the filter selects this entity."""
        parts = dict(entity)
        if self.strict and len(parts) != len(self.exact) + len(self.specified):
            return False
        same = all(kind in parts and parts[kind] == name for kind, name in self.exact.items())
        return same and all(kind in parts for kind in self.specified)


def entity_problem(entity: Entity) -> str | None:
    """Return why an entity can't have quotas; None if it can."""
    if not entity:
        return "Invalid empty client quota entity"
    kinds = [kind for kind, _ in entity]
    for kind, name in entity:
        if kinds.count(kind) > 1:
            return f"Invalid client quota entity, duplicate entity entry {kind}"
        if kind not in TYPES:
            return f"Unhandled client quota entity type: {kind}"
        if name == "":
            return f"Empty {kind} not supported"
        if name is not None and len(name.encode()) > _NAME_BYTES_MAX:
            return f"The name of the {kind} is too long."
    if IP not in kinds:
        return None
    if len(kinds) > 1:
        return "Invalid quota entity combination: an ip can't be combined with a user or client-id"
    [(_, address)] = entity
    if address is not None and canonical_ip(address) is None:
        return f"{address} is not a valid IP address; host names are not resolved."
    return None


def value_problem(entity: Entity, key: str, value: float) -> str | None:
    """Return why an entity can't have this quota; None if it can."""
    keys = _IP_KEYS if entity[0][0] == IP else _CLIENT_KEYS
    if key not in keys:
        return f"Invalid configuration key {key}"
    if not value > 0:
        return f"Quota {key} must be greater than 0"
    if not isfinite(value):
        return f"Quota {key} must be a finite number"
    most = keys[key]
    if most is None:
        return None
    if value > most:
        return f"Proposed value for {key} is too large: the maximum is {most}."
    if value < 1 or value % 1.0 > _FRACTION:
        return f"{key} cannot be a fractional value."
    return None


def canonical_ip(text: str) -> str | None:
    """Return an address as sockets spell it, an IPv4-mapped one as IPv4; None if the text is no
    address."""
    from ipaddress import IPv6Address, ip_address

    try:
        address = ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


def canonical_entity(entity: Entity) -> Entity:
    """Return the entity as it is stored: equal addresses have one spelling."""
    return tuple(
        (kind, canonical_ip(name) or name if kind == IP and name else name) for kind, name in entity
    )


def altered(
    current: Mapping[str, float], changes: tuple[tuple[str, float | None], ...]
) -> dict[str, float]:
    """Return an entity's quotas after the changes."""
    result = dict(current)
    for key, value in changes:
        if value is None:
            result.pop(key, None)
        else:
            result[key] = value
    return result
