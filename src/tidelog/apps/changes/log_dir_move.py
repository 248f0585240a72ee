"""Move replicas between the log directories of one broker, and wait until they have moved."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tidelog.apps.changes.outcome import Change, done
from tidelog.core.errors import ErrorCode
from tidelog.core.types import BrokerId, TopicPartition
from tidelog.shell.client.administration.log_dirs import describe_log_dirs, move_replicas
from tidelog.shell.client.client_errors import error_name
from tidelog.shell.client.cluster import Cluster

LOOK_EVERY_S = 0.2
_LIST = "`tidelog log-dir list` shows the directories"
_HINTS: dict[int, str] = {
    ErrorCode.LOG_DIR_NOT_FOUND: _LIST,
    ErrorCode.KAFKA_STORAGE_ERROR: f"one of the two disks has failed; {_LIST}",
    ErrorCode.REPLICA_NOT_AVAILABLE: "the broker has no replica of it",
}


class Progress(NamedTuple):
    """How many of the replicas have moved, and how many bytes of the others are copied."""

    moved: int
    copied: int


def move(
    cluster: Cluster,
    broker: BrokerId,
    path: str,
    keys: Sequence[TopicPartition],
    wait_s: float,
    report: Callable[[Progress], None],
) -> list[Change]:
    """Start the moves and wait for them; return a result for each replica. Raises ClientError."""
    path = path.rstrip("/")
    errors = move_replicas(cluster, broker, path, keys)
    waiting = {key for key, error in errors.items() if error is ErrorCode.NONE}
    moved: set[TopicPartition] = set()
    until = time.monotonic() + wait_s
    while waiting:
        copied = 0
        copies, here = set(), set()
        for found in describe_log_dirs(cluster, broker, waiting):
            for each in found.replicas:
                if each.is_copy:
                    copies.add(each.key)
                    copied += each.size
                elif found.path.rstrip("/") == path:
                    here.add(each.key)
        moved |= here
        waiting &= copies - here
        report(Progress(len(moved), copied))
        if waiting and time.monotonic() >= until:
            break
        if waiting:
            time.sleep(LOOK_EVERY_S)
    return [_result(broker, path, key, errors[key], key in moved, key in waiting) for key in keys]


def _result(
    broker: BrokerId,
    path: str,
    key: TopicPartition,
    error: ErrorCode,
    moved: bool,
    moving: bool,
) -> Change:
    name = f"{key.topic}/{key.partition}"
    doing = f"moving {name} on broker {broker} to {path}"
    if error is not ErrorCode.NONE:
        hint = _HINTS.get(error)
        text = f"{doing}: {error_name(error)}{'; ' if hint else ''}{hint or ''}"
        return Change(name, "", error_name(error), text)
    if moved:
        return done(name, f"{name}: broker {broker} has it in {path}")
    why = (
        "it is not complete yet, and continues"
        if moving
        else "it ended early: the broker restarted, or the move was cancelled; try again"
    )
    return Change(name, "", "NOT_MOVED", f"{doing}: {why}")
