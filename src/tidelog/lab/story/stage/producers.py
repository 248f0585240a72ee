"""Transactional producers: their identities, and the requests that a client library sends for them.

Under transaction version 1 a producer itself adds partitions to its transaction, and keeps its
epoch. Under version 2 the broker adds them, and each end of a transaction raises the epoch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tidelog.core.errors import ErrorCode
from tidelog.core.groups.messages import (
    OffsetToCommit,
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
)
from tidelog.core.node.messages import Produce, ProducePartition
from tidelog.core.node.serving.txn_produce import FIRST_ADDING
from tidelog.core.record.encoder import Producer
from tidelog.core.record.record_batch import TRANSACTIONAL
from tidelog.core.replication.events import ACKS_ALL
from tidelog.core.transactions import messages as txn
from tidelog.core.transactions.transaction import EPOCH_BUMPS, ProducerIdentity
from tidelog.core.types import Offset, TopicPartition
from tidelog.lab.story.grammar import StoryError
from tidelog.lab.story.stage.broker import StoryBroker
from tidelog.lab.story.stage.clients import TIMEOUT_MS, Clients, Pending
from tidelog.lab.story.stage.controller import PARTITION
from tidelog.lab.story.stage.coordination import Coordination
from tidelog.lab.story.stage.coordinator_log import OFFSETS
from tidelog.lab.story.stage.members import GROUP, Member
from tidelog.lab.story.stage.narration import message, shorten
from tidelog.lab.story.stage.records import encode_names
from tidelog.lab.story.stage.world import World

TRANSACTIONAL_ID = "t"
"""The transactional id of all producers of a story, unless it gives them others."""
TRANSACTION_TIMEOUT_MS = 60_000


@dataclass(slots=True)
class StoryProducer:
    """One instance of a transactional application."""

    name: str
    transactional_id: str
    identity: ProducerIdentity
    sequences: dict[TopicPartition, int] = field(default_factory=dict)
    """The next sequence number for each partition, in this epoch."""
    added: set[TopicPartition] = field(default_factory=set)
    """The partitions that it has added to its open transaction itself."""
    sent: list[str] = field(default_factory=list)
    """The records that it has sent in its open transaction."""

    def renew(self, identity: ProducerIdentity) -> None:
        """Take over an identity; with a new epoch sequence numbers start at 0."""
        if identity != self.identity:
            self.identity = identity
            self.sequences.clear()


class Producers:
    """The transactional producers of a story."""

    def __init__(self, world: World, clients: Clients, coordination: Coordination) -> None:
        self.world = world
        self.clients = clients
        self.coordination = coordination
        self.version = world.setup.transaction_version or EPOCH_BUMPS
        self._known: dict[str, StoryProducer] = {}

    def known(self, name: str) -> StoryProducer:
        """Return a producer that has its identity."""
        if name not in self._known:
            raise StoryError(f"producer {name} has no identity; first run: init {name}")
        return self._known[name]

    def transactional_ids(self) -> list[str]:
        return sorted({producer.transactional_id for producer in self._known.values()})

    # -- the coordinator -------------------------------------------------------------------

    def _send(self, broker: StoryBroker, text: str, request: object, pending: Pending) -> None:
        pending.broker = broker
        self.world.last_error = ErrorCode.NONE
        self.clients.send(text, request, pending)
        self.coordination.run()

    def ask_coordinator(self, text: str, request: object, pending: Pending) -> None:
        """Send a request to the coordinator of transactions, if there is one."""
        self._ask(self.world.coordinator(), text, request, pending)

    def _ask(
        self, broker: StoryBroker | None, text: str, request: object, pending: Pending
    ) -> None:
        if broker is None:
            self.world.last_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
            self.world.add_line(f"{pending.client}: there is no coordinator")
        else:
            self._send(broker, text, request, pending)

    def pending(self, name: str) -> Pending:
        """Return a request of this client, to be completed."""
        return Pending(next(iter(self.world.brokers.values())), client=name)

    def init(self, name: str, transactional_id: str, timeout_ms: int) -> None:
        """Send InitProducerId: from now on the producer has an identity of its own."""
        pending = self.pending(name)

        def respond(response: txn.InitTransactionalIdResponse) -> str | ErrorCode:
            if response.error_code is not ErrorCode.NONE:
                return response.error_code
            identity = ProducerIdentity(response.producer_id, response.producer_epoch)
            for earlier in self._known.values():
                if earlier.transactional_id == transactional_id:
                    self._aborted(earlier)
            self._known[name] = StoryProducer(name, transactional_id, identity)
            return _identity_text(identity)

        pending.respond = respond
        request = txn.InitTransactionalId(transactional_id, timeout_ms)
        self.ask_coordinator(f"InitProducerId {transactional_id}", request, pending)

    def end(self, producer: StoryProducer, *, committed: bool, late: str = "") -> None:
        """Send EndTxn. With `late` the request is held under this name."""
        pending = self.pending(producer.name)

        def respond(response: txn.EndTransactionResponse) -> str | ErrorCode:
            if response.error_code is not ErrorCode.NONE:
                return response.error_code
            producer.added.clear()
            if not committed:
                self._aborted(producer)
            if self.version < EPOCH_BUMPS:
                return "NONE"
            renewed = ProducerIdentity(response.producer_id, response.producer_epoch)
            producer.renew(renewed)
            return _identity_text(renewed)

        pending.respond = respond
        request = txn.EndTransaction(
            producer.transactional_id, producer.identity, committed, self.version
        )
        text = f"EndTxn {'commit' if committed else 'abort'} epoch={producer.identity.epoch}"
        if committed:
            producer.sent.clear()  # without a response the outcome is unknown
        if late:
            self._hold(late, self.world.coordinator(), text, request, pending)
        else:
            self.ask_coordinator(text, request, pending)

    def _aborted(self, producer: StoryProducer) -> None:
        """Note that the open transaction of a producer was aborted."""
        self.world.history.aborted.update(producer.sent)
        producer.sent.clear()

    def _hold(
        self,
        name: str,
        broker: StoryBroker | None,
        text: str,
        request: object,
        pending: Pending,
    ) -> None:
        if broker is None:
            raise StoryError("there is no broker to send this to")
        lines = self.world.lines
        lines.append(message(pending.client, broker.name, text, "held"))
        self.coordination.network.late[name] = lambda: self._send(
            broker, f"{text}  (late)", request, pending
        )

    def describe(self, transactional_id: str) -> str:
        """Return the state of a transactional id, as its coordinator describes it."""
        found: list[str] = []

        def respond(response: txn.DescribeTransactionResponse) -> str | ErrorCode:
            identity = ProducerIdentity(response.producer_id, response.producer_epoch)
            state = response.state or response.error_code.name
            partitions = ",".join(sorted(each.topic for each in response.partitions)) or "none"
            found.append(f"{state} {_identity_text(identity)} partitions={partitions}")
            return ""

        pending = self.pending("")
        pending.respond = respond
        self.ask_coordinator("", txn.DescribeTransaction(transactional_id), pending)
        return found[0] if found else "unknown: the coordinator does not respond"

    # -- partitions ------------------------------------------------------------------------

    def produce(
        self, producer: StoryProducer, broker: StoryBroker, names: Sequence[str], late: str = ""
    ) -> None:
        """Send one transactional batch. With `late` the request is held under this name."""
        partition = broker.served
        if not self._added(producer, partition, f"AddPartitionsToTxn {partition.topic}"):
            return
        sequence = producer.sequences.get(partition, 0)
        producer.sequences[partition] = sequence + len(names)
        producer.sent += names
        identity = producer.identity
        records = encode_names(
            names, self.world.now_ms, TRANSACTIONAL, Producer(*identity, sequence)
        )
        asked = ProducePartition(partition, records)
        version = FIRST_ADDING if self.version >= EPOCH_BUMPS else FIRST_ADDING - 1
        request = Produce(
            ACKS_ALL, TIMEOUT_MS, [asked], version, transactional_id=producer.transactional_id
        )
        text = f"produce {shorten(names)} epoch={identity.epoch}"
        pending = Pending(broker, tuple(names), client=producer.name)
        if late:
            self._hold(late, broker, text, request, pending)
        else:
            self._send(broker, text, request, pending)

    def _added(self, producer: StoryProducer, partition: TopicPartition, text: str) -> bool:
        """Add a partition to the transaction if it must be added, as clients of version 1 do;
        return whether the producer may write to it."""
        if self.version >= EPOCH_BUMPS or partition in producer.added:
            return True
        pending = self.pending(producer.name)

        def respond(response: txn.AddPartitionsResponse) -> str | ErrorCode:
            if response.error_code is ErrorCode.NONE:
                producer.added.add(partition)
                return "NONE"
            return response.error_code

        pending.respond = respond
        identity = producer.identity
        request = txn.AddPartitions(
            producer.transactional_id, identity, frozenset({partition}), self.version
        )
        self.ask_coordinator(f"{text} epoch={identity.epoch}", request, pending)
        return partition in producer.added

    # -- offsets ---------------------------------------------------------------------------

    def send_offset(self, producer: StoryProducer, offset: Offset, member: Member) -> None:
        """Send TxnOffsetCommit: the offset counts once the transaction is committed."""
        if not self._added(producer, OFFSETS, f"AddOffsetsToTxn {GROUP}"):
            return
        pending = self.pending(producer.name)

        def respond(response: TxnOffsetCommitResponse) -> str | ErrorCode:
            error = response.partitions[0].error_code
            return error if error is not ErrorCode.NONE else "NONE"

        pending.respond = respond
        request = TxnOffsetCommit(
            producer.transactional_id,
            GROUP,
            *producer.identity,
            member.generation,
            member.id,
            None,
            [OffsetToCommit(*PARTITION, offset)],
            version=5 if self.version >= EPOCH_BUMPS else 4,
        )
        text = f"TxnOffsetCommit {PARTITION.topic}={offset} generation={member.generation}"
        self._ask(self.world.group_coordinator(), text, request, pending)


def _identity_text(identity: ProducerIdentity) -> str:
    return f"producer={identity.producer_id} epoch={identity.epoch}"
