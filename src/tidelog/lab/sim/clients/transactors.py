"""Transactional producers, and read-committed consumers of what they write.

A producer writes transactions one after the other: records to several partitions, sometimes an
offset of a group, then it commits or aborts. It waits for each response before the next request,
and sends a request again until it has one. Some producers use transaction version 1, others
version 2 (KIP-890).

A producer may restart, or hang until its transaction times out. While it hangs, another producer
may start with its transactional id. The first one then is a zombie: it continues where it was, and
writes more records after it was fenced.

Version 1 has no epoch for each transaction, so a late request may join a later transaction. Kafka's
clients close a connection after a time-out. Here, a producer requests a new epoch instead.
"""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, TypeAlias

from tidelog.core.coordinator.lookup import TRANSACTIONS_TOPIC
from tidelog.core.errors import ErrorCode
from tidelog.core.groups.messages import (
    NO_GENERATION,
    NO_MEMBER,
    OffsetFetch,
    OffsetFetchResponse,
    OffsetToCommit,
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
)
from tidelog.core.node.messages import (
    FetchPartitionResponse,
    Produce,
    ProducePartition,
    ProduceResponse,
)
from tidelog.core.record.decoder import decode, read_committed
from tidelog.core.record.encoder import Producer, encode_batch
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import TRANSACTIONAL, batches
from tidelog.core.replication.events import ACKS_ALL
from tidelog.core.transactions.messages import (
    AddPartitions,
    EndTransaction,
    EndTransactionResponse,
    InitTransactionalId,
    InitTransactionalIdResponse,
)
from tidelog.core.transactions.transaction import EPOCH_BUMPS, ProducerIdentity
from tidelog.core.types import BrokerId, Offset, TopicId, TopicPartition
from tidelog.lab.sim.clients.client import SimClient
from tidelog.lab.sim.clients.consumer import Consumed, Corrupt, SimConsumer
from tidelog.lab.sim.clients.group_clients import COORDINATED_BY
from tidelog.lab.sim.machine.network import Address
from tidelog.lab.sim.machine.process import Process, Site
from tidelog.lab.sim.oracle.transactions import Attempt, TransactionOracle

TRANSFERS = "transfers"
TRANSFER_PARTITIONS = tuple(TopicPartition(TRANSFERS, index) for index in range(2))
COORDINATOR_PARTITION = TopicPartition(TRANSACTIONS_TOPIC, 0)
PAUSE_MAX_MS = 150
"""The longest pause between two transactions."""
RETRY_MS = 40
REQUEST_TIMEOUT_MS = 1_500
"""How long a leader waits for replicas; the client waits 100 ms longer."""
GIVE_UP_MS = 5_000
"""After this time a producer aborts a transaction that does not proceed."""
TIMEOUTS_MS = (1_000, 3_000, 8_000)
"""Transaction time-outs."""
HANG_MAX_MS = 2_500
RESTARTS, HANGS, ZOMBIES = 0.01, 0.01, 0.02
"""The probability of each, for each step of a transaction."""
ABORTS, OFFSETS, ABANDONS = 0.25, 0.4, 0.3
LEFT = 3
"""How many transactions a producer begins at most after `finish`."""
ZOMBIE_WRITES = 4
"""How many records a fenced producer still sends."""
PRODUCE_VERSIONS = {1: 11, EPOCH_BUMPS: 12}
OFFSET_COMMIT_VERSIONS = {1: 4, EPOCH_BUMPS: 5}

_FENCED = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
_ABORTABLE = frozenset(
    {
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)


Send: TypeAlias = Callable[[], bool]
"""Sends a request; returns whether there is a broker for it."""
AnswerTo: TypeAlias = Callable[[object], ErrorCode]
"""Continues after a response without an error; returns the error."""


class StepKind(Enum):
    """What a producer does next in a transaction."""

    ADD = "add"
    WRITE = "write"
    OFFSET = "offset"
    COMMIT = "commit"
    ABORT = "abort"


class Step(NamedTuple):
    """A step of a transaction, and the partition that it is about."""

    kind: StepKind
    partition: TopicPartition | None = None


class Batch(NamedTuple):
    """A batch to write: the same bytes are sent until they are acknowledged."""

    partition: TopicPartition
    values: list[bytes]
    data: bytes


class SimTransactor(SimClient):
    """One transactional producer."""

    def __init__(
        self,
        site: Site,
        address: Address,
        transactional_id: str,
        topic_id: TopicId,
        oracle: TransactionOracle,
        start_another: Callable[[], None],
    ) -> None:
        super().__init__(site, address, f"transactor/{address}")
        self.transactional_id = transactional_id
        self.done = False
        """Whether it has ended, after `finish` or because it was fenced."""
        self.version = self._random.choice((1, EPOCH_BUMPS, EPOCH_BUMPS))
        """The transaction version that it uses."""
        self._topic_id = topic_id
        self._oracle = oracle
        self._start_another = start_another
        self._replaced = False
        """Whether another producer with its transactional id has started."""
        self._finishing = False
        self._timeout_ms = self._random.choice(TIMEOUTS_MS)
        self._producer: ProducerIdentity | None = None
        self._fresh_epoch_needed = False
        """Whether a request may still be in flight, or a batch is missing (version 1)."""
        self._sequences: dict[TopicPartition, int] = {}
        self._attempt: Attempt | None = None
        self._steps: list[Step] = []
        self._batch: Batch | None = None
        self._send_request: Send = self._init
        self._answer_to: AnswerTo = self._initialised
        self._step_since_ms = 0
        self._left = LEFT
        self._zombie_writes = ZOMBIE_WRITES
        self._expected_offset = -1
        for broker in site.brokers if self.version < EPOCH_BUMPS else ():
            site.network.link(address, broker).doubles = False

    def finish(self) -> None:
        """Begin few more transactions; maybe leave the last one to its time-out."""
        self._finishing = True

    def start(self) -> None:
        """Request a producer id and an epoch, which fences earlier producers."""
        self._producer = None
        self._steps = []
        self._do(self._init, self._initialised)

    # -- requests and responses ------------------------------------------------------------

    def _do(self, send: Send, answer_to: AnswerTo) -> None:
        """Send a request, and again until `answer_to` accepts the response."""
        self._send_request, self._answer_to = send, answer_to
        self._step_since_ms = self._world.now_ms
        self._send_again()

    def _send_again(self) -> None:
        self._correlation += 1
        sent = self._send_request()
        wait_ms = REQUEST_TIMEOUT_MS + 100 if sent else RETRY_MS
        self._world.after(wait_ms, self._late, self._correlation)

    def _late(self, correlation: int) -> None:
        if correlation == self._correlation:
            self._fresh_epoch_needed = True
            self._retry_or_give_up()

    def refused(self, correlation: int) -> None:
        self._late(correlation)

    def _retry_or_give_up(self) -> None:
        late = self._world.now_ms - self._step_since_ms > GIVE_UP_MS
        if late and self._steps and self._steps[0].kind is not StepKind.COMMIT:
            self._abort()
        else:
            self._pause_then(self._send_again, RETRY_MS)

    def _pause_then(self, what: Callable[[], None], pause_ms: int) -> None:
        self._correlation += 1
        self._world.after(pause_ms, self._then, self._correlation, what)

    def _then(self, correlation: int, what: Callable[[], None]) -> None:
        if correlation == self._correlation:
            what()

    def answered(self, correlation: int, response: object) -> None:
        if correlation != self._correlation:
            return
        error = self._answer_to(response)
        if error is ErrorCode.NONE:
            return
        if error in _FENCED:
            self._fenced()
        elif error in _ABORTABLE:
            self._aborted_by_broker()
        else:
            self._retry_or_give_up()

    def _find_coordinator(self) -> BrokerId | None:
        return self._find_leader(COORDINATOR_PARTITION)

    def _send_to(self, broker: BrokerId | None, request: object) -> bool:
        """Send a request; return whether there is a broker for it."""
        if broker is not None:
            self._send(broker, request)
        return broker is not None

    # -- the producer's identity -----------------------------------------------------------

    def _init(self) -> bool:
        expected = self._producer
        request = InitTransactionalId(self.transactional_id, self._timeout_ms, expected)
        return self._send_to(self._find_coordinator(), request)

    def _initialised(self, response: object) -> ErrorCode:
        assert isinstance(response, InitTransactionalIdResponse)
        if response.error_code is ErrorCode.NONE:
            self._continue_as(ProducerIdentity(response.producer_id, response.producer_epoch))
            assert self._producer is not None
            self._oracle.initialised(self.transactional_id, self._producer)
            self._fresh_epoch_needed = False
            self._begin_later()
        return response.error_code

    def _continue_as(self, producer: ProducerIdentity) -> None:
        if producer != self._producer:
            self._producer = producer
            self._sequences.clear()

    def _fenced(self) -> None:
        """Continue as a zombie if another producer has started, else request a new epoch."""
        if self._replaced:
            self._write_as_zombie()
        else:
            self.start()

    def _aborted_by_broker(self) -> None:
        """End the transaction, which can't be committed."""
        if not self._steps or self._steps[0].kind in (StepKind.COMMIT, StepKind.ABORT):
            self._fenced()  # it has ended already, by a time-out or another producer
        else:
            self._abort()

    # -- transactions ----------------------------------------------------------------------

    def _begin_later(self) -> None:
        self._pause_then(self._begin, self._random.randint(1, PAUSE_MAX_MS))

    def _begin(self) -> None:
        if self._finishing and self._left == 0:
            self._fetch_last_offset()
            return
        self._left -= self._finishing
        assert self._producer is not None
        self._attempt = self._oracle.begun(self.transactional_id, self._producer)
        draw = self._random
        targets = draw.sample(TRANSFER_PARTITIONS, draw.randint(1, len(TRANSFER_PARTITIONS)))
        work = [Step(StepKind.WRITE, draw.choice(targets)) for _ in range(draw.randint(0, 2))]
        work += [Step(StepKind.WRITE, partition) for partition in targets]
        if draw.random() < OFFSETS:
            work.append(Step(StepKind.OFFSET, COORDINATED_BY))
        draw.shuffle(work)
        if self.version < EPOCH_BUMPS:
            used = dict.fromkeys(step.partition for step in work)
            work = [Step(StepKind.ADD, partition) for partition in used] + work
        aborts = draw.random() < ABORTS
        self._steps = [*work, Step(StepKind.ABORT if aborts else StepKind.COMMIT)]
        self._next_step()

    def _next_step(self) -> None:
        """Continue with the next step, or restart or hang before it."""
        draw = self._random.random()
        if self._finishing and self._left == 0 and draw < ABANDONS:
            self._fetch_last_offset()
            return
        if draw < RESTARTS and not self._replaced:
            self.start()
        elif draw < RESTARTS + HANGS + ZOMBIES:
            if draw > RESTARTS + HANGS and not (self._replaced or self._finishing):
                self._replaced = True
                self._start_another()
            self._pause_then(self._take_step, self._random.randint(1, HANG_MAX_MS))
        else:
            self._take_step()

    def _take_step(self) -> None:
        step = self._steps[0]
        if step.kind is StepKind.WRITE:
            assert step.partition is not None
            self._batch = self._encode(step.partition)
        if step.kind is StepKind.COMMIT:
            assert self._attempt is not None
            self._oracle.ending(self._attempt)
        self._do(*self._ways[step.kind])

    @property
    def _ways(self) -> dict[StepKind, tuple[Send, AnswerTo]]:
        return {
            StepKind.ADD: (self._add, self._added),
            StepKind.WRITE: (self._write, self._written),
            StepKind.OFFSET: (self._commit_offset, self._offset_committed),
            StepKind.COMMIT: (self._end, self._ended),
            StepKind.ABORT: (self._end, self._ended),
        }

    def _step_done(self) -> None:
        del self._steps[0]
        self._next_step()

    def _abort(self) -> None:
        """Abort the transaction instead of the steps that are left."""
        self._fresh_epoch_needed = True
        self._steps = [Step(StepKind.ABORT)]
        self._take_step()

    # -- the steps -------------------------------------------------------------------------

    def _add(self) -> bool:
        partition = self._steps[0].partition
        assert partition is not None
        assert self._producer is not None
        added = frozenset({partition})
        request = AddPartitions(self.transactional_id, self._producer, added)
        return self._send_to(self._find_coordinator(), request)

    def _added(self, response: object) -> ErrorCode:
        error: ErrorCode = response.error_code  # type: ignore[attr-defined]
        if error is ErrorCode.NONE:
            self._step_done()
        return error

    def _encode(self, partition: TopicPartition) -> Batch:
        assert self._attempt is not None
        assert self._producer is not None
        values: list[bytes] = []
        for _ in range(self._random.randint(1, 2)):
            number = len(self._attempt.records) + len(values)
            value = b"%d.%d.%d" % (self._address, self._attempt.number, number)
            values.append(value)
            self._oracle.written(self._attempt, value)
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + len(values)
        writer = Producer(*self._producer, sequence)
        records = [Record(None, value, self._world.now_ms) for value in values]
        data = encode_batch(records, attributes=TRANSACTIONAL, producer=writer)
        return Batch(partition, values, bytes(data))

    def _write(self) -> bool:
        assert self._batch is not None
        leader = self._find_leader(self._batch.partition)
        if leader is not None:
            target = self._site.brokers[leader]
            arguments = target, self._correlation, self._batch
            self._site.network.send(self._address, leader, self._arrive, *arguments)
        return leader is not None

    def _arrive(self, target: Process, correlation: int, batch: Batch) -> None:
        """Deliver the request with its own copy of the batch: the broker modifies the buffer."""
        part = ProducePartition(batch.partition, bytearray(batch.data))
        version = PRODUCE_VERSIONS[self.version]
        request = Produce(
            ACKS_ALL,
            REQUEST_TIMEOUT_MS,
            [part],
            version=version,
            transactional_id=self.transactional_id,
        )
        target.request(self._address, 0, correlation, request)

    def _written(self, response: object) -> ErrorCode:
        assert isinstance(response, ProduceResponse)
        error = response.partitions[0].error
        if error is ErrorCode.NONE:
            assert self._attempt is not None
            assert self._batch is not None
            partition = self._batch.partition
            self._attempt.records += [(partition, value) for value in self._batch.values]
            self._step_done()
        return error

    def _commit_offset(self) -> bool:
        assert self._attempt is not None
        assert self._producer is not None
        broker = self._find_leader(COORDINATED_BY)
        node = None if broker is None else self._site.brokers[broker].node
        if broker is None or node is None or TRANSFERS not in node.image.topics:
            return False  # a broker rejects offsets of topics that it does not know
        number = self._attempt.number
        to_commit = OffsetToCommit(*TRANSFER_PARTITIONS[0], number, topic_id=self._topic_id)
        request = TxnOffsetCommit(
            self.transactional_id,
            self.transactional_id,
            *self._producer,
            NO_GENERATION,
            NO_MEMBER,
            None,
            [to_commit],
            version=OFFSET_COMMIT_VERSIONS[self.version],
        )
        return self._send_to(broker, request)

    def _offset_committed(self, response: object) -> ErrorCode:
        assert isinstance(response, TxnOffsetCommitResponse)
        error = response.partitions[0].error_code
        if error is ErrorCode.NONE:
            assert self._attempt is not None
            self._attempt.with_offset = True
            self._step_done()
        return error

    def _end(self) -> bool:
        assert self._producer is not None
        version = EPOCH_BUMPS if self.version >= EPOCH_BUMPS else 0
        committed = self._steps[0].kind is StepKind.COMMIT
        request = EndTransaction(self.transactional_id, self._producer, committed, version)
        return self._send_to(self._find_coordinator(), request)

    def _ended(self, response: object) -> ErrorCode:
        assert isinstance(response, EndTransactionResponse)
        if response.error_code is not ErrorCode.NONE:
            return response.error_code
        assert self._attempt is not None
        with_offset = self._attempt.with_offset
        if self._steps[0].kind is StepKind.COMMIT:
            self._oracle.committed(self._attempt)
        self._steps = []
        if self.version >= EPOCH_BUMPS:
            self._continue_as(ProducerIdentity(response.producer_id, response.producer_epoch))
        if with_offset:
            self._do(self._fetch_offset, self._offset_fetched)
        else:
            self._begin_next()
        return ErrorCode.NONE

    def _begin_next(self) -> None:
        if self.version < EPOCH_BUMPS and self._fresh_epoch_needed:
            self._do(self._init, self._initialised)
        else:
            self._begin_later()

    # -- committed offsets -----------------------------------------------------------------

    def _fetch_offset(self) -> bool:
        stable = self._finishing or self._correlation % 2 == 0
        self._expected_offset = self._oracle.expected_offset(self.transactional_id, stable=stable)
        request = OffsetFetch(self.transactional_id, [TRANSFER_PARTITIONS[0]], stable)
        return self._send_to(self._find_leader(COORDINATED_BY), request)

    def _offset_fetched(self, response: object) -> ErrorCode:
        error = self._check_offset(response)
        if error is ErrorCode.NONE:
            self._begin_next()
        return error

    def _check_offset(self, response: object) -> ErrorCode:
        assert isinstance(response, OffsetFetchResponse)
        if response.error_code is not ErrorCode.NONE:
            return response.error_code
        [found] = response.partitions
        if found.error_code is ErrorCode.NONE:
            name, offset = self.transactional_id, found.committed_offset
            self._oracle.fetched_offset(name, offset, self._expected_offset)
        return found.error_code

    def _fetch_last_offset(self) -> None:
        """Fetch the offset after all transactions have ended, and stop."""
        self._steps = []
        self._do(self._fetch_offset, self._last_offset_fetched)

    def _last_offset_fetched(self, response: object) -> ErrorCode:
        error = self._check_offset(response)
        if error is ErrorCode.NONE:
            self._stop()
        return error

    def _stop(self) -> None:
        self._correlation += 1
        self.done = True

    # -- zombies ---------------------------------------------------------------------------

    def _write_as_zombie(self) -> None:
        """Write records although another producer has fenced this one; never commit them."""
        if self._zombie_writes == 0 or self._finishing or self._producer is None:
            self._stop()
            return
        self._zombie_writes -= 1
        self._attempt = self._oracle.begun(self.transactional_id, self._producer)
        self._batch = self._encode(self._random.choice(TRANSFER_PARTITIONS))
        self._do(self._write, self._written_as_zombie)

    def _written_as_zombie(self, _response: object) -> ErrorCode:
        self._pause_then(self._write_as_zombie, self._random.randint(1, PAUSE_MAX_MS))
        return ErrorCode.NONE


# -- consumers ---------------------------------------------------------------------------


class SimCommittedReader(SimConsumer):
    """A consumer that skips aborted transactions and stops before open ones."""

    read_committed = True

    def __init__(
        self,
        site: Site,
        address: Address,
        partition: TopicPartition,
        *,
        from_followers: bool,
        consumed: Consumed,
        corrupt: Corrupt,
        visible: Callable[[TopicPartition, Offset, bytes], None],
    ) -> None:
        super().__init__(
            site,
            address,
            partition,
            from_followers=from_followers,
            sends_epoch=False,
            consumed=consumed,
            corrupt=corrupt,
        )
        self._visible = visible
        """Called with the partition, the offset and the value of each record."""

    def _read_batches(self, records: bytes, part: FetchPartitionResponse) -> None:
        first = self.position
        super()._read_batches(records, part)
        aborted = [(one.producer_id, one.first_offset) for one in part.aborted or ()]
        for batch in read_committed(batches(records), aborted):
            for record in decode(batch):
                if first <= record.offset:
                    assert record.value is not None
                    self._visible(self.partition, record.offset, bytes(record.value))
