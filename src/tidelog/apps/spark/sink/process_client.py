"""What a Python process keeps between tasks: the connections, and what it read of the ledger.

Spark's workers live on from task to task, so a micro-batch does not begin with greetings.
Always true: after an error the process begins anew, so no answer of a request that was given up
is ever taken for another one's.
"""

import gc
import time

from tidelog.apps.spark.sink.replays.ledger import Ledger
from tidelog.apps.spark.sink.write_options import WriteOptions
from tidelog.apps.spark.source.options.client_settings import ClientSettings
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.connection import KafkaConnection

METADATA_AGE_S = 60.0


class ProcessClient:
    """A client of one cluster."""

    def __init__(self, options: WriteOptions) -> None:
        self.cluster: Cluster = options.client.cluster()
        self.ledger = Ledger(self.cluster, options.ledger_topic)
        self.connections: dict[str, KafkaConnection] = {}
        """Those on which batches go to leaders, by address."""
        self._fresh_until = 0.0
        self._settled = False

    def close(self) -> None:
        for connection in self.connections.values():
            connection.close()
        self.cluster.close()

    def settle(self) -> None:
        """After a task. What the first one has imported is never garbage: the collector that
        Spark calls after each need not look at it."""
        if not self._settled:
            self._settled = True
            gc.collect()
            gc.freeze()

    def refresh(self, topic: str | None, *, now: bool = False) -> None:
        """Learn of new partitions now and then, as any producer does; `now`: in any case."""
        if not now and time.monotonic() < self._fresh_until:
            return
        wanted = set(self.cluster.metadata.topics) if self._fresh_until else {self.ledger.topic}
        self.cluster.refresh(sorted(wanted | ({topic} if topic else set())))
        self._fresh_until = time.monotonic() + METADATA_AGE_S


_clients: dict[tuple[ClientSettings, str], ProcessClient] = {}


def process_client(options: WriteOptions) -> ProcessClient:
    """The client of this process for such options."""
    key = options.client, options.ledger_topic
    found = _clients.get(key)
    if found is None:
        found = _clients[key] = ProcessClient(options)
    return found


def forget_clients() -> None:
    """Close all; the next task begins anew."""
    for client in _clients.values():
        client.close()
    _clients.clear()
