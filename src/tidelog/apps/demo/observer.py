"""Sample the state of each replica of a partition, ten times a second or more.

The observer sends requests to the brokers one by one over separate connections, so a dead broker
does not delay the others. Invariant: at most ROUNDS_MAX rounds are kept; a longer observation keeps
the older rounds at half the rate.
"""

import threading
import time
from collections.abc import Mapping
from typing import NamedTuple

from tidelog.core.api_table import DESCRIBE_STATE
from tidelog.shell.client.client_errors import ClientError
from tidelog.shell.client.connection import KafkaConnection

EVERY_S = 0.1
CLOSE_S = 0.01
"""The sampling interval around a fault."""
RESPONSE_S = 3.0
"""Long, because brokers are slow on a busy machine; a dead broker refuses connections at once."""
ROUNDS_MAX = 8_000
HOST = "127.0.0.1"


class Sample(NamedTuple):
    """The state that one replica reported."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    is_leader: bool
    log_end_offset: int
    high_watermark: int
    isr: tuple[int, ...]
    epochs: tuple[tuple[int, int], ...]
    """(epoch, start offset), oldest first."""


class Round(NamedTuple):
    """The states of all replicas at about the same time."""

    at_s: float
    """Time on the monotonic clock."""
    samples: Mapping[int, Sample | None]
    """Samples by broker; None if the broker did not respond."""


class Observer:
    """Samples one partition from `start` to `stop`."""

    def __init__(self, ports: Mapping[int, int], topic: str, partition: int) -> None:
        self.every_s = EVERY_S
        self._ports = dict(ports)
        self._request = {"topic": topic, "partition": partition}
        self._connections: dict[int, KafkaConnection] = {}
        self._rounds: list[Round] = []
        self._stop = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="demo-observer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> list[Round]:
        """Stop sampling and return all rounds; the last one began after this call.

        Raises the error that ended the thread, if any.
        """
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._error is not None:
            raise self._error
        return self._rounds

    @property
    def last(self) -> Round | None:
        """The newest round."""
        return self._rounds[-1] if self._rounds else None

    def _run(self) -> None:
        try:
            due = time.monotonic()
            while not self._stop.is_set():
                self._rounds.append(self.sample_all())
                if len(self._rounds) > ROUNDS_MAX:
                    self._rounds = thinned(self._rounds)
                due = max(due + self.every_s, time.monotonic())
                self._stop.wait(due - time.monotonic())
            self._rounds.append(self.sample_all())
        except Exception as error:  # noqa: BLE001 - `stop` raises it in the caller's thread
            self._error = error
        finally:
            for connection in self._connections.values():
                connection.close()

    def sample_all(self) -> Round:
        """Request the state from every broker once."""
        at_s = time.monotonic()
        return Round(at_s, {broker: self._sample(broker) for broker in self._ports})

    def _sample(self, broker: int) -> Sample | None:
        connection = self._connections.get(broker)
        try:
            if connection is None or connection.closed:
                connection = KafkaConnection(HOST, self._ports[broker], timeout_s=RESPONSE_S)
                self._connections[broker] = connection
            state = connection.call_private(DESCRIBE_STATE, self._request)
        except ClientError:
            if connection is not None:
                connection.close()
            return None
        for replica in state["partitions"]:
            return Sample(
                leader=replica["leader"],
                leader_epoch=replica["leader_epoch"],
                partition_epoch=replica["partition_epoch"],
                is_leader=replica["role"] == "leader",
                log_end_offset=replica["log_end_offset"],
                high_watermark=replica["high_watermark"],
                isr=tuple(sorted(replica["isr"])),
                epochs=tuple((epoch, start) for epoch, start in replica["epochs"]),
            )
        return None


def thinned(rounds: list[Round]) -> list[Round]:
    """Return the rounds, with every second round of the older half removed."""
    half = len(rounds) // 2
    return rounds[:half:2] + rounds[half:]
