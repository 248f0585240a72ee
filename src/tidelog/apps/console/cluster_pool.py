"""Connections for single requests of pages (records, configs, groups, actions).

Apart from the collector's, so that a slow request does not stop live updates.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tidelog.apps.console.failure import Failure
from tidelog.apps.console.target import Target
from tidelog.shell.client.client_errors import ClientError
from tidelog.shell.client.cluster import Cluster

TIMEOUT_S = 5.0
SPARE_MAX = 2


class ClusterPool:
    """Lends `Cluster` objects, each to one thread at a time."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._spare: list[tuple[str, Cluster]] = []
        self._lock = threading.Lock()

    @contextmanager
    def borrow(self) -> Iterator[Cluster]:
        """Lend a cluster. Raises Failure, ClientError."""
        bootstrap = self._target.bootstrap()
        with self._lock:
            cluster = next((one for at, one in self._spare if at == bootstrap), None)
            self._spare = [pair for pair in self._spare if pair[1] is not cluster]
        if cluster is None:
            cluster = Cluster(
                bootstrap, "tidelog-console", TIMEOUT_S, security=self._target.security()
            )
        cluster.close_ended()
        kept = False
        try:
            yield cluster
            kept = True
        except Failure:
            kept = True
            raise
        finally:
            with self._lock:
                if kept and len(self._spare) < SPARE_MAX:
                    self._spare.append((bootstrap, cluster))
                else:
                    kept = False
            if not kept:
                with suppress(ClientError, OSError):
                    cluster.close()

    def close(self) -> None:
        """Close the spare connections."""
        with self._lock:
            spare, self._spare = self._spare, []
        for _, cluster in spare:
            cluster.close()
