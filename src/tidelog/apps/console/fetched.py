"""The parts of pages that are not in a sample: configs, groups, transactions, and partitions of a
Kafka cluster.

Each function sends requests over a pooled connection. Configs are kept for a few seconds.
"""

import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from tidelog.apps.console.cluster_pool import ClusterPool
from tidelog.apps.console.failure import NOT_FOUND, Failure, of_client
from tidelog.apps.console.sample import Sample
from tidelog.apps.console.transactions import transaction_now, transactions_now
from tidelog.apps.views.group import view_group
from tidelog.apps.views.group_sample import EndOf, sample_groups
from tidelog.apps.views.partition import view_partitions, with_kafka_details
from tidelog.core.types import BrokerId, TopicPartition
from tidelog.shell.client.admin import BROKER_RESOURCE, TOPIC_RESOURCE
from tidelog.shell.client.administration.configs import Resource, describe_configs
from tidelog.shell.client.client_errors import ClientError, NoSuchPartition, NoSuchTopic
from tidelog.shell.client.groups.group_admin import NoSuchGroup

Json = dict[str, Any]
CONFIGS_S = 5.0
FIRST_S = 1.0
"""How long a page waits for configs that were not fetched before."""
CONFIGS_MAX = 100
"""The number of resources whose configs are kept."""


class Fetched:
    """Sends the requests, and keeps configs."""

    def __init__(self, pool: ClusterPool) -> None:
        self._pool = pool
        self._lock = threading.Lock()
        self._configs: dict[Resource, tuple[float, list[Json]]] = {}
        self._fetching: set[Resource] = set()
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="console-configs")

    def topic_configs(self, topic: str) -> list[Json]:
        """Return a topic's configs; empty if the cluster does not return them."""
        return self._configs_of(Resource(TOPIC_RESOURCE, topic))

    def broker_configs(self, broker: BrokerId) -> list[Json]:
        """Return a broker's configs; empty if it does not respond."""
        return self._configs_of(Resource(BROKER_RESOURCE, str(broker)))

    def _configs_of(self, resource: Resource) -> list[Json]:
        """Return the kept configs. If they are old, fetch them again in a thread: the collector,
        which renders pages, must not wait for a broker that hangs."""
        with self._lock:
            kept = self._configs.get(resource)
            started = None
            if resource not in self._fetching and (
                kept is None or time.monotonic() - kept[0] > CONFIGS_S
            ):
                self._fetching.add(resource)
                started = self._threads.submit(self._fetch_configs, resource)
        if kept is None and started is not None:
            wait([started], FIRST_S)
        with self._lock:
            return self._configs.get(resource, (0.0, []))[1]

    def _fetch_configs(self, resource: Resource) -> None:
        try:
            with self._pool.borrow() as cluster:
                entries = describe_configs(cluster, [resource]).get(resource, [])
        except (ClientError, Failure):
            found = None
        else:
            found = [
                {
                    "name": each.name,
                    "value": None if each.sensitive else each.value,
                    "source": each.source,
                    "is_default": each.is_default,
                }
                for each in entries
            ]
        with self._lock:
            if found is None:
                found = self._configs.get(resource, (0.0, []))[1]
            if len(self._configs) >= CONFIGS_MAX:
                self._configs.clear()
            self._configs[resource] = (time.monotonic(), found)
            self._fetching.discard(resource)

    def groups(self, end_of: EndOf | None) -> Json:
        """List the consumer groups; without `end_of`, the cluster is asked for log ends."""
        with self._pool.borrow() as cluster:
            found, failed = sample_groups(cluster, with_log_ends=end_of is None)
        return {
            "at_ms": _now_ms(),
            "groups": [each.row(end_of or (lambda _: None)) for each in found],
            "failed": [str(error) for error in failed],
        }

    def group(self, name: str) -> Json:
        """Describe one group, with the lag of each partition. Raises Failure."""
        with self._pool.borrow() as cluster:
            try:
                view = view_group(cluster, name)
            except NoSuchGroup as error:
                raise Failure(NOT_FOUND, str(error), "the list of groups has all groups") from error
        return {"at_ms": _now_ms(), **view.as_data()}

    def transactions(self, sample: Sample) -> Json:
        """List the transactional ids, and where open transactions hold back consumers."""
        return transactions_now(self._pool, sample)

    def transaction(self, sample: Sample, name: str) -> Json:
        """Describe one transactional id. Raises Failure."""
        return transaction_now(self._pool, sample, name)

    def kafka_partition(self, key: TopicPartition) -> Json:
        """Return what Kafka's protocol reports about a partition. Raises Failure."""
        with self._pool.borrow() as cluster:
            try:
                found = view_partitions(cluster, *key)
                view = with_kafka_details(cluster, found.partitions[0])
            except (NoSuchTopic, NoSuchPartition) as error:
                raise of_client(error, NOT_FOUND) from error
        return {
            "at_ms": _now_ms(),
            "partition": view.as_data(),
            "missing": found.missing,
            "followers": [],
            "pending_isr": None,
        }


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
