"""A published rule as a model on packed states.

Replica names are interchangeable: a state represents all its renamings. This file looks up the
steps in `facts`, combines them and renames the resulting states.
"""

from collections.abc import Collection, Iterable

from tidelog.lab.modelcheck.explorer import Model
from tidelog.lab.modelcheck.published import invariants
from tidelog.lab.modelcheck.published.facts import Facts
from tidelog.lab.modelcheck.published.packing import Packing, Renaming, Table, renamings
from tidelog.lab.modelcheck.published.replication import (
    NONE,
    KafkaReplication,
    Quorum,
    Replica,
    Size,
    describe,
)


class PackedModel(Model[int]):
    """One set of rules at one size; with `symmetric` off every renaming is a separate state."""

    goals = invariants.GOALS

    def __init__(
        self,
        rules: KafkaReplication,
        size: Size,
        *,
        symmetric: bool = True,
        extra_invariants: bool = False,
    ) -> None:
        self.name = rules.name
        self.size = size
        self.invariants = invariants.PUBLISHED + (invariants.EXTRA if extra_invariants else ())
        self._packing = packing = Packing(size)
        self._facts = Facts(rules, packing, extra=extra_invariants)
        self._width = packing.quorum_bits
        self._mask = (1 << self._width) - 1
        self._renamings = renamings(packing, symmetric=symmetric)
        self._sorters = Table(self._find_sorters)
        self._arrangements = Table(self._arrange)

    def initial(self) -> Iterable[int]:
        names = range(self.size.replicas)
        quorum = Quorum((), frozenset(names), 0)
        return [
            self._packing.pack(quorum, [Replica(n, (), 0, NONE, NONE, frozenset()) for n in names])
        ]

    def canonical(self, state: int) -> int:
        """Return the smallest of the renamings that put the replicas in order."""
        smallest, tables = self._arrangements[state >> self._width]
        field = state & self._mask
        return smallest | min(renamed[field] for renamed in tables)

    def _arrange(self, replicas: int) -> tuple[int, tuple[Table[int, int], ...]]:
        """Return the replicas' part in order, and the matching renamings of the quorum.

        The high bits of a field hold the values that no renaming changes. Only renamings that sort
        the fields by these bits are tried, in most cases one. The smallest result wins.
        """
        fields = self._packing.fields(replicas)
        nameless = [field >> self._packing.named_bits for field in fields]
        ordered = sorted(nameless)
        ranks = tuple([ordered.index(key) for key in nameless])
        forms = [(renaming.apply(fields), renaming.quorum) for renaming in self._sorters[ranks]]
        smallest = min([form for form, _ in forms])
        leading = tuple([quorum for form, quorum in forms if form == smallest])
        return smallest << self._width, leading

    def _find_sorters(self, ranks: tuple[int, ...]) -> list[Renaming]:
        """Return the renamings that sort replicas by rank; equal ranks may have either order."""
        if len(self._renamings) == 1:
            return self._renamings
        return [
            renaming
            for renaming in self._renamings
            if [rank for _, rank in sorted(zip(renaming.order, ranks, strict=True))]
            == sorted(ranks)
        ]

    def share(self, state: int) -> int:
        """Return the replicas' part: states with equal replicas need the same look-ups."""
        return state >> self._width

    def successors(self, state: int) -> Iterable[tuple[str, int]]:
        width, replicas = self._width, state >> self._width
        moves = self._moves(replicas, state & self._mask)
        return [(action, replicas + change << width | field) for action, change, field in moves]

    def next_states(self, state: int) -> list[int]:
        arrangements, replicas = self._arrangements, state >> self._width
        states = []
        for _, change, field in self._moves(replicas, state & self._mask):
            smallest, tables = arrangements[replicas + change]
            if len(tables) == 1:
                states.append(smallest | tables[0][field])
            else:
                states.append(smallest | min([renamed[field] for renamed in tables]))
        return states

    def _moves(self, replicas: int, field: int) -> list[tuple[str, int, int]]:
        """Return each step: name, number to add to the replicas' part, the quorum's next field."""
        facts, quorum = self._facts.replicas[replicas], self._facts.quorums[field]
        request_move = self._facts.request_move
        moves = [(action, 0, after) for action, after in quorum.controller_moves]
        moves += [(action, change, field) for action, change in facts.moves]
        for request in quorum.requests:
            for name, leader_epoch in enumerate(facts.leader_epochs):
                if leader_epoch < request[0]:
                    move = request_move(request, name, facts.fields)
                    if move is not None:
                        moves.append((move[0], move[1], field))
        for leader, leader_epoch, writes, isr_changes in facts.leaders:
            if writes and quorum.after_write != NONE:
                action, change = writes[quorum.next_record_id]
                moves.append((action, change, quorum.after_write))
            if leader == quorum.leader and leader_epoch == quorum.leader_epoch:
                for action, change, isr in isr_changes:
                    moves.append((action, change, quorum.with_isr[isr]))
        return moves

    def violated(self, state: int) -> Collection[str]:
        facts = self._facts.replicas[state >> self._width]
        quorum = self._facts.quorums[state & self._mask]
        broken = facts.broken | quorum.broken if quorum.broken else facts.broken
        return broken | {invariants.STRONG_ISR} if facts.lacking & quorum.isr_bits else broken

    def reached(self, state: int) -> Collection[str]:
        return invariants.goals_reached(*self._packing.unpack(state))

    def meaning(self, invariant: str) -> str:
        return invariants.MEANING[invariant]

    def describe(self, state: int) -> list[str]:
        return describe(*self._packing.unpack(state))
