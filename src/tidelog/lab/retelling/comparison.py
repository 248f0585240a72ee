"""Compare the world of a story with a state of the model checker.

It compares the values that both have: each replica's log, high watermark, leader epoch and role,
and the controller's leader, epoch, ISR and ELR. The checker numbers brokers from 0, stories
from 1.
"""

from collections.abc import Iterator

from tidelog.lab.modelcheck.shipped.invariants import broker_name
from tidelog.lab.modelcheck.shipped.pictures import (
    HIGH_WATERMARK,
    LEADER,
    LEADER_EPOCH,
    fields_of,
)
from tidelog.lab.modelcheck.shipped.state import State
from tidelog.lab.spec.snapshot import ReplicaSnapshot
from tidelog.lab.story.stage.world import World


def difference(world: World, state: State) -> str:
    """Describe the first difference; an empty string if there is no difference."""
    return next(_differences(world, state), "")


def _differences(world: World, state: State) -> Iterator[str]:
    replicas = world.picture().replicas
    for broker, (picture, log) in enumerate(state[0]):
        fields = fields_of(picture)
        wanted = {
            "log": " ".join(f"m{record + 1}@{epoch}" for epoch, record in log),
            "HW": fields[HIGH_WATERMARK],
            "epoch": fields[LEADER_EPOCH],
            "leads": fields[LEADER] == broker,
        }
        yield from _parted(broker_name(broker), _facts(replicas[broker + 1]), wanted)
    leader, epoch, _, isr, elr = state[1][-1]
    partition = world.controller.partition
    decided = {
        "leader": -1 if partition.leader is None else partition.leader - 1,
        "epoch": partition.leader_epoch,
        "ISR": {broker - 1 for broker in partition.isr},
        "ELR": {broker - 1 for broker in partition.elr},
    }
    checked = {"leader": leader, "epoch": epoch, "ISR": set(isr), "ELR": set(elr)}
    yield from _parted("the controller", decided, checked)


def _facts(replica: ReplicaSnapshot) -> dict[str, object]:
    return {
        "log": " ".join(f"{entry.id}@{entry.epoch}" for entry in replica.log),
        "HW": replica.high_watermark,
        "epoch": replica.leader_epoch,
        "leads": replica.leads,
    }


def _parted(name: str, found: dict[str, object], wanted: dict[str, object]) -> Iterator[str]:
    for key, value in wanted.items():
        if found[key] != value:
            yield f"{name} has {key}={found[key]} here, {key}={value} in the checker"
