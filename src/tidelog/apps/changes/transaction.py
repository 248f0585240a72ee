"""Abort transactions: one that hangs in a partition, or the open one of a transactional id."""

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.apps.changes.outcome import Change, done
from tidelog.apps.views.transaction import OpenTransaction, find_hanging, open_transactions
from tidelog.core.errors import ErrorCode
from tidelog.core.types import Offset, TopicPartition
from tidelog.shell.client.administration.transactions import (
    describe_transaction,
    fence_producer,
    write_abort_marker,
)
from tidelog.shell.client.client_errors import BrokerError, ClientError, error_name
from tidelog.shell.client.cluster import Cluster

_HINTS: dict[int, str] = {
    ErrorCode.INVALID_PRODUCER_EPOCH: "the producer has a newer epoch: look again with"
    " `tidelog transaction find-hanging`",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "its coordinator has written a marker since: look"
    " again with `tidelog transaction find-hanging`",
}


class NotAborted(ClientError):
    """The transaction does not exist, or its coordinator will end it."""


class Target(NamedTuple):
    """The transaction of a partition to abort, by its start offset or its producer id."""

    key: TopicPartition
    start_offset: Offset | None
    producer_id: int | None


def find_target(cluster: Cluster, target: Target, *, force: bool) -> OpenTransaction:
    """Return the open transaction of a partition that is to be aborted.

    Raises NotAborted if there is none. Without `force` also if its coordinator will end it: that
    may be a commit, and its records in this partition would be lost.
    """
    errors: list[str] = []
    found = [
        each
        for each in open_transactions(cluster, [target.key], 0, errors)
        if target.start_offset in (None, each.producer.start_offset)
        and target.producer_id in (None, each.producer.producer_id)
    ]
    if errors:
        raise NotAborted(errors[0])
    name = f"{target.key.topic}/{target.key.partition}"
    if not found:
        raise NotAborted(
            f"{name} has no such open transaction; `tidelog transaction find-hanging` lists"
            " those that hang"
        )
    [transaction] = found
    if not force:
        view = find_hanging(cluster, [target.key], 0)
        if view.errors:
            raise NotAborted(f"{view.errors[0]}; add --force to abort the transaction anyway")
        if transaction.identity not in {each.identity for each in view.hanging}:
            raise NotAborted(
                f"the transaction at offset {transaction.producer.start_offset} of {name} does not"
                " hang: its coordinator will end it; to end it now, use"
                " `tidelog transaction abort --id`"
            )
    return transaction


def abort_in_partition(cluster: Cluster, transaction: OpenTransaction) -> Change:
    """Write an abort marker into the partition of an open transaction."""
    key, producer = transaction.key, transaction.producer
    name = f"{key.topic}/{key.partition}"
    doing = f"aborting the transaction at offset {producer.start_offset} of {name}"
    try:
        # Without a marker no coordinator epoch is known, and 0 is accepted.
        write_abort_marker(
            cluster,
            key,
            producer.producer_id,
            producer.producer_epoch,
            producer.coordinator_epoch or 0,
        )
    except BrokerError as error:
        hint = _HINTS.get(error.code)
        text = f"{doing}: {error_name(error.code)}{'; ' if hint else ''}{hint or ''}"
        return Change(name, "", error_name(error.code), text)
    return done(
        name,
        f"{name}: aborted the transaction of producer {producer.producer_id} that began at offset"
        f" {producer.start_offset}",
    )


def abort_ids(cluster: Cluster, transactional_ids: Sequence[str]) -> list[Change]:
    """Fence the producers of transactional ids, which aborts their open transactions."""
    return [_abort_id(cluster, each) for each in dict.fromkeys(transactional_ids)]


def _abort_id(cluster: Cluster, name: str) -> Change:
    before = describe_transaction(cluster, name)
    try:
        epoch = fence_producer(cluster, name, before.timeout_ms)
    except BrokerError as error:
        return Change(name, "", error_name(error.code), f"aborting {name}: {error}")
    open_before = before.start_time_ms is not None
    what = (
        "aborted its transaction and fenced" if open_before else "no transaction was open; fenced"
    )
    return done(name, f"{name}: {what} its producer; its epoch is now {epoch}")
