"""All metrics of a broker, in the sections of the reference page.

The page and the response to a scrape are both generated from this table.
"""

from tidelog.core.metrics.broker_families import (
    BROKER,
    CONNECTIONS,
    CONTROLLER,
    DAMAGE,
    PROCESS,
    REPLICAS,
    REQUESTS,
    TOPICS,
)
from tidelog.core.metrics.exposition import Family
from tidelog.core.metrics.group_families import GROUPS
from tidelog.core.metrics.partition_families import EXPORTER, LEADERS, LOGS
from tidelog.core.metrics.quota_families import QUOTAS
from tidelog.core.metrics.transaction_families import TRANSACTIONS

SECTIONS: dict[str, tuple[Family, ...]] = {
    "The broker": BROKER,
    "Its replicas": REPLICAS,
    "Damage and the scrubber": DAMAGE,
    "The controller": CONTROLLER,
    "Topics": TOPICS,
    "Requests": REQUESTS,
    "Connections": CONNECTIONS,
    "Clients with quotas": QUOTAS,
    "Each replica": LOGS,
    "Each partition, by its leader": LEADERS,
    "Under kafka_exporter's names": EXPORTER,
    "Consumer groups": GROUPS,
    "Transactions": TRANSACTIONS,
    "The process": PROCESS,
}

FAMILIES = tuple(family for families in SECTIONS.values() for family in families)
