"""The controller's transactions on the metadata store that are in flight.

The image changes only by what the store committed. So while a transaction is in flight, the keys
it writes are busy: nothing else is decided about them until the image has caught up with the
outcome. Every transaction is guarded by the controller's token and by the mod revision of every
key that it writes. Therefore it is safe to send it twice; if the outcome of the first sending is
unknown, the second response shows which one was applied.
"""

from collections.abc import Hashable, Iterable, Iterator
from enum import Enum, auto
from typing import Any

from tidelog.core.controller.effects import Answer, ControllerEffect, StoreTransaction
from tidelog.core.controller.events import Request
from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata.metadata_store import (
    GUARDS_MAX,
    OPERATIONS_MAX,
    Delete,
    Guard,
    Operation,
    OutcomeUnknown,
    Put,
    Revision,
    TxnAnswer,
    TxnResult,
)
from tidelog.core.controller.metadata.registrations import PartitionKey
from tidelog.core.slotted import field, slotted


@slotted
class Write:
    """One key to write, its guards, and the effects to emit when it is committed."""

    op: Operation
    guards: tuple[Guard, ...]
    effects: tuple[ControllerEffect, ...] = ()
    key: PartitionKey | None = None
    result: Any = None


@slotted
class Reply:
    """The results for a request's partitions, collected from several transactions."""

    event: Request
    wanted: int
    results: dict[PartitionKey, Any] = field(default_factory=dict)


@slotted
class Pending:
    """A transaction in flight, and those (`rest`) to send after it is committed."""

    tag: int
    writes: list[Write]
    rest: list[list[Write]] = field(default_factory=list)
    reply: Reply | None = None
    retry: Request | None = None
    answer: Answer | None = None
    busy: frozenset[str] = frozenset()
    guards: tuple[Guard, ...] = ()
    ops: tuple[Operation, ...] = ()
    begun: bool = False
    outcome_unknown: bool = False
    resend: bool = False
    ok: bool = False
    settles_at: Revision | None = None


class Verdict(Enum):
    """The meaning of the store's response for the controller."""

    COMMITTED = auto()
    REFUSED = auto()
    FENCED = auto()
    UNSETTLED = auto()


def pack(groups: Iterable[list[Write]]) -> list[list[Write]]:
    """Pack writes into transactions up to the store's limits; a group is never split."""
    packed: list[list[Write]] = []
    guards: set[Guard] = set()
    for group in groups:
        wanted = {guard for write in group for guard in write.guards}
        fits = (
            packed
            and len(guards) + len(wanted - guards) < GUARDS_MAX
            and len(packed[-1]) + len(group) <= OPERATIONS_MAX
        )
        if not fits:
            packed.append([])
            guards = set()
        packed[-1].extend(group)
        guards |= wanted
    return packed


class TransactionsInFlight:
    """The transactions in flight, and the keys that they keep busy."""

    __slots__ = ("_last_tag", "busy", "busy_partitions", "pending", "token")

    def __init__(self) -> None:
        self.token: Revision = 0
        self.pending: dict[int, Pending] = {}
        self.busy: set[str] = set()
        self.busy_partitions: set[PartitionKey] = set()
        """The partitions among the busy keys: thousands are compared at once."""
        self._last_tag = 0

    def begin(self, token: Revision) -> None:
        """Begin a term as controller; drop the transactions of an earlier one."""
        self.token = token
        self.pending.clear()
        self.busy.clear()
        self.busy_partitions.clear()

    def new_tag(self) -> int:
        self._last_tag += 1
        return self._last_tag

    def send(
        self,
        steps: list[list[Write]],
        reply: Reply | None = None,
        retry: Request | None = None,
        answer: Answer | None = None,
        also_busy: Iterable[str] = (),
    ) -> StoreTransaction:
        """Send the first step; each further one follows when the one before is committed."""
        busy = frozenset(write.op.key for step in steps for write in step).union(also_busy)
        pending = Pending(self.new_tag(), steps[0], steps[1:], reply, retry, answer, busy)
        self.pending[pending.tag] = pending
        self.busy |= busy
        self.busy_partitions.update(_partitions_in(busy))
        return self._transaction(pending)

    def next_step(self, pending: Pending) -> StoreTransaction:
        """Send the next step under a new tag."""
        del self.pending[pending.tag]
        pending.tag = self.new_tag()
        pending.writes, pending.rest = pending.rest[0], pending.rest[1:]
        pending.begun = True
        pending.outcome_unknown = pending.ok = False
        pending.settles_at = None
        self.pending[pending.tag] = pending
        return self._transaction(pending)

    def answered(self, pending: Pending, answer: TxnAnswer) -> Verdict:
        """Apply the store's response: settle the transaction, or mark it to be sent again."""
        if not isinstance(answer, TxnResult):
            pending.resend = True
            pending.outcome_unknown |= isinstance(answer, OutcomeUnknown)
            return Verdict.UNSETTLED
        pending.ok = answer.ok or (pending.outcome_unknown and _was_applied(pending, answer))
        pending.settles_at = answer.rev
        if pending.ok:
            return Verdict.COMMITTED
        token = Guard(keys.CONTROLLER, self.token, "create")
        return Verdict.REFUSED if token.holds_for(answer.now(token.key)) else Verdict.FENCED

    def resend(self) -> list[StoreTransaction]:
        """Resend transactions whose outcome is unknown, under the same tag."""
        again = [pending for pending in self.pending.values() if pending.resend]
        for pending in again:
            pending.resend = False
        return [StoreTransaction(p.tag, p.guards, p.ops) for p in again]

    def settle(self, image_revision: Revision) -> list[Pending]:
        """Remove and return the settled transactions that the image has caught up with."""
        done = [
            pending
            for pending in self.pending.values()
            if pending.settles_at is not None and pending.settles_at <= image_revision
        ]
        for pending in done:
            del self.pending[pending.tag]
        if done:
            self.busy = set().union(*(pending.busy for pending in self.pending.values()))
            for pending in done:
                freed = pending.busy - self.busy
                self.busy_partitions.difference_update(_partitions_in(freed))
        return done

    def freeze(self) -> Hashable:
        return (
            self.token,
            frozenset(
                (p.guards, p.ops, p.outcome_unknown, p.resend, p.ok, p.settles_at)
                for p in self.pending.values()
            ),
        )

    def _transaction(self, pending: Pending) -> StoreTransaction:
        wanted = dict.fromkeys(guard for write in pending.writes for guard in write.guards)
        pending.guards = (Guard(keys.CONTROLLER, self.token, "create"), *wanted)
        pending.ops = tuple(write.op for write in pending.writes)
        return StoreTransaction(pending.tag, pending.guards, pending.ops)


def _partitions_in(names: Iterable[str]) -> Iterator[PartitionKey]:
    for name in names:
        if (found := keys.parse_partition(name)) is not None:
            yield PartitionKey(*found)


def _was_applied(pending: Pending, answer: TxnResult) -> bool:
    """Whether the store holds the values of this transaction: an earlier sending was applied."""
    for op in pending.ops:
        now = answer.now(op.key)
        if isinstance(op, Put) and (now is None or now.value != op.value):
            return False
        if isinstance(op, Delete) and now is not None:
            return False
    return True
