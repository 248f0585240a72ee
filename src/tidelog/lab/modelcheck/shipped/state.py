"""The cluster's state in the checker, and functions that derive one state from another.

States are immutable; cluster_model.py describes their parts. States that differ only in the
brokers' names count as one: `Renamer` finds the smallest of them.
"""

from collections.abc import Iterable
from typing import Any, TypeAlias

from tidelog.lab.modelcheck.shipped import messages as wire
from tidelog.lab.modelcheck.shipped.local_step import (
    ACCUSED,
    FOLLOWERS,
    HIGH_WATERMARK,
    ISR,
    LEADER,
    LEADER_EPOCH,
    PARTITION_EPOCH,
    FrozenReplica,
    fields_of,
    frozen_replica,
)
from tidelog.lab.modelcheck.shipped.messages import Message

State: TypeAlias = tuple[Any, ...]

DISAGREED, FELL_BACK = 1, 2
"""Error flags in the history: leaders disagreed on committed records; a leader's HW fell."""


def leads(state: State, broker: int) -> bool:
    """Return whether the broker considers itself the leader."""
    return bool(fields_of(state[0][broker][0])[LEADER] == broker)


def fell_back(before: FrozenReplica, after: FrozenReplica, broker: int) -> bool:
    """Return whether a leader's high watermark fell within one leader epoch."""
    old, new = fields_of(before), fields_of(after)
    return bool(
        old[LEADER] == new[LEADER] == broker
        and old[LEADER_EPOCH] == new[LEADER_EPOCH]
        and new[HIGH_WATERMARK] < old[HIGH_WATERMARK]
    )


def known_by_two(state: State) -> int:
    """Return how many records are below the high watermarks of at least two replicas."""
    marks = sorted(fields_of(frozen)[HIGH_WATERMARK] for frozen, _ in state[0])
    return int(marks[-2]) if len(marks) > 1 else 0


def with_replica(state: State, broker: int, replica: tuple[Any, ...]) -> State:
    """Return the state with another frozen and log for one broker."""
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


# -- symmetry: other names for the brokers -----------------------------------------------


Names: TypeAlias = tuple[int, ...]
"""names[old] is the new name; the last entry, at index -1, stays -1 (no broker)."""


class Renamer:
    """Rename whole states, with a cache of the renamed parts."""

    def __init__(self, renamings: list[Names]) -> None:
        # The first renaming is the identity and needs no work.
        self._renamings = [(names, _sources(names), {}, {}, {}) for names in renamings[1:]]  # type: list[tuple[Names, Names, dict[Any, Any], dict[Any, Any], dict[Any, Any]]]

    def smallest(self, state: State) -> State:
        """Return the smallest of all renamings of `state`."""
        best = state
        replicas, controller, messages, history = state
        for names, (first, *others), replicas_known, controllers, sent in self._renamings:
            # Most renamings are already larger at the first replica.
            frozen, log = replicas[first]
            head = (replicas_known.get(frozen) or _remember(replicas_known, frozen, names), log)
            if head > best[0][0]:
                continue
            tail = [
                (replicas_known.get(p) or _remember(replicas_known, p, names), entries)
                for p, entries in [replicas[old] for old in others]
            ]
            renamed = (head, *tail)
            if renamed > best[0]:
                continue
            other = controllers.get(controller)
            if other is None:
                other = controllers[controller] = _renamed_controller(controller, names)
            moved = sent.get(messages)
            if moved is None:
                moved = sent[messages] = tuple(sorted(wire.renamed(m, names) for m in messages))
            candidate = (renamed, other, moved, history)
            if candidate < best:
                best = candidate
        return best


def _sources(names: Names) -> Names:
    """Return the old broker for each new name."""
    return tuple(names.index(new) for new in range(len(names) - 1))


def _remember(known: dict[Any, Any], frozen: Any, names: Names) -> Any:
    renamed = known[frozen] = _renamed_replica(frozen, names)
    return renamed


def _renamed_replica(frozen: FrozenReplica, names: Names) -> FrozenReplica:
    """Rename the brokers in a frozen replica: leader, ISR, followers, refused leader.

    The assignment stays, because it contains all brokers.
    """
    fields = list(fields_of(frozen))
    isr = fields[ISR]
    members = tuple(sorted(names[b] for b in isr[0]))
    if len(isr) > 1:
        _, joining, leaving, proposed_at = isr
        joining = tuple(names[b] for b in joining)
        leaving = tuple(sorted(names[b] for b in leaving))
        isr = (members, joining, leaving, proposed_at)
    else:
        isr = (members,)
    fields[LEADER] = names[fields[LEADER]]
    fields[ACCUSED] = names[fields[ACCUSED]]
    fields[ISR] = isr
    fields[FOLLOWERS] = tuple(sorted((names[f[0]], *f[1:]) for f in fields[FOLLOWERS]))
    return frozen_replica(tuple(fields))


def _renamed_controller(controller: Any, names: Names) -> Any:
    return tuple(
        (
            names[leader],
            leader_epoch,
            partition_epoch,
            tuple(sorted(names[b] for b in isr)),
            tuple(sorted(names[b] for b in elr)),
        )
        for leader, leader_epoch, partition_epoch, isr, elr in controller
    )
