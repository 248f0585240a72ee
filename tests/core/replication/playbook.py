"""A dialogue of events and effects with one replica, and short names for both.

    assert (
        Playbook(leader(isr={A, B}))
        >> produce(acks=ACKS_ALL)
        << AppendRecords([span(0, epoch=1)])
        << AwaitCommit(PRODUCER, offset=1, base_offset=0)
        >> fetch(B, 1)
        << AdvanceHighWatermark(1)
        << answer(FETCHER, 1, hw=1)
    )

`>>` is an event, `<<` an effect that must follow from it, in order. `<< None` says that
nothing does (as does saying nothing), `<< ...` that it does not matter what.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import ndiff
from types import EllipsisType

from tidelog.core.errors import ErrorCode
from tidelog.core.lineage.leader_epochs import LeaderEpochs
from tidelog.core.lineage.producer_state import ProducerState
from tidelog.core.replication import effects as do
from tidelog.core.replication import events as on
from tidelog.core.replication.partition import Partition, PartitionConfig
from tidelog.core.replication.truncation import LEADER_EPOCH, TruncationPolicy
from tidelog.core.types import BrokerEpoch, BrokerId, EpochEnd, EpochEntry, LeaderEpoch, Offset

A, B, C, D = 1, 2, 3, 4
BROKERS: Mapping[BrokerId, BrokerEpoch | None] = {A: 10, B: 20, C: 30, D: 40}
"""Every broker registered and unfenced, each with its broker epoch."""

PRODUCER, FETCHER, CLIENT = "producer", "fetcher", "client"
"""Request tokens, by the sender of the request."""

EPOCH = 1
"""The leader epoch of `leader()` and `follower()` by default."""
PARTITION_EPOCH = 5

NONE = ErrorCode.NONE


class Playbook:
    """Steps a partition through a dialogue; a wrong effect raises with a diff."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self._said: list[str] = []
        self._event: on.Event | None = None
        self._effects: list[do.Effect] = []
        self._expected: list[do.Effect] | None = []

    def __rshift__(self, event: on.Event) -> "Playbook":
        self._compare()
        self._event, self._expected = event, []
        self._effects = self.partition.step(event)
        return self

    def __lshift__(self, effect: do.Effect | EllipsisType | None) -> "Playbook":
        if effect is ...:
            self._expected = None
        elif effect is not None:
            assert self._expected is not None, "nothing can be expected after `...`"
            self._expected.append(effect)
        return self

    def __bool__(self) -> bool:
        self._compare()
        return True

    def _compare(self) -> None:
        got = [_plain(effect) for effect in self._effects]
        wanted = self._expected
        if wanted is not None and got != [_plain(effect) for effect in wanted]:
            diff = ndiff([repr(_plain(e)) for e in wanted], [repr(e) for e in got])
            told = "\n".join(self._said)
            raise AssertionError(f"{told}\n>> {self._event}\n" + "\n".join(diff))
        if self._event is not None:
            self._said += [f">> {self._event}", *(f"<< {effect}" for effect in got)]


def _plain(effect: do.Effect) -> do.Effect:
    """Return batches as a list, whether a leader's tuple or a follower's list. The epochs of
    removed records have tests of their own."""
    if isinstance(effect, do.AppendRecords):
        return do.AppendRecords(list(effect.batches))
    if isinstance(effect, do.TruncateTo | do.RestartAt):
        return replace(effect, epochs=())
    return effect


@dataclass(slots=True)
class Span:
    """A batch without records."""

    base_offset: Offset
    last_offset: Offset
    leader_epoch: LeaderEpoch
    producer_id: int = -1

    def assign(self, base_offset: Offset, leader_epoch: LeaderEpoch) -> None:
        """Set the batch's base offset and leader epoch."""
        self.last_offset += base_offset - self.base_offset
        self.base_offset = base_offset
        self.leader_epoch = leader_epoch


def span(base_offset: Offset, last_offset: Offset | None = None, *, epoch: int = EPOCH) -> Span:
    """A batch at this offset, of one record unless its last offset is given."""
    return Span(base_offset, base_offset if last_offset is None else last_offset, epoch)


# --- replicas -------------------------------------------------------------------------------


def replica(
    local: BrokerId = A,
    *,
    epochs: Iterable[tuple[LeaderEpoch, Offset]] = (),
    log: tuple[Offset, Offset] = (0, 0),
    hw: Offset = 0,
    hw_doubted: bool = False,
    config: PartitionConfig | None = None,
    brokers: Mapping[BrokerId, BrokerEpoch | None] = BROKERS,
    policy: TruncationPolicy = LEADER_EPOCH,
    producers: ProducerState | None = None,
) -> Partition:
    """A replica without a registration; `log` is its log start and end."""
    return Partition(
        local,
        config or PartitionConfig(),
        brokers,
        LeaderEpochs([EpochEntry(*entry) for entry in epochs]),
        log_start_offset=log[0],
        log_end_offset=log[1],
        high_watermark=hw,
        high_watermark_uncertain=hw_doubted,
        policy=policy,
        producers=producers,
    )


def leader(
    local: BrokerId = A,
    *,
    isr: Iterable[BrokerId] = (A, B, C),
    replicas: Sequence[BrokerId] = (A, B, C),
    epoch: LeaderEpoch = EPOCH,
    epochs: Iterable[tuple[LeaderEpoch, Offset]] = (),
    log: tuple[Offset, Offset] = (0, 0),
    hw: Offset = 0,
    now: int = 0,
    config: PartitionConfig | None = None,
    brokers: Mapping[BrokerId, BrokerEpoch | None] = BROKERS,
    producers: ProducerState | None = None,
) -> Partition:
    """A replica that has just become leader; `epochs` are those before its own."""
    partition = replica(
        local, epochs=epochs, log=log, hw=hw, config=config, brokers=brokers, producers=producers
    )
    partition.step(elected(local, epoch, isr=isr, replicas=replicas, now=now))
    return partition


def follower(
    local: BrokerId = B,
    *,
    of: BrokerId = A,
    epoch: LeaderEpoch = EPOCH,
    epochs: Iterable[tuple[LeaderEpoch, Offset]] = (),
    log: tuple[Offset, Offset] = (0, 0),
    hw: Offset = 0,
    hw_doubted: bool = False,
    unclean: LeaderEpoch = -1,
    config: PartitionConfig | None = None,
    policy: TruncationPolicy = LEADER_EPOCH,
) -> Partition:
    """A replica that has just become a follower."""
    partition = replica(
        local, epochs=epochs, log=log, hw=hw, hw_doubted=hw_doubted, config=config, policy=policy
    )
    partition.step(elected(of, epoch, unclean=unclean))
    return partition


def epochs_of(partition: Partition) -> list[tuple[int, int]]:
    """The epoch cache as plain pairs."""
    return [(entry.epoch, entry.start_offset) for entry in partition.epochs.entries]


# --- events ---------------------------------------------------------------------------------


def elected(
    who: BrokerId | None,
    epoch: LeaderEpoch,
    *,
    partition_epoch: int | None = None,
    isr: Iterable[BrokerId] = (A, B, C),
    replicas: Sequence[BrokerId] = (A, B, C),
    recovering: bool = False,
    unclean: LeaderEpoch = -1,
    now: int = 0,
) -> on.PartitionChanged:
    """A registration; the partition epoch grows with the leader epoch."""
    if partition_epoch is None:
        partition_epoch = epoch * PARTITION_EPOCH
    told = (who, epoch, partition_epoch, sorted(isr), replicas, recovering, now)
    return on.PartitionChanged(*told, unclean_epoch=unclean)


def produce(
    count: int = 1, *, acks: int = on.ACKS_LEADER, now: int = 0, batch: on.Batch | None = None
) -> on.ProduceReceived:
    """A client's batch of `count` records."""
    return on.ProduceReceived(PRODUCER, batch or Span(0, count - 1, -1), acks, now)


def fetch(
    who: BrokerId,
    offset: Offset,
    *,
    epoch: LeaderEpoch | None = EPOCH,
    last: LeaderEpoch | None = None,
    start: Offset = 0,
    incarnation: BrokerEpoch | None = None,
    now: int = 0,
) -> on.FollowerFetchReceived:
    """A follower's fetch; `incarnation` is its broker epoch."""
    return on.FollowerFetchReceived(FETCHER, who, offset, epoch, last, start, incarnation, now)


def consume(
    offset: Offset,
    *,
    epoch: LeaderEpoch | None = None,
    last: LeaderEpoch | None = None,
    read_committed: bool = False,
    any_replica: bool = False,
) -> on.ConsumerFetchReceived:
    """A consumer's fetch."""
    return on.ConsumerFetchReceived(CLIENT, offset, epoch, last, read_committed, any_replica)


def reply(
    offset: Offset,
    *batches: on.Batch,
    hw: Offset = 0,
    start: Offset = 0,
    epoch: LeaderEpoch = EPOCH,
    error: ErrorCode = NONE,
    diverging: tuple[LeaderEpoch, Offset] | None = None,
    now: int = 0,
) -> on.FetchAnswered:
    """The leader's response to a fetch at `offset` under `epoch`."""
    end = None if diverging is None else EpochEnd(*diverging)
    return on.FetchAnswered(epoch, offset, error, batches, hw, start, end, now)


def confirmed(
    proposal: do.ProposeIsr,
    *,
    error: ErrorCode = NONE,
    isr: Iterable[BrokerId] | None = None,
    epoch: LeaderEpoch | None = None,
    partition_epoch: int | None = None,
    now: int = 0,
) -> on.IsrChangeAnswered:
    """The controller's response to a proposal, which it accepts by default."""
    granted = proposal.members if isr is None else isr
    return on.IsrChangeAnswered(
        proposal.members,
        proposal.partition_epoch,
        error,
        proposal.leader_epoch if epoch is None else epoch,
        proposal.partition_epoch + 1 if partition_epoch is None else partition_epoch,
        sorted(granted),
        now,
    )


# --- effects --------------------------------------------------------------------------------


def answer(
    to: str,
    offset: Offset,
    upto: Offset | None = None,
    *,
    hw: Offset = 0,
    stable: Offset | None = None,
    start: Offset = 0,
    error: ErrorCode = NONE,
    diverging: tuple[LeaderEpoch, Offset] | None = None,
) -> do.AnswerFetch:
    """The response to a fetch; without records unless `upto` is given."""
    return do.AnswerFetch(
        to,
        error,
        offset,
        offset if upto is None else upto,
        hw,
        hw if stable is None else stable,
        start,
        None if diverging is None else EpochEnd(*diverging),
    )


def proposal_of(effects: Sequence[do.Effect]) -> do.ProposeIsr:
    """The one proposal among these effects."""
    (found,) = [effect for effect in effects if isinstance(effect, do.ProposeIsr)]
    return replace(found)


def position(
    offset: int, *, epoch: int = 1, last: int | None = None, start: int = 0
) -> do.FetchPosition:
    """The fetch that a follower sends next."""
    return do.FetchPosition(offset, epoch, last, start)
