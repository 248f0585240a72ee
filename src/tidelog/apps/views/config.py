"""Views of configs: values, their sources, and the values they override."""

from collections.abc import Sequence
from typing import Any

from tidelog.shell.client.administration.configs import ConfigEntry, Resource, describe_configs
from tidelog.shell.client.cluster import Cluster


def view_configs(
    cluster: Cluster, resource: Resource, *, documentation: bool = False
) -> list[ConfigEntry]:
    """Return all configs of a topic, of a broker, or of all brokers. Raises ClientError."""
    return describe_configs(cluster, [resource], documentation=documentation)[resource]


def configs_as_data(entries: Sequence[ConfigEntry]) -> list[dict[str, Any]]:
    """Convert configs to what JSON can hold."""
    return [
        {**each._asdict(), "synonyms": [synonym._asdict() for synonym in each.synonyms]}
        for each in entries
    ]
