"""A published rule as a model on packed states.

The rules use named tuples, for readability. There are far fewer replicas, and pairs of a leader
and a follower, than states. So `Facts` computes the result of a rule once for each packed field
that occurs, and a search spends its time on look-ups. No rule reads another replica's ISR, so a
key contains the ISR only where it matters.

Replica names are interchangeable: a state represents all its renamings. `PackedModel` combines the
steps that it looks up, and renames the resulting states.
"""

from collections.abc import Collection, Iterable, Iterator
from functools import partial
from typing import NamedTuple, TypeAlias

from tidelog.lab.modelcheck.explorer import Model
from tidelog.lab.modelcheck.published import invariants
from tidelog.lab.modelcheck.published.packing import (
    Packing,
    Renaming,
    Table,
    isr_bits,
    members,
    renamings,
)
from tidelog.lab.modelcheck.published.replication import (
    NONE,
    KafkaReplication,
    LeaderAndIsr,
    Quorum,
    Replica,
    Size,
    apply_request,
    controller_moves,
    describe,
    fetch,
    leader_write,
    letter,
    truncate_to,
)

Move: TypeAlias = tuple[str, int]
"""An action's name, and the number it adds to the replicas' part of the state."""


class ReplicaFacts(NamedTuple):
    """The results that depend on one replica's field only."""

    replica: Replica
    writes: tuple[Move, ...]  # by the id of the next record; empty if the replica cannot write
    commit: Move | None  # advances the high watermark, if every follower in the ISR acknowledges
    broken: tuple[str, ...]


class PairFacts(NamedTuple):
    """The results that depend on the fields of a presumed leader and another replica."""

    moves: tuple[Move, ...]
    acknowledges: bool
    may_shrink: bool
    may_expand: bool
    holds_committed: bool


class LeaderFacts(NamedTuple):
    """The actions of a presumed leader that also change the quorum."""

    leader: int
    leader_epoch: int
    writes: tuple[Move, ...]
    isr_changes: tuple[tuple[str, int, int], ...]  # (action, change, bits of the new ISR)


class ReplicasFacts(NamedTuple):
    """The results that depend on the fields of all replicas."""

    fields: tuple[int, ...]
    leader_epochs: tuple[int, ...]
    moves: tuple[Move, ...]
    leaders: tuple[LeaderFacts, ...]
    lacking: int  # bits of the replicas that lack a record which a presumed leader has committed
    broken: frozenset[str]


class QuorumFacts(NamedTuple):
    """The results that depend on the quorum's field only."""

    quorum: Quorum
    controller_moves: tuple[tuple[str, int], ...]  # (action, the quorum's field after it)
    requests: tuple[tuple[int, int, int], ...]  # (leader epoch, leader, code of the request)
    leader: int
    leader_epoch: int
    isr_bits: int
    next_record_id: int
    after_write: int  # the quorum's field after a write, or NONE if all records are written
    with_isr: tuple[int, ...]  # the quorum's field with each ISR, by the bits of the ISR
    broken: frozenset[str]


class Facts:
    """All look-up tables for one set of rules at one size."""

    def __init__(self, rules: KafkaReplication, packing: Packing, *, extra: bool) -> None:
        self._rules, self._packing, self._extra = rules, packing, extra
        self._size, self._bits = packing.size, packing.replica_bits
        self._isr_width = packing.size.replicas
        self._names = names = range(packing.size.replicas)
        self._views = [Table(partial(packing.unpack_replica, name)) for name in names]
        self._replica = [Table(partial(self._of_replica, name)) for name in names]
        self._pair = [
            [Table(partial(self._of_pair, leader, name)) for name in names] for leader in names
        ]
        self._request = [
            [Table(partial(self._of_request, leader, name)) for name in names] for leader in names
        ]
        self.replicas = Table(self._of_replicas)
        self.quorums = Table(self._of_quorum)

    def request_move(
        self, request: tuple[int, int, int], name: int, fields: tuple[int, ...]
    ) -> Move | None:
        """Return the move of a replica that applies a request, or None if it cannot do so now."""
        _, leader, code = request
        key = (code << self._bits | fields[leader] >> self._isr_width) << self._bits
        return self._request[leader][name][key | fields[name]]

    def _change(self, name: int, before: int, after: Replica) -> int:
        return self._packing.pack_replica(after) - before << self._packing.shifts[name]

    def _of_replica(self, name: int, field: int) -> ReplicaFacts:
        replica = self._views[name][field]
        writes: tuple[Move, ...] = ()
        commit = None
        if replica.presumes_leadership and replica.log_end_offset < self._size.log_size:
            writes = tuple(
                (
                    f"LeaderWrite({letter(name)} m{record_id})",
                    self._change(name, field, leader_write(replica, record_id)),
                )
                for record_id in range(self._size.max_records)
            )
        if replica.presumes_leadership and replica.has_offset(replica.high_watermark):
            advanced = replica._replace(high_watermark=replica.high_watermark + 1)
            commit = (
                f"LeaderIncHighWatermark({letter(name)} to {advanced.high_watermark})",
                self._change(name, field, advanced),
            )
        broken = invariants.broken_by_replica(replica, self._size)
        return ReplicaFacts(replica, writes, commit, broken)

    def _of_pair(self, leader_name: int, name: int, key: int) -> PairFacts:
        """Compute one pair; the key is the leader's field and the other replica's, without ISRs."""
        width = self._isr_width
        field = (key & (1 << self._bits) - 1) << width
        leader = self._views[leader_name][key >> self._bits << width]
        follower = self._views[name][field]
        return PairFacts(
            moves=tuple(self._following_moves(leader, follower, field)),
            acknowledges=self._rules.acknowledges(leader, follower, leader.high_watermark),
            may_shrink=self._rules.may_shrink(leader, follower),
            may_expand=self._rules.may_expand(leader, follower),
            holds_committed=invariants.holds_committed(leader, follower),
        )

    def _following_moves(self, leader: Replica, follower: Replica, field: int) -> Iterator[Move]:
        name = follower.name
        if self._rules.may_fetch(leader, follower):
            fetched = fetch(leader, follower)
            if fetched is not None:
                action = f"FollowerFetch({letter(name)} from {letter(leader.name)})"
                yield action, self._change(name, field, fetched)
        if self._rules.may_truncate_while_following(leader, follower):
            end = self._rules.truncation_offset(leader, follower)
            action = f"FollowerTruncate({letter(name)} to {end})"
            yield action, self._change(name, field, truncate_to(follower, end))

    def _of_request(self, leader_name: int, name: int, key: int) -> Move | None:
        """Compute one move; the key is request, leader's field without its ISR, replica's field."""
        mask = (1 << self._bits) - 1
        field = key & mask
        code = key >> 2 * self._bits
        request = LeaderAndIsr(
            code >> self._isr_width, leader_name, members(code & (1 << self._isr_width) - 1)
        )
        replica = self._views[name][field]
        if name == leader_name:
            after: Replica | None = apply_request(request, replica)
            action = f"BecomeLeader({letter(name)} epoch {request.leader_epoch})"
        else:
            leader = self._views[leader_name][(key >> self._bits & mask) << self._isr_width]
            after = self._rules.become_follower(request, leader, replica)
            action = (
                f"BecomeFollower({letter(name)} of {letter(leader_name)}"
                f" epoch {request.leader_epoch})"
            )
        return None if after is None else (action, self._change(name, field, after))

    def _of_replicas(self, replicas: int) -> ReplicasFacts:
        fields = self._packing.fields(replicas)
        facts = [table[field] for table, field in zip(self._replica, fields, strict=True)]
        moves: list[Move] = []
        leaders: list[LeaderFacts] = []
        lacking = 0
        broken = {invariant for one in facts for invariant in one.broken}
        for leader, fact in enumerate(facts):
            if fact.replica.presumes_leadership:
                pairs = self._pairs_of(leader, fields)
                leaders.append(self._of_leader(fact, pairs, moves))
                bits = sum(1 << n for n, pair in enumerate(pairs) if not pair.holds_committed)
                lacking |= bits
                if bits & isr_bits(fact.replica.isr):
                    broken.add(invariants.WEAK_ISR)
        if self._extra:
            views = [fact.replica for fact in facts]
            for view in views:
                for other in views:
                    broken.update(invariants.broken_by_pair(view, other))
        epochs = tuple(fact.replica.leader_epoch for fact in facts)
        return ReplicasFacts(
            fields, epochs, tuple(moves), tuple(leaders), lacking, frozenset(broken)
        )

    def _pairs_of(self, leader: int, fields: tuple[int, ...]) -> list[PairFacts]:
        width = self._isr_width
        key = fields[leader] >> width << self._bits
        return [
            table[key | field >> width]
            for table, field in zip(self._pair[leader], fields, strict=True)
        ]

    def _of_leader(
        self, fact: ReplicaFacts, pairs: list[PairFacts], moves: list[Move]
    ) -> LeaderFacts:
        """Return a presumed leader's actions; append those that keep the quorum to `moves`."""
        leader, isr = fact.replica.name, isr_bits(fact.replica.isr)
        isr_changes = []
        may_commit = True
        for name, pair in enumerate(pairs):
            if name == leader:
                continue
            moves += pair.moves
            bit = 1 << name
            if isr & bit:
                may_commit = may_commit and pair.acknowledges
                allowed, verb, sign = pair.may_shrink, "LeaderShrinkIsr", -1
            else:
                allowed, verb, sign = pair.may_expand, "LeaderExpandIsr", 1
            if allowed:
                action = f"{verb}({letter(leader)} {'+' if sign > 0 else '-'}{letter(name)})"
                change = sign * bit << self._packing.shifts[leader]
                isr_changes.append((action, change, isr ^ bit))
        if may_commit and fact.commit is not None:
            moves.append(fact.commit)
        return LeaderFacts(leader, fact.replica.leader_epoch, fact.writes, tuple(isr_changes))

    def _of_quorum(self, field: int) -> QuorumFacts:
        pack, quorum = self._packing.pack_quorum, self._packing.unpack_quorum(field)
        next_id, width = quorum.next_record_id, self._isr_width
        can_write = next_id < self._size.max_records
        return QuorumFacts(
            quorum=quorum,
            controller_moves=tuple(
                (f"{action}({letter(about)})", pack(after))
                for action, about, after in controller_moves(quorum, self._size)
            ),
            requests=tuple(
                (epoch, leader, epoch << width | isr_bits(isr))
                for epoch, leader, isr in quorum.requests
                if leader != NONE
            ),
            leader=quorum.leader,
            leader_epoch=quorum.leader_epoch,
            isr_bits=isr_bits(quorum.isr),
            next_record_id=next_id,
            after_write=pack(quorum._replace(next_record_id=next_id + 1)) if can_write else NONE,
            with_isr=tuple(pack(quorum._replace(isr=members(b))) for b in range(1 << width)),
            broken=frozenset(invariants.broken_by_quorum(quorum, self._size)),
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
