"""Names and labels follow the rules of `promtool check metrics`, but for those that dashboards
for Kafka query. The rules are those of Prometheus 2.42; by hand:
`curl -s localhost:9644/metrics | promtool check metrics`.
"""

import re
from collections.abc import Iterator

import pytest

from tidelog.core.metrics.exposition import COUNTER, GAUGE, HISTOGRAM, SUMMARY, Family
from tidelog.core.metrics.families import FAMILIES

CAMEL_CASE = re.compile(r"[a-z][A-Z]")
KINDS = {GAUGE, COUNTER, HISTOGRAM, SUMMARY}
ABBREVIATED_UNITS = {"s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d"}
OTHER_UNITS = {"milliseconds", "microseconds", "nanoseconds", "minutes", "hours", "days", "bits"}

DASHBOARDS = {
    ("kafka_server_replicafetchermanager_maxlag", "label clientId is camelCase"): (
        "the MBean's key, as jmx_exporter's rules for Kafka give it; panels select"
        ' clientId="Replica"'
    ),
    ("kafka_server_fetcherlagmetrics_consumerlag", "label clientId is camelCase"): (
        "the MBean's key, as jmx_exporter's rules for Kafka give it"
    ),
    (
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        "label delayedOperation is camelCase",
    ): 'the MBean\'s key; panels select delayedOperation="Produce" and "Fetch"',
    ("kafka_server_socket_server_metrics_connection_count", "_count is a summary's"): (
        "Kafka's connection-count; in Strimzi's dashboards"
    ),
}
"""What breaks a rule, and which dashboards need it."""


def complaints(family: Family) -> Iterator[str]:
    """Return what `promtool check metrics` would report."""
    name, kind = family.name, family.kind
    words = name.split("_")
    if not family.meaning:
        yield "no help"
    if (kind == COUNTER) != name.endswith("_total"):
        yield "_total is a counter's"
    if kind != HISTOGRAM and name.endswith("_bucket"):
        yield "_bucket is a histogram's"
    for suffix in ("_count", "_sum"):
        if kind not in (HISTOGRAM, SUMMARY) and name.endswith(suffix):
            yield f"{suffix} is a summary's"
    if ("le" in family.labels and kind != HISTOGRAM) or (
        "quantile" in family.labels and kind != SUMMARY
    ):
        yield "a label of another kind"
    if KINDS & set(words):
        yield "its kind in its name"
    if ":" in name or CAMEL_CASE.search(name):
        yield "not snake_case"
    for label in family.labels:
        if CAMEL_CASE.search(label):
            yield f"label {label} is camelCase"
    if (ABBREVIATED_UNITS | OTHER_UNITS) & set(words):
        yield "not a base unit, or abbreviated"


def test_names_follow_prometheus_rules() -> None:
    found = {(family.name, what) for family in FAMILIES for what in complaints(family)}
    assert found == set(DASHBOARDS)


@pytest.mark.parametrize(
    ("name", "kind", "labels"),
    [
        ("tidelog_things", COUNTER, ()),
        ("tidelog_things_total", GAUGE, ()),
        ("tidelog_thing_count", GAUGE, ()),
        ("tidelog_thing_ms", GAUGE, ()),
        ("tidelog_gauge_of_things", GAUGE, ()),
        ("tidelog_theThings", GAUGE, ()),
        ("tidelog_things", GAUGE, ("clientId",)),
        ("tidelog_things", GAUGE, ("quantile",)),
    ],
)
def test_invalid_names_are_found(name: str, kind: str, labels: tuple[str, ...]) -> None:
    assert list(complaints(Family(name, kind, labels, "Things.", lambda _scrape: ())))
