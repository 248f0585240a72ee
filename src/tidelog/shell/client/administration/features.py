"""Read and change the feature levels of a cluster."""

from collections.abc import Mapping
from typing import NamedTuple

from tidelog.core.api_table import API_VERSIONS, UPDATE_FEATURES
from tidelog.core.errors import ErrorCode
from tidelog.shell.client.administration.topics import Outcome
from tidelog.shell.client.client_errors import BrokerError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.connection import KafkaConnection

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
"""Kafka's codes for the direction of a change."""
_SOFTWARE = {"client_software_name": "tidelog", "client_software_version": "1"}


class FeatureView(NamedTuple):
    """One feature: the levels that the connected broker supports, and the cluster's level."""

    name: str
    lowest: int
    highest: int
    level: int


class FeatureLevels(NamedTuple):
    """All features, by name, and the epoch of the last change; -1 if there is none."""

    features: list[FeatureView]
    epoch: int


def describe_features(cluster: Cluster) -> FeatureLevels:
    """Return the features as one broker of the cluster knows them."""
    answer = cluster.ask_any(lambda broker: broker.call(API_VERSIONS, dict(_SOFTWARE)))
    levels = {each["name"]: each["max_version_level"] for each in answer["finalized_features"]}
    features = [
        FeatureView(
            each["name"], each["min_version"], each["max_version"], levels.get(each["name"], 0)
        )
        for each in sorted(answer["supported_features"], key=lambda each: str(each["name"]))
    ]
    return FeatureLevels(features, answer["finalized_features_epoch"])


def update_features(
    cluster: Cluster, levels: Mapping[str, int], direction: int, *, validate_only: bool = False
) -> Outcome:
    """Change all these levels, or none."""
    updates = [
        {
            "feature": name,
            "max_version_level": level,
            "allow_downgrade": direction != UPGRADE,
            "upgrade_type": direction,
        }
        for name, level in levels.items()
    ]
    request = {"feature_updates": updates, "validate_only": validate_only}

    def ask(controller: KafkaConnection) -> Outcome:
        answer = controller.call(UPDATE_FEATURES, request)
        if answer["error_code"] == ErrorCode.NOT_CONTROLLER:
            raise BrokerError("updating features", ErrorCode.NOT_CONTROLLER)
        return Outcome(", ".join(levels), answer["error_code"], answer["error_message"])

    return cluster.ask_controller(ask)
