"""The metrics page of a broker of a cluster without sockets, read by Prometheus' own parser."""

from node_cluster import Cluster
from prometheus_client.parser import text_string_to_metric_families

from tidelog.core.metrics.exposition import slices
from tidelog.core.metrics.families import FAMILIES
from tidelog.core.metrics.scrape import HostMetrics, Scrape
from tidelog.core.node.measuring.request_times import RequestTimes, TurnTimes

AROUND = HostMetrics({"process_open_fds": 12}, {"PLAINTEXT": 3}, {"idle": 1}, {"broker": "1"})


class Scraped:
    """The metrics of a broker, by name and labels."""

    def __init__(self, cluster: Cluster, broker: int) -> None:
        def no_time() -> int:
            return 0

        times = RequestTimes(no_time, TurnTimes(no_time))
        scrape = Scrape(cluster.nodes[broker], times, AROUND, cluster.now_ms)
        self.slices = list(slices(FAMILIES, scrape))
        self.text = "".join(self.slices)
        self.families = list(text_string_to_metric_families(self.text))

    def __call__(self, name: str, **labels: str) -> float:
        (value,) = [
            sample.value
            for family in self.families
            for sample in family.samples
            if sample.name == name and sample.labels == labels
        ]
        return float(value)

    def has(self, name: str) -> bool:
        return any(s.name == name for family in self.families for s in family.samples)
