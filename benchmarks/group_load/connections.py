"""Two thousand idle connections to one broker, and then new clients of this broker."""

import time

from group_load.figures import Figures, percentile
from group_load.targets import TOPIC, Stopwatch, Target, allow_open_files
from processes import cpu_s, rss_mb

from tidelog.core.api_table import METADATA
from tidelog.core.types import BrokerId
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.connection import KafkaConnection

CONNECTIONS = 2000
SPARE_FILES = 500
IDLE_S = 3.0
NEW_CLIENTS = 50


def idle_connections(target: Target, figures: Figures) -> None:
    """Open the connections; each sends ApiVersions once, as every client does."""
    count = min(CONNECTIONS, allow_open_files(CONNECTIONS + SPARE_FILES) - SPARE_FILES)
    with Cluster(target.bootstrap) as client:
        broker = min(client.metadata.brokers)
        pid = target.pid(broker)
        before_mb = rss_mb(pid)
        idle = []
        try:
            watch = Stopwatch(target)
            for _ in range(count):
                connection = client.own_connection(BrokerId(broker))
                idle.append(connection)
                connection.versions  # noqa: B018 - sends ApiVersions
            watch.stop()
            job = f"{count:,} connections to one broker: made"
            figures.note(job, target, count / watch.seconds, "/s", watch)
            grown_kb = (rss_mb(pid) - before_mb) * 1e3 / count
            figures.note("... memory for each", target, grown_kb, "KB")
            burned = cpu_s(pid)
            time.sleep(IDLE_S)
            burned = (cpu_s(pid) - burned) / IDLE_S
            figures.note("... idle: CPU of that broker", target, burned * 100, "% of a core")
            found = client.metadata.brokers[broker]
            _new_clients(target, figures, found.host, found.port)
        finally:
            for connection in idle:
                connection.close()


def _new_clients(target: Target, figures: Figures, host: str, port: int) -> None:
    took = []
    watch = Stopwatch(target)
    for _ in range(NEW_CLIENTS):
        began = time.perf_counter()
        with KafkaConnection(host, port) as connection:
            connection.call(METADATA, {"topics": [{"name": TOPIC}]})
        took.append(time.perf_counter() - began)
    watch.stop()
    job = "... a new client connects and asks for metadata, p50"
    figures.note(job, target, percentile(took, 50) * 1e3, "ms", watch)
