"""A shard with a log that confirms writes at once, later or never, producer ids and markers."""

from typing import Any, TypeVar

from tidelog.core.coordinator.shard import Answer, Append
from tidelog.core.errors import ErrorCode
from tidelog.core.transactions import messages as on
from tidelog.core.transactions.config import TransactionConfig
from tidelog.core.transactions.records import decode_key, decode_value
from tidelog.core.transactions.shard import AllocateProducerId, SendMarkers, TransactionShard
from tidelog.core.transactions.transaction import ProducerIdentity, Transaction
from tidelog.core.types import TopicPartition
from tidelog.core.wall_clock import WallClock

ID = "orders-writer"
EVENTS = TopicPartition("events", 0)
OTHER = TopicPartition("other", 3)
TIMEOUT_MS = 60_000
FIRST_PRODUCER_ID = 1000
T = TypeVar("T")


class Talk:
    """A dialogue with a shard. Time passes only with `pass_ms`."""

    def __init__(self, config: TransactionConfig | None = None, version: int = 2) -> None:
        self.config = config or TransactionConfig()
        self.version = version
        """The level of `transaction.version`."""
        self.now = 1_000_000
        self.wall = WallClock(hold_ms=86_400_000)
        self.shard = TransactionShard(self.config, self.now, self.wall, lambda: self.version)
        self.answers: dict[object, on.Response] = {}
        self.log: list[tuple[bytes, bytes | None]] = []
        self.unwritten: list[Append] = []
        self.holds = False
        """Whether appends wait until `write` is called."""
        self.sent: list[SendMarkers] = []
        """Markers that are not written yet."""
        self.marks = True
        """Whether markers are written at once."""
        self.wanted: list[int] = []
        """Tokens of producer ids that are not allocated yet."""
        self.allocates = True
        """Whether producer ids are allocated at once."""
        self.next_producer_id = FIRST_PRODUCER_ID
        self._asked = 0

    # -- time, the log, producer ids and markers ------------------------------------------

    def settle(self) -> None:
        while effects := self.shard.take():
            for effect in effects:
                if isinstance(effect, Answer):
                    assert effect.requester not in self.answers, "answered twice"
                    self.answers[effect.requester] = effect.response
                elif isinstance(effect, SendMarkers):
                    self.sent.append(effect)
                    if self.marks:
                        self._mark()
                elif isinstance(effect, AllocateProducerId):
                    self.wanted.append(effect.token)
                    if self.allocates:
                        self._allocate(ErrorCode.NONE)
                elif self.holds:
                    self.unwritten.append(effect)
                else:
                    self._written(effect, ErrorCode.NONE)

    def write(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Commit the oldest waiting append, or fail it."""
        self._written(self.unwritten.pop(0), error)
        self.settle()

    def _written(self, append: Append, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            self.log += append.records
        self.shard.written(append.token, error, self.now)

    def mark(self, *partitions: TopicPartition) -> None:
        """Write the oldest markers, all or some of them."""
        self._mark(*partitions)
        self.settle()

    def _mark(self, *partitions: TopicPartition) -> None:
        sent = self.sent[0]
        done = frozenset(partitions) or sent.partitions
        if sent.partitions <= done:
            self.sent.pop(0)
        self.shard.markers_written(sent.transactional_id, done, self.now)

    def allocate(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Allocate the oldest requested producer id, or fail."""
        self._allocate(error)
        self.settle()

    def _allocate(self, error: ErrorCode) -> None:
        token = self.wanted.pop(0)
        self.next_producer_id += error is ErrorCode.NONE
        self.shard.producer_id_allocated(token, error, self.next_producer_id - 1, self.now)

    def pass_ms(self, ms: int) -> None:
        """Let time pass; timers fire at their time."""
        until = self.now + ms
        while (due := self.shard.next_ms()) is not None and due <= until:
            self.now = max(self.now, due)
            self.shard.tick(self.now)
            self.settle()
        self.now = until

    def reload(self, *, marks: bool = True) -> "Talk":
        """Load another coordinator from the same log."""
        other = Talk(self.config, self.version)
        other.marks = marks
        other.now = self.now
        other.next_producer_id = self.next_producer_id
        for key, value in self.log:
            other.shard.replay(key, value)
        other.shard.loaded(self.now)
        other.log = list(self.log)
        other.settle()
        return other

    def states(self, name: str = ID) -> list[Transaction | None]:
        """The committed states of a transactional id, in the order of the log; None: deleted."""
        return [
            None if value is None else decode_value(value)
            for key, value in self.log
            if decode_key(key) == name
        ]

    def labels(self, name: str = ID) -> list[str]:
        """The names of the committed states."""
        return ["" if state is None else state.state.label for state in self.states(name)]

    # -- requests -------------------------------------------------------------------------

    def ask(self, request: Any) -> int:
        self._asked += 1
        self.shard.handle(self._asked, request, self.now)
        self.settle()
        return self._asked

    def answer(self, requester: int, kind: type[T]) -> T:
        response = self.answers[requester]
        assert isinstance(response, kind)
        return response

    def get(self, request: Any, kind: type[T]) -> T:
        """Send a request that is answered at once."""
        return self.answer(self.ask(request), kind)

    def init(
        self,
        name: str = ID,
        expected: ProducerIdentity | None = None,
        timeout_ms: int = TIMEOUT_MS,
    ) -> on.InitTransactionalIdResponse:
        request = on.InitTransactionalId(name, timeout_ms, expected)
        return self.get(request, on.InitTransactionalIdResponse)

    def producer(self, name: str = ID, timeout_ms: int = TIMEOUT_MS) -> ProducerIdentity:
        """Initialise a producer that gets its identity at once."""
        response = self.init(name, timeout_ms=timeout_ms)
        assert response.error_code is ErrorCode.NONE
        return ProducerIdentity(response.producer_id, response.producer_epoch)

    def add(
        self,
        producer: ProducerIdentity,
        *partitions: TopicPartition,
        name: str = ID,
        version: int = 2,
    ) -> ErrorCode:
        request = on.AddPartitions(name, producer, frozenset(partitions or {EVENTS}), version)
        return self.get(request, on.AddPartitionsResponse).error_code

    def verify(
        self, producer: ProducerIdentity, *partitions: TopicPartition, name: str = ID
    ) -> on.VerifyPartitionsResponse:
        request = on.VerifyPartitions(name, producer, frozenset(partitions or {EVENTS}))
        return self.get(request, on.VerifyPartitionsResponse)

    def end(
        self,
        producer: ProducerIdentity,
        *,
        committed: bool = True,
        name: str = ID,
        version: int = 2,
    ) -> on.EndTransactionResponse:
        request = on.EndTransaction(name, producer, committed, version)
        return self.get(request, on.EndTransactionResponse)

    def describe(self, name: str = ID) -> on.DescribeTransactionResponse:
        return self.get(on.DescribeTransaction(name), on.DescribeTransactionResponse)

    def listed(self, request: on.ListTransactions | None = None) -> list[tuple[str, int, str]]:
        return [
            (each.transactional_id, each.producer_id, each.state)
            for each in self.shard.list_transactions(request or on.ListTransactions(), self.now)
        ]
