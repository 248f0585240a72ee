"""Change the replicas and leaders of partitions: reassign replicas, and elect leaders.

Invariant: the error of one partition is in its `Outcome`; an exception concerns the whole request.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tidelog.core.api_table import (
    ALTER_PARTITION_REASSIGNMENTS,
    ELECT_LEADERS,
    LIST_PARTITION_REASSIGNMENTS,
)
from tidelog.core.types import BrokerId, TopicPartition
from tidelog.core.wire.codec import Struct
from tidelog.shell.client.administration.topics import Outcome
from tidelog.shell.client.client_errors import BrokerError, ClientError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.connection import KafkaConnection

_PREFERRED, _UNCLEAN = 0, 1
_TYPE_FROM = 1
"""The first version of ElectLeaders with a type (KIP-460); before, all are preferred."""


class Reassignment(NamedTuple):
    """An ongoing reassignment of a partition."""

    replicas: list[BrokerId]
    """All current replicas, including those being added and those being removed."""
    adding: list[BrokerId]
    removing: list[BrokerId]

    @property
    def origin(self) -> list[BrokerId]:
        """The replicas before the reassignment."""
        return [broker for broker in self.replicas if broker not in self.adding]

    @property
    def target(self) -> list[BrokerId]:
        """The replicas after the reassignment."""
        return [broker for broker in self.replicas if broker not in self.removing]


def alter_reassignments(
    cluster: Cluster,
    targets: Mapping[TopicPartition, Sequence[BrokerId] | None],
    *,
    keep_factor: bool = False,
) -> dict[TopicPartition, Outcome]:
    """Start to reassign partitions to `targets`; None cancels an ongoing reassignment.

    With `keep_factor` the controller rejects a change of the replica count (KIP-860); brokers
    that are too old for it do not check.
    """
    topics: dict[str, list[Struct]] = {}
    for key, replicas in targets.items():
        wanted = {
            "partition_index": key.partition,
            "replicas": None if replicas is None else list(replicas),
        }
        topics.setdefault(key.topic, []).append(wanted)
    request = {
        "timeout_ms": int(cluster.timeout_s * 1000),
        "allow_replication_factor_change": not keep_factor,
        "topics": [{"name": name, "partitions": listed} for name, listed in topics.items()],
    }

    def ask(controller: KafkaConnection) -> Struct:
        return _checked(controller.call(ALTER_PARTITION_REASSIGNMENTS, request))

    found = {}
    for topic in cluster.ask_controller(ask)["responses"]:
        for each in topic["partitions"]:
            key = TopicPartition(topic["name"], each["partition_index"])
            found[key] = Outcome(str(key), each["error_code"], each.get("error_message"))
    return found


def list_reassignments(
    cluster: Cluster, wanted: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, Reassignment]:
    """Return the ongoing reassignments of the `wanted` partitions, or (None) of all."""
    topics: dict[str, list[int]] = {}
    for key in wanted or ():
        topics.setdefault(key.topic, []).append(key.partition)
    asked = [{"name": name, "partition_indexes": listed} for name, listed in topics.items()]
    request = {
        "timeout_ms": int(cluster.timeout_s * 1000),
        "topics": None if wanted is None else asked,
    }
    answer = cluster.ask_controller(
        lambda controller: _checked(controller.call(LIST_PARTITION_REASSIGNMENTS, request))
    )
    return {
        TopicPartition(topic["name"], each["partition_index"]): Reassignment(
            list(each["replicas"]), list(each["adding_replicas"]), list(each["removing_replicas"])
        )
        for topic in answer["topics"]
        for each in topic["partitions"]
    }


def _checked(answer: Struct) -> Struct:
    if answer["error_code"]:
        raise BrokerError("reassigning replicas", answer["error_code"], answer.get("error_message"))
    return answer


def elect_leaders(
    cluster: Cluster, wanted: Iterable[TopicPartition] | None, *, unclean: bool
) -> dict[TopicPartition, Outcome]:
    """Elect leaders for `wanted`; with None for all partitions that need an election."""
    topics: dict[str, list[int]] = {}
    for key in wanted or ():
        topics.setdefault(key.topic, []).append(key.partition)
    asked = [{"topic": name, "partitions": listed} for name, listed in topics.items()]
    request = {
        "election_type": _UNCLEAN if unclean else _PREFERRED,
        "topic_partitions": None if wanted is None else asked,
        "timeout_ms": int(cluster.timeout_s * 1000),
    }

    def ask(controller: KafkaConnection) -> Struct:
        if unclean and controller.version(ELECT_LEADERS) < _TYPE_FROM:
            raise ClientError(
                f"can't elect leaders: {controller.address} does not support unclean elections on"
                " request; use Kafka 2.4 or newer"
            )
        answer = controller.call(ELECT_LEADERS, request)
        if answer.get("error_code"):
            raise BrokerError("electing leaders", answer["error_code"])
        return answer

    found = {}
    for topic in cluster.ask_controller(ask)["replica_election_results"]:
        for each in topic["partition_result"]:
            key = TopicPartition(topic["topic"], each["partition_id"])
            found[key] = Outcome(str(key), each["error_code"], each.get("error_message"))
    return found
