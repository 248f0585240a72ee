"""Find the broker that coordinates a group or a transactional id, and send requests to it.

The coordinator moves with the leader of a partition of an internal topic; after an error that says
so it is looked up again. Invariant: no attempt begins after the cluster's `timeout_s`.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from tidelog.core.api_table import FIND_COORDINATOR
from tidelog.core.coordinator.lookup import CoordinatorType
from tidelog.core.errors import ErrorCode
from tidelog.core.types import BrokerId
from tidelog.shell.client.client_errors import BrokerError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.connection import KafkaConnection
from tidelog.shell.client.retry import Retry, retriable_codes

T = TypeVar("T")
MOVED = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
"""Errors after which the coordinator is looked up again."""


class CoordinatorKind(NamedTuple):
    """What a coordinator is for."""

    type: CoordinatorType
    noun: str
    """What the key is called in error messages."""


GROUP = CoordinatorKind(CoordinatorType.GROUP, "group")
TRANSACTION = CoordinatorKind(CoordinatorType.TRANSACTION, "transactional id")


def find_coordinator(
    cluster: Cluster, key: str, retry: Retry | None = None, kind: CoordinatorKind = GROUP
) -> BrokerId:
    """Return the id of the broker that coordinates the key. Raises ClientError."""
    retry = retry or Retry(cluster.timeout_s)
    request = {"key": key, "key_type": kind.type, "coordinator_keys": [key]}
    while True:
        answer = cluster.ask_any(lambda broker: broker.call(FIND_COORDINATOR, request))
        found = answer["coordinators"][0] if "coordinators" in answer else answer
        code = found["error_code"]
        if not code:
            return BrokerId(found["node_id"])
        error = BrokerError(
            f"lookup of the coordinator of {kind.noun} {key}", code, found.get("error_message")
        )
        if code not in MOVED:
            raise error
        retry.wait(error)


def ask_coordinator(
    cluster: Cluster,
    key: str,
    ask: Callable[[KafkaConnection], T],
    kind: CoordinatorKind = GROUP,
) -> T:
    """Send a request to the key's coordinator, and again if the coordinator has moved.

    `ask` sends the request and raises BrokerError for an error code. The request must be safe to
    repeat.
    """
    retry = Retry(cluster.timeout_s, retriable=retriable_codes(MOVED))
    return retry.call(lambda: ask(cluster.broker(find_coordinator(cluster, key, retry, kind))))
