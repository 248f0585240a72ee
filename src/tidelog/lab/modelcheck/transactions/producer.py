"""A transactional producer of the model: what a client does, one request at a time.

A transaction writes one record to P, or to P and then to Q, and is committed or aborted. A client
commits only after all responses. It may give up on a record at any time: then it must abort, and
with transaction version 1 it continues with a new epoch, as Kafka's clients do (KIP-360). After a
fatal error it stops.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tidelog.core.errors import ErrorCode
from tidelog.core.transactions.messages import (
    AddPartitionsResponse,
    EndTransactionResponse,
    InitTransactionalIdResponse,
)
from tidelog.lab.modelcheck.transactions.messages import (
    ADD,
    END,
    INIT,
    PARTITIONS,
    PRODUCE,
    Add,
    End,
    Init,
    Produce,
)

NEW, READY, OPEN, MUST_ABORT, MUST_INIT, STOPPED = range(6)
PHASE_TEXTS = (
    "has not started", "is ready", "is in a transaction", "must abort", "needs a new epoch",
    "has stopped",
)  # fmt: skip

_RETRIED = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


class Client(NamedTuple):
    """The state of a producer."""

    producer_id: int = -1
    epoch: int = -1
    phase: int = NEW
    transaction: int = -1
    """The transaction that it began last."""
    written: int = 0
    """How many partitions have acknowledged their record."""
    added: int = 0
    """Whether the next partition was added; only with transaction version 1."""
    sequences: tuple[int, ...] = (0,) * len(PARTITIONS)
    """The next sequence number for each partition."""
    in_doubt: int = 0
    """Whether a record may still be in flight: the next epoch must fence it."""
    request: tuple[int, ...] = ()
    """The request that waits for a response."""
    arrived: int = 0
    """Whether its receiver has it, and will respond."""


def requests(
    client: Client, next_transaction: int, *, adds: bool, aborts: bool
) -> Iterator[Client]:
    """Yield the client with each request that it may send now. `next_transaction` is -1 if it may
    not begin another one. `adds`: it uses transaction version 2. `aborts`: it may abort without an
    error."""
    if client.request:
        return
    identity = (client.producer_id, client.epoch)
    if client.phase == NEW:
        yield client._replace(request=Init(INIT, -1, -1))
    elif client.phase == MUST_INIT:
        yield client._replace(request=Init(INIT, *identity))
    elif client.phase == MUST_ABORT:
        yield client._replace(request=End(END, *identity, 0, client.transaction))
    elif client.phase == READY and next_transaction >= 0:
        begun = client._replace(phase=OPEN, transaction=next_transaction, written=0, added=0)
        yield _next_record(begun, adds=adds)
    elif client.phase == OPEN:
        if client.written < len(PARTITIONS):
            yield _next_record(client, adds=adds)
        if client.written:
            yield client._replace(request=End(END, *identity, 1, client.transaction))
        if aborts:
            yield client._replace(request=End(END, *identity, 0, client.transaction))


def _next_record(client: Client, *, adds: bool) -> Client:
    identity, partition = (client.producer_id, client.epoch), client.written
    if not adds and not client.added:
        return client._replace(request=Add(ADD, *identity, partition))
    sequence = client.sequences[partition]
    return client._replace(
        request=Produce(PRODUCE, *identity, partition, sequence, client.transaction)
    )


def gives_up(client: Client) -> Client:
    """Return the client after it stopped to wait for the response to a record."""
    return _must_abort(client)


def _must_abort(client: Client) -> Client:
    return client._replace(phase=MUST_ABORT, written=0, added=0, in_doubt=1, request=(), arrived=0)


def responded(client: Client, response: object, *, adds: bool) -> Client:
    """Return the client after the response to its request."""
    error = response if isinstance(response, ErrorCode) else _error_of(response)
    if error in _RETRIED:
        return client._replace(arrived=0)
    client, sent = client._replace(request=(), arrived=0), client.request
    match response:
        case InitTransactionalIdResponse() if error is ErrorCode.NONE:
            identity = (response.producer_id, response.producer_epoch)
            return Client(*identity, READY, client.transaction)
        case AddPartitionsResponse() if error is ErrorCode.NONE:
            return client._replace(added=1)
        case EndTransactionResponse() if error is ErrorCode.NONE:
            return _ended(client, response, adds=adds)
        case ErrorCode() if error is ErrorCode.NONE:
            at = sent[3]
            sequences = tuple(
                number + (partition == at) for partition, number in enumerate(client.sequences)
            )
            return client._replace(written=at + 1, added=0, sequences=sequences)
        case ErrorCode():
            return _must_abort(client)
        case _:
            return Client(*client[:2], STOPPED, client.transaction)


def _ended(client: Client, response: EndTransactionResponse, *, adds: bool) -> Client:
    if adds:
        identity = (response.producer_id, response.producer_epoch)
        return Client(*identity, READY, client.transaction)
    phase = MUST_INIT if client.in_doubt else READY
    return client._replace(phase=phase, written=0, added=0, in_doubt=0)


def _error_of(response: object) -> ErrorCode:
    assert isinstance(
        response, InitTransactionalIdResponse | AddPartitionsResponse | EndTransactionResponse
    )
    return response.error_code
