"""Transactions in every interleaving: the checker runs the shipped coordinator and leaders.

One transactional id has two producers: A, and its successor B, which starts at any time. A does
not know of B, and its requests may arrive late: it is the zombie. Each transaction writes one
record to P, or one to P and then one to Q. A producer may send a request twice, of which one
arrives at any later time, or give up on a record. The same holds for markers. The coordinator may
fail at any time: its successor loads the log, with or without the record that was not committed. A
state consists of nested tuples:

    (coordinator, partitions, clients, late, history)

    coordinator  the frozen `CoordinatorBroker`
    partitions   per partition: the frozen `PartitionLeader`, which holds its log
    clients      per producer: the `Client`
    late         requests in the network without a client that waits history      what was requested
    and acknowledged, and how much of each bound is used

Left out: failed appends, expiration, groups, compaction, and replaced coordinators that still act
(see the lease model).
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from tidelog.core.errors import ErrorCode
from tidelog.core.node.coordinating.transaction_coordinator import results_of
from tidelog.core.transactions.transaction import (
    EPOCH_BUMPS,
    LAST_CLIENT_EPOCH,
    NO_EPOCH,
    TransactionState,
    created,
    initialised,
)
from tidelog.lab.modelcheck.explorer import Model
from tidelog.lab.modelcheck.transactions import coordinator_broker, partition_leader
from tidelog.lab.modelcheck.transactions.coordinator_broker import (
    FIRST_PRODUCER_ID,
    TRANSACTION_TIMEOUT_MS,
    Base,
    CoordinatorBroker,
    Stored,
    loaded,
    question_of,
    stored,
    transaction,
)
from tidelog.lab.modelcheck.transactions.messages import (
    LATE,
    NOW_MS,
    PARTITION_NAMES,
    PARTITIONS,
    PRODUCE,
    PRODUCER_NAMES,
    End,
    Init,
    Marker,
    Message,
    Produce,
    Question,
    Requester,
    text_of,
)
from tidelog.lab.modelcheck.transactions.partition_leader import (
    ABORT,
    ANSWERED,
    ASKED,
    COMMIT,
    DATA,
    NO_RESPONSE,
    PENDING,
    PartitionLeader,
    elected,
)
from tidelog.lab.modelcheck.transactions.producer import (
    OPEN,
    PHASE_TEXTS,
    READY,
    Client,
    gives_up,
    requests,
    responded,
)

READS_COMMITTED = "a read-committed reader sees only records of transactions that asked to commit"
ONE_OUTCOME = "a transaction has one outcome, in all partitions and for ever"
COMMITS_SURVIVE = "no record of an acknowledged commit is aborted or missing in the end"
READS_ONCE = "a read-committed reader sees each record once"
FENCED = "no record of a fenced producer is accepted"
NOT_STUCK = "when all is delivered, no transaction is open and readers get up to the high watermark"
NAMES = (READS_COMMITTED, ONE_OUTCOME, COMMITS_SURVIVE, READS_ONCE, FENCED, NOT_STUCK)
GOALS = (
    "a commit is acknowledged",
    "a reader sees a record",
    "a reader skips an aborted record",
    "the coordinator aborts a transaction after its time-out",
    "a successor fences a producer in a transaction",
    "a new coordinator continues with the markers",
)

A, B = 0, 1
OUTCOME_CHANGED, FENCED_ACCEPTED = 1, 2
"""Flags of the history: a step has violated an invariant."""


@dataclass(frozen=True, slots=True)
class TransactionBounds:
    """The limits of the search."""

    client_version: int = 2
    """The transaction version of the producers."""
    cluster_version: int = 2
    """The cluster's level of `transaction.version`."""
    verification: int = 1
    """`transaction.partition.verification.enable`: whether leaders verify records of version 1."""
    transactions: int = 1
    """How many transactions A begins; B begins one."""
    late_requests: int = 1
    """How many requests are left in the network."""
    late_markers: int = 0
    """How many markers are sent again while the first one is in the network."""
    failures: int = 1
    """How often the coordinator fails."""
    time_outs: int = 1
    """How many transactions time out."""
    elections: int = 0
    """How often a partition gets another leader; with 0, records are committed at once."""
    epochs_left: int = 0
    """How many epochs the producer id has left; 0: thousands."""


DEFAULT_BOUNDS = TransactionBounds()


class Promise(NamedTuple):
    """What clients know of one transaction."""

    asked: int = 0
    """Whether its producer asked to commit it."""
    committed: int = 0
    """Whether the commit was acknowledged."""
    written: int = 0
    """How many records were acknowledged."""


class Used(NamedTuple):
    """How much of each bound is used."""

    requests: int = 0
    markers: int = 0
    failures: int = 0
    time_outs: int = 0
    elections: int = 0


class History(NamedTuple):
    """The requests, acknowledgements and fences that invariants are checked against."""

    promises: tuple[Promise, ...]
    fence: tuple[int, int]
    """The newest identity that InitProducerId returned."""
    flags: int = 0
    used: Used = Used()


class State(NamedTuple):
    """A state of the search."""

    coordinator: coordinator_broker.Frozen
    partitions: tuple[partition_leader.Frozen, ...]
    clients: tuple[Client, ...]
    late: tuple[Message, ...]
    history: History


class Seen(NamedTuple):
    """What readers get from one partition."""

    stable: int
    visible: tuple[int, ...]
    """The transactions of the records that a reader gets."""
    aborted: frozenset[int]
    """The transactions with a record before an abort marker."""


Steps: TypeAlias = Iterator[tuple[str, State]]


class TransactionModel(Model[State]):
    """The model of transactions."""

    name = "shipped code, transactions"
    invariants = NAMES
    goals = GOALS

    def __init__(
        self, bounds: TransactionBounds = DEFAULT_BOUNDS, prologue: Sequence[str] = ()
    ) -> None:
        """Build the model; the search starts after the actions of `prologue`."""
        self.bounds = bounds
        self._prologue = tuple(prologue)
        self._adds = bounds.client_version >= EPOCH_BUMPS
        self._first_of_b = bounds.transactions
        self._coordinator_steps: dict[Any, Any] = {}
        self._partition_steps: dict[Any, Any] = {}
        self._seen: dict[Any, Seen] = {}

    def initial(self) -> Iterator[State]:
        """Yield the state in which A is ready, after the actions of the prologue."""
        left = self.bounds.epochs_left
        epoch = LAST_CLIENT_EPOCH - left if left else 0
        known = created(FIRST_PRODUCER_ID, TRANSACTION_TIMEOUT_MS, NOW_MS)
        ready = initialised(known, None, TRANSACTION_TIMEOUT_MS, NOW_MS, None)
        assert not isinstance(ready, ErrorCode), "a new id can be initialised"
        ready = ready._replace(epoch=epoch)
        record = stored(ready)
        identity = (FIRST_PRODUCER_ID, epoch)
        promises = (Promise(),) * (self.bounds.transactions + 1)
        state = State(
            coordinator_broker.Frozen(0, record, Base(record)),
            (partition_leader.Frozen(),) * len(PARTITIONS),
            (Client(*identity, READY), Client()),
            (),
            History(promises, identity),
        )
        for wanted in self._prologue:
            state = dict(self.successors(state))[wanted]
        yield state

    # -- invariants and goals

    def violated(self, state: State) -> Collection[str]:
        """Return the invariants that do not hold."""
        promises, _, flags, _ = state.history
        seen = self._readers(state)
        broken = []
        visible = {number for each in seen for number in each.visible}
        aborted = {number for each in seen for number in each.aborted}
        if any(not promises[number].asked for number in visible):
            broken.append(READS_COMMITTED)
        if flags & OUTCOME_CHANGED or visible & aborted:
            broken.append(ONE_OUTCOME)
        settled = self._is_settled(state)
        for number, promise in enumerate(promises):
            if promise.committed and (
                number in aborted or (settled and self._is_missing(seen, number, promise))
            ):
                broken.append(COMMITS_SURVIVE)
                break
        if any(len(set(each.visible)) < len(each.visible) for each in seen):
            broken.append(READS_ONCE)
        if flags & FENCED_ACCEPTED:
            broken.append(FENCED)
        if settled and self._is_stuck(state, seen):
            broken.append(NOT_STUCK)
        return broken

    def _readers(self, state: State) -> list[Seen]:
        return [self._reader(index, each) for index, each in enumerate(state.partitions)]

    def _reader(self, index: int, frozen: partition_leader.Frozen) -> Seen:
        """Read a partition with the shipped last stable offset and aborted transactions."""
        key = frozen[:2]
        known = self._seen.get(key)
        if known is None:
            leader = self._leader(index, partition_leader.Frozen(*key))
            log = frozen.log[: frozen.high_watermark]
            aborted = set()
            for offset, entry in enumerate(log):
                ends = (
                    later.kind
                    for later in log[offset:]
                    if later.kind != DATA and later.producer_id == entry.producer_id
                )
                if entry.kind == DATA and next(ends, COMMIT) == ABORT:
                    aborted.add(entry.transaction)
            seen = Seen(leader.last_stable_offset, tuple(leader.visible()), frozenset(aborted))
            known = self._seen[key] = seen
        return known

    @staticmethod
    def _is_missing(seen: list[Seen], number: int, promise: Promise) -> bool:
        return any(number not in seen[at].visible for at in range(promise.written))

    def _is_settled(self, state: State) -> bool:
        """Whether no message is in flight, and no time-out is pending."""
        coordinator = state.coordinator
        return not (
            state.late
            or coordinator.events
            or coordinator.markers
            or coordinator.base.armed
            or any(each.groups or each.awaiting for each in state.partitions)
            or any(each.high_watermark < len(each.log) for each in state.partitions)
            or any(each.request for each in state.clients)
        )

    def _is_stuck(self, state: State, seen: list[Seen]) -> bool:
        known = state.coordinator.base
        return (
            bool(known.pending)
            or not TransactionState(known.current[3]).is_idle
            or any(
                reader.stable < partition.high_watermark
                for reader, partition in zip(seen, state.partitions, strict=True)
            )
        )

    def reached(self, state: State) -> Collection[str]:
        """Return the goals met."""
        coordinator, _, clients, _, (promises, _, _, used) = state
        seen = self._readers(state)
        aborts = TransactionState(coordinator.stored[3]) is TransactionState.PREPARE_ABORT
        successor_waits = isinstance(clients[B].request, Init)
        cut_off = aborts and successor_waits and clients[A].phase == OPEN
        met = (
            any(promise.committed for promise in promises),
            any(each.visible for each in seen),
            any(each.aborted for each in seen),
            aborts and used.time_outs > 0,
            cut_off and not used.time_outs,
            bool(coordinator.base.current) and _has_taken_over(coordinator),
        )
        return [goal for goal, is_met in zip(GOALS, met, strict=True) if is_met]

    # -- steps

    def successors(self, state: State) -> Steps:
        """Yield every possible next step."""
        for index in (A, B):
            yield from self._client_steps(state, index)
        yield from self._late_steps(state)
        yield from self._coordinator_steps_of(state)
        yield from self._marker_steps(state)
        for index in range(len(PARTITIONS)):
            yield from self._partition_steps_of(state, index)

    # -- clients

    def _client_steps(self, state: State, index: int) -> Steps:
        """Let a producer send a request. It arrives at once: a later arrival is a later step."""
        client, name = state.clients[index], PRODUCER_NAMES[index]
        room = state.history.used.requests < self.bounds.late_requests
        following = self._next_transaction(index, client)
        for asking in requests(client, following, adds=self._adds, aborts=index == A):
            sent: Any = asking.request
            after = _with_client(state, index, asking)
            if isinstance(sent, End) and sent.commits:
                after = _promised(after, sent.transaction, asked=1)
            what = f"{name} sends {text_of(sent)}"
            yield what, self._arrives(after, (index,), sent)
            if room:
                late = _late(after, sent)
                yield f"{what}, twice", self._arrives(late, (index,), sent)
                if isinstance(sent, Produce):
                    given_up = gives_up(asking)
                    yield f"{what}, and gives up", _with_client(late, index, given_up)
        message: Any = client.request
        if message and not client.arrived:
            yield f"{name} sends {text_of(message)} again", self._arrives(state, (index,), message)
        elif room and isinstance(message, Produce):
            after = _with_client(self._stop_waiting(state, index, message), index, gives_up(client))
            yield f"{name} gives up on {text_of(message)}", after

    def _next_transaction(self, index: int, client: Client) -> int:
        if index == B:
            return self._first_of_b if client.transaction < 0 else -1
        following = client.transaction + 1
        return following if following < self._first_of_b else -1

    def _stop_waiting(self, state: State, index: int, message: Produce) -> State:
        """Let the producer stop waiting for a record that its partition leader has received."""
        partition = state.partitions[message.partition]
        groups = tuple(
            group._replace(
                batches=tuple(
                    (LATE if peer == (index,) else peer, batch) for peer, batch in group.batches
                )
            )
            for group in partition.groups
        )
        awaiting = tuple(
            (offset, LATE if peer == (index,) else peer) for offset, peer in partition.awaiting
        )
        after = partition._replace(groups=groups, awaiting=awaiting)
        return _used(_with_partition(state, message.partition, after), requests=1)

    def _late_steps(self, state: State) -> Steps:
        for at, message in enumerate(state.late):
            if at and state.late[at - 1] == message:
                continue
            late = (*state.late[:at], *state.late[at + 1 :])
            after = self._arrives(state._replace(late=late), LATE, message)
            yield f"a late {text_of(message)} arrives", after

    def _arrives(self, state: State, sender: Requester, message: Message) -> State:
        """Let a request arrive at its receiver, which has it until the response."""
        if len(sender) == 1 and sender != LATE:
            [index] = sender
            state = _with_client(state, index, state.clients[index]._replace(arrived=1))
        if isinstance(message, Produce | Marker):
            method = "produce" if message.kind == PRODUCE else "write_marker"
            return self._partition_step(state, message.partition, method, sender, message)
        return self._coordinator_step(state, "handle", sender, message)

    def _respond(self, state: State, peer: Requester, response: Any) -> State:
        """Let a response arrive at a client, unless no client waits for it."""
        if peer == LATE:
            return state
        [index] = peer
        before = state.clients[index]
        after = responded(before, response, adds=self._adds)
        sent: Any = before.request
        error = response if isinstance(response, ErrorCode) else response.error_code
        state = _with_client(state, index, after)
        if error is not ErrorCode.NONE:
            return state
        if isinstance(sent, Init):
            history = state.history._replace(fence=(after.producer_id, after.epoch))
            return state._replace(history=history)
        if isinstance(sent, End) and sent.commits:
            return _promised(state, sent.transaction, committed=1)
        if isinstance(sent, Produce):
            return _promised(state, sent.transaction, written=sent.partition + 1)
        return state

    # -- the coordinator

    def _coordinator_steps_of(self, state: State) -> Steps:
        coordinator, used = state.coordinator, state.history.used
        if coordinator.events:
            record, after = self._committed(state)
            yield f"the coordinator's record is committed: {_stored_text(record)}", after
        elif coordinator.base.armed and used.time_outs < self.bounds.time_outs:
            after = _used(self._coordinator_step(state, "time_out"), time_outs=1)
            yield "the coordinator finds that the transaction has timed out", after
        if used.failures < self.bounds.failures:
            yield from self._failures(state)

    def _failures(self, state: State) -> Steps:
        """Let the coordinator fail: with or without the record that was not committed; its markers
        are lost, or stay in the network."""
        coordinator, used = state.coordinator, state.history.used
        records = [coordinator.stored]
        if coordinator.events:
            records.append(self._pending_record(coordinator))
        for record in records:
            text = f"the coordinator fails; its successor loads {_stored_text(record)}"
            after = self._successor(state, record)
            yield text, after
            if coordinator.markers and used.markers < self.bounds.late_markers:
                late = tuple(sorted({*after.late, *coordinator.markers}))
                yield f"{text}; its markers are late", _used(after._replace(late=late), markers=1)

    def _committed(self, state: State) -> tuple[Stored, State]:
        before = TransactionState(state.coordinator.stored[3])
        after = self._coordinator_step(state, "commit")
        record = after.coordinator.stored
        now = TransactionState(record[3])
        if before.is_prepared and now is not _COMPLETED[before]:
            after = _flagged(after, OUTCOME_CHANGED)
        return record, after

    def _asked(self, state: State, index: int) -> State:
        """Let the coordinator get the new question of a partition leader, if there is one."""
        partition = state.partitions[index]
        for at, group in enumerate(partition.groups):
            if group.stage == ASKED:
                pending = group._replace(stage=PENDING)
                groups = (*partition.groups[:at], pending, *partition.groups[at + 1 :])
                asked = _with_partition(state, index, partition._replace(groups=groups))
                requester = (index, *group[:3])
                question = Question(group.verify_only)
                return self._coordinator_step(asked, "handle", requester, question)
        return state

    def _question_answered(self, state: State, requester: Requester, response: Any) -> State:
        """Send the coordinator's response to a partition leader, unless the leader has failed.

        An error arrives at once, because it changes nothing whenever it arrives.
        """
        index, *producer = requester
        results = results_of(question_of(requester, Question(1)), response)
        return self._answer(state, index, tuple(producer), int(results[PARTITIONS[index]]))

    def _answer(self, state: State, index: int, producer: tuple[int, ...], error: int) -> State:
        partition = state.partitions[index]
        for at, group in enumerate(partition.groups):
            if group[:3] == producer and group.stage == PENDING:
                answered = group._replace(stage=ANSWERED, error=error)
                groups = (*partition.groups[:at], answered, *partition.groups[at + 1 :])
                state = _with_partition(state, index, partition._replace(groups=groups))
                if error:
                    return self._partition_step(state, index, "answered", at)
        return state

    def _successor(self, state: State, record: Stored) -> State:
        """Let another coordinator load the log. Senders that waited for the old one send again."""
        old = state.coordinator
        clients = tuple(
            client._replace(arrived=0) if _is_for_coordinator(client) else client
            for client in state.clients
        )
        successor = loaded(old, record, self.bounds.cluster_version)
        after = State(successor, state.partitions, clients, state.late, state.history)
        for index, partition in enumerate(state.partitions):
            for group in partition.groups:
                after = self._answer(after, index, group[:3], NO_RESPONSE)
        return self._settled(_used(after, failures=1))

    def _coordinator(self, frozen: coordinator_broker.Frozen) -> CoordinatorBroker:
        return CoordinatorBroker(frozen, self.bounds.cluster_version, adds=self._adds)

    def _pending_record(self, frozen: coordinator_broker.Frozen) -> Stored:
        if not frozen.events:
            return ()
        known = self._coordinator_steps.get(frozen)
        if known is None:
            known = self._coordinator_steps[frozen] = self._coordinator(frozen).pending_record
        return tuple(known)

    def _coordinator_step(self, state: State, method: str, *arguments: Any) -> State:
        """Call the coordinator, and deliver its responses."""
        key = (state.coordinator, method, arguments)
        known = self._coordinator_steps.get(key)
        if known is None:
            broker = self._coordinator(state.coordinator)
            getattr(broker, method)(*arguments)
            known = self._coordinator_steps[key] = (broker.freeze(), tuple(broker.answers))
        frozen, answers = known
        state = state._replace(coordinator=frozen)
        for requester, response in answers:
            if len(requester) > 1:
                state = self._question_answered(state, requester, response)
            else:
                state = self._respond(state, requester, response)
        return self._settled(state)

    def _settled(self, state: State) -> State:
        """Commit what the coordinator has appended, if it can't fail before that."""
        if state.coordinator.events and state.history.used.failures >= self.bounds.failures:
            return self._committed(state)[1]
        return state

    # -- markers

    def _marker_steps(self, state: State) -> Steps:
        coordinator = state.coordinator
        for marker in coordinator.markers:
            partition = state.partitions[marker.partition]
            if any(peer == marker for _, peer in partition.awaiting):
                continue
            what = text_of(marker)
            yield f"the {what} arrives", self._arrives(state, marker, marker)
            if state.history.used.markers < self.bounds.late_markers:
                again = _used(state._replace(late=tuple(sorted((*state.late, marker)))), markers=1)
                yield f"the coordinator sends the {what} again", again

    # -- partitions

    def _partition_steps_of(self, state: State, index: int) -> Steps:
        partition, name = state.partitions[index], PARTITION_NAMES[index]
        for at, group in enumerate(partition.groups):
            if group.stage == ANSWERED:
                yield (
                    f"the coordinator's consent arrives at the leader of {name}",
                    self._partition_step(state, index, "answered", at),
                )
        if partition.high_watermark < len(partition.log):
            yield (
                f"the records of {name} are committed",
                self._partition_step(state, index, "follower_fetches"),
            )
        if state.history.used.elections < self.bounds.elections:
            yield f"{name} gets another leader", self._elected(state, index)

    def _elected(self, state: State, index: int) -> State:
        old = state.partitions[index]
        after = _used(_with_partition(state, index, elected(old)), elections=1)
        waiting = [peer for group in old.groups for peer, _ in group.batches]
        waiting += [peer for _, peer in old.awaiting]
        return self._responses(
            after, [(peer, ErrorCode.NOT_LEADER_OR_FOLLOWER) for peer in waiting]
        )

    def _responses(self, state: State, responses: Iterable[tuple[Requester, ErrorCode]]) -> State:
        """Let the responses of a partition leader arrive."""
        for peer, error in responses:
            if len(peer) == 1:
                state = self._respond(state, peer, error)
            elif peer in state.coordinator.markers:
                state = self._coordinator_step(state, "marker_answered", peer, error)
        return state

    def _leader(self, index: int, frozen: partition_leader.Frozen) -> PartitionLeader:
        bounds = self.bounds
        return PartitionLeader(
            index,
            frozen,
            adds=self._adds,
            verifies=bool(bounds.verification),
            followers=bounds.elections > 0,
        )

    def _partition_step(self, state: State, index: int, method: str, *arguments: Any) -> State:
        """Call a partition leader, and deliver its responses."""
        before = state.partitions[index]
        key = (index, before, method, arguments)
        known = self._partition_steps.get(key)
        if known is None:
            leader = self._leader(index, before)
            getattr(leader, method)(*arguments)
            known = self._partition_steps[key] = (leader.freeze(), tuple(leader.responses))
        frozen, responses = known
        state = _with_partition(state, index, frozen)
        if method == "produce":
            state = self._asked(state, index)
        for entry in frozen.log[len(before.log) :]:
            fence = state.history.fence
            if entry.kind == DATA and (entry.producer_id, entry.epoch) < fence:
                state = _flagged(state, FENCED_ACCEPTED)
        return self._responses(state, responses)

    # -- text

    def describe(self, state: State) -> list[str]:
        """Return a line for the coordinator, each partition and each producer."""
        coordinator = state.coordinator
        base = coordinator.base
        pending = ""
        if coordinator.events:
            pending = f", not committed: {_stored_text(self._pending_record(coordinator))}"
        lines = [f"coordinator {coordinator.epoch}: {_stored_text(base.current)}{pending}"]
        for name, partition, seen in zip(
            PARTITION_NAMES, state.partitions, self._readers(state), strict=True
        ):
            log = " ".join(map(_entry_text, partition.log))
            readers = " ".join(f"t{number + 1}" for number in seen.visible)
            waiting = "".join(
                f", {text_of(batch)} waits for the coordinator"
                for group in partition.groups
                for _, batch in group.batches
            )
            lines.append(
                f"{name} LSO={seen.stable} HW={partition.high_watermark} log=[{log}]"
                f" readers see [{readers}]{waiting}"
            )
        for name, client in zip(PRODUCER_NAMES, state.clients, strict=True):
            lines.append(f"{name} {_client_text(client)}")
        lines += [f"late: {text_of(message)}" for message in state.late]
        return lines


_COMPLETED = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}


def _stored_text(record: Stored) -> str:
    if not record:
        return "nothing"
    state = TransactionState(record[3])
    places = " ".join(PARTITION_NAMES[index] for index in record[4])
    return f"{state.label}({places}) producer {record[0]} epoch {record[1]}"


def _entry_text(entry: partition_leader.Entry) -> str:
    what = ("", "commit", "abort")[entry.kind] or f"t{entry.transaction + 1}"
    return f"{what}@{entry.epoch}"


def _client_text(client: Client) -> str:
    text = PHASE_TEXTS[client.phase]
    if client.producer_id >= 0:
        text = f"(producer {client.producer_id} epoch {client.epoch}) {text}"
    if client.request:
        message: Any = client.request
        text += f", waits for {text_of(message)}"
    return text


def _has_taken_over(coordinator: coordinator_broker.Frozen) -> bool:
    """Whether a coordinator sends markers of an outcome that it has loaded. The epoch before the
    last raise is not in the log."""
    known = transaction(coordinator.base.current)
    return coordinator.epoch > 0 and bool(coordinator.markers) and known.last_epoch == NO_EPOCH


def _is_for_coordinator(client: Client) -> bool:
    return bool(client.request) and client.request[0] != PRODUCE


def _with_client(state: State, index: int, client: Client) -> State:
    clients = (*state.clients[:index], client, *state.clients[index + 1 :])
    return state._replace(clients=clients)


def _with_partition(state: State, index: int, partition: partition_leader.Frozen) -> State:
    partitions = (*state.partitions[:index], partition, *state.partitions[index + 1 :])
    return state._replace(partitions=partitions)


def _late(state: State, message: Message) -> State:
    """Leave a copy of a request in the network."""
    late = tuple(sorted((*state.late, message)))
    return _used(state._replace(late=late), requests=1)


def _flagged(state: State, flag: int) -> State:
    history = state.history
    return state._replace(history=history._replace(flags=history.flags | flag))


def _used(state: State, **more: int) -> State:
    used = state.history.used
    counts = {name: getattr(used, name) + count for name, count in more.items()}
    return state._replace(history=state.history._replace(used=used._replace(**counts)))


def _promised(state: State, number: int, **fields: int) -> State:
    promises = state.history.promises
    promise = promises[number]._replace(**fields)
    promises = (*promises[:number], promise, *promises[number + 1 :])
    return state._replace(history=state.history._replace(promises=promises))
