"""Which brokers get a new partition's replicas.

Kafka's idea: walk round the brokers, so that leaders spread evenly; take the followers at a
distance that grows with each round, so that the partitions of one lost broker do not all
fall on the same neighbour; and order the brokers so that racks alternate, taking a second
broker of a rack only when every rack has one. Nothing is random: the start comes in.

As in Kafka, the leader must be active, the other replicas need not be. Racks count more than
liveness: a second replica in a rack that is up would stay there when the other rack is back.
"""

from collections.abc import Iterable
from itertools import zip_longest

from tidelog.core.controller.metadata.registrations import BrokerRegistration
from tidelog.core.types import BrokerId


class NotEnoughBrokers(Exception):
    """More replicas are wanted than there are brokers, or no broker is there to lead."""


def place(
    brokers: Iterable[BrokerRegistration],
    partitions: range,
    replication_factor: int,
    start_index: int = 0,
) -> list[tuple[BrokerId, ...]]:
    """Replicas for each of the partitions, the one to lead first.

    Brokers that can't serve now come last among those of equally used racks.
    """
    registered = list(brokers)
    racks = {broker.id: broker.rack for broker in registered}
    ready = alternate_racks({b.id: b.rack for b in registered if b.active})
    spare = alternate_racks({b.id: b.rack for b in registered if not b.active})
    if not ready or not 0 < replication_factor <= len(registered):
        raise NotEnoughBrokers(
            f"Replication factor {replication_factor} can't be reached: {len(registered)} brokers"
            f" are registered, {len(ready)} of them are not fenced."
        )
    return [
        tuple(_stripe(ready, spare, racks, partition + start_index, replication_factor))
        for partition in partitions
    ]


def alternate_racks(racks: dict[BrokerId, str | None]) -> list[BrokerId]:
    """The brokers, one of each rack in turn; brokers without a rack share one."""
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
