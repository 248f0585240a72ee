"""The connections of a process, kept between tasks.

Spark's Python workers serve many tasks, so they keep their connections and the lines of the ledger
that they have read. After an error they close all connections, so that a late response to an
abandoned request is not mistaken for the response to another request.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tidelog.apps.spark.client_options import ClientSettings
from tidelog.apps.spark.sink.ledger import Ledger
from tidelog.apps.spark.sink.write_options import WriteOptions
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.connection import KafkaConnection
from tidelog.shell.client.transactions import TransactionCoordinators

METADATA_AGE_S = 60.0


class ProcessClient:
    """The connections and the ledger of one cluster, kept between tasks."""

    def __init__(self, options: WriteOptions) -> None:
        self.cluster: Cluster = options.client.cluster()
        self.ledger = Ledger(self.cluster, options.ledger_topic)
        self.connections: dict[str, KafkaConnection] = {}
        """The connections on which batches are sent, by address."""
        self.coordinators = TransactionCoordinators(self.cluster, options.delivery_s)
        self.swept: dict[str, float] = {}
        """When abandoned transactions of a query were last aborted."""
        self._fresh_until = 0.0

    def close(self) -> None:
        for connection in self.connections.values():
            connection.close()
        self.cluster.close()

    def refresh(self, topic: str | None, *, now: bool = False) -> None:
        """Refresh the metadata if it is too old or `now` is set, to find new partitions."""
        if not now and time.monotonic() < self._fresh_until:
            return
        wanted = set(self.cluster.metadata.topics) if self._fresh_until else {self.ledger.topic}
        self.cluster.refresh(sorted(wanted | ({topic} if topic else set())))
        self._fresh_until = time.monotonic() + METADATA_AGE_S


_clients: dict[tuple[ClientSettings, str], ProcessClient] = {}


@contextmanager
def process_client(options: WriteOptions) -> Iterator[ProcessClient]:
    """Provide this process's client for these options. After an error, close all clients."""
    key = options.client, options.ledger_topic
    try:
        client = _clients.get(key)
        if client is None:
            client = _clients[key] = ProcessClient(options)
        yield client
    except BaseException:
        close_clients()
        raise


def close_clients() -> None:
    """Close all clients; the next task opens new ones."""
    for client in _clients.values():
        client.close()
    _clients.clear()
