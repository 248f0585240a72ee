"""One partition leader with transactional records, run by the broker's own code.

Produce requests, verifications, markers, the partition and its producer state are the shipped
classes. The checker supplies their environment: the log, the coordinator's responses, and a
follower that fetches when the checker decides.
"""

from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeAlias, cast

from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.coordinator.lookup import TRANSACTIONS_TOPIC
from tidelog.core.errors import ErrorCode
from tidelog.core.lineage.leader_epochs import LeaderEpochs
from tidelog.core.lineage.producer_state import ProducerState
from tidelog.core.lineage.transaction_index import AbortedTransaction, aborted_transactions
from tidelog.core.lineage.verification import Verification
from tidelog.core.node.calls import Calls
from tidelog.core.node.effects import Respond, Send
from tidelog.core.node.hosting.gate import Gate
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.measuring.counters import Traffic
from tidelog.core.node.messages import (
    AddPartitionsToTxnResponse,
    ProducePartition,
    ProducePartitionResponse,
    TxnMarker,
    WriteTxnMarkers,
    WriteTxnMarkersResponse,
)
from tidelog.core.node.messages import Produce as ProduceRequest
from tidelog.core.node.serving.produce import ProduceService
from tidelog.core.node.serving.txn_markers import TxnMarkerService
from tidelog.core.node.serving.txn_produce import FIRST_ADDING
from tidelog.core.node.serving.txn_verification import TxnVerification
from tidelog.core.node.turn import Turn
from tidelog.core.record.control import ControlType
from tidelog.core.record.decoder import decode, decode_marker, read_committed
from tidelog.core.record.encoder import Producer, encode_batch, encode_marker
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import TRANSACTIONAL, RecordBatch, parse
from tidelog.core.record.validation import BatchRules
from tidelog.core.replication import effects as do
from tidelog.core.replication import events as on
from tidelog.core.replication.partition import Partition, PartitionConfig
from tidelog.lab.modelcheck.transactions.messages import (
    NOW_MS,
    PARTITIONS,
    TRANSACTIONAL_ID,
    Marker,
    Produce,
    Requester,
)

LEADER, FOLLOWER, COORDINATOR = 1, 2, 3
LEADER_EPOCH = 0
TIMEOUT_MS = 1_000
TOPIC_ID = b"transactions-mod"
NO_RESPONSE = -100
"""The error of a question whose coordinator failed."""
ASKED, PENDING, ANSWERED = range(3)
"""States of a question: the request is in flight, the coordinator's record waits to be committed,
the response is in flight."""
DATA, COMMIT, ABORT = range(3)


class Entry(NamedTuple):
    """A batch in the log."""

    kind: int
    producer_id: int
    epoch: int
    number: int
    """The sequence number, or the coordinator epoch of a marker."""
    transaction: int = -1


Log: TypeAlias = tuple[Entry, ...]


class Group(NamedTuple):
    """Batches of one producer that wait for the coordinator, and the question to it."""

    producer_id: int
    epoch: int
    number: int
    """Tells the groups of one producer apart: a marker came between them."""
    verify_only: int
    stage: int
    error: int
    verified: int
    """Whether no append and no marker has removed the verification since."""
    batches: tuple[tuple[Requester, Produce], ...]


class Frozen(NamedTuple):
    """A partition as a part of the checker's states."""

    log: Log = ()
    high_watermark: int = 0
    verifications: tuple[tuple[int, int, int, int], ...] = ()
    """Producer id, epoch, lowest sequence number, whether it adds partitions."""
    groups: tuple[Group, ...] = ()
    awaiting: tuple[tuple[int, Requester], ...] = ()
    """Responses that wait for the high watermark: the offset, and the requester."""


@cache
def batch_at(offset: int, entry: Entry) -> RecordBatch:
    """Return an entry of the log as the real batch."""
    producer = Producer(entry.producer_id, entry.epoch, entry.number)
    if entry.kind == DATA:
        record = Record(None, bytes([entry.transaction]), NOW_MS)
        batch = parse(encode_batch([record], attributes=TRANSACTIONAL, producer=producer))
    else:
        kind = ControlType.COMMIT if entry.kind == COMMIT else ControlType.ABORT
        batch = parse(encode_marker(kind, producer, entry.number, NOW_MS))
    batch.assign(offset, LEADER_EPOCH)
    return batch


def entry_of(batch: RecordBatch) -> Entry:
    """Return a real batch as an entry of the log."""
    producer = (batch.producer_id, batch.producer_epoch)
    if batch.is_control:
        marker = decode_marker(batch)
        assert marker is not None, "coordinators write markers only"
        return Entry(ABORT if marker.is_abort else COMMIT, *producer, marker.coordinator_epoch)
    [record] = decode(batch)
    assert record.value is not None, "the value is the number of the transaction"
    return Entry(DATA, *producer, batch.base_sequence, record.value[0])


class PartitionLeader:
    """The parts of a broker that serve one partition."""

    def __init__(
        self, index: int, frozen: Frozen, *, adds: bool, verifies: bool, followers: bool
    ) -> None:
        """Restore a partition. `adds`: producers use transaction version 2. `verifies` is
        `transaction.partition.verification.enable`. With `followers`, records are committed by
        `follower_fetches`, otherwise at once."""
        self.responses: list[tuple[Requester, ErrorCode]] = []
        self._name = PARTITIONS[index]
        self._turn = Turn(NOW_MS)
        self._calls = Calls(self._turn)
        self._log: list[Entry] = []
        self._aborted: list[AbortedTransaction] = []
        self._awaiting = list(frozen.awaiting)
        self._groups: list[tuple[Group, Verification | None, int]] = []
        """With the verification, and the correlation id of the question."""
        self._adds = adds
        self._marker_sender: Requester = ()
        self._state = ProducerState()
        self._build(verifies)
        self._ask_again(frozen)
        self._restore_log(frozen, followers)

    def _build(self, verifies: bool) -> None:
        config = SimpleNamespace(
            broker_id=LEADER,
            request_timeout_ms=TIMEOUT_MS,
            transaction_partition_verification_enable=verifies,
            add_partitions_to_txn_retry_backoff_ms=1,
            add_partitions_to_txn_retry_backoff_max_ms=0,
        )
        image = SimpleNamespace(
            revision=0,
            topics={TRANSACTIONS_TOPIC: SimpleNamespace(partition_count=1)},
            partition=lambda *_: SimpleNamespace(leader=COORDINATOR),
            brokers={COORDINATOR: SimpleNamespace(id=COORDINATOR, fenced=False)},
        )
        log = SimpleNamespace(producers=self._state, config=SimpleNamespace(segment_bytes=1 << 20))
        partition = self._partition(0, 0, (LEADER,))
        self._replica = HostedReplica(
            self._name, TOPIC_ID, partition, cast(Any, log), BatchRules(), Traffic()
        )
        replicas = cast(
            Any,
            SimpleNamespace(
                hosted={self._name: self._replica},
                note_acks=_ignore,
                step=lambda _, event: self._step(event),
            ),
        )
        gate = Gate(self._turn, replicas, ClusterImage(), LEADER, lambda *_: 0, 0)
        gate.acting = True
        cast_config = cast(Any, config)
        verification = TxnVerification(
            cast_config, self._turn, cast(Any, image), self._calls, replicas, _ignore
        )
        self._produces = ProduceService(self._turn, replicas, gate, _ignore, verification)
        self._markers = TxnMarkerService(cast_config, self._turn, replicas, gate, _ignore)

    def _partition(self, end: int, high_watermark: int, isr: tuple[int, ...]) -> Partition:
        partition = Partition(
            LEADER,
            PartitionConfig(),
            dict.fromkeys(isr),
            LeaderEpochs(),
            log_end_offset=end,
            high_watermark=high_watermark,
            producers=self._state,
        )
        partition.step(on.PartitionChanged(LEADER, LEADER_EPOCH, 0, isr, isr, False, NOW_MS))
        return partition

    def _ask_again(self, frozen: Frozen) -> None:
        """Let all batches that wait arrive again, at a partition without any state."""
        table = self._state.verifications
        for group in frozen.groups:
            for peer, message in group.batches:
                self.produce(peer, message)
            if not group.verified:
                table.pop(group.producer_id, None)
        kept = dict(table)
        table.clear()
        for producer_id, epoch, sequence, adds in frozen.verifications:
            self._state.begin_verification(
                producer_id, epoch, sequence, adds=bool(adds), wall_ms=NOW_MS
            )
            again = kept.get(producer_id)
            if again is not None:
                again.epoch, again.lowest_sequence = epoch, sequence
                table[producer_id] = again
        self._groups = [
            (group, known, correlation)
            for group, (_, known, correlation) in zip(frozen.groups, self._groups, strict=True)
        ]

    def _restore_log(self, frozen: Frozen, followers: bool) -> None:
        loaded = ProducerState()
        for offset, entry in enumerate(frozen.log):
            aborted = loaded.update(batch_at(offset, entry))
            if aborted is not None:
                self._aborted.append(aborted)
        loaded.forget_ended(frozen.high_watermark)
        state = self._state
        state.end_offset, state.producers = loaded.end_offset, loaded.producers
        state.open_transactions, state.ended = loaded.open_transactions, loaded.ended
        self._log = list(frozen.log)
        isr = (LEADER, FOLLOWER) if followers else (LEADER,)
        self._replica.partition = self._partition(len(frozen.log), frozen.high_watermark, isr)

    # -- events

    def produce(self, peer: Requester, message: Produce) -> None:
        """Handle a produce request."""
        value = Record(None, bytes([message.transaction]), NOW_MS)
        producer = Producer(message.producer_id, message.epoch, message.sequence)
        records = encode_batch([value], attributes=TRANSACTIONAL, producer=producer)
        version = FIRST_ADDING if self._adds else FIRST_ADDING - 1
        batch = ProducePartition(self._name, records)
        request = ProduceRequest(
            on.ACKS_ALL, TIMEOUT_MS, [batch], version, transactional_id=TRANSACTIONAL_ID
        )
        before = len(self._log) + len(self._awaiting)
        self._produces.produce(peer, 0, request)
        questions = self._take_effects()
        waits = (peer, message)
        for send in questions:
            [asked] = cast(Any, send.request).transactions
            producer_id, epoch = message.producer_id, message.epoch
            numbers = {
                each.number for each, _, _ in self._groups if each[:2] == (producer_id, epoch)
            }
            number = min(set(range(len(numbers) + 1)) - numbers)
            verify_only = int(asked.verify_only)
            group = Group(producer_id, epoch, number, verify_only, ASKED, 0, 1, (waits,))
            known = self._state.verifications.get(message.producer_id)
            self._groups.append((group, known, send.correlation))
        answered = any(peer == one for one, _ in self.responses)
        if not questions and not answered and before == len(self._log) + len(self._awaiting):
            self._join(message, waits)

    def _join(self, message: Produce, waits: tuple[Requester, Produce]) -> None:
        """Let the batch wait behind one of the same producer, for the same response."""
        current = self._state.verifications.get(message.producer_id)
        for at, (group, known, correlation) in enumerate(self._groups):
            if group[:2] == message[1:3] and known is current:
                group = group._replace(batches=(*group.batches, waits))
                self._groups[at] = (group, known, correlation)

    def answered(self, at: int) -> None:
        """Handle the coordinator's response to a question."""
        group, _, correlation = self._groups.pop(at)
        if group.error == NO_RESPONSE:
            self._calls.fail(correlation)
        else:
            results = {self._name: ErrorCode(group.error)}
            self._calls.answer(correlation, AddPartitionsToTxnResponse((results,)))
        self._take_effects()

    def write_marker(self, peer: Requester, marker: Marker) -> None:
        """Handle a WriteTxnMarkers request."""
        self._marker_sender = peer
        written = TxnMarker(
            marker.producer_id,
            marker.epoch,
            bool(marker.commits),
            marker.coordinator_epoch,
            (self._name,),
            marker.version,
        )

        def done(response: WriteTxnMarkersResponse) -> None:
            [(_, results)] = response.markers
            self.responses.append((peer, results[self._name]))

        self._markers.write(WriteTxnMarkers((written,)), done)

    def follower_fetches(self) -> None:
        """Let the follower fetch all records, which commits them."""
        end = len(self._log)
        fetch = on.FollowerFetchReceived(
            0, FOLLOWER, end, LEADER_EPOCH, LEADER_EPOCH, 0, None, NOW_MS
        )
        self._replica.partition.step(fetch)
        self._state.forget_ended(self._replica.partition.high_watermark)
        self.responses += [(peer, ErrorCode.NONE) for _, peer in self._awaiting]
        self._awaiting.clear()

    def _take_effects(self) -> list[Send]:
        """Note the responses; return the questions."""
        questions = []
        for effect in self._turn.take():
            if isinstance(effect, Respond):
                [result] = cast(Any, effect.response).partitions
                self.responses.append((cast(Requester, effect.peer), result.error))
            elif isinstance(effect, Send):
                questions.append(effect)
        return questions

    def _step(self, event: on.ProduceReceived) -> None:
        """Carry out the effects of the partition, as core/node/hosting/replicas.py does."""
        part: Any = event.request
        partition = self._replica.partition
        for effect in partition.step(event):
            match effect:
                case do.AppendRecords():
                    self._append(cast(Any, effect.batches))
                case do.AnswerProduce():
                    answer = ProducePartitionResponse(self._name, effect.error, effect.base_offset)
                    part.pending.settle(part.index, answer)
                case do.AwaitCommit() if effect.offset > partition.high_watermark:
                    peer = part.pending.peer
                    self._awaiting.append(
                        (effect.offset, self._marker_sender if peer is None else peer)
                    )
                case do.AwaitCommit():
                    answer = ProducePartitionResponse(
                        self._name, ErrorCode.NONE, effect.base_offset
                    )
                    part.pending.settle(part.index, answer)
                case _:
                    pass
        self._state.forget_ended(partition.high_watermark)

    def _append(self, batches: tuple[RecordBatch, ...]) -> None:
        for batch in batches:
            aborted = self._state.update(batch)
            if aborted is not None:
                self._aborted.append(aborted)
            self._log.append(entry_of(batch))

    # -- state

    def freeze(self) -> Frozen:
        """Return the state.

        A marker that repeats the producer's last marker changes nothing, so it is left out.
        """
        table = self._state.verifications
        groups = tuple(
            group._replace(
                verified=int(known is not None and table.get(group.producer_id) is known)
            )
            for group, known, _ in self._groups
        )
        verifications = tuple(
            (producer_id, known.epoch, known.lowest_sequence, int(known.adds))
            for producer_id, known in sorted(table.items())
        )
        watermark = self._replica.partition.high_watermark
        awaiting = tuple(sorted(self._awaiting))
        log = tuple(self._log)
        if self._repeats_marker():
            log, watermark = log[:-1], min(watermark, len(log) - 1)
        return Frozen(log, watermark, verifications, groups, awaiting)

    def _repeats_marker(self) -> bool:
        """Whether the last batch is a marker, and that of its producer before it is the same."""
        if not self._log or self._log[-1].kind == DATA or self._awaiting:
            return False
        *before, last = self._log
        earlier = [entry for entry in before if entry.producer_id == last.producer_id]
        return earlier[-1:] == [last]

    @property
    def last_stable_offset(self) -> int:
        """The limit of read-committed readers."""
        return self._replica.partition.last_stable_offset

    def visible(self) -> list[int]:
        """Return the transaction of each record that a read-committed reader gets."""
        stable = self.last_stable_offset
        found = aborted_transactions(self._aborted, 0, stable)
        aborted = [(one.producer_id, one.first_offset) for one in found]
        readable = [batch_at(*each) for each in enumerate(self._log[:stable])]
        return [entry_of(batch).transaction for batch in read_committed(readable, aborted)]


def elected(frozen: Frozen) -> Frozen:
    """Return the partition on its next leader, which has the committed records only. Requests that
    waited at the old leader have failed."""
    return Frozen(frozen.log[: frozen.high_watermark], frozen.high_watermark)


def _ignore(*_: object) -> None:
    """Do nothing: these effects do not matter here."""
