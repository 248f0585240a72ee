"""The network between brokers, clients and the metadata store.

Every ordered pair of addresses has a link with its own random generator and state. A message on
a link is delivered, dropped, duplicated or delayed, independently of other links, so messages can
overtake each other. A link can be cut, in one direction or both, until it is repaired. A link can
also be clogged: it holds messages back and delivers them in random order when it is released.

Invariant: a message is delivered at most twice, and at most `LATENCY_MAX_MS` after it was sent.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias

from tidelog.lab.sim.world import World

Address: TypeAlias = int
STORE: Address = 0
LATENCY_MAX_MS = 5_000


@dataclass(slots=True)
class LinkConditions:
    """The latency and the fault probabilities of every link, without the faults of a plan."""

    latency_min_ms: int = 1
    latency_max_ms: int = 5
    drop: float = 0.0
    duplicate: float = 0.0
    late: float = 0.0
    """The probability that a message is delayed by up to `late_max_ms`."""
    late_max_ms: int = 400


class Link:
    """One direction between two addresses."""

    __slots__ = ("cuts", "doubles", "last_arrival_ms", "loss_until_ms", "random", "stuck_until_ms")

    def __init__(self, random: Random, doubles: bool) -> None:
        self.random = random
        self.doubles = doubles
        """Whether a message may arrive twice. It may not on links to and from the store, whose
        clients remove duplicates."""
        self.cuts = 0
        """The number of active cuts; cuts may overlap."""
        self.loss_until_ms = 0
        """Before this time half of all messages are lost."""
        self.stuck_until_ms = 0
        """Before this time no message arrives, but none is lost."""
        self.last_arrival_ms = 0


class Network:
    """All links; a link is created when it is first used."""

    __slots__ = ("_conditions", "_links", "_world", "calm")

    def __init__(self, world: World, conditions: LinkConditions) -> None:
        self._world = world
        self._conditions = conditions
        self._links: dict[tuple[Address, Address], Link] = {}
        self.calm = False
        """If True, links delay messages but neither drop nor duplicate them at random."""

    def link(self, source: Address, target: Address) -> Link:
        found = self._links.get((source, target))
        if found is None:
            random = self._world.random(f"link/{source}/{target}")
            found = Link(random, doubles=STORE not in (source, target))
            self._links[source, target] = found
        return found

    def send(
        self, source: Address, target: Address, deliver: Callable[..., None], *message: Any
    ) -> bool:
        """Schedule `deliver(*message)`; return False if the link drops the message."""
        link = self._links.get((source, target)) or self.link(source, target)
        world = self._world
        now = world.now_ms
        if link.cuts:
            world.count("message dropped")
            return False
        draw = link.random.random
        conditions = self._conditions
        span = conditions.latency_max_ms - conditions.latency_min_ms + 1
        arrival = now + conditions.latency_min_ms + int(draw() * span)
        if not self.calm:
            fate = draw()
            if fate < conditions.drop or (now < link.loss_until_ms and fate < 0.5):
                world.count("message dropped")
                return False
            fate = draw()
            if fate < conditions.duplicate and link.doubles:
                world.count("message duplicated")
                world.at(arrival + int(draw() * conditions.late_max_ms), deliver, *message)
            elif fate > 1.0 - conditions.late:
                world.count("message delayed")
                arrival += int(draw() * conditions.late_max_ms)
        if arrival < link.stuck_until_ms:
            world.count("message delayed")
            arrival = link.stuck_until_ms + int(draw() * 20)
        if arrival < link.last_arrival_ms:
            world.count("message reordered")
        else:
            link.last_arrival_ms = arrival
        world.at(arrival, deliver, *message)
        return True

    def cut(self, source: Address, target: Address, duration_ms: int) -> None:
        """Cut one direction for a while."""
        self.link(source, target).cuts += 1
        self._world.after(duration_ms, self._mend, source, target)

    def _mend(self, source: Address, target: Address) -> None:
        link = self.link(source, target)
        link.cuts = max(0, link.cuts - 1)

    def clog(self, source: Address, target: Address, duration_ms: int) -> None:
        """Hold back the messages of one direction for a while."""
        link = self.link(source, target)
        link.stuck_until_ms = max(link.stuck_until_ms, self._world.now_ms + duration_ms)

    def rain(self, source: Address, target: Address, duration_ms: int) -> None:
        """Lose half of the messages of one direction for a while."""
        link = self.link(source, target)
        link.loss_until_ms = max(link.loss_until_ms, self._world.now_ms + duration_ms)

    def heal(self) -> None:
        """End all faults: from now on every message arrives soon and exactly once."""
        self.calm = True
        for link in self._links.values():
            link.cuts = 0
            link.stuck_until_ms = link.loss_until_ms = 0
