"""Views of brokers: address, registration, replicas, log size.

Leaders and replicas are counted in one Metadata response, so the counts fit together. Log size and
broker epoch come from each broker itself, a moment later.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from tidelog.core.types import BrokerId, TopicPartition
from tidelog.shell.client import admin
from tidelog.shell.client.admin import RegisteredBroker, registered_brokers
from tidelog.shell.client.administration.log_dirs import describe_log_dirs
from tidelog.shell.client.client_errors import CannotConnect, ClientError, NoAnswer
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.cluster_metadata import ClusterMetadata, PartitionMetadata

NOT_IN_CLUSTER = "not in the cluster: stopped, dead or fenced"

State = Mapping[str, Any]
"""A Tidelog broker's response to DescribeState (API 32000)."""


class BrokerView(NamedTuple):
    """One broker; None means unknown."""

    id: BrokerId
    host: str | None
    port: int | None
    rack: str | None
    controller: bool
    registered: bool
    """False if it was unregistered and still has replicas."""
    fenced: bool
    """True if it is down, starting, or not registered, so that it leads nothing."""
    unreachable: str | None
    """Why it did not respond."""
    leads: int
    follows: int
    in_sync: int
    """How many of its replicas are in the ISR."""
    broker_epoch: int | None
    acting: bool | None
    """False if it lost its session."""
    log_bytes: int | None
    detached: bool = False
    """Whether it lost its session because the metadata store does not respond, and still serves
    the partitions whose followers fetch."""


class BrokerStates(NamedTuple):
    """The state that brokers report about themselves. A Kafka broker is in neither dict."""

    states: dict[BrokerId, State]
    unreachable: dict[BrokerId, str]
    """Why a broker did not respond."""


def view_brokers(cluster: Cluster) -> tuple[list[BrokerView], bool]:
    """Return every broker that is registered, alive or has replicas, and whether it is a Tidelog
    cluster."""
    metadata = cluster.refresh()
    registered = registered_brokers(cluster)
    answers = fetch_states(cluster, broker_ids(metadata, registered))
    brokers = [
        view
        if view.id in answers.states or view.id not in metadata.brokers
        else view._replace(log_bytes=_log_bytes(cluster, view.id))
        for view in brokers_from_states(metadata, registered, answers)
    ]
    return brokers, bool(answers.states)


def broker_ids(
    metadata: ClusterMetadata, registered: Mapping[BrokerId, RegisteredBroker]
) -> list[BrokerId]:
    """Return the brokers that are alive, registered, or have replicas."""
    replicas = {broker for each in all_partitions(metadata) for broker in each.replicas}
    return sorted({*metadata.brokers, *registered, *replicas})


def brokers_from_states(
    metadata: ClusterMetadata,
    registered: Mapping[BrokerId, RegisteredBroker],
    answers: BrokerStates,
) -> list[BrokerView]:
    """Return the views of all brokers from states that were fetched before."""
    partitions = list(all_partitions(metadata))
    leads = Counter(each.leader for each in partitions)
    replicas = Counter(broker for each in partitions for broker in each.replicas)
    in_sync = Counter(broker for each in partitions for broker in each.isr)
    brokers = []
    for broker in sorted({*metadata.brokers, *registered, *replicas}):
        live = metadata.brokers.get(broker)
        known = registered.get(broker)
        address = live or known
        state = answers.states.get(broker)
        brokers.append(
            BrokerView(
                id=broker,
                host=None if address is None else address.host,
                port=None if address is None else address.port,
                rack=None if address is None else address.rack,
                controller=broker == metadata.controller_id,
                registered=known is not None,
                # Metadata may name a broker for a moment after it left.
                fenced=known is None or known.fenced,
                unreachable=answers.unreachable.get(broker),
                leads=leads[broker],
                follows=replicas[broker] - leads[broker],
                in_sync=in_sync[broker],
                broker_epoch=None if state is None else state["broker_epoch"],
                acting=None if state is None else state["acting"],
                log_bytes=None if state is None or not live else _sizes(state),
                detached=state is not None and is_detached(state),
            )
        )
    return brokers


def is_detached(state: State) -> bool:
    """Whether a broker serves without the metadata store; earlier versions do not say it."""
    return bool(state.get("detached"))


def all_partitions(metadata: ClusterMetadata) -> Iterator[PartitionMetadata]:
    """Yield the partitions of all topics."""
    for topic in metadata.topics.values():
        yield from topic.partitions.values()


def fetch_states(
    cluster: Cluster,
    brokers: Iterable[BrokerId],
    topic: str | None = None,
    partition: int | None = None,
) -> BrokerStates:
    """Fetch the state of each broker: for all partitions, for those of a topic, or for one."""
    found = BrokerStates({}, {})
    for broker in brokers:
        if broker not in cluster.metadata.brokers:
            found.unreachable[broker] = NOT_IN_CLUSTER
            continue
        try:
            state = admin.describe_state(cluster, broker, topic, partition)
        except CannotConnect as error:
            found.unreachable[broker] = error.why
        except NoAnswer as error:
            found.unreachable[broker] = f"no response within {error.timeout_s:g} s"
        except ClientError as error:
            found.unreachable[broker] = str(error)
        else:
            if state is not None:
                found.states[broker] = state
    return found


def _sizes(state: State) -> int:
    return sum(int(each["size"] or 0) for each in state["partitions"])


def _log_bytes(cluster: Cluster, broker: BrokerId) -> int | None:
    try:
        return sum(size for size, _ in log_sizes(cluster, broker))
    except ClientError:
        return None


def log_sizes(
    cluster: Cluster, broker: BrokerId, keys: Iterable[TopicPartition] | None = None
) -> list[tuple[int, int]]:
    """Return (bytes, offset lag) of some or all replicas of a broker. Raises ClientError."""
    return [
        (each.size, each.offset_lag)
        for directory in describe_log_dirs(cluster, broker, keys)
        for each in directory.replicas
        if not each.is_copy
    ]
