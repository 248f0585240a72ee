"""The plan of faults: what, when, on whom, for how long. A seed gives the same plan again.

Two kills, then another fault, over and over; the other kinds come in turn, each once before
any comes twice. A target is a role (a partition's leader, the controller, any broker), so
that a plan makes sense on any cluster; who holds the role is found out at the time. Faults
follow each other: the next one waits until the one before is over and every replica is back
in sync, unless the fault itself takes several brokers.

Always true: the same seed, seconds and kinds give the same plan.
"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

from tidelog.apps.verify.nemesis.damage import LIVE_WAYS, WAYS

KINDS = {
    "kill": "kill -9, and start again after a while",
    "pause": "SIGSTOP for a few seconds, or for longer than the session time-out",
    "restart": "a clean stop and start",
    "isolate": "its links to the other brokers are cut",
    "disk-full": "every write to its log directory fails",
    "rolling": "a clean restart of one broker after the other",
    "damage": "a stop, clean or by kill -9; one replica's files are damaged; a start",
    "damage-live": "a closed segment of a follower is damaged while its broker runs; a restart",
    "kill-two": "kill -9 of two brokers at once",
    "kill-all": "kill -9 of all brokers at once",
}
"""Every fault by name."""
DEFAULT_KINDS = ("kill", "pause", "restart", "isolate", "disk-full", "rolling", "damage")
WAYS_OF = {"damage": list(WAYS), "damage-live": list(LIVE_WAYS)}
"""The ways of each kind of fault that damages files."""
QUIET_S = 3.0
"""At the end of a run no fault begins."""
SESSION_S = 9.0
_TRIES = 4
"""A shorter fault may still fit at the end."""
_ROLES = ("leader", "leader", "controller", "any")
_COST_S = {
    "kill": 2.0,
    "pause": 2.0,
    "restart": 3.0,
    "isolate": 3.0,
    "disk-full": 3.0,
    "rolling": 9.0,
    "kill-two": 3.0,
    "kill-all": 4.0,
    "damage": 6.0,
    "damage-live": 6.0,
}
"""About what a fault takes beside its own duration."""


class Fault(NamedTuple):
    """One fault of a plan."""

    at_s: float
    """Not before; later if the one before took longer."""
    kind: str
    role: str
    draw: int
    """Picks the partition or the broker that the role leaves open, and the kind of damage."""
    duration_s: float
    gap_s: float
    """Calm between the end of the fault before and this one."""


def make_plan(seed: int, seconds: float, kinds: tuple[str, ...]) -> list[Fault]:
    """The faults of a run of so many seconds."""
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
    """What a fault that damages files does to the broker that it hits."""

    partition: int
    way: str
    clean: bool
    """Whether the broker is stopped cleanly."""


def choose_damage(fault: Fault, led: tuple[int, ...], partitions: list[int]) -> DamageChoice:
    """Choose a partition that the broker leads if the role is leader, else any. Under a running
    broker only one that it follows: a leader serves what it wrote without checking it again."""
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
    """The brokers that a fault hits, given who holds which role now."""
    if fault.kind in ("rolling", "kill-all"):
        return sorted(brokers)
    led = sorted(partition for partition, leader in leaders.items() if leader in brokers)
    if fault.role == "leader" and led:
        first = leaders[led[fault.draw % len(led)]]
    elif fault.role == "controller" and controller in brokers:
        first = controller
    else:
        first = sorted(brokers)[fault.draw % len(brokers)]
    if fault.kind != "kill-two":
        return [first]
    others = [broker for broker in sorted(brokers) if broker != first]
    return [first, *others[fault.draw % max(1, len(others)) :][:1]]
