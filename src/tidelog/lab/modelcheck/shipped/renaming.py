"""Replica symmetry: states that differ only in the brokers' names are one state."""

from typing import Any, TypeAlias

from tidelog.lab.modelcheck.shipped import messages as wire
from tidelog.lab.modelcheck.shipped.pictures import (
    ACCUSED,
    FOLLOWERS,
    ISR,
    LEADER,
    Picture,
    fields_of,
    picture_of,
)

State: TypeAlias = tuple[Any, ...]
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
        for names, (first, *others), pictures, controllers, sent in self._renamings:
            # Most renamings are already larger at the first replica.
            picture, log = replicas[first]
            head = (pictures.get(picture) or _remember(pictures, picture, names), log)
            if head > best[0][0]:
                continue
            tail = [
                (pictures.get(p) or _remember(pictures, p, names), entries)
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


def _remember(known: dict[Any, Any], picture: Any, names: Names) -> Any:
    renamed = known[picture] = _renamed_picture(picture, names)
    return renamed


def _renamed_picture(picture: Picture, names: Names) -> Picture:
    """Rename a picture: its leader, ISR, followers and the leader that the replica refused.

    The assignment stays, because it contains all brokers.
    """
    fields = list(fields_of(picture))
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
    return picture_of(tuple(fields))


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
