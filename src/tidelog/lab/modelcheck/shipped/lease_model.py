"""A leader that can't reach the metadata store, in every interleaving: the checker runs the shipped
lease of its followers (core/replication/follower_lease.py, ADR 45).

Broker A leads when the search starts, with each ISR that contains it, with and without unclean
elections. Time passes in ticks, a third of the session timeout. The store may end A's session when
it was not renewed in time, and elect another leader. A may not be notified of it. States hold ages,
not times, so the search covers any length of time. A state consists of nested tuples:

    (clock, replicas, registration, links, sessions, history)

    clock         (ticks until the store may end A's session, numbers of renewals and losses)
    replicas      per broker: (frozen of the Partition, its log of (epoch, id))
    registration  the newest: (leader, leader epoch, partition epoch, ISR, ELR, fenced brokers)
    links         per broker: its fetch on the way to A, or the response, or neither
    sessions      per broker: its fetch session at A
    history       (whether unclean elections are allowed, number of records, records that wait for
                  followers at A, records that must survive, flags of A's acknowledgements, for
                  how long another broker leads or -1)

One election is within the bounds, and nothing is modelled that happens under the new leader. An
administrator elects a replica outside the ISR only where A knows that it is alone: elsewhere the
brokers must be stopped first (ADR 45). Left out: restarts, flushes, groups.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tidelog.core.controller.election import (
    ElectionRules,
    Target,
    UncleanRecovery,
    next_registration,
)
from tidelog.core.controller.events import UNKNOWN_LOG, ElectionType, IsrMember, IsrProposal
from tidelog.core.controller.metadata.registrations import (
    BrokerRegistration,
    LeaderRecovery,
    PartitionRegistration,
)
from tidelog.core.controller.partition_changes import alter_partition
from tidelog.core.replication import effects as do
from tidelog.core.replication import events as on
from tidelog.core.replication.partition import PartitionConfig
from tidelog.core.replication.truncation import LEADER_EPOCH as POLICY
from tidelog.lab.modelcheck.explorer import Model
from tidelog.lab.modelcheck.shipped import messages as wire
from tidelog.lab.modelcheck.shipped.invariants import broker_name
from tidelog.lab.modelcheck.shipped.lease_broker import (
    ACKS_LEADER,
    LEASE_TICKS,
    MARGIN_TICKS,
    OLD,
    SESSION_TICKS,
    Decision,
    LeaderBroker,
    Session,
    older,
)
from tidelog.lab.modelcheck.shipped.local_step import (
    HIGH_WATERMARK,
    ISR,
    LEADER,
    LEADER_EPOCH,
    LOG_END_OFFSET,
    NOW_MS,
    PARTITION_EPOCH,
    ModelBatch,
    Replicas,
    fields_of,
)

State: TypeAlias = tuple[Any, ...]

SURVIVES = "the elected leader has every record that was acknowledged with acks=all"
NO_SPLIT = "a replaced leader acknowledges only records that the elected leader has"
READS_END = "a replaced leader serves reads for one lease at most"
NAMES = (SURVIVES, NO_SPLIT, READS_END)
GOALS = (
    "a leader without a session acknowledges a record",
    "a leader without a session stops",
    "another leader is elected from the ISR",
    "another leader is elected from outside the ISR",
    "a replaced leader still serves reads",
)

A = 0
REPLICAS = 1
SPLIT, DETACHED = 1, 2
"""Flags of A's acknowledgements: its successor lacked a record; A had no valid session."""
FENCED = 5
"""The position of the fenced brokers in the registration."""
RECORDS, WAITING, PROMISED, FLAGS, LED_FOR = 1, 2, 3, 4, 5
"""Positions in the history."""
IDLE, CUT, FETCH, RESPONSE = range(4)
"""A link: nothing in flight; the last message was lost, so the follower begins a new session; a
fetch (whether in a new session, whether it removes the partition from it, the message); a
response."""
LINK_TEXTS = ("", "", " (its fetch is on the way)", " (the response is on the way)")


@dataclass(frozen=True, slots=True)
class LeaseBounds:
    """The limits of the search."""

    replicas: int = 3
    records: int = 1
    messages: int = 0
    """The most messages in flight; with 0, a fetch and its response are one step."""
    partition_epoch: int = 3
    """The largest partition epoch: changes of leader or ISR."""
    renewals: int = 0
    """How often A renews its session."""
    losses: int = 0
    """How many fetches or responses are lost."""


DEFAULT_BOUNDS = LeaseBounds()


class LeaseModel(Model[State]):
    """The model of one leader without the store."""

    name = "shipped code, lease of the followers"
    invariants = NAMES
    goals = GOALS

    def __init__(self, bounds: LeaseBounds = DEFAULT_BOUNDS, prologue: Sequence[str] = ()) -> None:
        """Build the model; the search starts after the actions of `prologue`."""
        self.bounds = bounds
        self._prologue = tuple(prologue)
        self.brokers = tuple(range(bounds.replicas))
        self._replicas = [
            Replicas(bounds.replicas, PartitionConfig(unclean_leader_election_enable=on), POLICY)
            for on in (False, True)
        ]
        self._registered_brokers = {
            b: BrokerRegistration(b, 0, fenced=False, admitted_epoch=0) for b in self.brokers
        }
        self._decisions: dict[Any, Decision] = {}
        self._fetched: dict[Any, Session] = {}

    def initial(self) -> Iterator[State]:
        """Yield a state for each ISR with A, with and without unclean elections.

        A's session lapses with the next tick. The search starts after the actions of the prologue,
        in the states where they are possible.
        """
        for state in self._first_states():
            found: State | None = state
            for wanted in self._prologue:
                found = dict(self.successors(found)).get(wanted) if found else None
            if found:
                yield found

    def _first_states(self) -> Iterator[State]:
        clock, idle = (MARGIN_TICKS + 1, 0, 0), ((CUT,),) * len(self.brokers)
        sessions: tuple[Session, ...] = ((),) * len(self.brokers)
        for unclean, replicas in enumerate(self._replicas):
            for size in range(1, len(self.brokers) + 1):
                first = (A, 0, 0, self.brokers[:size], (), ())
                news = self._news(first)
                fresh = [replicas.step(b, replicas.fresh(b), news)[0] for b in self.brokers]
                history = (unclean, 0, (), (), 0, -1)
                yield clock, tuple((each, ()) for each in fresh), first, idle, sessions, history

    def decision(self, state: State) -> Decision:
        """Return what A's broker does now."""
        (left, _, _), replicas, _, _, sessions, (unclean, *_) = state
        key = (replicas[A][0], sessions, left, unclean)
        known = self._decisions.get(key)
        if known is None:
            known = self._decisions[key] = self._broker(state).decide()
        return known

    def _broker(self, state: State) -> LeaderBroker:
        (left, _, _), replicas, _, _, sessions, (unclean, *_) = state
        partition = self._replicas[unclean].thawed(A, replicas[A][0])
        return LeaderBroker(partition, sessions, left)

    # -- invariants and goals

    def violated(self, state: State) -> Collection[str]:
        """Return the invariants that do not hold."""
        _, replicas, (leader, *_), _, _, (_, _, _, promised, flags, led_for) = state
        broken = []
        if leader > A and not set(promised) <= _ids(replicas[leader][1]):
            broken.append(SURVIVES)
        if flags & SPLIT:
            broken.append(NO_SPLIT)
        if led_for > LEASE_TICKS and self.decision(state).serves:
            broken.append(READS_END)
        return broken

    def reached(self, state: State) -> Collection[str]:
        """Return the goals met."""
        _, replicas, (leader, *_), _, _, (*_, flags, led_for) = state
        decision = self.decision(state)
        fields = fields_of(replicas[A][0])
        leads, expected = fields[LEADER] == A, fields[ISR][0]
        met = (
            bool(flags & DETACHED),
            leads and not decision.serves,
            leader > A and leader in expected,
            leader > A and leader not in expected,
            led_for >= 0 and decision.serves,
        )
        return [goal for goal, is_met in zip(GOALS, met, strict=True) if is_met]

    def describe(self, state: State) -> list[str]:
        """Return a table: a line for each replica, one for the store, and one for A's broker."""
        (left, _, _), replicas, registration, links, _, history = state
        lines = []
        for broker, (frozen, log) in enumerate(replicas):
            fields = fields_of(frozen)
            role = "leader  " if fields[LEADER] == broker else "follower"
            records = " ".join(f"m{record + 1}@{epoch}" for epoch, record in log)
            lines.append(
                f"{broker_name(broker)} {role} epoch={fields[LEADER_EPOCH]}"
                f" LEO={fields[LOG_END_OFFSET]} HW={fields[HIGH_WATERMARK]} log=[{records}]"
                f"{LINK_TEXTS[links[broker][0]]}"
            )
        leader, leader_epoch, _, isr, _, fenced = registration
        lines.append(
            f"store: leader={broker_name(leader) if leader >= 0 else 'none'} epoch={leader_epoch}"
            f" ISR={{{_names(isr)}}} fenced={{{_names(fenced)}}}"
            f" unclean elections {'on' if history[0] else 'off'}"
        )
        decision = self.decision(state)
        serving = "serves" if decision.serves else "does not serve"
        lines.append(
            f"A {serving}, {'with' if decision.acting else 'without'} a valid session;"
            f" the store may end it {f'in {left} ticks' if left else 'now'}"
        )
        return lines

    # -- steps

    def successors(self, state: State) -> Iterator[tuple[str, State]]:
        """Yield every possible next step, until A learns that it no longer leads."""
        if fields_of(state[REPLICAS][A][0])[LEADER] != A:
            return
        for action, after in self._possible_steps(state):
            if after[2][2] <= self.bounds.partition_epoch:
                yield action, after

    def _possible_steps(self, state: State) -> Iterator[tuple[str, State]]:
        yield from self._time_steps(state)
        yield from self._writes(state)
        for broker in self.brokers[1:]:
            yield from self._follower_steps(state, broker)
        yield from self._fencings(state)
        yield from self._elections(state)
        yield from self._registration_steps(state)

    def _time_steps(self, state: State) -> Iterator[tuple[str, State]]:
        (left, renewals, losses), replicas, registration, links, sessions, history = state
        led_for = history[LED_FOR]
        if led_for >= 0:
            history = _changed(history, LED_FOR, min(led_for + 1, OLD))
        clock = (max(left - 1, 0), renewals, losses)
        aged = tuple(map(older, sessions))
        later: State = (clock, replicas, registration, links, aged, history)
        if history[WAITING] and self.decision(later).fails_waiters:
            later = (*later[:-1], _changed(history, WAITING, ()))
        if later != state:
            yield "Tick", later
        if A in registration[FENCED] or renewals >= self.bounds.renewals:
            return
        if left < SESSION_TICKS:
            yield "Renew(A)", ((SESSION_TICKS, renewals + 1, losses), *state[1:])

    def _writes(self, state: State) -> Iterator[tuple[str, State]]:
        history = state[-1]
        record = history[RECORDS]
        if record >= self.bounds.records:
            return
        for acks in sorted(self.decision(state).accepts):
            event = on.ProduceReceived(0, ModelBatch(0, 0, 0, record), acks, NOW_MS)
            written = (*state[:-1], _changed(history, RECORDS, record + 1))
            if acks == ACKS_LEADER:
                after, _ = self._step(written, A, event)
                yield "Write(A, acks=1)", _acknowledged(after, {record}, self._is_acting(state), 1)
            else:
                waits = _changed(written[-1], WAITING, (*history[WAITING], record))
                after, _ = self._step((*written[:-1], waits), A, event)
                yield "Write(A, acks=all)", after

    def _follower_steps(self, state: State, broker: int) -> Iterator[tuple[str, State]]:
        (left, renewals, losses), _, _, links, _, _ = state
        link, name = links[broker], broker_name(broker)
        if link[0] in (IDLE, CUT):
            fetch = self._next_fetch(state, broker)
            busy = sum(each[0] in (FETCH, RESPONSE) for each in links)
            if fetch is not None and not self.bounds.messages:
                yield f"Fetch({name})", self._respond(self._arrive(state, broker, fetch), broker)
            elif fetch is not None and busy < self.bounds.messages:
                yield f"Fetch({name})", _linked(state, broker, fetch)
            return
        if link[0] == FETCH:
            yield f"Arrive({name})", self._arrive(state, broker, link)
        else:
            yield f"Respond({name})", self._respond(state, broker)
        if losses < self.bounds.losses:
            lost = ((left, renewals, losses + 1), *state[1:])
            yield f"Lose({name})", _linked(lost, broker, (CUT,))

    def _next_fetch(self, state: State, broker: int) -> tuple[Any, ...] | None:
        """Return the follower's next fetch from A. A broker that no longer follows A in this
        partition fetches others in the same session, and first removes this one from it."""
        frozen, new = state[REPLICAS][broker][0], state[3][broker][0] == CUT
        if fields_of(frozen)[LEADER] != A:
            return None if new or not state[4][broker] else (FETCH, 0, 1, ())
        question = self._replicas[state[-1][0]].question(broker, frozen)
        if not isinstance(question, do.FetchPosition):
            return None
        return (FETCH, int(new), 0, wire.question_message(broker, A, question))

    def _arrive(self, state: State, broker: int, fetch: tuple[Any, ...]) -> State:
        """Let a fetch arrive at A, which responds at once."""
        _, new, forget, message = fetch
        epoch = message[3] if message else 0
        serves = self.decision(state).serves_followers
        sessions = state[4]
        key = (sessions[broker], new, forget, epoch)
        session = self._fetched.get(key)
        if session is None:
            leader = self._broker(state)
            session = leader.fetched(broker, epoch, new=bool(new), forget=bool(forget))
            self._fetched[key] = session
        sessions = (*sessions[:broker], session, *sessions[broker + 1 :])
        after = (*state[:4], sessions, state[5])
        if forget or not serves:
            return _linked(after, broker, (IDLE,) if forget else (CUT,))
        after, effects = self._step(after, A, wire.request_event(message))
        answer = next(e for e in effects if isinstance(e, do.AnswerFetch))
        response = wire.reply_message(message, answer, after[REPLICAS][A][1])
        return _linked(after, broker, (RESPONSE, response))

    def _respond(self, state: State, broker: int) -> State:
        """Let the response arrive, if there is one."""
        link = state[3][broker]
        if link[0] != RESPONSE:
            return state
        after, _ = self._step(state, broker, wire.reply_event(link[1]))
        return _linked(after, broker, (IDLE,))

    # -- the store and the controller

    def _fencings(self, state: State) -> Iterator[tuple[str, State]]:
        """End the session of a broker, and elect another leader if it led."""
        (left, _, _), _, (leader, _, _, isr, _, fenced), *_ = state
        if leader != A:
            return
        for broker in isr:
            if broker in fenced or (broker == A and left):
                continue
            out = (*fenced, broker)
            rest = tuple(b for b in isr if b != broker)
            active = frozenset(self.brokers) - set(out)
            for candidate in (rest or (None,)) if broker == A else (None,):
                target = Target(isr=rest, candidate=candidate)
                after = self._registered(state, target, ElectionRules(active), out)
                elected = "" if candidate is None else f", elect {broker_name(candidate)}"
                yield f"Fence({broker_name(broker)}{elected})", after

    def _elections(self, state: State) -> Iterator[tuple[str, State]]:
        """Elect a replica outside the ISR, if the topic allows it or an administrator requests
        it."""
        _, replicas, (leader, _, _, _, _, fenced), _, _, (unclean, *_) = state
        alone = fields_of(replicas[A][0])[ISR][0] == (A,)
        if leader >= 0 or not (unclean or alone):
            return
        for broker in self.brokers:
            if broker in fenced:
                continue
            logs = {broker: UNKNOWN_LOG}
            recovery = UncleanRecovery.AGGRESSIVE if unclean else UncleanRecovery.NONE
            rules = ElectionRules(frozenset({broker}), 1, recovery, logs)
            target = Target(election=ElectionType.ONLINE if unclean else ElectionType.UNCLEAN)
            after = self._registered(state, target, rules, fenced)
            # Records acknowledged before an unclean election may be lost.
            yield (
                f"ElectUnclean({broker_name(broker)})",
                (*after[:-1], _changed(after[-1], PROMISED, ())),
            )

    def _registration_steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let a replica apply the newest registration, or the controller accept A's proposal."""
        _, replicas, registration, _, _, history = state
        for broker in self.brokers:
            fields = fields_of(replicas[broker][0])
            known = PARTITION_EPOCH if broker == A else LEADER_EPOCH
            if fields[known] == registration[2 if broker == A else 1]:
                continue  # followers act only on a new leader epoch
            if broker == registration[0] == A and not self._is_acting(state):
                continue  # image_applier.py: a broker without a valid session leads nothing new
            after, _ = self._step(state, broker, self._news(registration))
            if broker == A and registration[0] != A:
                after = (*after[:-1], _changed(after[-1], WAITING, ()))
            if broker == registration[0] != A and history[LED_FOR] < 0:
                after = (*after[:-1], _changed(after[-1], LED_FOR, 0))
            yield f"Learn({broker_name(broker)})", after
        isr = fields_of(replicas[A][0])[ISR]
        if len(isr) > 1 and registration[0] == A:
            yield from self._join(state, (*isr[0], *isr[1]), isr[3])

    def _join(self, state: State, members: tuple[int, ...], at: int) -> Iterator[tuple[str, State]]:
        """Accept A's proposal to add a replica to the ISR; A need not receive the response."""
        old, fenced = _registration(state, self.brokers), state[2][FENCED]
        proposal = IsrProposal(
            old.key, old.leader_epoch, at, tuple(IsrMember(b, 0) for b in members),
            LeaderRecovery.RECOVERED,
        )  # fmt: skip
        rules = ElectionRules(frozenset(self.brokers) - set(fenced))
        result = alter_partition(old, proposal, A, self._registered_brokers, rules)
        if result.changed is not None and not set(members) & set(fenced):
            yield "AcceptIsr", (*state[:2], _entry(result.changed, fenced), *state[3:])

    def _registered(
        self, state: State, target: Target, rules: ElectionRules, fenced: tuple[int, ...]
    ) -> State:
        changed = next_registration(_registration(state, self.brokers), target, rules)
        return (*state[:2], _entry(changed, tuple(sorted(fenced))), *state[3:])

    # -- steps of the broker's own code

    def _news(self, registration: tuple[Any, ...]) -> on.PartitionChanged:
        leader, leader_epoch, partition_epoch, isr, *_ = registration
        return on.PartitionChanged(
            leader if leader >= 0 else None, leader_epoch, partition_epoch, isr, self.brokers,
            False, NOW_MS,
        )  # fmt: skip

    def _is_acting(self, state: State) -> bool:
        return self.decision(state).acting

    def _step(self, state: State, broker: int, event: on.Event) -> tuple[State, list[do.Effect]]:
        """Apply an event to a replica; A acknowledges the records that are committed now."""
        replicas = state[REPLICAS]
        frozen, log = replicas[broker]
        frozen, effects = self._replicas[state[-1][0]].step(broker, frozen, event)
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
                case _:
                    pass
        replicas = (*replicas[:broker], (frozen, log), *replicas[broker + 1 :])
        after = (state[0], replicas, *state[2:])
        waiting = state[-1][WAITING]
        if broker == A and waiting:
            committed = _ids(log[: fields_of(frozen)[HIGH_WATERMARK]])
            done = committed.intersection(waiting)
            left = tuple(r for r in waiting if r not in done)
            after = (*after[:-1], _changed(after[-1], WAITING, left))
            after = _acknowledged(after, done, self._is_acting(state), -1)
        return after, effects


def _ids(log: tuple[tuple[int, int], ...]) -> set[int]:
    return {record for _, record in log}


def _names(brokers: tuple[int, ...]) -> str:
    return " ".join(map(broker_name, brokers))


def _changed(history: tuple[Any, ...], at: int, value: object) -> tuple[Any, ...]:
    return (*history[:at], value, *history[at + 1 :])


def _linked(state: State, broker: int, link: tuple[Any, ...]) -> State:
    links = state[3]
    return (*state[:3], (*links[:broker], link, *links[broker + 1 :]), *state[4:])


def _acknowledged(state: State, records: set[int], acting: bool, acks: int) -> State:
    """Note that A acknowledges these records, which a leader elected later must have."""
    _, replicas, (leader, *_), _, _, history = state
    if not records:
        return state
    flags = history[FLAGS]
    if not acting:
        flags |= DETACHED
    if leader > A and not records <= _ids(replicas[leader][1]):
        flags |= SPLIT
    history = _changed(history, FLAGS, flags)
    if acks == on.ACKS_ALL and leader <= A:
        history = _changed(history, PROMISED, tuple(sorted({*history[PROMISED], *records})))
    return (*state[:-1], history)


def _registration(state: State, brokers: tuple[int, ...]) -> PartitionRegistration:
    leader, leader_epoch, partition_epoch, isr, elr, _ = state[2]
    return PartitionRegistration(
        b"", 0, brokers, isr, leader if leader >= 0 else None, leader_epoch, partition_epoch,
        elr=elr,
    )  # fmt: skip


def _entry(registration: PartitionRegistration, fenced: tuple[int, ...]) -> tuple[Any, ...]:
    leader = -1 if registration.leader is None else registration.leader
    return (
        leader, registration.leader_epoch, registration.partition_epoch, registration.isr,
        registration.elr, fenced,
    )  # fmt: skip
