"""Requests to the coordinator of a consumer group, also when the coordinator moves.

Invariant: no attempt begins after the cluster's `timeout_s`.
"""

from collections.abc import Callable
from typing import TypeVar

from tidelog.core.api_table import FIND_COORDINATOR
from tidelog.core.errors import ErrorCode
from tidelog.core.types import BrokerId
from tidelog.shell.client.client_errors import BrokerError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.connection import KafkaConnection
from tidelog.shell.client.retry import Retry, retriable_codes

T = TypeVar("T")
GROUP_KEY = 0
MOVED = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
"""Errors after which the coordinator is looked up again."""


def find_coordinator(cluster: Cluster, group: str, retry: Retry | None = None) -> BrokerId:
    """Return the id of the broker that coordinates the group. Raises ClientError."""
    retry = retry or Retry(cluster.timeout_s)
    request = {"key": group, "key_type": GROUP_KEY, "coordinator_keys": [group]}
    while True:
        answer = cluster.ask_any(lambda broker: broker.call(FIND_COORDINATOR, request))
        found = answer["coordinators"][0] if "coordinators" in answer else answer
        code = found["error_code"]
        if not code:
            return BrokerId(found["node_id"])
        error = BrokerError(f"coordinator of group {group}", code, found.get("error_message"))
        if code not in MOVED:
            raise error
        retry.wait(error)


def ask_coordinator(cluster: Cluster, group: str, ask: Callable[[KafkaConnection], T]) -> T:
    """Send a request to the group's coordinator, and again if the coordinator has moved.

    `ask` raises BrokerError for an error code; it must be safe to repeat.
    """
    retry = Retry(cluster.timeout_s, retriable=retriable_codes(MOVED))
    return retry.call(lambda: ask(cluster.broker(find_coordinator(cluster, group, retry))))
