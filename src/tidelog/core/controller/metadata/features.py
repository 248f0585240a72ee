"""Feature levels: what this software supports, and what the cluster has agreed on.

A level of `tidelog.version` names the fields that may be written to the metadata store. It is
raised by UpdateFeatures, after every broker runs software that supports it. So the software of a
cluster can be replaced broker by broker, and back, until the level is raised (docs/adr/0047).

The other features are Kafka's, as far as they fit a cluster without a controller quorum
(docs/adr/0037). Consumer groups of KIP-848, share groups and streams groups are supported up to
level 0, which means off. `transaction.version` (KIP-890): at level 0, values in
`__transaction_state` have Kafka's older format; at level 2, producers that can use transactions of
version 2, in which each transaction has an epoch of its own.

Levels of `tidelog.version`:

1. The fields of stores without the key `features`.
2. `brokers/state/<id>` has the ranges that the broker's software supports, so that they are known
   while the broker is down.
3. A partition has `offline`, the replicas whose log directory failed. There may be transactions:
   every broker can coordinate them and write their markers.
4. There may be users with SCRAM credentials in the store, and ACLs, which every broker obeys.
5. There may be client quotas, which every broker enforces.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

TIDELOG_VERSION = "tidelog.version"
METADATA_VERSION = "metadata.version"
TRANSACTION_VERSION = "transaction.version"
RANGES_IN_STATES = 2
"""The first level of `tidelog.version` at which broker states have the supported ranges."""
OFFLINE_REPLICAS = 3
"""The first level at which partitions have the replicas whose log directory failed."""
TRANSACTIONS = 3
"""The first level at which there may be transactions. Any broker may lead a partition of one, so a
broker whose software can't write markers must not join."""
SCRAM = 4
"""The first level at which the store may have credentials of users."""

ACLS = 4
"""The first level at which there may be ACLs. Older software would not obey them."""

QUOTAS = 5
"""The first level at which there may be client quotas. Older software would not enforce them."""


class FeatureRange(NamedTuple):
    """The levels of one feature that a broker's software supports."""

    name: str
    lowest: int
    highest: int

    def __str__(self) -> str:
        """Return the levels as Kafka prints them."""
        if self.lowest == self.highest:
            return str(self.lowest)
        return f"{self.lowest}-{self.highest}"


SUPPORTED = (
    FeatureRange(METADATA_VERSION, 30, 30),  # Kafka's number for 4.3-IV0, as the messages here
    FeatureRange("eligible.leader.replicas.version", 1, 1),
    FeatureRange("group.version", 0, 0),
    FeatureRange("share.version", 0, 0),
    FeatureRange("streams.version", 0, 0),
    FeatureRange(TRANSACTION_VERSION, 0, 2),
    FeatureRange(TIDELOG_VERSION, 1, 5),
)
"""The ranges of this software."""
BEFORE_FEATURES = (
    FeatureRange(METADATA_VERSION, 30, 30),
    FeatureRange("eligible.leader.replicas.version", 1, 1),
    FeatureRange(TIDELOG_VERSION, 1, 1),
)
"""The ranges of software that registers none, because it is older than feature levels."""
WITHOUT_KEY = {feature.name: feature.lowest for feature in BEFORE_FEATURES}
"""The levels of a store without the key `features`."""


def range_of(ranges: Iterable[FeatureRange], name: str) -> FeatureRange:
    """Return the range of a feature; 0 to 0 if the software does not know it."""
    return next((known for known in ranges if known.name == name), FeatureRange(name, 0, 0))


def newest_levels(
    everyone: Iterable[Iterable[FeatureRange]], own: tuple[FeatureRange, ...] = SUPPORTED
) -> dict[str, int]:
    """Return the highest levels that all these brokers and the controller's own software
    support: those of a new cluster."""
    brokers = [own, *everyone]
    highest = {f.name: min(range_of(b, f.name).highest for b in brokers) for f in own}
    return {name: level for name, level in highest.items() if level > 0}


def unsupported(
    levels: Mapping[str, int], ranges: Iterable[FeatureRange] = SUPPORTED
) -> FeatureRange | None:
    """Return the range of the first feature whose level is outside it; None if there is none."""
    known = tuple(ranges)
    for name, level in levels.items():
        supported = range_of(known, name)
        if not supported.lowest <= level <= supported.highest:
            return supported
    return None


def refusal(levels: Mapping[str, int], own: tuple[FeatureRange, ...] = SUPPORTED) -> str | None:
    """Return why this software must not run on a store with these levels; None if it may."""
    bad = unsupported(levels, own)
    if bad is None:
        return None
    level = levels[bad.name]
    has = f"this Tidelog supports {bad}" if bad.highest else "this Tidelog does not know it"
    way = "a newer" if level > bad.highest else "an older"
    return (
        f"the metadata store is at {bad.name} {level}, and {has}; nothing was changed; run {way}"
        " Tidelog on this broker"
    )
