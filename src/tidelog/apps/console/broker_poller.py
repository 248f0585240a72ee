"""Fetches the state of one broker, in a thread of its own.

A broker that hangs (a paused process, a lost link) delays neither the others nor the pages: it is
reported as unreachable until its request ends. Invariant: at most one request to a broker is in
flight.
"""

import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from tidelog.apps.views.broker import BrokerStates
from tidelog.core.types import BrokerId
from tidelog.shell.client import admin
from tidelog.shell.client.client_errors import CannotConnect, ClientError, NoAnswer
from tidelog.shell.client.connection import KafkaConnection
from tidelog.shell.client.security import ClientSecurity

TIMEOUT_S = 2.0
PATIENCE_S = 1.0
"""How long a sample waits for a broker; later responses count for the next sample."""
SILENT_PATIENCE_S = 0.1
"""How long a sample waits for a broker that did not respond the last time."""
NO_RESPONSE = f"no response within {PATIENCE_S:g} s"
_KAFKA_AGAIN_S = 60.0
"""How often a broker that is not a Tidelog broker is polled again."""


class BrokerPoller:
    """One broker at one address."""

    def __init__(self, host: str, port: int, security: ClientSecurity | None) -> None:
        self.address = (host, port)
        self._security = security
        self.cost_s = 0.0
        """How long the broker took to respond to the last request."""
        self.responsive = True
        """Whether it responded in time to the last request."""
        self._connection: KafkaConnection | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"console-{host}:{port}")
        self._pending: Future[dict[str, Any] | None] | None = None
        self._kafka_until = 0.0

    def start(self, topic: str | None, partition: int | None) -> None:
        """Send a request, unless one is in flight."""
        if self._pending is None and time.monotonic() >= self._kafka_until:
            self._pending = self._thread.submit(self._fetch, topic, partition)

    @property
    def is_kafka(self) -> bool:
        """Whether the broker responded that it is not a Tidelog broker."""
        return self._kafka_until > 0

    @property
    def pending(self) -> Future[dict[str, Any] | None] | None:
        """The request in flight."""
        return self._pending

    def collect(self, broker: BrokerId, into: BrokerStates) -> None:
        """Add the state, or why there is none; a Kafka broker adds nothing."""
        if self._pending is None:
            return
        self.responsive = self._pending.done()
        if not self.responsive:
            into.unreachable[broker] = NO_RESPONSE
            return
        done, self._pending = self._pending, None
        try:
            state = done.result()
        except CannotConnect as error:
            into.unreachable[broker] = error.why
        except NoAnswer:
            self.responsive = False
            into.unreachable[broker] = NO_RESPONSE
        except ClientError as error:
            into.unreachable[broker] = str(error)
        else:
            if state is None:
                self._kafka_until = time.monotonic() + _KAFKA_AGAIN_S
            elif state["broker_id"] == broker:
                into.states[broker] = state
            else:
                into.unreachable[broker] = f"broker {state['broker_id']} responds at its address"

    def close(self) -> None:
        """Close the connection when the request in flight has ended."""
        self._thread.submit(self._close)
        self._thread.shutdown(wait=False)

    def _fetch(self, topic: str | None, partition: int | None) -> dict[str, Any] | None:
        began = time.monotonic()
        try:
            return admin.describe_state_at(self._connect, topic, partition)
        finally:
            self.cost_s = time.monotonic() - began

    def _connect(self) -> KafkaConnection:
        if self._connection is None or self._connection.closed:
            self._connection = KafkaConnection(
                *self.address, "tidelog-console", TIMEOUT_S, security=self._security
            )
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()


class BrokerPollers:
    """The pollers of all brokers of a cluster."""

    def __init__(self) -> None:
        self._pollers: dict[BrokerId, BrokerPoller] = {}

    def set_addresses(
        self,
        addresses: dict[BrokerId, tuple[str, int]],
        security: ClientSecurity | None = None,
    ) -> None:
        """Poll these brokers: those with a new address over a new connection."""
        for broker, poller in list(self._pollers.items()):
            if addresses.get(broker) != poller.address:
                self._pollers.pop(broker).close()
        for broker, address in addresses.items():
            if broker not in self._pollers:
                self._pollers[broker] = BrokerPoller(*address, security)

    @property
    def found_kafka(self) -> bool:
        """Whether any broker is not a Tidelog broker."""
        return any(poller.is_kafka for poller in self._pollers.values())

    def fetch(
        self, topic: str | None = None, partition: int | None = None
    ) -> tuple[BrokerStates, float]:
        """Fetch from all brokers at once; return the states and the longest response time."""
        late = {broker for broker, one in self._pollers.items() if one.pending is not None}
        for poller in self._pollers.values():
            poller.start(topic, partition)
        started = {b: one.pending for b, one in self._pollers.items() if one.pending is not None}
        trusted = [one for b, one in started.items() if self._pollers[b].responsive]
        wait(trusted, PATIENCE_S)
        wait([one for b, one in started.items() if b not in late], SILENT_PATIENCE_S)
        answers = BrokerStates({}, {})
        for broker in started:
            poller = self._pollers[broker]
            poller.collect(broker, answers)
            if broker in late and broker in answers.states:
                # The answer to an earlier request, which may have been about other partitions.
                del answers.states[broker]
                answers.unreachable[broker] = "it did not respond a moment ago"
        costs = [self._pollers[broker].cost_s for broker in answers.states]
        return answers, max(costs, default=0.0)

    def close(self) -> None:
        self.set_addresses({})
