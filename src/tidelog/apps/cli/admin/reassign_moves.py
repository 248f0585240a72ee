"""Moves of replicas: begun, taken back, looked after until they are done.

Always true: a partition counts as done only when the cluster says that no move of it is under
way, and it is where it was wanted.
"""

import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tidelog.apps.cli import output
from tidelog.apps.cli.admin.outcomes import Change, done, refused
from tidelog.apps.cli.admin.reassign_plan import Plan
from tidelog.apps.cli.views.cluster_view import size
from tidelog.core.types import BrokerId, TopicPartition
from tidelog.shell.client.administration.reassignments import (
    Reassignment,
    alter_reassignments,
    list_reassignments,
)
from tidelog.shell.client.api_keys import DESCRIBE_LOG_DIRS
from tidelog.shell.client.client_errors import ClientError
from tidelog.shell.client.cluster import Cluster

LOOK_S = 0.25
GRACE_S = 1.0
PARTS = 100
"""Of a partition, as the bar counts."""
DONE, MOVING, ELSEWHERE = "done", "moving", "elsewhere"


class MoveState(NamedTuple):
    """How far one partition is."""

    topic: str
    partition: int
    state: str
    """`done`, `moving`, or `elsewhere`: not moving, and not where it was wanted."""
    replicas: list[BrokerId]
    wanted: list[BrokerId]

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    def as_data(self) -> dict[str, Any]:
        return self._asdict()


def _places(cluster: Cluster, topics: Iterable[str]) -> Plan:
    """Where all partitions of topics are now. Raises NoSuchTopic."""
    names = sorted(topics)
    cluster.refresh(names)
    return {
        TopicPartition(name, number): each.replicas
        for name in names
        for number, each in cluster.topic(name).partitions.items()
    }


def origins(cluster: Cluster, topics: Iterable[str]) -> Plan:
    """Where partitions are, or were before moves that are under way."""
    moves = list_reassignments(cluster)
    places = _places(cluster, topics)
    return {key: moves[key].origin if key in moves else at for key, at in places.items()}


def targets(cluster: Cluster, topics: Iterable[str]) -> Plan:
    """Where partitions are, or will be after moves that are under way."""
    moves = list_reassignments(cluster)
    places = _places(cluster, topics)
    return {key: moves[key].target if key in moves else at for key, at in places.items()}


def begin(cluster: Cluster, plan: Plan) -> list[Change]:
    """Tell the controller where replicas shall be."""
    outcomes = alter_reassignments(cluster, plan)
    return [
        done(str(key), f"{key}: moving to {','.join(map(str, plan[key]))}")
        if outcome.holds
        else refused(f"moving {key}", outcome)
        for key, outcome in sorted(outcomes.items())
    ]


def cancel(cluster: Cluster, plan: Plan) -> list[Change]:
    """Take back those moves that are under way."""
    moves = list_reassignments(cluster, plan)
    outcomes = alter_reassignments(cluster, dict.fromkeys(moves)) if moves else {}
    return [
        done(str(key), f"{key}: back to {','.join(map(str, moves[key].origin))}")
        if outcome.holds
        else refused(f"taking back the move of {key}", outcome)
        for key, outcome in sorted(outcomes.items())
    ]


def look(cluster: Cluster, plan: Plan) -> list[MoveState]:
    """How far each partition of a plan is. The broker that is asked where it is may learn of
    a move's end a little after the controller: it gets a moment."""
    until = time.monotonic() + GRACE_S
    while True:
        states = _states(cluster, plan, list_reassignments(cluster, plan))
        if all(each.state != ELSEWHERE for each in states) or time.monotonic() >= until:
            return states
        time.sleep(LOOK_S)


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


def wait(cluster: Cluster, plan: Plan, patience_s: float) -> list[MoveState]:
    """Look until nothing of the plan moves, or the time is up; a bar shows how far it is."""
    until = time.monotonic() + patience_s
    with output.progress("moving replicas", PARTS * len(plan)) as tell:
        while True:
            moves = list_reassignments(cluster, plan)
            late = time.monotonic() >= until
            if late or not moves:  # none: all is done, or the move has not begun
                states = look(cluster, plan)
                if late or all(each.state != MOVING for each in states):
                    return states
            if sys.stderr.isatty():  # else nobody sees what the brokers would be asked for
                copied, total = _copied(cluster, moves)
                moving = PARTS * len(moves) * copied // (total or 1)
                done_parts = PARTS * (len(plan) - len(moves)) + moving
                tell(done_parts, f"{size(copied)} of {size(total)}")
            time.sleep(LOOK_S)


def _copied(cluster: Cluster, moves: Mapping[TopicPartition, Reassignment]) -> tuple[int, int]:
    """How many bytes are on the brokers that get replicas, of how many there will be."""
    sizes: dict[BrokerId, dict[TopicPartition, int]] = {}
    brokers = {broker for move in moves.values() for broker in move.replicas}
    for broker in brokers:
        try:
            sizes[broker] = _sizes(cluster, broker, moves)
        except ClientError:
            sizes[broker] = {}
    copied = total = 0
    for key, move in moves.items():
        whole = max((sizes[broker].get(key, 0) for broker in move.replicas), default=0)
        total += whole * len(move.adding)
        copied += sum(min(sizes[broker].get(key, 0), whole) for broker in move.adding)
    return copied, total


def _sizes(
    cluster: Cluster, broker: BrokerId, keys: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    topics: dict[str, list[int]] = {}
    for key in keys:
        topics.setdefault(key.topic, []).append(key.partition)
    asked = [{"topic": name, "partitions": listed} for name, listed in topics.items()]
    answer = cluster.broker(broker).call(DESCRIBE_LOG_DIRS, {"topics": asked})
    return {
        TopicPartition(topic["name"], each["partition_index"]): each["partition_size"]
        for directory in answer["results"]
        for topic in directory["topics"]
        for each in topic["partitions"]
    }
