"""Leader elections on request: of preferred replicas, or of replicas that are not in sync.

A refusal of one partition is in its `Outcome`; an exception concerns the whole request.
"""

from collections.abc import Iterable

from tidelog.core.api_table import ELECT_LEADERS
from tidelog.core.types import TopicPartition
from tidelog.core.wire.codec import Struct
from tidelog.shell.client.administration.topics import Outcome
from tidelog.shell.client.client_errors import BrokerError, ClientError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.connection import KafkaConnection

_PREFERRED, _UNCLEAN = 0, 1
_TYPE_FROM = 1
"""The first version of ElectLeaders with a type (KIP-460); before, all are preferred."""


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
                f"{controller.address} has no unclean elections on request (Kafka has them from"
                " 2.4 on)"
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
