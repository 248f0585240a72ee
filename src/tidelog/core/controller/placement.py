"""Replica placement: which brokers get a new partition's replicas.

As in Kafka: leaders are assigned round-robin over the brokers, so that they spread evenly.
Followers are taken at a distance that grows with each round, so that the partitions of a failed
broker do not all move to the same neighbour. Brokers are ordered so that racks alternate; a second
broker of a rack is used only when every rack has one. The caller provides the random start.

As in Kafka, the leader must be active, the other replicas need not be. Racks count more than
liveness: a second replica in a rack that is up would stay there when the other rack is back.
"""

from collections.abc import Iterable
from itertools import zip_longest

from tidelog.core.controller.metadata.registrations import BrokerRegistration
from tidelog.core.types import BrokerId


class NotEnoughBrokers(Exception):
    """The replication factor exceeds the number of brokers, or no broker is active."""


def place(
    brokers: Iterable[BrokerRegistration],
    partitions: range,
    replication_factor: int,
    start_index: int = 0,
) -> list[tuple[BrokerId, ...]]:
    """Return the replicas of each partition, the preferred leader first.

    Inactive brokers come last among those of equally used racks.
    """
    registered = list(brokers)
    racks = {broker.id: broker.rack for broker in registered}
    ready = alternate_racks({b.id: b.rack for b in registered if b.active})
    spare = alternate_racks({b.id: b.rack for b in registered if not b.active})
    if not ready or not 0 < replication_factor <= len(registered):
        raise NotEnoughBrokers(
            f"Replication factor {replication_factor} is not possible: {len(registered)} brokers"
            f" are registered, {len(ready)} of them are active."
        )
    return [
        tuple(_stripe(ready, spare, racks, partition + start_index, replication_factor))
        for partition in partitions
    ]


def alternate_racks(racks: dict[BrokerId, str | None]) -> list[BrokerId]:
    """Return the brokers, one of each rack in turn; brokers without a rack share one."""
    by_rack: dict[str, list[BrokerId]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker] or "", []).append(broker)
    rounds = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker for column in rounds for broker in column if broker is not None]


def _stripe(
    ready: list[BrokerId],
    spare: list[BrokerId],
    racks: dict[BrokerId, str | None],
    turn: int,
    wanted: int,
) -> list[BrokerId]:
    count = len(ready)
    first = turn % count
    distance = turn // count
    others = [ready[(first + 1 + (distance + n) % (count - 1)) % count] for n in range(count - 1)]
    others += [spare[(turn + n) % len(spare)] for n in range(len(spare))]
    replicas = [ready[first]]
    while len(replicas) < wanted:
        used = [racks[broker] for broker in replicas]
        left = [broker for broker in others if broker not in replicas]
        replicas.append(min(left, key=lambda broker: used.count(racks[broker])))
    return replicas
