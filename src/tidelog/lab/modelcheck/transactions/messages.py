"""The messages of the model of transactions, as tuples: states must be hashable and ordered."""

from typing import NamedTuple, TypeAlias

from tidelog.core.types import TopicPartition

TRANSACTIONAL_ID = "billing"
PARTITIONS = (TopicPartition("t", 0), TopicPartition("t", 1))
PARTITION_NAMES = "PQ"
PRODUCER_NAMES = "AB"
NOW_MS = 0

INIT, ADD, PRODUCE, END, MARKER = range(5)


class Init(NamedTuple):
    """InitProducerId; with an identity it continues as that producer (KIP-360)."""

    kind: int
    producer_id: int
    epoch: int


class Add(NamedTuple):
    """AddPartitionsToTxn of a client of transaction version 1."""

    kind: int
    producer_id: int
    epoch: int
    partition: int


class Produce(NamedTuple):
    """A batch with the one record that a transaction writes to a partition."""

    kind: int
    producer_id: int
    epoch: int
    partition: int
    sequence: int
    transaction: int


class End(NamedTuple):
    """EndTxn."""

    kind: int
    producer_id: int
    epoch: int
    commits: int
    transaction: int


class Question(NamedTuple):
    """A partition leader's question, whose requester has the other fields."""

    verify_only: int


class Marker(NamedTuple):
    """The marker for one partition, in a WriteTxnMarkers request."""

    kind: int
    producer_id: int
    epoch: int
    partition: int
    commits: int
    coordinator_epoch: int
    version: int


Message: TypeAlias = Init | Add | Produce | End | Marker
"""A request in the network. `kind` comes first, so that messages have an order."""

Requester: TypeAlias = tuple[int, ...]
"""The receiver of a response: a client, as (index,); none, as LATE; a partition leader with a
question, as (partition, producer id, epoch, number); or the coordinator, as its `Marker`."""
LATE: Requester = (-1,)


def text_of(message: Message) -> str:
    """Return a message as a step of a counterexample shows it."""
    match message:
        case Init(producer_id=producer_id, epoch=epoch):
            expected = "" if producer_id < 0 else f"from epoch {epoch}"
            return f"InitProducerId({expected})"
        case Add():
            return (
                f"AddPartitionsToTxn({PARTITION_NAMES[message.partition]}, epoch {message.epoch})"
            )
        case Produce():
            place = PARTITION_NAMES[message.partition]
            return f"Produce({place}, t{message.transaction + 1}, epoch {message.epoch})"
        case End():
            outcome = "commit" if message.commits else "abort"
            return f"EndTxn({outcome} t{message.transaction + 1}, epoch {message.epoch})"
        case Marker():
            outcome = "commit" if message.commits else "abort"
            place = PARTITION_NAMES[message.partition]
            return f"{outcome} marker({place}, epoch {message.epoch})"
