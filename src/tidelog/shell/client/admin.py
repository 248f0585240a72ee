"""Create, delete and describe single topics; read configs; list and unregister brokers."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from tidelog.core.api_table import (
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_LOSSES,
    DESCRIBE_STATE,
    UNREGISTER_BROKER,
)
from tidelog.core.errors import ErrorCode
from tidelog.core.types import BrokerId
from tidelog.core.wire.codec import Struct
from tidelog.shell.client.administration.topics import (
    CLUSTER_DEFAULT,
    NewTopic,
    Outcome,
    create_topics,
    delete_topics,
)
from tidelog.shell.client.client_errors import (
    BrokerError,
    CannotConnect,
    ClientError,
    NoSuchTopic,
    NotOffered,
    NotReady,
)
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.cluster_metadata import NO_LEADER
from tidelog.shell.client.connection import KafkaConnection
from tidelog.shell.client.retry import Retry

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
MIN_ISR = "min.insync.replicas"


def create_topic(
    cluster: Cluster,
    name: str,
    partitions: int = CLUSTER_DEFAULT,
    replication_factor: int = CLUSTER_DEFAULT,
    configs: Mapping[str, str] | None = None,
    *,
    exist_ok: bool = False,
) -> None:
    """Create a topic and wait until each partition has a leader."""
    topic = NewTopic(name, partitions, replication_factor, (), configs or {})
    [(made, _, _)] = create_topics(cluster, [topic])
    if made.error and not (exist_ok and made.error == ErrorCode.TOPIC_ALREADY_EXISTS):
        raise BrokerError(f"creating topic {name}", made.error, made.message)
    await_leaders(cluster, name)


def await_leaders(cluster: Cluster, name: str) -> None:
    """Wait until each partition of a topic has a leader."""
    retry = Retry(cluster.timeout_s)
    while True:
        topic = cluster.refresh([name]).topics.get(name)
        found = {} if topic is None or topic.error else topic.partitions
        if found and all(each.leader != NO_LEADER for each in found.values()):
            return
        what = f"topic {name} has partitions without a leader"
        retry.wait(NotReady(what, ErrorCode.LEADER_NOT_AVAILABLE))


def delete_topic(cluster: Cluster, name: str, *, missing_ok: bool = False) -> None:
    """Delete a topic and wait until it is no longer listed."""
    [deleted] = delete_topics(cluster, [name])
    if deleted.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        if not missing_ok:
            raise NoSuchTopic(f"topic {name!r}", name)
    elif deleted.error:
        raise BrokerError(f"deleting topic {name}", deleted.error, deleted.message)
    await_deleted(cluster, name)


def await_deleted(cluster: Cluster, name: str) -> None:
    """Wait until a deleted topic is no longer listed."""
    retry = Retry(cluster.timeout_s)
    while True:
        topic = cluster.refresh([name]).topics.get(name)
        if topic is None or topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return
        what = f"topic {name} is deleted, but brokers still list it"
        retry.wait(NotReady(what, ErrorCode.REQUEST_TIMED_OUT))


def topic_configs(
    cluster: Cluster, topics: Sequence[str], keys: Sequence[str] | None = None
) -> dict[str, dict[str, str | None]]:
    """Return the effective configs by topic; missing topics are left out."""
    if not topics:
        return {}
    return cluster.ask_any(lambda one: _describe_configs(one, TOPIC_RESOURCE, topics, keys))


def broker_configs(
    cluster: Cluster, broker_id: int, keys: Sequence[str] | None = None
) -> dict[str, str | None]:
    """Return the effective configs of a broker, as that broker reports them."""
    broker = cluster.broker(broker_id)
    name = str(broker_id)
    return _describe_configs(broker, BROKER_RESOURCE, [name], keys).get(name, {})


def _describe_configs(
    broker: KafkaConnection, kind: int, names: Sequence[str], keys: Sequence[str] | None
) -> dict[str, dict[str, str | None]]:
    wanted = None if keys is None else list(keys)
    resources = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": wanted}
        for name in names
    ]
    answer = broker.call(DESCRIBE_CONFIGS, {"resources": resources})
    found: dict[str, dict[str, str | None]] = {}
    for result in answer["results"]:
        if not result["error_code"]:
            found[result["resource_name"]] = _values(result)
        elif result["error_code"] != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            what = f"request for the configs of {result['resource_name']}"
            raise BrokerError(what, result["error_code"], result.get("error_message"))
    return found


def _values(result: Struct) -> dict[str, str | None]:
    return {config["name"]: config["value"] for config in result["configs"]}


def describe_state(
    cluster: Cluster, broker_id: int, topic: str | None = None, partition: int | None = None
) -> dict[str, Any] | None:
    """Return the state of a Tidelog broker and its replicas (private API 32000).

    None: the broker is not a Tidelog broker. Raises CannotConnect.
    """
    return describe_state_at(lambda: cluster.broker(broker_id), topic, partition)


def describe_state_at(
    connect: Callable[[], KafkaConnection], topic: str | None = None, partition: int | None = None
) -> dict[str, Any] | None:
    """Return what `describe_state` does, from the broker of a connection.

    `connect` returns a connection to the broker: a new one if the last one is closed.
    """
    query: dict[str, Any] = {}
    if topic is not None:
        query["topic"] = topic
    if partition is not None:
        query["partition"] = partition
    # A broker that has restarted has closed the connection; so the request is sent again. Kafka
    # closes each connection with this request, and accepts another one, unlike a dead broker.
    for _ in range(2):
        with suppress(NotOffered):
            return connect().call_private(DESCRIBE_STATE, query)
    connection = connect()
    if not connection.versions:
        raise CannotConnect(connection.address, "the broker offers no APIs", True)
    return None


def describe_losses(
    cluster: Cluster, broker_id: int, topic: str | None = None, since_ms: int = 0
) -> list[dict[str, Any]]:
    """Return the entries of a Tidelog broker's loss ledger (private API 32004). Raises ClientError,
    also for a broker that has no ledger: Kafka, or an older release."""
    found: list[dict[str, Any]] = []
    query: dict[str, Any] = {"topic": topic, "since_ms": since_ms}
    while True:
        connection = cluster.broker(broker_id)
        page = connection.call_private(DESCRIBE_LOSSES, query)
        if "error" in page:
            raise ClientError(f"{connection.address}: {page['error']}")
        found += page["losses"]
        if page["next"] is None:
            return found
        query["next"] = page["next"]


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
