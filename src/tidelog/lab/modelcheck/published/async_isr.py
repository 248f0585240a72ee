"""AsyncIsr, the model behind KIP-497: the leader proposes a new ISR and continues to work.

The leader never changes. Controller and leader each hold an ISR and its version. They exchange
requests and updates, which arrive in any order, never disappear, and may never be read. The leader
counts a record as committed when the ISR that it knows *and* every member that it has proposed
have the record. So the high watermark is never too high, whatever the controller decides.

The published module declares a largest offset and does not use it; this model bounds offsets and
versions. `without` removes one rule, to build a mutant.
"""

from collections.abc import Collection, Iterator
from itertools import permutations
from typing import NamedTuple, TypeAlias

from tidelog.lab.modelcheck.explorer import Model
from tidelog.lab.modelcheck.published.packing import members
from tidelog.lab.modelcheck.published.replication import letter, letters

LEADER = 0
NO_VERSION = -1
VALID_HIGH_WATERMARK = "ValidHighWatermark"
TYPE_OK = "TypeOk"
MEANING = {
    TYPE_OK: "every value is in its range, and the leader is in both ISRs",
    VALID_HIGH_WATERMARK: "every member of the controller's ISR has reached the high watermark",
}
COMMITTED = "a record is committed"
SHRUNK = "the controller accepts a requested shrink"
EXPANDED = "the controller accepts a requested expansion"

PENDING_IN_HIGH_WATERMARK = "pending-isr-in-high-watermark"
VERSION_COMPARE = "version-compare-in-controller"
RULES = (PENDING_IN_HIGH_WATERMARK, VERSION_COMPARE)

Message: TypeAlias = tuple[int, int]
"""A version and the bits of an ISR. A request has the leader's version, an update the new one."""


class State(NamedTuple):
    """A state of plain ints that can be ordered: replica sets are bits, message sets are sorted."""

    controller_isr: int
    controller_version: int
    isr: int
    version: int
    pending_isr: int
    pending_version: int
    offsets: tuple[int, ...]
    requests: tuple[Message, ...]
    updates: tuple[Message, ...]


def with_message(messages: tuple[Message, ...], message: Message) -> tuple[Message, ...]:
    """Return the sorted messages with this one added; a duplicate changes nothing."""
    return messages if message in messages else tuple(sorted((*messages, message)))


class AsyncIsr(Model[State]):
    """The AsyncIsr model: replica A leads, and the followers' names are interchangeable."""

    invariants = (TYPE_OK, VALID_HIGH_WATERMARK)
    goals = (COMMITTED, SHRUNK, EXPANDED)

    def __init__(
        self,
        replicas: int = 3,
        max_offset: int = 2,
        max_version: int = 3,
        *,
        without: str | None = None,
        symmetric: bool = True,
    ) -> None:
        if without is not None and without not in RULES:
            raise ValueError(f"unknown rule {without!r}; one of {', '.join(RULES)}")
        self.name = f"async-isr without {without}" if without else "async-isr"
        self._names = range(replicas)
        self._followers = range(LEADER + 1, replicas)
        self._everyone = (1 << replicas) - 1
        self._max_offset, self._max_version = max_offset, max_version
        self._without = without
        orders = [(LEADER, *order) for order in permutations(self._followers)][1:]
        self._renamings = [(order, self._isrs_renamed(order)) for order in orders if symmetric]

    def _isrs_renamed(self, order: tuple[int, ...]) -> list[int]:
        """For each ISR, as bits, return the ISR whose bit `n` is the bit of replica `order[n]`."""
        every_isr = range(self._everyone + 1)
        return [sum((isr >> old & 1) << new for new, old in enumerate(order)) for isr in every_isr]

    def initial(self) -> list[State]:
        everyone, offsets = self._everyone, (0,) * len(self._names)
        return [State(everyone, 0, everyone, 0, 0, NO_VERSION, offsets, (), ())]

    def high_watermark(self, state: State) -> int:
        counted = state.isr
        if self._without != PENDING_IN_HIGH_WATERMARK:
            counted |= state.pending_isr
        return min(state.offsets[name] for name in members(counted))

    def successors(self, state: State) -> Iterator[tuple[str, State]]:
        yield from self._controller_moves(state)
        yield from self._isr_requests(state)
        yield from self._log_moves(state)
        for version, isr in state.updates:
            if version > state.version:
                yield (
                    f"LeaderHandleUpdate(version {version} ISR {letters(members(isr))})",
                    state._replace(
                        isr=isr, version=version, pending_isr=0, pending_version=NO_VERSION
                    ),
                )

    def _controller_moves(self, state: State) -> Iterator[tuple[str, State]]:
        if state.controller_version == self._max_version:
            return
        for name in self._followers:
            if state.controller_isr >> name & 1:
                yield (
                    f"ControllerShrinkIsr({letter(name)})",
                    self._decide(state, state.controller_isr ^ 1 << name),
                )
        for version, isr in state.requests:
            if version == state.controller_version or self._without == VERSION_COMPARE:
                yield (
                    f"ControllerHandleRequest(version {version} ISR {letters(members(isr))})",
                    self._decide(state, isr),
                )

    def _decide(self, state: State, isr: int) -> State:
        version = state.controller_version + 1
        return state._replace(
            controller_isr=isr,
            controller_version=version,
            updates=with_message(state.updates, (version, isr)),
        )

    def _isr_requests(self, state: State) -> Iterator[tuple[str, State]]:
        high_watermark = self.high_watermark(state)
        for name in self._followers:
            bit = 1 << name
            if state.isr & bit:
                verb = "LeaderRequestShrinkIsr"
            elif state.offsets[name] >= high_watermark:
                verb = "LeaderRequestExpandIsr"
            else:
                continue
            isr = state.isr ^ bit
            yield (
                f"{verb}({letter(name)})",
                state._replace(
                    pending_isr=state.pending_isr | isr,
                    pending_version=state.version,
                    requests=with_message(state.requests, (state.version, isr)),
                ),
            )

    def _log_moves(self, state: State) -> Iterator[tuple[str, State]]:
        end = state.offsets[LEADER]
        if end < self._max_offset:
            yield "LeaderWrite", self._advance(state, LEADER)
        for name in self._followers:
            if state.offsets[name] < end:
                yield f"FollowerReplicate({letter(name)})", self._advance(state, name)

    def _advance(self, state: State, name: int) -> State:
        offsets = list(state.offsets)
        offsets[name] += 1
        return state._replace(offsets=tuple(offsets))

    def violated(self, state: State) -> Collection[str]:
        broken = []
        if not (
            0 <= state.version <= state.controller_version <= self._max_version
            and max(state.offsets) <= self._max_offset
            and state.controller_isr & state.isr & 1 << LEADER
        ):
            broken.append(TYPE_OK)
        high_watermark = self.high_watermark(state)
        if any(state.offsets[name] < high_watermark for name in members(state.controller_isr)):
            broken.append(VALID_HIGH_WATERMARK)
        return broken

    def reached(self, state: State) -> Collection[str]:
        reached = []
        if self.high_watermark(state) > 0:
            reached.append(COMMITTED)
        accepted = {(v - 1, isr) for v, isr in state.updates}.intersection(state.requests)
        sizes = {v: isr.bit_count() for v, isr in ((0, self._everyone), *state.updates)}
        if any(isr.bit_count() < sizes[version] for version, isr in accepted):
            reached.append(SHRUNK)
        if any(isr.bit_count() > sizes[version] for version, isr in accepted):
            reached.append(EXPANDED)
        return reached

    def canonical(self, state: State) -> State:
        return min([state, *(self._renamed(state, *other) for other in self._renamings)])

    def _renamed(self, state: State, order: tuple[int, ...], renamed: list[int]) -> State:
        return State(
            renamed[state.controller_isr],
            state.controller_version,
            renamed[state.isr],
            state.version,
            renamed[state.pending_isr],
            state.pending_version,
            tuple([state.offsets[name] for name in order]),
            tuple(sorted([(version, renamed[isr]) for version, isr in state.requests])),
            tuple(sorted([(version, renamed[isr]) for version, isr in state.updates])),
        )

    def meaning(self, invariant: str) -> str:
        return MEANING[invariant]

    def describe(self, state: State) -> list[str]:
        roles = ["leader" if name == LEADER else "follower" for name in self._names]
        lines = [
            f"{letter(name)} {role:<8} LEO={offset}"
            for name, (role, offset) in enumerate(zip(roles, state.offsets, strict=True))
        ]
        lines[LEADER] += (
            f" HW={self.high_watermark(state)} version={state.version}"
            f" ISR={letters(members(state.isr))} pending={letters(members(state.pending_isr))}"
        )
        lines.append(
            f"controller version={state.controller_version}"
            f" ISR={letters(members(state.controller_isr))}"
        )
        return lines
