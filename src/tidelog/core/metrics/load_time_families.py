"""Metrics of how long a coordinator loads its partitions, the same for each kind of coordinator."""

from collections.abc import Callable

from tidelog.core.metrics.exposition import GAUGE, Family
from tidelog.core.metrics.scrape import Scrape


def load_time_families(kind: str, topic: str) -> tuple[Family, Family]:
    """Return Kafka's two gauges of a coordinator: the maximum and the average in milliseconds."""

    def gauge(name: str, what: str, value: Callable[[list[int]], float]) -> Family:
        def read(scrape: Scrape) -> float:
            runtime = scrape.node.coordinators.running(topic)
            found = [] if runtime is None else runtime.load_times.recent(scrape.now_ms)
            return value(found) if found else 0

        return Family(
            f"kafka_server_{kind}_coordinator_metrics_partition_load_time_{name}",
            GAUGE,
            (),
            f"The {what} time in milliseconds to load a partition of `{topic}`, of those loaded"
            " within the last minute.",
            lambda scrape: [("", "", read(scrape))],
        )

    return (
        gauge("max", "longest", max),
        gauge("avg", "average", lambda found: sum(found) / len(found)),
    )
