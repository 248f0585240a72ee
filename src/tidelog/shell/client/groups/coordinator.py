"""The broker that looks after a group: found, asked, and looked for again when it has moved.

Always true: after the cluster's `timeout_s` no further try begins.
"""

from collections.abc import Callable
from typing import TypeVar

from tidelog.core.errors import ErrorCode
from tidelog.core.types import BrokerId
from tidelog.shell.client.api_keys import FIND_COORDINATOR
from tidelog.shell.client.client_errors import BrokerError, CannotConnect, Unresolved
from tidelog.shell.client.cluster import Cluster, Deadline
from tidelog.shell.client.connection import KafkaConnection

T = TypeVar("T")
GROUP_KEY = 0
MOVED = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
"""Ask again, maybe another broker."""


def find_coordinator(cluster: Cluster, group: str, deadline: Deadline | None = None) -> BrokerId:
    """The id of the broker that has the group. Raises ClientError."""
    deadline = deadline or Deadline(cluster.timeout_s)
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
        deadline.pause(error)


def ask_coordinator(cluster: Cluster, group: str, ask: Callable[[KafkaConnection], T]) -> T:
    """Ask whoever has the group by now. `ask` raises BrokerError for an error code; it must do
    no harm when it is asked twice."""
    deadline = Deadline(cluster.timeout_s)
    while True:
        try:
            return ask(cluster.broker(find_coordinator(cluster, group, deadline)))
        except (BrokerError, CannotConnect, Unresolved) as error:
            if isinstance(error, BrokerError) and error.code not in MOVED:
                raise
            deadline.pause(error)
