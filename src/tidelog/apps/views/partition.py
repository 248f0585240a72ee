"""Views of partitions: the logs of all replicas, and lost records.

A Tidelog broker reports the whole state of its replicas (API 32000). A Kafka broker reports less,
and `missing` lists the unknown values. Brokers respond one after another while clients write, so a
follower may seem ahead of its leader.

Invariant: every replica of the assignment has a row, whether its broker responded or not.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tidelog.apps.views.broker import NOT_IN_CLUSTER, BrokerStates, State, fetch_states, log_sizes
from tidelog.core.api_table import DESCRIBE_PRODUCERS
from tidelog.core.storage.layout import format_topic_id
from tidelog.core.types import BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from tidelog.core.wire.codec import Struct
from tidelog.shell.client import admin
from tidelog.shell.client.administration.partitions import list_reassignments
from tidelog.shell.client.client_errors import BrokerError, ClientError, NotOffered
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.cluster_metadata import NO_LEADER, BrokerAddress, PartitionMetadata
from tidelog.shell.client.connection import KafkaConnection
from tidelog.shell.client.fetching import READ_COMMITTED
from tidelog.shell.client.offsets import EARLIEST, LATEST, epoch_end, list_offset

EPOCHS_MAX = 20
UNKNOWN_OF_KAFKA = (
    "not a Tidelog cluster: Kafka's protocol does not report log ends, followers' high watermarks,"
    " partition epochs, losses, or why a replica is out of the ISR"
)


class ReplicaView(NamedTuple):
    """One replica; None means unknown."""

    broker: BrokerId
    address: str | None
    role: str
    """`leader`, `follower`, `offline`, or `unknown`."""
    in_isr: bool
    unreachable: str | None = None
    """Why the broker did not respond."""
    log_start_offset: Offset | None = None
    log_end_offset: Offset | None = None
    high_watermark: Offset | None = None
    last_stable_offset: Offset | None = None
    leader_epoch: LeaderEpoch | None = None
    epochs: list[list[int]] | None = None
    """[epoch, start offset], oldest first."""
    lag: int | None = None
    """Records between its log end and the leader's."""
    lag_ms: int | None = None
    """Milliseconds since it last had all the leader's records."""
    out_for_ms: int | None = None
    why_out: str | None = None
    recovery_point: Offset | None = None
    size: int | None = None
    segments: int | None = None
    damage: dict[str, Any] | None = None
    """The first offset that is damaged or missing, and why."""


class PartitionView(NamedTuple):
    """One partition and its replicas."""

    topic: str
    partition: int
    topic_id: str | None
    leader: BrokerId | None
    leader_epoch: LeaderEpoch
    partition_epoch: int | None
    isr: list[BrokerId]
    elr: list[BrokerId] | None
    min_isr: int | None
    replicas: list[ReplicaView]
    unclean_election: dict[str, Any] | None
    losses: list[dict[str, Any]]
    lost: list[BrokerId] | None = None
    """Brokers that started without their folder and have not caught up since."""
    reassignment: dict[str, list[BrokerId]] | None = None
    """`adding` and `removing`, of a reassignment in progress."""
    unstable: dict[str, Any] | None = None
    """The transaction at which read-committed consumers stop, as the leader knows it: `offset` of
    its first record, `producer_id` and `producer_epoch` (None if it has ended and its marker is not
    committed yet), `last_write_ms` (time of the producer's newest record), `open_transactions`
    (their number in this partition)."""

    @property
    def name(self) -> str:
        return f"{self.topic}/{self.partition}"

    @property
    def holds(self) -> bool:
        """Whether there is a leader, and every replica is in sync, undamaged and responded.

        The ISR alone does not say so: a hung broker stays in it until its leader removes it, a
        damaged one until another replica is in sync.
        """
        responded = all(replica.unreachable is None for replica in self.replicas)
        in_sync = self.leader is not None and len(self.isr) == len(self.replicas)
        return in_sync and responded and not self.damaged

    @property
    def damaged(self) -> list[ReplicaView]:
        """Replicas that found damage in their logs and are not repaired yet."""
        return [replica for replica in self.replicas if replica.damage is not None]

    def as_data(self) -> dict[str, Any]:
        replicas = [replica._asdict() for replica in self.replicas]
        return {**self._asdict(), "replicas": replicas}


class PartitionsView(NamedTuple):
    """Partitions of one topic."""

    partitions: list[PartitionView]
    missing: str | None
    """A sentence that lists the unknown values if this is not a Tidelog cluster."""

    @property
    def holds(self) -> bool:
        return all(partition.holds for partition in self.partitions)

    def as_data(self) -> dict[str, Any]:
        partitions = [partition.as_data() for partition in self.partitions]
        return {"partitions": partitions, "missing": self.missing}


def view_partitions(cluster: Cluster, topic: str, partition: int | None) -> PartitionsView:
    """Fetch the state of the topic's partitions, or of one, from every broker with a replica.

    Raises NoSuchTopic, or ClientError if no broker responds.
    """
    cluster.refresh([topic])
    found = cluster.topic(topic)
    wanted = found.partitions
    if partition is not None:
        wanted = {partition: cluster.partition(topic, partition)}
    hosts = sorted({broker for each in wanted.values() for broker in each.replicas})
    states = fetch_states(cluster, hosts, topic, partition)
    if not states.states and len(states.unreachable) < len(hosts):
        kafkas = [_from_kafka(cluster, topic, found.id, each) for each in wanted.values()]
        return PartitionsView(kafkas, UNKNOWN_OF_KAFKA)
    fetched = FetchedStates(states, cluster.metadata.brokers)
    return PartitionsView(
        [partition_from_states(fetched, topic, found.id, each) for each in wanted.values()], None
    )


# -- Tidelog ---------------------------------------------------------------------------------


class FetchedStates:
    """What all brokers reported, indexed by partition, so that views of many partitions are cheap.

    It may be of now or of an earlier moment: no view made from it sends a request.
    """

    def __init__(self, answers: BrokerStates, addresses: Mapping[BrokerId, BrokerAddress]) -> None:
        self.states, self.unreachable = answers
        self.addresses = addresses
        self.hosted: dict[TopicPartition, dict[BrokerId, State]] = {}
        self.losses: dict[TopicPartition, list[dict[str, Any]]] = {}
        for broker, state in self.states.items():
            for each in state["partitions"]:
                key = TopicPartition(each["topic"], each["partition"])
                self.hosted.setdefault(key, {})[broker] = each
            for loss in state["losses"]["recent"]:
                key = TopicPartition(loss["topic"], loss["partition"])
                self.losses.setdefault(key, []).append({"broker": broker, **loss})

    def leader_of(self, key: TopicPartition, from_epoch: LeaderEpoch = -1) -> State | None:
        """Return the replica state of the leader of the newest epoch; None if no leader of
        `from_epoch` or a newer epoch is known."""
        hosted = self.hosted.get(key, {}).values()
        leading = [
            each
            for each in hosted
            if each["role"] == "leader" and int(each["leader_epoch"]) >= from_epoch
        ]
        return max(leading, key=lambda each: int(each["leader_epoch"]), default=None)


def partition_from_states(
    fetched: FetchedStates, topic: str, topic_id: TopicId, known: PartitionMetadata
) -> PartitionView:
    """Return the view of one partition from states that were fetched before."""
    states, unreachable = fetched.states, fetched.unreachable
    key = TopicPartition(topic, known.partition)
    hosted = fetched.hosted.get(key, {})
    newest = max(hosted.values(), key=lambda each: int(each["leader_epoch"]), default=None)
    # Metadata and states are fetched one after another, so either may be a moment older. A view
    # must not mix the new leader of one with the epoch and ISR of the other.
    newest_epoch = -1 if newest is None else int(newest["leader_epoch"])
    leader = fetched.leader_of(key, max(newest_epoch, known.leader_epoch))
    best = leader or newest or {}
    leader_id = known.leader
    if known.leader_epoch > newest_epoch:
        registered = {"leader_epoch": known.leader_epoch, "isr": known.isr, "elr": known.elr}
        best = {**best, **registered, "partition_epoch": None}
    elif leader is not None or known.leader_epoch < newest_epoch:
        leader_id = NO_LEADER if best.get("leader") is None else int(best["leader"])
    isr = list(best.get("isr") or known.isr)
    followers = {each["broker"]: each for each in (leader or {}).get("followers", ())}
    replicas = []
    for broker in known.replicas:
        now_ms = states[leader_id]["now_ms"] if leader_id in states else None
        row = _row(broker, broker in isr, hosted.get(broker), leader, followers.get(broker), now_ms)
        address = fetched.addresses.get(broker)
        why = unreachable.get(broker)
        if why is None and broker in states and broker not in hosted:
            lost = broker in best.get("lost", ())
            why = f"it has no replica of this partition {'any more' if lost else 'yet'}"
        replicas.append(row._replace(address=address and str(address), unreachable=why))
    return PartitionView(
        topic=topic,
        partition=known.partition,
        topic_id=best.get("topic_id") or format_topic_id(topic_id),
        leader=None if leader_id == NO_LEADER else leader_id,
        leader_epoch=best.get("leader_epoch", known.leader_epoch),
        partition_epoch=best.get("partition_epoch"),
        isr=isr,
        elr=best.get("elr"),
        min_isr=best.get("min_isr"),
        replicas=replicas,
        unclean_election=best.get("unclean_election"),
        losses=fetched.losses.get(key, []),
        lost=best.get("lost"),
        reassignment=reassignment(best.get("adding"), best.get("removing")),
        unstable=None if leader is None else leader.get("unstable"),
    )


def reassignment(
    adding: Sequence[BrokerId] | None, removing: Sequence[BrokerId] | None
) -> dict[str, list[BrokerId]] | None:
    """Return the reassignment in progress; None if nothing is added or removed."""
    if not adding and not removing:
        return None
    return {"adding": list(adding or ()), "removing": list(removing or ())}


def _row(
    broker: BrokerId,
    in_isr: bool,
    own: State | None,
    leader: State | None,
    seen: State | None,
    now_ms: int | None,
) -> ReplicaView:
    """Combine the state that the replica reports (`own`) with its leader's state of it (`seen`)."""
    seen = seen or {}
    role = "unknown" if own is None else str(own["role"])
    end = seen.get("log_end_offset") if own is None else own["log_end_offset"]
    lag = None
    if leader is not None and end is not None and leader["log_end_offset"] is not None:
        lag = max(0, leader["log_end_offset"] - end)
    out_since = seen.get("out_since_ms")
    row = ReplicaView(
        broker=broker,
        address=None,
        role=role,
        in_isr=in_isr,
        log_end_offset=end,
        log_start_offset=None if end is None else seen.get("log_start_offset"),
        lag=lag,
        lag_ms=seen.get("lag_ms"),
        out_for_ms=None if out_since is None or now_ms is None else max(0, now_ms - out_since),
        why_out=None if in_isr else seen.get("why"),
    )
    if own is None:
        return row
    refused = own.get("refused")
    return row._replace(
        why_out=row.why_out if refused is None or in_isr else _refusal(refused),
        log_start_offset=own["log_start_offset"],
        high_watermark=own["high_watermark"],
        last_stable_offset=own["last_stable_offset"],
        leader_epoch=own["leader_epoch"],
        epochs=own["epochs"],
        recovery_point=own["recovery_point"],
        size=own["size"],
        segments=own["segments"],
        damage=own["damage"],
    )


def _refusal(refused: Mapping[str, Any]) -> str:
    """Return why the replica does not fetch; its leader can't know the reason."""
    return (
        f"leader {refused['leader']} lacks committed records from offset {refused['offset']} up to"
        f" {refused['high_watermark']} (exclusive); this replica keeps them"
    )


# -- any Kafka -------------------------------------------------------------------------------


def with_kafka_details(cluster: Cluster, view: PartitionView) -> PartitionView:
    """Add a reassignment in progress and the oldest open transaction, as far as brokers report
    them. They need further requests, so only the view of one partition has them."""
    key = TopicPartition(view.topic, view.partition)
    try:
        going = list_reassignments(cluster, [key]).get(key)
    except ClientError:
        going = None
    if going is not None:
        view = view._replace(reassignment=reassignment(going.adding, going.removing))
    leader = next((row for row in view.replicas if row.broker == view.leader), None)
    if leader is None or leader.last_stable_offset == leader.high_watermark:
        return view
    try:
        return view._replace(unstable=_oldest_transaction(cluster, key))
    except ClientError:
        return view


def _oldest_transaction(cluster: Cluster, key: TopicPartition) -> dict[str, Any] | None:
    request = {"topics": [{"name": key.topic, "partition_indexes": [key.partition]}]}

    def ask(leader: KafkaConnection, _known: PartitionMetadata) -> list[Struct]:
        [topic] = leader.call(DESCRIBE_PRODUCERS, request)["topics"]
        return list(topic["partitions"][0]["active_producers"])

    producers = cluster.ask_leader(key.topic, key.partition, ask)
    within = [each for each in producers if each["current_txn_start_offset"] >= 0]
    if not within:
        return None
    oldest = min(within, key=lambda each: int(each["current_txn_start_offset"]))
    return {
        "offset": oldest["current_txn_start_offset"],
        "producer_id": oldest["producer_id"],
        "producer_epoch": oldest["producer_epoch"],
        "last_write_ms": oldest["last_timestamp"],
        "open_transactions": len(within),
    }


def _from_kafka(
    cluster: Cluster, topic: str, topic_id: TopicId, known: PartitionMetadata
) -> PartitionView:
    replicas = []
    for broker in known.replicas:
        address = cluster.metadata.brokers.get(broker)
        role = "leader" if broker == known.leader else "follower"
        here = address is not None and broker not in known.offline_replicas
        size, lag = _log_size(cluster, broker, topic, known.partition) if here else (None, None)
        replicas.append(
            ReplicaView(
                broker=broker,
                address=address and str(address),
                role=role if here else "offline",
                in_isr=broker in known.isr,
                unreachable=None if here else NOT_IN_CLUSTER,
                size=size,
                lag=lag,
            )
        )
    if known.leader != NO_LEADER:
        number = known.replicas.index(known.leader) if known.leader in known.replicas else 0
        replicas[number] = _kafka_leader(cluster, topic, known, replicas[number])
    return PartitionView(
        topic=topic,
        partition=known.partition,
        topic_id=format_topic_id(topic_id) if any(topic_id) else None,
        leader=None if known.leader == NO_LEADER else known.leader,
        leader_epoch=known.leader_epoch,
        partition_epoch=None,
        isr=known.isr,
        elr=None,
        min_isr=_min_isr(cluster, topic),
        replicas=replicas,
        unclean_election=None,
        losses=[],
    )


def _kafka_leader(
    cluster: Cluster, topic: str, known: PartitionMetadata, row: ReplicaView
) -> ReplicaView:
    partition = known.partition
    start = list_offset(cluster, topic, partition, EARLIEST).offset
    return row._replace(
        log_start_offset=start,
        high_watermark=list_offset(cluster, topic, partition, LATEST).offset,
        last_stable_offset=list_offset(cluster, topic, partition, LATEST, READ_COMMITTED).offset,
        leader_epoch=known.leader_epoch,
        epochs=_kafka_epochs(cluster, topic, known, start),
    )


def _kafka_epochs(
    cluster: Cluster, topic: str, known: PartitionMetadata, log_start: Offset
) -> list[list[int]] | None:
    """Return the start offset of each epoch, which is the end offset of the epoch before it.

    Requests start with the newest epoch.
    """
    if known.leader_epoch < 0:
        return None
    epochs: list[list[int]] = []
    try:
        epoch, _ = epoch_end(cluster, topic, known.partition, known.leader_epoch)
        while epoch >= 0 and len(epochs) < EPOCHS_MAX:
            before, start = epoch_end(cluster, topic, known.partition, epoch - 1)
            epochs.insert(0, [epoch, log_start if before < 0 else start])
            epoch = before
    except (NotOffered, BrokerError):
        return None
    return epochs


def _log_size(
    cluster: Cluster, broker: BrokerId, topic: str, partition: int
) -> tuple[int | None, int | None]:
    """Return bytes, and records behind the high watermark."""
    try:
        for size in log_sizes(cluster, broker, [TopicPartition(topic, partition)]):
            return size
    except ClientError:
        pass
    return None, None


def _min_isr(cluster: Cluster, topic: str) -> int | None:
    try:
        configs = admin.topic_configs(cluster, [topic], [admin.MIN_ISR])
    except ClientError:
        return None
    value = configs.get(topic, {}).get(admin.MIN_ISR)
    return None if value is None else int(value)
