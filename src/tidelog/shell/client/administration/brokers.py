"""List registered brokers, including those that are down, and unregister a broker."""

from typing import NamedTuple

from tidelog.core.api_table import DESCRIBE_CLUSTER, UNREGISTER_BROKER
from tidelog.core.errors import ErrorCode
from tidelog.core.types import BrokerId
from tidelog.shell.client.administration.topics import Outcome
from tidelog.shell.client.client_errors import BrokerError, ClientError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.connection import KafkaConnection


class RegisteredBroker(NamedTuple):
    """One broker; a fenced broker is down or just starting, and leads no partition."""

    id: BrokerId
    host: str
    port: int
    rack: str | None
    fenced: bool


def registered_brokers(cluster: Cluster) -> dict[BrokerId, RegisteredBroker]:
    """Return all registered brokers.

    Brokers without DescribeCluster 2 (Kafka before 4.0) list only those that are not fenced.
    """
    request = {"include_fenced_brokers": True}
    try:
        answer = cluster.ask_any(lambda broker: broker.call(DESCRIBE_CLUSTER, request))
    except ClientError:
        known = cluster.metadata.brokers.values()
        return {each.id: RegisteredBroker(*each, fenced=False) for each in known}
    return {
        each["broker_id"]: RegisteredBroker(
            each["broker_id"],
            each["host"],
            each["port"],
            each["rack"],
            bool(each.get("is_fenced")),
        )
        for each in answer["brokers"]
    }


def unregister_broker(cluster: Cluster, broker: BrokerId) -> Outcome:
    """Remove a broker's registration."""

    def ask(controller: KafkaConnection) -> Outcome:
        answer = controller.call(UNREGISTER_BROKER, {"broker_id": broker})
        if answer["error_code"] == ErrorCode.NOT_CONTROLLER:
            raise BrokerError(f"unregistering broker {broker}", ErrorCode.NOT_CONTROLLER)
        return Outcome(str(broker), answer["error_code"], answer["error_message"])

    return cluster.ask_controller(ask)
