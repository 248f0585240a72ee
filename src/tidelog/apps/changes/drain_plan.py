"""Where the replicas of a drained broker go.

Invariants: only replicas of the drained broker move, each to a live broker that has none of the
partition; a rack gets a second replica of a partition only if no live broker is on a rack with
fewer. Racks count as in `core/controller/placement.py`: brokers without a rack share one.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from tidelog.apps.changes.reassignment_plan import Plan, Racks
from tidelog.core.types import BrokerId, TopicPartition

NAMED_MAX = 5


class TooFewBrokers(ValueError):
    """Partitions have a replica on every live broker; the text says which, and what to do."""


def plan_drain(
    broker: BrokerId,
    places: Mapping[TopicPartition, list[BrokerId]],
    racks: Racks,
    live: Collection[BrokerId],
    only: Collection[TopicPartition],
) -> Plan:
    """Return the new replicas of the partitions `only`, which are on `broker`.

    `places` has the replicas of all partitions: they are the load of each broker. Raises
    TooFewBrokers.
    """
    others = sorted(set(live) - {broker})
    kept = {key: [each for each in places[key] if each != broker] for key in only}
    choices = {key: _choices(replicas, others, racks) for key, replicas in kept.items()}
    if stuck := [key for key in sorted(kept) if not choices[key]]:
        raise TooFewBrokers(_too_few(broker, stuck, places, others))
    load = Counter(dict.fromkeys(others, 0))
    by_topic: Counter[tuple[str, BrokerId]] = Counter()
    for key, replicas in places.items():
        for each in kept.get(key, replicas):
            load[each] += 1
            by_topic[key.topic, each] += 1

    def fullness(key: TopicPartition, each: BrokerId) -> tuple[int, int, BrokerId]:
        return load[each], by_topic[key.topic, each], each

    def add(key: TopicPartition, each: BrokerId, count: int) -> None:
        load[each] += count
        by_topic[key.topic, each] += count

    chosen: dict[TopicPartition, BrokerId] = {}
    for key in sorted(kept, key=lambda key: (len(choices[key]), key)):
        chosen[key] = min(choices[key], key=lambda each: fullness(key, each))
        add(key, chosen[key], 1)
    better = True
    while better:  # each change makes two loads more equal, so this ends
        better = False
        for key, now in chosen.items():
            best = min(choices[key], key=lambda each: fullness(key, each))
            if load[best] + 1 < load[now]:
                add(key, now, -1)
                add(key, best, 1)
                chosen[key] = best
                better = True
    return _ordered(broker, places, chosen)


def _choices(kept: list[BrokerId], others: Iterable[BrokerId], racks: Racks) -> list[BrokerId]:
    """Return the brokers without this partition whose racks have the fewest replicas of it."""
    used = Counter(racks.get(each) for each in kept)
    free = [each for each in others if each not in kept]
    fewest = min((used[racks.get(each)] for each in free), default=0)
    return [each for each in free if used[racks.get(each)] == fewest]


def _ordered(
    broker: BrokerId,
    places: Mapping[TopicPartition, list[BrokerId]],
    chosen: Mapping[TopicPartition, BrokerId],
) -> Plan:
    """Put the new replica in the place of the old one; where that was the preferred leader, the
    replica comes first that is the preferred leader of the fewest partitions."""
    first = Counter(replicas[0] for key, replicas in places.items() if replicas[0] != broker)
    plan: Plan = {}
    for key, new in sorted(chosen.items()):
        replicas = [new if each == broker else each for each in places[key]]
        if places[key][0] == broker:
            leader = min(replicas, key=lambda each: (first[each], replicas.index(each)))
            first[leader] += 1
            replicas.remove(leader)
            replicas.insert(0, leader)
        plan[key] = replicas
    return plan


def _too_few(
    broker: BrokerId,
    stuck: list[TopicPartition],
    places: Mapping[TopicPartition, list[BrokerId]],
    others: list[BrokerId],
) -> str:
    names = ", ".join(map(str, stuck[:NAMED_MAX]))
    more = f" and {len(stuck) - NAMED_MAX} more" if len(stuck) > NAMED_MAX else ""
    most = max(len(places[key]) for key in stuck)
    up = ",".join(map(str, others)) or "none"
    return (
        f"broker {broker} can't be drained: up to {most} replicas need as many other live brokers,"
        f" but there are {len(others)} ({up}); affected: {names}{more}; start another broker, or"
        " reduce the replicas with `tidelog reassign --replication-factor`"
    )
