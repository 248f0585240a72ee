"""The plan of faults: which kind, when, on which role, for how long.

The plan repeats two kills and one other fault. Every other kind is used once before any is used
twice. Among faults of machines, kills are as frequent as other kinds.

A target is a role (a partition's leader, the controller, any broker), so that a plan fits any
cluster; the broker with that role is looked up when the fault begins. A fault begins when the
previous one is over and all replicas are in sync. So only one broker is affected at a time, unless
the fault itself affects several.

Invariant: the same seed, seconds and kinds give the same plan.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations
from random import Random
from typing import NamedTuple

from tidelog.apps.verify.nemesis.damage import LIVE_WAYS, WAYS

KINDS = {
    "kill": "kill -9 of a broker, then a restart",
    "pause": "SIGSTOP for a few seconds, or for longer than the session time-out",
    "restart": "a clean stop and start",
    "isolate": "its links to the other brokers are cut",
    "disk-full": "every write to its log directory fails",
    "rolling": "a clean restart of one broker after the other",
    "damage": "a broker stops, cleanly or by kill -9; one replica's files are damaged; a restart",
    "damage-live": "a closed segment of a follower is damaged while its broker runs; a restart",
    "kill-ahead": "the followers are paused until their leader is ahead; kill -9 of that leader",
    "kill-two": "kill -9 of two brokers at once",
    "kill-all": "kill -9 of all brokers at once",
    "kill-machine": "the power of a machine fails: no process of it sends anything more",
    "cut": "a machine is cut off, both ways",
    "cut-out": "nothing that a machine sends arrives; it still receives",
    "cut-in": "nothing that is sent to a machine arrives; it can still send",
    "pause-machine": "SIGSTOP of all processes of a machine",
    "etcd-leader": "kill -9 of etcd's leader, then a restart",
    "etcd-quorum": "kill -9 of a majority of etcd's members for half a minute",
    "restart-all": "kill -9 of all brokers and members of etcd at once",
    "skew": "the wall clock of a machine is wrong by minutes",
}
"""All kinds of faults, with a description."""
MACHINE_KINDS = (
    "kill-machine",
    "cut",
    "cut-out",
    "cut-in",
    "pause-machine",
    "etcd-leader",
    "etcd-quorum",
    "restart-all",
    "skew",
)
"""The kinds that need machines (`--machines`)."""
DEFAULT_MACHINE_KINDS = ("kill", *MACHINE_KINDS)
_PAUSES = ("pause", "isolate", "kill-machine", "cut", "cut-out", "cut-in", "pause-machine")
"""The kinds that last for seconds, or for longer than a session."""
DEFAULT_KINDS = ("kill", "pause", "restart", "isolate", "disk-full", "rolling", "damage")
WAYS_OF = {"damage": list(WAYS), "damage-live": list(LIVE_WAYS)}
"""The ways of each kind of fault that damages files."""
QUIET_S = 3.0
"""No fault runs in the last seconds of a run."""
SESSION_S = 9.0
QUORUM_S = 30.0
_TRIES = 4
"""How many faults that do not fit end the plan: a shorter fault may still fit."""
_ROLES = ("leader", "leader", "controller", "any")
_COST_S = {
    "kill": 2.0,
    "pause": 2.0,
    "restart": 3.0,
    "isolate": 3.0,
    "disk-full": 3.0,
    "rolling": 9.0,
    "kill-ahead": 3.0,
    "kill-two": 3.0,
    "kill-all": 4.0,
    "damage": 6.0,
    "damage-live": 6.0,
    "kill-machine": 4.0,
    "cut": 3.0,
    "cut-out": 3.0,
    "cut-in": 3.0,
    "pause-machine": 3.0,
    "etcd-leader": 2.0,
    "etcd-quorum": 4.0,
    "restart-all": 6.0,
    "skew": 2.0,
}
"""The approximate time that a fault needs in addition to its own duration."""


class Fault(NamedTuple):
    """One fault of a plan."""

    at_s: float
    """The earliest start; the fault begins later if the previous one took longer."""
    kind: str
    role: str
    draw: int
    """A random number that selects the partition, broker or machines, and the kind of damage."""
    duration_s: float
    gap_s: float
    """Seconds without a fault between the previous fault and this one."""


def make_plan(seed: int, seconds: float, kinds: tuple[str, ...]) -> list[Fault]:
    """Return the faults for a run of `seconds` seconds."""
    random = Random(f"tidelog verify {seed}")
    plan: list[Fault] = []
    damages = {kind: _damages_in_turn(random, len(ways)) for kind, ways in WAYS_OF.items()}
    clock = 1.0
    too_long = 0
    for kind in _kinds_in_turn(random, kinds):
        gap = round(random.uniform(0.2, 1.0), 2)
        fault = Fault(
            round(clock + gap, 2),
            kind,
            random.choice(_ROLES),
            next(damages[kind]) if kind in damages else random.randrange(2**30),
            _duration(random, kind),
            gap,
        )
        if fault.at_s + fault.duration_s > seconds - QUIET_S:
            too_long += 1
            if too_long == _TRIES:
                return plan
            continue
        plan.append(fault)
        clock = fault.at_s + fault.duration_s + _COST_S[kind]
    return plan


def _kinds_in_turn(random: Random, kinds: tuple[str, ...]) -> Iterator[str]:
    often = "kill" in kinds and not set(kinds) & set(MACHINE_KINDS)
    others = [kind for kind in kinds if kind != "kill" or not often]
    while kinds:
        random.shuffle(others)
        for kind in others or ["kill"]:
            if often:
                yield from ("kill", "kill")
            yield kind


def _damages_in_turn(random: Random, ways: int) -> Iterator[int]:
    """Draw numbers that select every way once before any way twice."""
    while True:
        for number in random.sample(range(ways), ways):
            yield random.randrange(2**30) * ways + number


class DamageChoice(NamedTuple):
    """How a fault damages the files of its target broker."""

    partition: int
    way: str
    clean: bool
    """Whether the broker is stopped cleanly."""


def choose_damage(fault: Fault, led: tuple[int, ...], partitions: list[int]) -> DamageChoice:
    """Choose the partition to damage, the way, and whether to stop the broker cleanly.

    The partition is one that the broker leads if the role is leader, else any. While the broker
    runs, it is one that the broker follows: a leader serves records without checking them again.
    """
    ways = WAYS_OF[fault.kind]
    rest, number = divmod(fault.draw, len(ways))
    rest, clean = divmod(rest, 2)
    among: Sequence[int] = sorted(partitions)
    if fault.kind == "damage-live":
        among = [each for each in among if each not in led] or among
    elif fault.role == "leader" and led:
        among = led
    return DamageChoice(among[rest % len(among)], ways[number], bool(clean))


def _duration(random: Random, kind: str) -> float:
    if kind in MACHINE_KINDS:
        return _machine_duration(random, kind)
    if kind in _PAUSES and random.random() < 0.4:
        return round(SESSION_S + random.uniform(1.0, 3.0), 2)
    longest = 4.0 if kind in _PAUSES else 1.8
    return round(random.uniform(0.2, longest), 2)


def _machine_duration(random: Random, kind: str) -> float:
    """Return how long a fault of a machine lasts: mostly so long that its sessions end."""
    if kind == "etcd-quorum":
        return QUORUM_S
    if kind in _PAUSES and random.random() < 0.7:
        return round(SESSION_S + random.uniform(3.0, 5.0), 2)
    return round(random.uniform(1.0, 5.0), 2)


def is_long(fault: Fault) -> bool:
    """Return whether the sessions of the brokers end during a fault that keeps them silent."""
    return fault.kind in _PAUSES and fault.duration_s > SESSION_S


def choose(fault: Fault, leaders: dict[int, int], controller: int, brokers: list[int]) -> list[int]:
    """Return the target brokers of a fault, given the current leaders and controller."""
    if fault.kind in ("rolling", "kill-all"):
        return sorted(brokers)
    led = sorted(partition for partition, leader in leaders.items() if leader in brokers)
    if (fault.role == "leader" or fault.kind == "kill-ahead") and led:
        first = leaders[led[fault.draw % len(led)]]
    elif fault.role == "controller" and controller in brokers:
        first = controller
    else:
        first = sorted(brokers)[fault.draw % len(brokers)]
    if fault.kind != "kill-two":
        return [first]
    others = [broker for broker in sorted(brokers) if broker != first]
    return [first, *others[fault.draw % max(1, len(others)) :][:1]]


def choose_majority(fault: Fault, machines: Sequence[int]) -> list[int]:
    """Return the machines that lose their members of etcd, so that etcd has no quorum."""
    majorities = list(combinations(sorted(machines), len(machines) // 2 + 1))
    return list(majorities[fault.draw % len(majorities)])
