"""One partition of a small cluster in every interleaving: the checker runs the shipped code.

Replicas are real `Partition`s, and core/controller's own functions make the controller's
decisions. Only the network and the choice of the next step belong to the checker.
A state consists of nested tuples:

    (replicas, controller, messages, history)

    replicas    per broker: (frozen of the Partition, its log of (epoch, id))
    controller  the registrations that a replica has not applied yet, and the newest one
    messages    in flight; each may arrive in any order or be lost
    history     (committed records, flags for errors seen, counts of records produced,
                restarts and damages, and the number of committed records that two
                replicas once knew to be committed)

The model leaves out the following, so it proves nothing about them; the simulator covers
them:

    time (a follower may count as lagging whenever it is behind)
    batches of more than one record
    the log start
    loss of unflushed records
    unclean election
    brokers that stay fenced
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, permutations
from typing import Any

from tidelog.core.controller.election import ElectionRules, Target, next_registration
from tidelog.core.controller.events import IsrMember, IsrProposal
from tidelog.core.controller.metadata.registrations import (
    BrokerRegistration,
    LeaderRecovery,
    PartitionRegistration,
)
from tidelog.core.controller.partition_changes import alter_partition, replace_leader
from tidelog.core.replication import effects as do
from tidelog.core.replication import events as on
from tidelog.core.replication.partition import PartitionConfig
from tidelog.core.replication.truncation import LEADER_EPOCH, TruncationPolicy
from tidelog.lab.modelcheck.explorer import Model
from tidelog.lab.modelcheck.shipped import invariants, local_step
from tidelog.lab.modelcheck.shipped import messages as wire
from tidelog.lab.modelcheck.shipped.local_step import (
    ACCUSED,
    FOLLOWERS,
    HIGH_WATERMARK,
    LEADER,
    NOW_MS,
    PARTITION_EPOCH,
    FrozenReplica,
    ModelBatch,
    Replicas,
    fields_of,
)
from tidelog.lab.modelcheck.shipped.state import (
    Renamer,
    State,
    fell_back,
    known_by_two,
    leads,
    pruned,
    with_history,
    with_messages,
    with_replica,
)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of the search. The checker visits all states within them and none beyond."""

    replicas: int = 3
    records: int = 2
    leader_epoch: int = 2
    partition_epoch: int = 4
    messages: int = 2
    """The most messages in flight; with 0, a request and all its consequences are one step."""
    restarts: int = 0
    min_insync_replicas: int = 1
    damages: int = 0
    """How often a log loses its end, without a trace, while its broker is down."""


DEFAULT_BOUNDS = Bounds()


class ClusterModel(Model[State]):
    """The model of one partition that the shipped code replicates."""

    goals = invariants.GOALS

    def __init__(
        self,
        bounds: Bounds = DEFAULT_BOUNDS,
        policy: TruncationPolicy = LEADER_EPOCH,
        prologue: Sequence[str] = (),
    ) -> None:
        """Build the model; the search starts after the actions of `prologue`."""
        self.name = f"shipped code, {policy.name}"
        self.bounds = bounds
        self.invariants = invariants.NAMES
        if bounds.damages:
            self.invariants += (invariants.KNOWN_BY_TWO_SURVIVES,)
            self.goals += (invariants.DAMAGED_LEADER,)
        self._prologue = tuple(prologue)
        self.brokers = tuple(range(bounds.replicas))
        config = PartitionConfig(min_insync_replicas=bounds.min_insync_replicas)
        self._rules = ElectionRules(frozenset(self.brokers), bounds.min_insync_replicas)
        self._registered_brokers = {
            b: BrokerRegistration(b, 0, fenced=False, admitted_epoch=0) for b in self.brokers
        }
        self._replicas = Replicas(bounds.replicas, config, policy)
        self._renamings = [(*p, wire.CONTROLLER) for p in permutations(self.brokers)]
        self._canonical = Renamer(self._renamings)

    def initial(self) -> Iterable[State]:
        """Yield one state: all replicas know that broker 0 leads epoch 0 and all are in sync."""
        first = (0, 0, 0, self.brokers, ())
        replicas = tuple(
            (self._learn(b, self._replicas.fresh(b), first)[0], ()) for b in self.brokers
        )
        state: State = (replicas, (first,), (), ((), 0, 0, 0, 0, 0))
        for wanted in self._prologue:
            state = next(after for action, after in self.successors(state) if action == wanted)
        yield state

    def canonical(self, state: State) -> State:
        """Return the smallest of the states that differ only in the brokers' names."""
        return self._canonical.smallest(state)

    def violated(self, state: State) -> Collection[str]:
        """Return the invariants that do not hold."""
        return invariants.violated(state)

    def reached(self, state: State) -> Collection[str]:
        """Return the goals met; each must be reachable, or the check is vacuous."""
        return invariants.reached(state, self.brokers)

    def describe(self, state: State) -> list[str]:
        """Return the state as a readable table."""
        return invariants.describe(state)

    def successors(self, state: State) -> Iterator[tuple[str, State]]:
        """Yield every possible next step."""
        for action, after in self._possible_steps(state):
            for settled in self._within_bounds(after):
                if settled != state:
                    yield action, settled

    def _possible_steps(self, state: State) -> Iterator[tuple[str, State]]:
        yield from self._client_steps(state)
        yield from self._follower_steps(state)
        yield from self._reports(state)
        yield from self._deliveries(state)
        yield from self._leader_steps(state)
        yield from self._metadata_steps(state)
        yield from self._controller_steps(state)

    def _within_bounds(self, state: State) -> Iterator[State]:
        """Yield a state for each way to lose the messages that exceed the bound.

        With a bound of 0 no message is lost: a request and all its consequences are one step.
        """
        if self.bounds.messages == 0:
            while state[2]:
                after = self._deliver(with_messages(state, state[2][1:]), state[2][0])
                if after is None:
                    return
                state = after
            yield state
            return
        surplus = len(state[2]) - self.bounds.messages
        if surplus <= 0:
            yield state
            return
        for kept in combinations(state[2], self.bounds.messages):
            yield with_messages(state, kept)

    # -- steps that clients, followers and leaders start

    def _client_steps(self, state: State) -> Iterator[tuple[str, State]]:
        produced = state[3][2]
        if produced >= self.bounds.records:
            return
        for broker in self.brokers:
            if not leads(state, broker):
                continue
            batch = ModelBatch(0, 0, 0, produced)
            event = on.ProduceReceived(0, batch, on.ACKS_ALL, NOW_MS)
            after = self._step(state, broker, event, None)
            if after[0] != state[0]:
                yield f"LeaderWrite({_name(broker)})", with_history(after, produced=produced + 1)

    def _follower_steps(self, state: State) -> Iterator[tuple[str, State]]:
        for broker in self.brokers:
            frozen = state[0][broker][0]
            question = self._replicas.question(broker, frozen)
            if question is not None:
                message = wire.question_message(broker, fields_of(frozen)[LEADER], question)
                yield (
                    f"FollowerAsk({_name(broker)})",
                    with_messages(state, [*wire.after_new_request(state[2], broker), message]),
                )

    def _reports(self, state: State) -> Iterator[tuple[str, State]]:
        """Report, repeatedly, a leader that lacks records which the follower keeps."""
        for broker in self.brokers:
            fields = fields_of(state[0][broker][0])
            if fields[ACCUSED] >= 0 and fields[ACCUSED] == fields[LEADER]:
                epoch = fields[local_step.LEADER_EPOCH]
                message = (wire.REPORT, broker, wire.CONTROLLER, epoch)
                yield f"Report({_name(broker)})", with_messages(state, (*state[2], message))

    def _leader_steps(self, state: State) -> Iterator[tuple[str, State]]:
        for broker in self.brokers:
            frozen, log = state[0][broker]
            if not leads(state, broker):
                continue
            for follower, log_end_offset, *_ in fields_of(frozen)[FOLLOWERS]:
                if log_end_offset < len(log):
                    late = self._replicas.lagging(broker, frozen, follower)
                    lagging = with_replica(state, broker, (late, log))
                    after = self._step(lagging, broker, on.Ticked(NOW_MS), None)
                    yield f"FollowerLags({_name(broker)}, {_name(follower)})", after

    # -- the network

    def _deliveries(self, state: State) -> Iterator[tuple[str, State]]:
        for index, message in enumerate(state[2]):
            rest = with_messages(state, state[2][:index] + state[2][index + 1 :])
            after = self._deliver(rest, message)
            if after is not None:
                yield f"Deliver({_title(message)})", after

    def _deliver(self, state: State, message: wire.Message) -> State | None:
        """Deliver a message; return None if the controller's next epoch exceeds the bounds."""
        kind, _, receiver = message[:3]
        if kind == wire.PROPOSE:
            return self._alter(state, message)
        if kind == wire.REPORT:
            return self._replace_leader(state, message)
        if kind in wire.QUESTIONS:
            return self._step(state, receiver, wire.request_event(message), message)
        return self._step(state, receiver, wire.reply_event(message), None)

    # -- the controller

    def _registration(self, state: State) -> PartitionRegistration:
        leader, leader_epoch, partition_epoch, isr, elr = state[1][-1]
        return PartitionRegistration(
            b"", 0, self.brokers, isr, leader if leader >= 0 else None, leader_epoch,
            partition_epoch, elr=elr,
        )  # fmt: skip

    def _metadata_steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let a replica apply any registration, in any order; it may skip some."""
        for broker in self.brokers:
            known = fields_of(state[0][broker][0])[PARTITION_EPOCH]
            for registration in state[1]:
                if registration[2] != known:
                    frozen, effects = self._learn(broker, state[0][broker][0], registration)
                    after = self._apply(state, broker, frozen, effects, None)
                    yield f"Learn({_name(broker)}, {registration[2]})", pruned(after)

    def _controller_steps(self, state: State) -> Iterator[tuple[str, State]]:
        registration = self._registration(state)
        for broker in registration.isr:
            for after in self._without(state, broker):
                yield f"ControllerFence({_name(broker)})", after
        for candidate in registration.isr or registration.elr:
            if candidate != registration.leader:
                changed = next_registration(registration, Target(candidate=candidate), self._rules)
                elected = self._registered(state, registration, changed)
                if elected is not None:
                    yield f"ControllerElectLeader({_name(candidate)})", elected
        restarts, damages = state[3][3:5]
        for broker in self.brokers:
            log = state[0][broker][1]
            if restarts < self.bounds.restarts:
                again = with_history(state, restarts=restarts + 1)
                for after in self._restart(again, broker, log):
                    yield f"Restart({_name(broker)})", after
            if damages < self.bounds.damages:
                damaged = with_history(state, damages=damages + 1)
                for end in range(len(log)):
                    for after in self._restart(damaged, broker, log[:end]):
                        yield f"RestartCut({_name(broker)}, {end})", after

    def _restart(self, state: State, broker: int, log: tuple[Any, ...]) -> Iterator[State]:
        """Restart the process with this log; its memory is lost.

        As in a real registration, the controller first removes the older incarnation from
        leadership and ISR. The broker applies nothing older than its registration, so the
        first registration of the partition that it applies is the newest.
        """
        known = min(fields_of(state[0][broker][0])[HIGH_WATERMARK], len(log))
        fresh = self._replicas.fresh(broker, known, log)
        restarted = with_replica(state, broker, (fresh, log))
        fenced = [restarted]
        if broker in self._registration(restarted).isr:
            fenced = list(self._without(restarted, broker))
        for after in fenced:
            frozen, effects = self._learn(broker, fresh, after[1][-1])
            yield pruned(self._apply(after, broker, frozen, effects, None))

    def _without(self, state: State, broker: int) -> Iterator[State]:
        """Fence a broker for a moment; yield a state for each possible next leader."""
        registration = self._registration(state)
        rules = replace(self._rules, active=frozenset(self.brokers) - {broker})
        isr = tuple(b for b in registration.isr if b != broker)
        candidates: Iterable[int | None] = [None]
        if registration.leader == broker:
            candidates = isr or [None]
        for candidate in candidates:
            target = Target(isr=isr, candidate=candidate)
            changed = next_registration(registration, target, rules)
            after = self._registered(state, registration, changed)
            if after is not None:
                yield after

    def _registered(
        self, state: State, old: PartitionRegistration, new: PartitionRegistration
    ) -> State | None:
        """Return the state with the new registration, or None if it exceeds the bounds."""
        if new is old:
            return state
        if new.leader_epoch > self.bounds.leader_epoch:
            return None
        if new.partition_epoch > self.bounds.partition_epoch:
            return None
        leader = -1 if new.leader is None else new.leader
        entry = (leader, new.leader_epoch, new.partition_epoch, new.isr, new.elr)
        return pruned((state[0], (*state[1], entry), state[2], state[3]))

    def _alter(self, state: State, message: wire.Message) -> State | None:
        _, sender, _, isr, at, leader_epoch = message
        proposal = IsrProposal(
            self._registration(state).key, leader_epoch, at,
            tuple(IsrMember(b, 0) for b in isr), LeaderRecovery.RECOVERED,
        )  # fmt: skip
        old = self._registration(state)
        result = alter_partition(old, proposal, sender, self._registered_brokers, self._rules)
        new = result.changed or old
        after = self._registered(state, old, new)
        if after is None:
            return None
        answer = (
            wire.ANSWER, wire.CONTROLLER, sender, isr, at, int(result.error),
            new.leader_epoch, new.partition_epoch, new.isr,
        )  # fmt: skip
        return with_messages(after, (*after[2], answer))

    def _replace_leader(self, state: State, message: wire.Message) -> State | None:
        _, sender, _, leader_epoch = message
        old = self._registration(state)
        return self._registered(state, old, replace_leader(old, sender, self._rules, leader_epoch))

    # -- steps of the broker's own code

    def _learn(
        self, broker: int, frozen: FrozenReplica, registration: tuple[Any, ...]
    ) -> tuple[FrozenReplica, list[do.Effect]]:
        leader, leader_epoch, partition_epoch, isr, _ = registration
        event = on.PartitionChanged(
            leader if leader >= 0 else None, leader_epoch, partition_epoch, isr, self.brokers,
            False, NOW_MS,
        )  # fmt: skip
        return self._replicas.step(broker, frozen, event)

    def _step(
        self, state: State, broker: int, event: on.Event, request: wire.Message | None
    ) -> State:
        frozen, effects = self._replicas.step(broker, state[0][broker][0], event)
        return self._apply(state, broker, frozen, effects, request)

    def _apply(
        self,
        state: State,
        broker: int,
        frozen: FrozenReplica,
        effects: list[do.Effect],
        request: wire.Message | None,
    ) -> State:
        log = state[0][broker][1]
        sent: list[wire.Message] = []
        advanced = None
        for effect in effects:
            match effect:
                case do.AppendRecords():
                    log += tuple(
                        (b.leader_epoch, b.record)
                        for b in effect.batches
                        if isinstance(b, ModelBatch)
                    )
                case do.TruncateTo() | do.RestartAt():
                    log = log[: effect.offset]
                case do.AdvanceHighWatermark():
                    advanced = effect.offset
                case do.ProposeIsr():
                    members = tuple(sorted(effect.members))
                    sent.append(
                        (wire.PROPOSE, broker, wire.CONTROLLER, members,
                         effect.partition_epoch, effect.leader_epoch)
                    )  # fmt: skip
                case do.AnswerFetch() | do.AnswerEpochEnd() | do.AnswerOffsets():
                    assert request is not None, "answers follow requests"
                    reply = wire.reply_message(request, effect, log)
                    if reply is not None:
                        sent.append(reply)
                case _:
                    pass
        after = with_replica(state, broker, (frozen, log))
        if fell_back(state[0][broker][0], frozen, broker):
            after = with_history(after, fell_back=True)
        if sent:
            after = with_messages(after, (*after[2], *sent))
        if advanced is not None and fields_of(frozen)[LEADER] == broker:
            after = with_history(after, committed=log[:advanced])
        if advanced is not None and self.bounds.damages:
            after = with_history(after, confirmed=known_by_two(after))
        return after


def _name(broker: int) -> str:
    return invariants.broker_name(broker)


def _title(message: wire.Message) -> str:
    return f"{wire.NAMES[message[0]]} {_name(message[1])}->{_name(message[2])}"
