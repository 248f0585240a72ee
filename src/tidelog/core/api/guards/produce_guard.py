"""The guard of Produce, which has no handler: what of a request goes to the node.

WRITE each topic; WRITE the transactional id if a batch is transactional. A topic with an unknown id
has no name to ask for: the node refuses it.
"""

from collections.abc import Callable
from typing import Any

from tidelog.core.api.access_control import Access
from tidelog.core.authorization.acl import Operation, ResourceType
from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import (
    UNRESOLVED,
    Produce,
    ProducePartition,
    ProducePartitionResponse,
    ProduceResponse,
)
from tidelog.core.node.serving.txn_produce import is_transactional
from tidelog.core.slotted import replace


class GuardedProduce:
    """A produce request, the part of it that is allowed, and the response to both."""

    __slots__ = ("_refused", "allowed", "request")

    def __init__(self, access: Access, request: Produce) -> None:
        self.request = request
        self._refused = _refusals(access, request)
        """The error of each partition; NONE for those that are allowed."""
        pairs = zip(request.partitions, self._refused, strict=True)
        allowed = [asked for asked, error in pairs if error is ErrorCode.NONE]
        self.allowed = (
            request
            if len(allowed) == len(request.partitions)
            else replace(request, partitions=allowed)
        )

    @property
    def has_refusals(self) -> bool:
        return self.allowed is not self.request

    def merged(self, response: ProduceResponse) -> ProduceResponse:
        """Return the response with the refusals, in the order of the request."""
        answers = iter(response.partitions)
        return ProduceResponse(
            [
                next(answers)
                if error is ErrorCode.NONE
                else ProducePartitionResponse(asked.topic_partition, error)
                for asked, error in zip(self.request.partitions, self._refused, strict=True)
            ]
        )


class GuardedExchange:
    """A produce exchange that adds the refused partitions to the response of the node."""

    __slots__ = ("_exchange", "_guarded", "refuse")

    def __init__(self, exchange: Any, guarded: GuardedProduce) -> None:
        self._exchange = exchange
        self._guarded = guarded
        self.refuse: Callable[..., None] = exchange.refuse

    def respond(self, number: int, response: ProduceResponse) -> None:
        self._exchange.respond(number, self._guarded.merged(response))


def _refusals(access: Access, request: Produce) -> list[ErrorCode]:
    partitions = request.partitions
    if any(map(is_transactional, partitions)):
        name = request.transactional_id
        kind = ResourceType.TRANSACTIONAL_ID
        if name is None or not access.may(Operation.WRITE, kind, name):
            return [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * len(partitions)
    named = [_topic(asked) for asked in partitions if _is_named(asked)]
    allowed = access.topics(Operation.WRITE, named)
    return [
        ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if _is_named(asked) and _topic(asked) not in allowed
        else ErrorCode.NONE
        for asked in partitions
    ]


def _topic(asked: ProducePartition) -> str:
    return asked.topic_partition.topic


def _is_named(asked: ProducePartition) -> bool:
    return asked.topic_id is None or not _topic(asked).startswith(UNRESOLVED)
