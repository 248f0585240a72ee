"""What every replica of a partition says of itself, put side by side.

A Tidelog broker is asked for all it knows (API 32000). Of a Kafka only what its protocol
tells is known, and `missing` says what is not. Brokers are asked one after another while
clients write, so a follower may seem ahead of its leader by what came meanwhile.

Always true: every replica of the assignment has its row, whether it answered or not.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tidelog.core.storage.layout import format_topic_id
from tidelog.core.types import BrokerId, LeaderEpoch, Offset, TopicId
from tidelog.shell.client import admin
from tidelog.shell.client.api_keys import DESCRIBE_LOG_DIRS
from tidelog.shell.client.client_errors import (
    BrokerError,
    CannotConnect,
    ClientError,
    NoAnswer,
    NotOffered,
)
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.cluster_metadata import NO_LEADER, PartitionMetadata
from tidelog.shell.client.reader import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    epoch_end,
    list_offset,
)

EPOCHS_ASKED_MAX = 20
NOT_TOLD_BY_KAFKA = (
    "this is no Tidelog: log ends, the followers' high watermarks, partition epochs, losses, and"
    " why a replica is out of the ISR are not told by Kafka's protocol"
)

State = Mapping[str, Any]
"""A broker's answer to DescribeState."""


class Replica(NamedTuple):
    """One replica; None is not known."""

    broker: BrokerId
    address: str | None
    role: str
    """`leader`, `follower`, `offline`, or `unknown`."""
    in_isr: bool
    unreachable: str | None = None
    """Why the broker did not answer for itself."""
    log_start_offset: Offset | None = None
    log_end_offset: Offset | None = None
    high_watermark: Offset | None = None
    last_stable_offset: Offset | None = None
    leader_epoch: LeaderEpoch | None = None
    epochs: list[list[int]] | None = None
    """(epoch, start offset), oldest first."""
    lag: int | None = None
    """Behind the leader's log end, in records."""
    lag_ms: int | None = None
    """Since it last had all that the leader had."""
    out_for_ms: int | None = None
    why_out: str | None = None
    recovery_point: Offset | None = None
    size: int | None = None
    segments: int | None = None
    damage: dict[str, Any] | None = None
    """From which offset on records are damaged or missing, and why."""


class Partition(NamedTuple):
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
    replicas: list[Replica]
    unclean_election: dict[str, Any] | None
    losses: list[dict[str, Any]]
    lost: list[BrokerId] | None = None
    """Whose folder was gone when it started, and who has not caught up since."""

    @property
    def name(self) -> str:
        return f"{self.topic}/{self.partition}"

    @property
    def holds(self) -> bool:
        """A broker leads, and every replica is in sync, sound and answered: a hung broker stays
        in the ISR until its leader removes it, a damaged one until another is in sync."""
        answered = all(replica.unreachable is None for replica in self.replicas)
        whole = answered and not self.damaged
        return self.leader is not None and len(self.isr) == len(self.replicas) and whole

    @property
    def damaged(self) -> list[Replica]:
        """Replicas that found damage in their logs and are not mended yet."""
        return [replica for replica in self.replicas if replica.damage is not None]

    def as_data(self) -> dict[str, Any]:
        replicas = [replica._asdict() for replica in self.replicas]
        return {**self._asdict(), "replicas": replicas}


class Report(NamedTuple):
    """Partitions of one topic."""

    partitions: list[Partition]
    missing: str | None

    @property
    def holds(self) -> bool:
        return all(partition.holds for partition in self.partitions)

    def as_data(self) -> dict[str, Any]:
        partitions = [partition.as_data() for partition in self.partitions]
        return {"partitions": partitions, "missing": self.missing}


def describe(cluster: Cluster, topic: str, partition: int | None) -> Report:
    """Ask every broker that has a replica. Raises NoSuchTopic, or ClientError if nobody
    answers."""
    cluster.refresh([topic])
    found = cluster.topic(topic)
    wanted = found.partitions
    if partition is not None:
        wanted = {partition: cluster.partition(topic, partition)}
    hosts = sorted({broker for each in wanted.values() for broker in each.replicas})
    states, unreachable = ask_states(cluster, hosts, topic, partition)
    if not states and len(unreachable) < len(hosts):
        kafkas = [_from_kafka(cluster, topic, found.id, each) for each in wanted.values()]
        return Report(kafkas, NOT_TOLD_BY_KAFKA)
    ours = [
        _from_states(cluster, topic, found.id, each, states, unreachable)
        for each in wanted.values()
    ]
    return Report(ours, None)


def ask_states(
    cluster: Cluster,
    brokers: Iterable[BrokerId],
    topic: str | None = None,
    partition: int | None = None,
) -> tuple[dict[BrokerId, State], dict[BrokerId, str]]:
    """Each broker's state, and why others gave none; a Kafka is in neither."""
    states: dict[BrokerId, State] = {}
    unreachable: dict[BrokerId, str] = {}
    for broker in brokers:
        if broker not in cluster.metadata.brokers:
            unreachable[broker] = "not in the cluster: stopped, dead or fenced"
            continue
        try:
            state = admin.describe_state(cluster, broker, topic, partition)
        except CannotConnect as error:
            unreachable[broker] = error.why
        except NoAnswer as error:
            unreachable[broker] = f"nothing within {error.timeout_s:g} s"
        except ClientError as error:
            unreachable[broker] = str(error)
        else:
            if state is not None:
                states[broker] = state
    return states, unreachable


# -- Tidelog ---------------------------------------------------------------------------------


def _from_states(
    cluster: Cluster,
    topic: str,
    topic_id: TopicId,
    known: PartitionMetadata,
    states: Mapping[BrokerId, State],
    unreachable: Mapping[BrokerId, str],
) -> Partition:
    hosted: dict[BrokerId, State] = {}
    for broker, state in states.items():
        for each in state["partitions"]:
            if (each["topic"], each["partition"]) == (topic, known.partition):
                hosted[broker] = each
    # Who acts as leader in the newest epoch knows best; metadata may be a moment old.
    leading = [each for each in hosted.values() if each["role"] == "leader"]
    newest = max(hosted.values(), key=lambda each: int(each["leader_epoch"]), default=None)
    leader = max(leading, key=lambda each: int(each["leader_epoch"]), default=None)
    best = leader or newest or {}
    leader_id = known.leader if leader is None else int(leader["leader"])
    isr = list(best.get("isr") or known.isr)
    followers = {each["broker"]: each for each in (leader or {}).get("followers", ())}
    replicas = []
    for broker in known.replicas:
        now_ms = states[leader_id]["now_ms"] if leader_id in states else None
        row = _row(broker, broker in isr, hosted.get(broker), leader, followers.get(broker), now_ms)
        address = cluster.metadata.brokers.get(broker)
        why = unreachable.get(broker)
        if why is None and broker in states and broker not in hosted:
            lost = broker in best.get("lost", ())
            why = f"it has no replica of this partition {'any more' if lost else 'yet'}"
        replicas.append(row._replace(address=address and str(address), unreachable=why))
    losses = [
        {"broker": broker, **loss}
        for broker, state in states.items()
        for loss in state["losses"]["recent"]
        if (loss["topic"], loss["partition"]) == (topic, known.partition)
    ]
    return Partition(
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
        losses=losses,
        lost=best.get("lost"),
    )


def _row(
    broker: BrokerId,
    in_isr: bool,
    own: State | None,
    leader: State | None,
    seen: State | None,
    now_ms: int | None,
) -> Replica:
    """What the replica says of itself (`own`), else what its leader has seen of it."""
    seen = seen or {}
    role = "unknown" if own is None else str(own["role"])
    end = seen.get("log_end_offset") if own is None else own["log_end_offset"]
    lag = None
    if leader is not None and end is not None:
        lag = max(0, leader["log_end_offset"] - end)
    out_since = seen.get("out_since_ms")
    row = Replica(
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
    """Why the replica does not fetch, which its leader can't know."""
    return (
        f"leader {refused['leader']} lacks committed records from offset {refused['offset']} up to"
        f" {refused['high_watermark']} (exclusive); this replica keeps them"
    )


# -- any Kafka -------------------------------------------------------------------------------


def _from_kafka(
    cluster: Cluster, topic: str, topic_id: TopicId, known: PartitionMetadata
) -> Partition:
    replicas = []
    for broker in known.replicas:
        address = cluster.metadata.brokers.get(broker)
        role = "leader" if broker == known.leader else "follower"
        here = address is not None and broker not in known.offline_replicas
        size, lag = _log_size(cluster, broker, topic, known.partition) if here else (None, None)
        replicas.append(
            Replica(
                broker=broker,
                address=address and str(address),
                role=role if here else "offline",
                in_isr=broker in known.isr,
                unreachable=None if here else "not in the cluster: stopped, dead or fenced",
                size=size,
                lag=lag,
            )
        )
    if known.leader != NO_LEADER:
        number = known.replicas.index(known.leader) if known.leader in known.replicas else 0
        replicas[number] = _kafka_leader(cluster, topic, known, replicas[number])
    return Partition(
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


def _kafka_leader(cluster: Cluster, topic: str, known: PartitionMetadata, row: Replica) -> Replica:
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
    """Where each epoch begins: where the one before it ends, asked backwards."""
    if known.leader_epoch < 0:
        return None
    epochs: list[list[int]] = []
    try:
        epoch, _ = epoch_end(cluster, topic, known.partition, known.leader_epoch)
        while epoch >= 0 and len(epochs) < EPOCHS_ASKED_MAX:
            before, start = epoch_end(cluster, topic, known.partition, epoch - 1)
            epochs.insert(0, [epoch, log_start if before < 0 else start])
            epoch = before
    except (NotOffered, BrokerError):
        return None
    return epochs


def _log_size(
    cluster: Cluster, broker: BrokerId, topic: str, partition: int
) -> tuple[int | None, int | None]:
    """Bytes, and records behind the high watermark."""
    try:
        for size in log_sizes(cluster, broker, topic, partition):
            return size
    except ClientError:
        pass
    return None, None


def log_sizes(
    cluster: Cluster, broker: BrokerId, topic: str | None = None, partition: int | None = None
) -> list[tuple[int, int]]:
    """(bytes, records behind) of a broker's replicas, as Kafka tells. Raises ClientError."""
    wanted = None if topic is None else [{"topic": topic, "partitions": [partition]}]
    answer = cluster.broker(broker).call(DESCRIBE_LOG_DIRS, {"topics": wanted})
    return [
        (each["partition_size"], each["offset_lag"])
        for directory in answer["results"]
        for found in directory["topics"]
        for each in found["partitions"]
        if not each["is_future_key"]
    ]


def _min_isr(cluster: Cluster, topic: str) -> int | None:
    try:
        configs = admin.topic_configs(cluster, [topic], [admin.MIN_ISR])
    except ClientError:
        return None
    value = configs.get(topic, {}).get(admin.MIN_ISR)
    return None if value is None else int(value)
