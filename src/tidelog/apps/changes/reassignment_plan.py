"""Reassignment plans: read from Kafka's JSON, or computed for a set of brokers.

Invariants of a computed plan: it moves no more replicas than needed to spread them over racks and
brokers, puts no two replicas of a partition on one broker, and gives no rack a second replica while
a rack with fewer replicas has a broker without one. Brokers without a rack count as one rack, as in
`core/controller/placement.py`.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from tidelog.core.types import BrokerId, TopicPartition

Plan: TypeAlias = dict[TopicPartition, list[BrokerId]]
Racks: TypeAlias = Mapping[BrokerId, str | None]

VERSION = 1


class BadPlan(ValueError):
    """A plan is invalid; the text says why."""


# -- Kafka's JSON ----------------------------------------------------------------------------


def read_plan(text: str) -> Plan:
    """Parse `{"version": 1, "partitions": [{"topic": …, "partition": …, "replicas": […]}]}`.

    Raises BadPlan.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        raise BadPlan(f"invalid JSON: {error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("partitions"), list):
        raise BadPlan('key "partitions" is missing or is not a list')
    if document.get("version", VERSION) != VERSION:
        raise BadPlan(f"version {document['version']} is not supported, only {VERSION}")
    plan: Plan = {}
    for number, entry in enumerate(document["partitions"]):
        key, replicas = _read_entry(number, entry)
        if key in plan:
            raise BadPlan(f"partition {key} is listed twice")
        plan[key] = replicas
    if not plan:
        raise BadPlan("the list of partitions is empty")
    return plan


def _read_entry(number: int, entry: Any) -> tuple[TopicPartition, list[BrokerId]]:
    where = f'entry {number} of "partitions"'
    if not isinstance(entry, dict):
        raise BadPlan(f"{where} is not an object")
    topic, partition, replicas = (entry.get(name) for name in ("topic", "partition", "replicas"))
    if not isinstance(topic, str) or not isinstance(partition, int):
        raise BadPlan(f'{where} must have "topic" and "partition"')
    key = TopicPartition(topic, partition)
    if not isinstance(replicas, list) or not replicas or not all(map(_is_number, replicas)):
        raise BadPlan(f'{key}: "replicas" must be a list of broker ids')
    if len(set(replicas)) < len(replicas):
        raise BadPlan(f"{key} lists a broker twice: {replicas}")
    if any(place != "any" for place in entry.get("log_dirs", [])):
        raise BadPlan(
            f'{key}: log directories can\'t be chosen here; remove "log_dirs", and move'
            " replicas between directories with `tidelog log-dir move`"
        )
    return key, replicas


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def as_document(plan: Plan) -> dict[str, Any]:
    """Return a plan in the form of Kafka's JSON."""
    return {
        "version": VERSION,
        "partitions": [
            {"topic": key.topic, "partition": key.partition, "replicas": replicas}
            for key, replicas in sorted(plan.items())
        ],
    }


# -- computed plans --------------------------------------------------------------------------


def make_plan(
    current: Plan, brokers: Sequence[BrokerId], racks: Racks, factor: int | None = None
) -> Plan:
    """Spread partitions over `brokers`, each with its current replica count, or with `factor`.

    Raises BadPlan.
    """
    plan: Plan = {}
    for key, replicas in current.items():
        wanted = len(replicas) if factor is None else factor
        if wanted > len(brokers):
            raise BadPlan(
                f"{key} needs {wanted} brokers, but --brokers lists {len(brokers)};"
                " list more brokers, or reduce --replication-factor"
            )
        plan[key] = [broker for broker in replicas if broker in brokers][:wanted]
    load = Counter(dict.fromkeys(brokers, 0))
    load.update(broker for replicas in plan.values() for broker in replicas)
    for key, replicas in plan.items():
        wanted = len(current[key]) if factor is None else factor
        while len(replicas) < wanted:
            chosen = min(
                (broker for broker in brokers if broker not in replicas),
                key=lambda broker: (_crowding(broker, replicas, racks), load[broker], broker),
            )
            replicas.append(chosen)
            load[chosen] += 1
        while _use_another_rack(replicas, current[key], load, racks):
            pass
    _even_out(plan, load, racks)
    _spread_leaders(plan)
    return plan


def _crowding(broker: BrokerId, others: Sequence[BrokerId], racks: Racks) -> int:
    """Return how many of the other replicas are on the same rack."""
    rack = racks.get(broker)
    return sum(racks.get(other) == rack for other in others)


def _use_another_rack(
    replicas: list[BrokerId], before: Sequence[BrokerId], load: Counter[BrokerId], racks: Racks
) -> bool:
    """Move one replica of a partition to a rack with fewer of them, if there is one.

    The plan may begin with two replicas on a rack: the rack of a new machine was added later. The
    first replica stays if another of its rack can move. A broker that has the records is preferred.
    """
    crowded = max(replicas[::-1], key=lambda each: _crowding(each, replicas, racks))
    others = [each for each in replicas if each != crowded]
    free = [each for each in load if each not in replicas]
    if not free:
        return False
    best = min(
        free,
        key=lambda each: (_crowding(each, others, racks), each not in before, load[each], each),
    )
    if _crowding(best, others, racks) >= _crowding(crowded, others, racks):
        return False
    replicas[replicas.index(crowded)] = best
    load[crowded] -= 1
    load[best] += 1
    return True


def _even_out(plan: Plan, load: Counter[BrokerId], racks: Racks) -> None:
    """Move single replicas from the fullest to the emptiest broker until the load is even."""
    while _move_one(plan, load, racks):
        pass


def _move_one(plan: Plan, load: Counter[BrokerId], racks: Racks) -> bool:
    by_load = sorted(load, key=lambda broker: (load[broker], broker))
    for empty in by_load:
        for full in reversed(by_load):
            if load[full] - load[empty] < 2:
                break
            for replicas in plan.values():
                if full in replicas and empty not in replicas:
                    others = [broker for broker in replicas if broker != full]
                    if _crowding(empty, others, racks) <= _crowding(full, others, racks):
                        replicas[replicas.index(full)] = empty
                        load[full] -= 1
                        load[empty] += 1
                        return True
    return False


def _spread_leaders(plan: Plan) -> None:
    """Make each broker the preferred leader (first replica) of equally many partitions."""
    first = Counter(replicas[0] for replicas in plan.values())
    for replicas in plan.values():
        best = min(replicas, key=lambda broker: (first[broker], replicas.index(broker)))
        if first[replicas[0]] - first[best] > 1:
            first[replicas[0]] -= 1
            first[best] += 1
            replicas.remove(best)
            replicas.insert(0, best)
