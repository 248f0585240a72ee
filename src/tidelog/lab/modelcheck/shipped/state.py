"""The cluster's state in the checker, and functions that derive one state from another.

States are immutable; cluster_model.py describes their parts.
"""

from collections.abc import Iterable
from typing import Any, TypeAlias

from tidelog.lab.modelcheck.shipped.messages import Message
from tidelog.lab.modelcheck.shipped.pictures import (
    HIGH_WATERMARK,
    LEADER,
    LEADER_EPOCH,
    PARTITION_EPOCH,
    Picture,
    fields_of,
)

State: TypeAlias = tuple[Any, ...]

DISAGREED, FELL_BACK = 1, 2
"""Error flags in the history: leaders disagreed on committed records; a leader's HW fell."""


def leads(state: State, broker: int) -> bool:
    """Return whether the broker considers itself the leader."""
    return bool(fields_of(state[0][broker][0])[LEADER] == broker)


def fell_back(before: Picture, after: Picture, broker: int) -> bool:
    """Return whether a leader's high watermark fell within one leader epoch."""
    old, new = fields_of(before), fields_of(after)
    return bool(
        old[LEADER] == new[LEADER] == broker
        and old[LEADER_EPOCH] == new[LEADER_EPOCH]
        and new[HIGH_WATERMARK] < old[HIGH_WATERMARK]
    )


def known_by_two(state: State) -> int:
    """Return how many records are below the high watermarks of at least two replicas."""
    marks = sorted(fields_of(picture)[HIGH_WATERMARK] for picture, _ in state[0])
    return int(marks[-2]) if len(marks) > 1 else 0


def with_replica(state: State, broker: int, replica: tuple[Any, ...]) -> State:
    """Return the state with another picture and log for one broker."""
    replicas = state[0]
    return ((*replicas[:broker], replica, *replicas[broker + 1 :]), *state[1:])


def with_messages(state: State, messages: Iterable[Message]) -> State:
    """Return the state with these messages in flight, without duplicates."""
    return (state[0], state[1], tuple(sorted(set(messages))), state[3])


def pruned(state: State) -> State:
    """Drop the registrations that every replica has passed, except the newest."""
    slowest = min(fields_of(replica[0])[PARTITION_EPOCH] for replica in state[0])
    kept = tuple(r for r in state[1][:-1] if r[2] > slowest) + state[1][-1:]
    return (state[0], kept, state[2], state[3])


def with_history(
    state: State,
    *,
    committed: tuple[Any, ...] | None = None,
    fell_back: bool = False,
    produced: int | None = None,
    restarts: int | None = None,
    damages: int | None = None,
    confirmed: int = 0,
) -> State:
    """Update the history; `committed` is the prefix that a leader considers committed.

    The history keeps the longest such prefix, and sets a flag if two leaders disagree.
    """
    known, wrong, made, restarted, damaged, by_two = state[3]
    if fell_back:
        wrong |= FELL_BACK
    if committed is not None:
        shared = min(len(known), len(committed))
        if known[:shared] != committed[:shared]:
            wrong |= DISAGREED
        elif len(committed) > len(known):
            known = committed
    history = (
        known,
        wrong,
        made if produced is None else produced,
        restarted if restarts is None else restarts,
        damaged if damages is None else damages,
        max(by_two, confirmed),
    )
    return (*state[:3], history)
