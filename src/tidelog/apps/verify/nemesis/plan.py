"""The plan of faults: which kind, when, on which role, for how long.

The plan repeats two kills and one other fault. Every other kind is used once before any is used
twice. A target is a role (a partition's leader, the controller, any broker), so that a
plan fits any cluster; the broker with that role is looked up when the fault begins. A fault
begins when the previous one is over and all replicas are in sync. So only one broker is affected
at a time, unless the fault itself affects several.

Invariant: the same seed, seconds and kinds give the same plan.
"""

from collections.abc import Iterator, Sequence
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
}
"""All kinds of faults, with a description."""
DEFAULT_KINDS = ("kill", "pause", "restart", "isolate", "disk-full", "rolling", "damage")
WAYS_OF = {"damage": list(WAYS), "damage-live": list(LIVE_WAYS)}
"""The ways of each kind of fault that damages files."""
QUIET_S = 3.0
"""No fault runs in the last seconds of a run."""
SESSION_S = 9.0
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
}
"""The approximate time that a fault needs in addition to its own duration."""


class Fault(NamedTuple):
    """One fault of a plan."""

    at_s: float
    """The earliest start; the fault begins later if the previous one took longer."""
    kind: str
    role: str
    draw: int
    """A random number that selects the partition or broker, and the way of damage."""
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
    others = [kind for kind in kinds if kind != "kill"]
    while kinds:
        random.shuffle(others)
        for kind in others or ["kill"]:
            if "kill" in kinds:
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
    if kind in ("pause", "isolate") and random.random() < 0.4:
        return round(SESSION_S + random.uniform(1.0, 3.0), 2)
    longest = 4.0 if kind in ("pause", "isolate") else 1.8
    return round(random.uniform(0.2, longest), 2)


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
