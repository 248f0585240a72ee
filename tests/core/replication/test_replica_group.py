"""Three replicas and a controller: invariants hold for every order of events.

Messages arrive at once or not at all. The order in which replicas learn of elections varies, and so
do the events in between. Elections are clean, so no committed record may be lost.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from playbook import BROKERS, EPOCH, NONE, A, B, C, Span

from tidelog.core.errors import ErrorCode
from tidelog.core.lineage.leader_epochs import LeaderEpochs
from tidelog.core.replication import effects as do
from tidelog.core.replication import events as on
from tidelog.core.replication.partition import Partition, PartitionConfig
from tidelog.core.types import BrokerId, EpochEntry, Offset

ALL = (A, B, C)
LAG_MS = PartitionConfig().replica_lag_time_max_ms
brokers = st.sampled_from(ALL)
choices = st.integers(0, 5)


class Written(NamedTuple):
    """A record: the epoch it was written in, and a unique number."""

    epoch: int
    number: int


class Host:
    """A replica and its log, a dict from offset to record."""

    def __init__(self, local: BrokerId) -> None:
        self.log: dict[Offset, Written] = {}
        self.partition = Partition(local, PartitionConfig(), BROKERS, LeaderEpochs())

    def carry_out(self, effects: list[do.Effect], numbers: dict[int, Written]) -> None:
        """Change the log as the replica requests, and check the log end that it announced."""
        for effect in effects:
            match effect:
                case do.AppendRecords():
                    for batch in effect.batches:
                        self.log[batch.base_offset] = numbers[id(batch)]
                case do.TruncateTo():
                    self.log = {o: r for o, r in self.log.items() if o < effect.offset}
                case do.RestartAt():
                    self.log = {}
                case do.DropBefore():
                    self.log = {o: r for o, r in self.log.items() if o >= effect.offset}
                case _:
                    pass
        start, end = self.partition.log_start_offset, self.partition.log_end_offset
        assert sorted(self.log) == list(range(start, end))

    def restart(self, checkpoint: Offset) -> None:
        """Restart with the whole log, and a high watermark that may be out of date."""
        old = self.partition
        self.partition = Partition(
            old.local,
            old.config,
            old.brokers,
            LeaderEpochs([EpochEntry(*entry) for entry in old.epochs.entries]),
            log_start_offset=old.log_start_offset,
            log_end_offset=old.log_end_offset,
            high_watermark=min(checkpoint, old.high_watermark),
        )


class ReplicaGroup(RuleBasedStateMachine):
    """One partition on brokers A, B and C."""

    def __init__(self) -> None:
        super().__init__()
        self.hosts = {broker: Host(broker) for broker in ALL}
        self.now_ms = 0
        self.numbers = 0
        self.committed: dict[Offset, Written] = {}
        self.word = on.PartitionChanged(A, EPOCH, 1, ALL, ALL, recovering=False, now_ms=0)
        for broker in ALL:
            self.learn(broker)

    # --- the controller ---------------------------------------------------------------------

    @rule(broker=brokers)
    def learn(self, broker: BrokerId) -> None:
        """Let a broker receive the last registration; it may have missed earlier ones."""
        self.word.now_ms = self.now_ms
        self.step(broker, self.word)

    @rule(choice=choices, heard=st.booleans())
    def elect(self, choice: int, heard: bool) -> None:
        """Elect another member of the ISR; at most the new leader itself learns of it yet."""
        elected = self.word.isr[choice % len(self.word.isr)]
        self.speak(elected, self.word.leader_epoch + 1, self.word.isr)
        if heard:
            self.learn(elected)

    @rule()
    def tick(self) -> None:
        """Let time pass: the leader drops followers that have not caught up."""
        self.now_ms += LAG_MS // 3
        for broker in ALL:
            self.step(broker, on.Ticked(self.now_ms))

    def speak(self, leader: BrokerId | None, epoch: int, isr: Sequence[BrokerId]) -> None:
        self.word = on.PartitionChanged(
            leader, epoch, self.word.partition_epoch + 1, isr, ALL, False, self.now_ms
        )

    def decide(self, broker: BrokerId, proposal: do.ProposeIsr) -> None:
        """Accept a proposal of the current leader that refers to the current registration."""
        error = ErrorCode.INVALID_UPDATE_VERSION
        now = (self.word.leader, self.word.leader_epoch, self.word.partition_epoch)
        if (broker, proposal.leader_epoch, proposal.partition_epoch) == now:
            error = NONE
            self.speak(broker, proposal.leader_epoch, tuple(sorted(proposal.members)))
        self.step(
            broker,
            on.IsrChangeAnswered(
                proposal.members,
                proposal.partition_epoch,
                error,
                self.word.leader_epoch,
                self.word.partition_epoch,
                self.word.isr,
                self.now_ms,
            ),
        )

    # --- clients and disks ------------------------------------------------------------------

    @rule(choice=choices, count=st.integers(1, 2))
    def produce(self, choice: int, count: int) -> None:
        """Every replica that considers itself the leader accepts records."""
        leaders = [broker for broker in ALL if self.hosts[broker].partition.is_leader]
        for _ in range(count if leaders else 0):
            broker = leaders[choice % len(leaders)]
            self.numbers += 1
            batch = Span(0, 0, -1)
            written = Written(self.hosts[broker].partition.leader_epoch, self.numbers)
            event = on.ProduceReceived(None, batch, on.ACKS_LEADER, self.now_ms)
            self.step(broker, event, {id(batch): written})

    @rule(broker=brokers, back=st.integers(0, 3))
    def delete_records(self, broker: BrokerId, back: int) -> None:
        """Delete records up to the high watermark or a little before it."""
        partition = self.hosts[broker].partition
        self.step(broker, on.DeleteRecordsRequested(None, partition.high_watermark - back))

    @rule(broker=brokers, checkpoint=st.integers(0, 5))
    def restart(self, broker: BrokerId, checkpoint: Offset) -> None:
        """Stop and start cleanly: the log is complete, only the HW on disk may be old."""
        self.hosts[broker].restart(checkpoint)

    # --- replication ------------------------------------------------------------------------

    @rule(broker=brokers, lose_reply=st.booleans())
    def fetch(self, broker: BrokerId, lose_reply: bool) -> None:
        """Let a follower send one request to the leader that it knows, and apply the reply."""
        follower = self.hosts[broker].partition
        question = follower.next_question(self.now_ms)
        if question is None or follower.leader is None:
            return
        source = self.hosts[follower.leader]
        numbers: dict[int, Written] = {}
        if isinstance(question, do.OffsetsQuestion):
            reply = self.ask_offsets(source, question)
        else:
            assert isinstance(question, do.FetchPosition)
            reply, numbers = self.ask_records(broker, source, question)
        if not lose_reply:
            self.step(broker, reply, numbers)

    @rule(broker=brokers)
    def catch_up(self, broker: BrokerId) -> None:
        """Fetch until the follower has all records and the leader knows it."""
        self.now_ms += PartitionConfig().replica_fetch_backoff_ms
        for _ in range(3):
            self.fetch(broker, lose_reply=False)

    def ask_records(
        self, broker: BrokerId, source: Host, question: do.FetchPosition
    ) -> tuple[on.Event, dict[int, Written]]:
        asked = on.FollowerFetchReceived(
            None,
            broker,
            question.offset,
            question.leader_epoch,
            question.last_fetched_epoch,
            question.log_start_offset,
            BROKERS[broker],
            self.now_ms,
        )
        effects = self.step(source.partition.local, asked)
        (answer,) = [effect for effect in effects if isinstance(effect, do.AnswerFetch)]
        records = [(o, source.log[o]) for o in range(answer.offset, answer.upto)]
        batches = [Span(offset, offset, written.epoch) for offset, written in records]
        numbers = {id(b): w for b, (_, w) in zip(batches, records, strict=True)}
        reply = on.FetchAnswered(
            question.leader_epoch,
            question.offset,
            answer.error,
            batches,
            answer.high_watermark,
            answer.log_start_offset,
            answer.diverging,
            self.now_ms,
        )
        return reply, numbers

    def ask_offsets(self, source: Host, question: do.OffsetsQuestion) -> on.Event:
        asked = on.OffsetsRequested(None, question.leader_epoch, False, False)
        (answer,) = self.step(source.partition.local, asked)
        assert isinstance(answer, do.AnswerOffsets)
        return on.OffsetsAnswered(
            question.leader_epoch,
            answer.error,
            answer.log_start_offset,
            answer.end_offset,
            self.now_ms,
        )

    def step(
        self, broker: BrokerId, event: on.Event, numbers: dict[int, Written] | None = None
    ) -> list[do.Effect]:
        host = self.hosts[broker]
        before = host.partition.high_watermark
        led = host.partition.is_leader and not isinstance(event, on.PartitionChanged)
        effects = host.partition.step(event)
        host.carry_out(effects, numbers or {})
        if led:
            assert host.partition.high_watermark >= before, "a leader's HW moved back"
        if host.partition.is_leader:
            for offset in range(before, host.partition.high_watermark):
                if offset in host.log:
                    known = self.committed.setdefault(offset, host.log[offset])
                    assert known == host.log[offset], f"two records committed at {offset}"
        for effect in effects:
            if isinstance(effect, do.ProposeIsr):
                self.decide(broker, effect)
        return effects

    # --- what is always true ----------------------------------------------------------------

    @invariant()
    def offsets_are_in_order(self) -> None:
        """Log start <= HW <= LEO, on every replica."""
        for host in self.hosts.values():
            p = host.partition
            assert 0 <= p.log_start_offset <= p.high_watermark <= p.log_end_offset

    @invariant()
    def epochs_strictly_increase_and_tell_the_truth(self) -> None:
        """Epochs and start offsets increase, and each record is in the epoch it was written in."""
        for host in self.hosts.values():
            entries = host.partition.epochs.entries
            for one, other in pairwise(entries):
                assert one.epoch < other.epoch
                assert one.start_offset < other.start_offset
            for offset, written in host.log.items():
                assert host.partition.epochs.epoch_for_offset(offset) == written.epoch

    @invariant()
    def what_is_shown_is_committed(self) -> None:
        """Below the HW of any replica there are only committed records."""
        for host in self.hosts.values():
            for offset, written in host.log.items():
                if offset < host.partition.high_watermark:
                    assert self.committed[offset] == written

    @invariant()
    def a_leader_has_everything_committed(self) -> None:
        """Every member of the ISR has all committed records, or has deleted them."""
        for broker in self.word.isr:
            host = self.hosts[broker]
            for offset, written in self.committed.items():
                if offset >= host.partition.log_start_offset:
                    assert host.log.get(offset) == written

    @rule()
    def settle(self) -> None:
        """Once all replicas know the leader and have fetched, their logs are the same."""
        for broker in ALL:
            self.learn(broker)
        for _ in range(12):
            self.now_ms += PartitionConfig().replica_fetch_backoff_ms
            for broker in ALL:
                self.fetch(broker, lose_reply=False)
        leader = self.hosts[self.word.leader or A]
        for host in self.hosts.values():
            assert host.partition.log_end_offset == leader.partition.log_end_offset
            assert host.partition.high_watermark == leader.partition.high_watermark
            shared = host.log.keys() & leader.log.keys()
            assert all(host.log[offset] == leader.log[offset] for offset in shared)
            assert host.partition.log_start_offset >= leader.partition.log_start_offset


ReplicaGroup.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestReplicaGroup = ReplicaGroup.TestCase
