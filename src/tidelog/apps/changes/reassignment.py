"""Start, cancel and follow reassignments of replicas.

Invariant: a partition is `done` only if the cluster lists no reassignment of it and its replicas
are those of the plan.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from tidelog.apps.changes.outcome import Change, done, rejected
from tidelog.apps.changes.reassignment_plan import Plan
from tidelog.core.types import BrokerId, TopicPartition
from tidelog.shell.client.administration.log_dirs import describe_log_dirs
from tidelog.shell.client.administration.partitions import (
    Reassignment,
    alter_reassignments,
    list_reassignments,
)
from tidelog.shell.client.client_errors import ClientError
from tidelog.shell.client.cluster import Cluster

POLL_S = 0.25
METADATA_DELAY_S = 1.0
"""How long a broker's metadata may lag behind the controller after a reassignment."""
DONE, MOVING, ELSEWHERE = "done", "moving", "elsewhere"


class MoveState(NamedTuple):
    """The state of one partition of a plan."""

    topic: str
    partition: int
    state: str
    """`done`, `moving`, or `elsewhere`: no reassignment in progress, and not as planned."""
    replicas: list[BrokerId]
    wanted: list[BrokerId]

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    def as_data(self) -> dict[str, Any]:
        return self._asdict()


class MoveProgress(NamedTuple):
    """How much of a plan is copied."""

    partitions: int
    """Partitions of the plan that are still moving."""
    copied: int
    """Bytes copied for them so far."""
    total: int
    """Bytes to copy for them."""


def _places(cluster: Cluster, topics: Iterable[str]) -> Plan:
    """Return the replicas of all partitions of topics. Raises NoSuchTopic."""
    names = sorted(topics)
    cluster.refresh(names)
    return {
        TopicPartition(name, number): each.replicas
        for name in names
        for number, each in cluster.topic(name).partitions.items()
    }


def origins(cluster: Cluster, topics: Iterable[str]) -> Plan:
    """Return the replicas of partitions; for moving partitions, those from before the move."""
    moves = list_reassignments(cluster)
    places = _places(cluster, topics)
    return {key: moves[key].origin if key in moves else at for key, at in places.items()}


def targets(cluster: Cluster, topics: Iterable[str]) -> Plan:
    """Return the replicas of partitions; for moving partitions, those after the move."""
    moves = list_reassignments(cluster)
    places = _places(cluster, topics)
    return {key: moves[key].target if key in moves else at for key, at in places.items()}


def begin(cluster: Cluster, plan: Plan) -> list[Change]:
    """Send the plan to the controller."""
    outcomes = alter_reassignments(cluster, plan)
    return [
        done(str(key), f"{key}: moving to {','.join(map(str, plan[key]))}")
        if outcome.holds
        else rejected(f"moving {key}", outcome)
        for key, outcome in sorted(outcomes.items())
    ]


def cancel(cluster: Cluster, plan: Plan) -> list[Change]:
    """Cancel the reassignments of these partitions that are in progress."""
    moves = list_reassignments(cluster, plan)
    outcomes = alter_reassignments(cluster, dict.fromkeys(moves)) if moves else {}
    return [
        done(str(key), f"{key}: cancelled, back to {','.join(map(str, moves[key].origin))}")
        if outcome.holds
        else rejected(f"cancelling the reassignment of {key}", outcome)
        for key, outcome in sorted(outcomes.items())
    ]


def move_states(cluster: Cluster, plan: Plan) -> list[MoveState]:
    """Return the state of each partition of a plan.

    A broker's metadata shows the end of a reassignment a little after the controller, so a
    partition is `elsewhere` only after METADATA_DELAY_S.
    """
    until = time.monotonic() + METADATA_DELAY_S
    while True:
        states = _states(cluster, plan, list_reassignments(cluster, plan))
        if all(each.state != ELSEWHERE for each in states) or time.monotonic() >= until:
            return states
        time.sleep(POLL_S)


def _states(
    cluster: Cluster, plan: Plan, moves: Mapping[TopicPartition, Reassignment]
) -> list[MoveState]:
    places = _places(cluster, {key.topic for key in plan})
    found = []
    for key, wanted in sorted(plan.items()):
        at = places.get(key, [])
        state = MOVING if key in moves else DONE if at == wanted else ELSEWHERE
        found.append(MoveState(*key, state, at, wanted))
    return found


def wait(
    cluster: Cluster,
    plan: Plan,
    timeout_s: float,
    report: Callable[[MoveProgress], None] | None = None,
) -> list[MoveState]:
    """Wait until no partition of the plan moves, or the time is up; return their states.

    Calls `report` after each poll. Without `report`, the log sizes are not fetched.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        moves = list_reassignments(cluster, plan)
        late = time.monotonic() >= deadline
        if late or not moves:  # no moves: all are done, or the first has not started yet
            states = move_states(cluster, plan)
            if late or all(each.state != MOVING for each in states):
                return states
        if report is not None:
            report(MoveProgress(len(moves), *copied(cluster, moves)))
        time.sleep(POLL_S)


def copied(cluster: Cluster, moves: Mapping[TopicPartition, Reassignment]) -> tuple[int, int]:
    """Return the bytes that the new replicas have so far, and will have."""
    sizes: dict[BrokerId, dict[TopicPartition, int]] = {}
    brokers = {broker for move in moves.values() for broker in move.replicas}
    for broker in brokers:
        try:
            sizes[broker] = _sizes(cluster, broker, moves)
        except ClientError:
            sizes[broker] = {}
    done = total = 0
    for key, move in moves.items():
        whole = max((sizes[broker].get(key, 0) for broker in move.replicas), default=0)
        total += whole * len(move.adding)
        done += sum(min(sizes[broker].get(key, 0), whole) for broker in move.adding)
    return done, total


def _sizes(
    cluster: Cluster, broker: BrokerId, keys: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    return {
        each.key: each.size
        for directory in describe_log_dirs(cluster, broker, keys)
        for each in directory.replicas
    }
