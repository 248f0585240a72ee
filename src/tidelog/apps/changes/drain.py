"""Drain a broker: move all its replicas to other brokers.

All state is in the cluster, so a drain that was interrupted is continued by the next one: a
partition whose reassignment already removes the broker is only waited for.

Nothing keeps new replicas away from a broker while it is drained: topics may be created at any
time. So the drain looks at all partitions again after each step, and ends only when none is left.
A stopped broker gets no new replica that would be the only one, because a leader must be live.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from tidelog.apps.changes.drain_plan import TooFewBrokers, plan_drain
from tidelog.apps.changes.outcome import rejected
from tidelog.apps.changes.reassignment import METADATA_DELAY_S, POLL_S, copied
from tidelog.apps.changes.reassignment_plan import Plan
from tidelog.apps.changes.throttle import clear_throttle_of, set_throttle
from tidelog.core.errors import ErrorCode
from tidelog.core.types import BrokerId, TopicPartition
from tidelog.shell.client.admin import RegisteredBroker, registered_brokers, unregister_broker
from tidelog.shell.client.administration.partitions import (
    Reassignment,
    alter_reassignments,
    list_reassignments,
)
from tidelog.shell.client.client_errors import ClientError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.cluster_metadata import NO_LEADER

AT_ONCE = 100
"""Partitions that are moved at the same time."""
DEAD_S = 30.0
"""How long a new replica's broker may be down until the replica is placed elsewhere."""
SILENCE_S = 60.0
"""How long requests may fail, such as while there is no controller, until the drain gives up."""
ATTEMPTS = 5
"""How often the controller may reject the move of a partition."""
PASSING = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_REPLICATION_FACTOR)
"""The topic was deleted, or the partition moved, since the metadata was fetched."""


class CannotDrain(ClientError):
    """A broker can't be drained; the text says why and what to do."""


class Moved(NamedTuple):
    """One partition of the drained broker."""

    topic: str
    partition: int
    state: str
    """`moved`, `moving`, `waiting`, or `blocked`: it has no leader to copy from."""
    before: list[BrokerId]
    after: list[BrokerId] | None
    """None if no place is chosen."""

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    def as_data(self) -> dict[str, Any]:
        return self._asdict()


class DrainProgress(NamedTuple):
    """How much of a drain is done."""

    partitions: int
    """Partitions found on the broker so far."""
    left: int
    """Partitions that are still on the broker."""
    moving: int
    """Those of them that are moving."""
    copied: int
    """Bytes copied so far for these."""
    total: int
    """Bytes to copy for these."""


class View(NamedTuple):
    """The partitions of the cluster, and those of the drained broker."""

    registered: dict[BrokerId, RegisteredBroker]
    places: Plan
    """The replicas of all partitions; for moving partitions, those after the move."""
    moving: dict[TopicPartition, Reassignment]
    """Partitions that are leaving the broker."""
    foreign: list[TopicPartition]
    """Partitions on the broker that another reassignment changes without removing the broker."""
    at_rest: Plan
    """Other partitions on the broker, with their replicas."""
    blocked: list[TopicPartition]
    """Those of them without a leader: no replica can be copied."""

    @property
    def left(self) -> int:
        return len(self.moving) + len(self.foreign) + len(self.at_rest)

    @property
    def live(self) -> set[BrokerId]:
        return {each.id for each in self.registered.values() if not each.fenced}


class Drain:
    """The drain of one broker. Its methods raise CannotDrain."""

    def __init__(self, cluster: Cluster, broker: BrokerId, rate: int | None = None) -> None:
        self._cluster = cluster
        self._broker = broker
        self._rate = rate
        self._plan: Plan = {}
        """Places chosen for partitions at rest."""
        self._checked = False
        self._throttled = False
        self._before: Plan = {}
        self._after: Plan = {}
        self._last_moving: dict[TopicPartition, float] = {}
        self._begun: set[TopicPartition] = set()
        """Partitions whose moves began after the last view, which does not show the moves yet."""
        self._rejections: dict[TopicPartition, int] = {}
        self._down_since: dict[BrokerId, float] | None = None

    def check(self) -> View:
        """Return the state of the broker, if it can be drained now."""
        view = self._look()
        if self._broker not in view.registered and not view.left:
            known = ", ".join(map(str, sorted(view.registered)))
            raise CannotDrain(
                f"broker {self._broker} is not registered and has no replicas; choose from: {known}"
            )
        if view.foreign:
            raise CannotDrain(
                f"another reassignment of {view.foreign[0]}, which keeps broker {self._broker}, is"
                " in progress; wait for its end or cancel it: `tidelog reassign --list` lists all"
            )
        self._checked = True
        return view

    def propose(self, view: View) -> Plan:
        """Return the new replicas of all partitions at rest that can move."""
        racks = {each.id: each.rack for each in view.registered.values()}
        only = [key for key in view.at_rest if key not in view.blocked]
        try:
            return plan_drain(self._broker, view.places, racks, view.live, only)
        except TooFewBrokers as error:
            raise CannotDrain(str(error)) from error

    def run(
        self, timeout_s: float, report: Callable[[DrainProgress], None] | None = None
    ) -> list[Moved]:
        """Move all replicas, or as many as the time allows; return what became of each partition.

        Calls `report` after each poll. Without `report`, the log sizes are not fetched.
        """
        deadline = time.monotonic() + timeout_s
        responded = time.monotonic()
        view = self._look() if self._checked else self.check()
        while True:
            try:
                view = self._replace_dead_targets(view)
                self._move_some(view)
                responded = time.monotonic()
                waits = view.left > len(view.blocked)
                if not waits or responded >= deadline:
                    break
                if report is not None:
                    sizes = copied(self._cluster, view.moving)
                    report(DrainProgress(len(self._before), view.left, len(view.moving), *sizes))
                time.sleep(POLL_S)
                view = self._look()
            except CannotDrain:
                raise
            except ClientError:  # such as a controller that died: every request can be repeated
                if time.monotonic() - responded >= SILENCE_S:
                    raise
                time.sleep(POLL_S)
                with suppress(ClientError):
                    self._cluster.refresh([])
        if not (view.moving or view.foreign or self._begun):
            self._clear_throttle()
        return self._results(view)

    def unregister(self, *, running: bool) -> str | None:
        """Remove the registration of the broker, if it is down or `running` allows it.

        Returns its state then: `unregistered`, `running`, or None: it was not registered before.
        Call `run` again afterwards: a topic may have been created in the last moment.
        """
        known = registered_brokers(self._cluster).get(self._broker)
        if known is None:
            return None
        if not known.fenced and not running:
            return "running"
        outcome = unregister_broker(self._cluster, self._broker)
        if not outcome.holds and outcome.error != ErrorCode.BROKER_ID_NOT_REGISTERED:
            what = f"unregistering broker {self._broker}"
            raise CannotDrain(str(rejected(what, outcome).message))
        return "unregistered"

    # -- steps -----------------------------------------------------------------------------

    def _look(self) -> View:
        """Fetch reassignments, partitions and brokers.

        Invariant: the reassignments are fetched first. A partition whose metadata shows old and
        new replicas, while no reassignment is listed, just ended one; it is left alone for a while.
        """
        broker, now = self._broker, time.monotonic()
        moves = list_reassignments(self._cluster)
        topics = self._cluster.refresh().topics
        registered = registered_brokers(self._cluster)
        self._begun.clear()
        view = View(registered, {}, {}, [], {}, [])
        for name, topic in topics.items():
            for number, each in topic.partitions.items():
                key, move = TopicPartition(name, number), moves.get(TopicPartition(name, number))
                view.places[key] = each.replicas if move is None else move.target
                if broker not in (each.replicas if move is None else move.replicas):
                    continue
                self._before.setdefault(key, each.replicas if move is None else move.origin)
                if move is not None and broker in move.removing:
                    view.moving[key] = move
                    self._last_moving[key] = now
                    self._after[key] = move.target
                elif move is not None or now - self._last_moving.get(key, -1e9) < METADATA_DELAY_S:
                    view.foreign.append(key)
                else:
                    view.at_rest[key] = each.replicas
                    if each.leader == NO_LEADER:
                        view.blocked.append(key)
        return view

    def _replace_dead_targets(self, view: View) -> View:
        """Treat partitions as at rest that move to a broker which is down for long."""
        now = time.monotonic()
        down = {b for move in view.moving.values() for b in move.adding} - view.live
        if self._down_since is None:  # the first look: an earlier drain has waited for them
            self._down_since = dict.fromkeys(down, now - DEAD_S)
        since = {each: self._down_since.get(each, now) for each in down}
        self._down_since = since
        dead = {each for each in down if now - since[each] >= DEAD_S}
        for key, move in list(view.moving.items()):
            if dead.intersection(move.adding):
                del view.moving[key]
                view.at_rest[key] = view.places[key] = move.origin
        return view

    def _move_some(self, view: View) -> None:
        """Start as many moves as may run at the same time."""
        ready = [key for key in sorted(view.at_rest) if key not in view.blocked]
        if any(not view.live.issuperset(self._new(key, view.at_rest[key])) for key in ready):
            self._plan = self.propose(view)
            self._throttled = False
        if self._rate is not None and not self._throttled:  # also where only an earlier drain moves
            self._throttle(view, self._rate)
            self._throttled = True
        room = AT_ONCE - len(view.moving)
        begun = {key: self._plan[key] for key in ready[: max(room, 0)]}
        if not begun:
            return
        outcomes = alter_reassignments(self._cluster, begun, keep_factor=True)
        for key, outcome in outcomes.items():
            if outcome.holds:
                self._begun.add(key)
                self._after[key] = begun[key]
                self._last_moving[key] = time.monotonic()
            elif outcome.error not in PASSING:
                self._rejections[key] = self._rejections.get(key, 0) + 1
                if self._rejections[key] >= ATTEMPTS:
                    raise CannotDrain(str(rejected(f"moving {key}", outcome).message))
                self._plan.pop(key, None)

    def _new(self, key: TopicPartition, replicas: list[BrokerId]) -> set[BrokerId]:
        """Return the brokers that get a replica. If the plan does not match these replicas, return
        -1, which is never a live broker: the partition has changed since."""
        planned, kept = set(self._plan.get(key, ())), set(replicas) - {self._broker}
        return planned - kept if kept < planned and len(planned) == len(replicas) else {-1}

    def _throttle(self, view: View, rate: int) -> None:
        """Limit the copies of all partitions that move or will move."""
        before = {key: move.origin for key, move in view.moving.items()}
        after = {key: move.target for key, move in view.moving.items()}
        for key, wanted in self._plan.items():
            if key in view.at_rest:  # else the topic was deleted since the plan was made
                before[key], after[key] = view.at_rest[key], wanted
        if failed := set_throttle(self._cluster, before, after, rate):
            raise CannotDrain(str(failed[0].message))

    def _clear_throttle(self) -> None:
        if failed := clear_throttle_of(self._cluster, self._broker):
            raise CannotDrain(str(failed[0].message))

    def _results(self, view: View) -> list[Moved]:
        found = []
        for key, before in sorted(self._before.items()):
            after = self._after.get(key)
            if key in view.blocked:
                found.append(Moved(*key, "blocked", before, None))
            elif key in self._begun or key in view.moving or key in view.foreign:
                found.append(Moved(*key, "moving", before, after))
            elif key in view.at_rest:
                found.append(Moved(*key, "waiting", before, after or self._plan.get(key)))
            elif key in view.places:  # else the topic was deleted
                found.append(Moved(*key, "moved", before, view.places[key]))
        return found
