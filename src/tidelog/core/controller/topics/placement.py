"""Which brokers get a new partition's replicas.

Kafka's idea: walk round the brokers, so that leaders spread evenly; take the followers at a
distance that grows with each round, so that the partitions of one lost broker do not all
fall on the same neighbour; and order the brokers so that racks alternate, taking a second
broker of a rack only when every rack has one. Nothing is random: the start comes in.
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

    Brokers that can't serve now are used last, and only to reach the replication factor.
    """
    registered = [broker for broker in brokers if broker.registered]
    racks = {broker.id: broker.rack for broker in registered}
    ready = alternate_racks({b.id: b.rack for b in registered if b.active})
    spare = sorted(broker.id for broker in registered if not broker.active)
    if not ready or not 0 < replication_factor <= len(registered):
        raise NotEnoughBrokers(
            f"Replication factor {replication_factor} can't be had: {len(registered)} brokers"
            f" are registered, {len(ready)} of them ready."
        )
    assignment = []
    for partition in partitions:
        turn = partition + start_index
        wanted = min(replication_factor, len(ready))
        replicas = _stripe(ready, racks, turn, wanted)
        missing = replication_factor - wanted
        replicas += [spare[(turn + n) % len(spare)] for n in range(missing)]
        assignment.append(tuple(replicas))
    return assignment


def alternate_racks(racks: dict[BrokerId, str | None]) -> list[BrokerId]:
    """The brokers, one of each rack in turn; brokers without a rack share one."""
    by_rack: dict[str, list[BrokerId]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker] or "", []).append(broker)
    rounds = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker for column in rounds for broker in column if broker is not None]


def _stripe(
    ready: list[BrokerId], racks: dict[BrokerId, str | None], turn: int, wanted: int
) -> list[BrokerId]:
    count = len(ready)
    first = turn % count
    distance = turn // count
    others = [ready[(first + 1 + (distance + n) % (count - 1)) % count] for n in range(count - 1)]
    replicas = [ready[first]]
    while len(replicas) < wanted:
        used = [racks[broker] for broker in replicas]
        left = [broker for broker in others if broker not in replicas]
        replicas.append(min(left, key=lambda broker: used.count(racks[broker])))
    return replicas
