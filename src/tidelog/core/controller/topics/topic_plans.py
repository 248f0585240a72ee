"""Making, growing and deleting topics, and their configuration.

A topic exists from the moment `topics/name/<t>` is written, and partition p once its count
is above p. So more partitions than a transaction holds are written first, in as many steps
as it takes, and committed by one key: a creation cut short leaves only partitions that
nobody sees, which are swept away when it fails for good or a new controller comes.
"""

import re
from collections.abc import Iterable

from tidelog.core.controller.election import Target, next_registration
from tidelog.core.controller.events import (
    AlterConfigReceived,
    CreatePartitionsReceived,
    CreateTopicReceived,
    DeleteTopicReceived,
)
from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata import registrations as values
from tidelog.core.controller.metadata.cluster_image import MIN_INSYNC_REPLICAS, ClusterImage
from tidelog.core.controller.metadata.metadata_store import (
    ABSENT,
    OPERATIONS_MAX,
    VALUE_BYTES_MAX,
    Delete,
    Guard,
    Put,
)
from tidelog.core.controller.metadata.registrations import (
    PartitionKey,
    PartitionRegistration,
    TopicImage,
)
from tidelog.core.controller.topics.placement import NotEnoughBrokers, place
from tidelog.core.controller.topics.topic_configs import (
    broker_config_problem,
    config_problem,
    resolve_changes,
)
from tidelog.core.controller.transactions import Write, pack
from tidelog.core.controller.upkeep import Office
from tidelog.core.errors import ErrorCode
from tidelog.core.slotted import field, replace, slotted
from tidelog.core.types import BrokerId, TopicId

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@slotted
class Plan:
    """What a request comes to: an error, or transactions to be committed one by one.

    `also_busy` are keys that must not change meanwhile though they are not written.
    """

    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    steps: list[list[Write]] = field(default_factory=list)
    also_busy: frozenset[str] = frozenset()
    topic_id: TopicId = b""
    partitions: int = -1
    replication_factor: int = -1


def create_topic(office: Office, event: CreateTopicReceived) -> Plan:
    """Place the replicas, then write partitions, configuration and, last, the name."""
    image = office.image
    if _NAME.fullmatch(event.name) is None or event.name in (".", ".."):
        return Plan(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name {event.name!r} is not allowed.")
    if event.name in image.topics:
        return Plan(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic {event.name} exists.")
    if (twin := _collision(image, event.name)) is not None:
        return Plan(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic {event.name} collides with {twin}: '.' and '_' look alike in metrics.",
        )
    if not event.assignment and event.partitions < 1:
        return Plan(
            ErrorCode.INVALID_PARTITIONS, f"A topic can't have {event.partitions} partitions."
        )
    refusal = _check_configs(event.configs) or _check_size(event.configs)
    if refusal is not None:
        return refusal
    count = len(event.assignment) or event.partitions
    replicas = _assignment(
        image, range(count), event.replication_factor, event.assignment, event.start_index
    )
    if isinstance(replicas, Plan):
        return replicas
    topic = TopicImage(event.name, event.topic_id, count)
    name = keys.topic_name(event.name)
    commit = [Write(Put(name, values.encode_topic(topic)), (Guard(name, ABSENT),))]
    if event.configs:
        config = keys.topic_config(event.name)
        guard = Guard(config, image.mod_rev(config))
        commit.append(Write(Put(config, values.encode_config(event.configs)), (guard,)))
    plan = _partitions_plan(office, event.topic_id, range(count), replicas, commit)
    plan.partitions, plan.replication_factor = count, len(replicas[0])
    # Two that collide must not be made at the same time.
    plan.also_busy = frozenset({_unified(event.name)})
    return plan


def _unified(name: str) -> str:
    """What names have in common that collide. It is no key, so it is never written."""
    return f"{keys.TOPIC_NAMES}{name.replace('.', '_')}*"


def _collision(image: ClusterImage, name: str) -> str | None:
    """A topic whose name differs only in '.' and '_', if there is one."""
    if "." not in name and "_" not in name:
        return None
    unified = _unified(name)
    return next((other for other in image.topics if _unified(other) == unified), None)


def create_partitions(office: Office, event: CreatePartitionsReceived) -> Plan:
    """Add partitions at the end; those that are there stay as they are."""
    image = office.image
    topic = image.topics.get(event.name)
    if topic is None:
        return Plan(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {event.name}.")
    added = range(topic.partition_count, event.partitions)
    if not added:
        has = f"Topic {topic.name} has {topic.partition_count} partitions; ask for more than that."
        return Plan(ErrorCode.INVALID_PARTITIONS, has)
    first = image.partitions[PartitionKey(topic.topic_id, 0)]
    factor = len(first.replicas) - len(first.adding)
    given = event.assignment
    if given is not None and len(given) != len(added):
        wanted = f"{len(added)} partitions are new, and {len(given)} are assigned."
        return Plan(ErrorCode.INVALID_REPLICA_ASSIGNMENT, wanted)
    if given is not None and any(len(replicas) != factor for replicas in given):
        wanted = f"Assign {factor} brokers to each new partition of {topic.name}."
        return Plan(ErrorCode.INVALID_REPLICA_ASSIGNMENT, wanted)
    replicas = _assignment(image, added, factor, given or (), event.start_index)
    if isinstance(replicas, Plan):
        return replicas
    name = keys.topic_name(event.name)
    grown = TopicImage(topic.name, topic.topic_id, event.partitions)
    commit = [Write(Put(name, values.encode_topic(grown)), (Guard(name, image.mod_rev(name)),))]
    return _partitions_plan(office, topic.topic_id, added, replicas, commit)


def delete_topic(office: Office, event: DeleteTopicReceived) -> Plan:
    """Name, configuration and every partition go in one transaction."""
    image = office.image
    wanted = event.name or image.topic_names.get(event.topic_id or b"", "")
    topic = image.topics.get(wanted)
    if event.topic_id is not None and (topic is None or topic.topic_id != event.topic_id):
        return Plan(ErrorCode.UNKNOWN_TOPIC_ID, "There is no topic with this id any more.")
    if topic is None:
        return Plan(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {event.name}.")
    name = keys.topic_name(topic.name)
    writes = [
        Write(Delete(name), (Guard(name, image.mod_rev(name)),)),
        Write(Delete(keys.topic_config(topic.name)), ()),
        Write(Delete(keys.topic_id(topic.topic_id), prefix=True), ()),
    ]
    return Plan(steps=[writes], topic_id=topic.topic_id)


def alter_config(office: Office, event: AlterConfigReceived) -> Plan:
    """Change settings, and with them who is eligible to lead. No change is no step.

    A lower min.insync.replicas lets a leader commit with fewer others, so ELR members
    must be gone before it holds; all of its partitions stand still until it is done.
    """
    image = office.image
    key = (
        keys.broker_config(event.broker) if event.topic is None else keys.topic_config(event.topic)
    )
    current = image.configs.get(key, {})
    changes = resolve_changes(current, event)
    if (refusal := _check_alteration(image, event, changes)) is not None:
        return refusal
    changes = {name: value for name, value in changes.items() if value != current.get(name)}
    if not changes:
        return Plan()
    merged = {**current, **changes}
    config = {name: value for name, value in merged.items() if value is not None}
    if (refusal := _check_size(config)) is not None:
        return refusal
    commit = [Write(Put(key, values.encode_config(config)), (Guard(key, image.mod_rev(key)),))]
    if MIN_INSYNC_REPLICAS not in changes:
        return Plan(steps=[commit])
    concerned = _partitions_under(image, event.topic)
    writes = []
    for partition in concerned:
        rules = replace(
            office.rules(partition.key, image.active),
            min_insync_replicas=_new_minimum(image, partition, event.topic, config),
        )
        if len(partition.isr) >= min(rules.min_insync_replicas, len(partition.replicas)):
            new = next_registration(partition, Target(candidate=partition.leader), rules)
            if new is not partition:
                writes.append(office.write(partition, new))
    still = frozenset(keys.partition(*partition.key) for partition in concerned)
    return Plan(steps=_committed_by(commit, writes), also_busy=still)


def sweep(image: ClusterImage, among: frozenset[str] | None = None) -> list[list[Write]]:
    """Delete partitions, all or some, that were written but never committed."""
    orphans = sorted(keys.partition(*key) for key in image.uncommitted())
    return [[Write(Delete(key), ())] for key in orphans if among is None or key in among]


def _committed_by(commit: list[Write], writes: list[Write]) -> list[list[Write]]:
    """One transaction if all fits in it, else steps with the commit point at the end."""
    if len(writes) + len(commit) <= OPERATIONS_MAX:
        whole = pack([write] for write in [*writes, *commit])
        if len(whole) == 1:
            return whole
    return [*pack([write] for write in writes), commit]


def _assignment(
    image: ClusterImage,
    partitions: range,
    replication_factor: int,
    given: tuple[tuple[BrokerId, ...], ...],
    start_index: int,
) -> list[tuple[BrokerId, ...]] | Plan:
    if not given:
        try:
            return place(image.brokers.values(), partitions, replication_factor, start_index)
        except NotEnoughBrokers as error:
            return Plan(ErrorCode.INVALID_REPLICATION_FACTOR, str(error))
    for replicas in given:
        if (problem := assignment_problem(image, replicas)) is not None:
            return Plan(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
        if not image.active.intersection(replicas):
            return Plan(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"none of {replicas} is active")
    if len({len(replicas) for replicas in given}) > 1:
        return Plan(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "replica lists differ in length")
    return list(given)


def assignment_problem(image: ClusterImage, replicas: tuple[BrokerId, ...]) -> str | None:
    """What is wrong with a replica list given by hand."""
    if not replicas or len(set(replicas)) < len(replicas):
        return f"empty or doubled replicas in {replicas}"
    for broker in replicas:
        if broker not in image.brokers:
            return f"broker {broker} is not registered"
    return None


def _partitions_plan(
    office: Office,
    topic_id: TopicId,
    indexes: range,
    assignment: list[tuple[BrokerId, ...]],
    commit: list[Write],
) -> Plan:
    """Partitions in sync where a broker is active, and then what commits them."""
    writes = []
    for index, replicas in zip(indexes, assignment, strict=True):
        isr = tuple(broker for broker in replicas if broker in office.image.active)
        new = PartitionRegistration(topic_id, index, replicas, isr, isr[0])
        writes.append(office.write(None, new))
    return Plan(steps=_committed_by(commit, writes), topic_id=topic_id)


def _check_configs(configs: dict[str, str]) -> Plan | None:
    problem = config_problem(configs)
    return None if problem is None else Plan(ErrorCode.INVALID_CONFIG, problem)


def _check_size(configs: dict[str, str]) -> Plan | None:
    """Lists may be of any length, but the store takes no value of any length."""
    size = len(values.encode_config(configs))
    if size <= VALUE_BYTES_MAX:
        return None
    problem = f"settings of {size} bytes; {VALUE_BYTES_MAX} at most"
    return Plan(ErrorCode.INVALID_CONFIG, problem)


def _check_alteration(
    image: ClusterImage, event: AlterConfigReceived, changes: dict[str, str | None]
) -> Plan | None:
    configs = {name: value for name, value in changes.items() if value is not None}
    if event.topic is not None:
        if event.topic not in image.topics:
            return Plan(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic {event.topic}")
        return _check_configs(configs)
    if event.broker is not None:
        if event.broker not in image.brokers:
            missing = f"broker {event.broker} is not registered"
            return Plan(ErrorCode.BROKER_ID_NOT_REGISTERED, missing)
        if MIN_INSYNC_REPLICAS in changes:
            # Leaders may come and go; what they commit by must not come and go with them.
            only = f"{MIN_INSYNC_REPLICAS} holds for a topic or for all brokers, not for one"
            return Plan(ErrorCode.INVALID_CONFIG, only)
    problem = broker_config_problem(configs)
    return None if problem is None else Plan(ErrorCode.INVALID_CONFIG, problem)


def _partitions_under(image: ClusterImage, topic: str | None) -> list[PartitionRegistration]:
    topic_id = None if topic is None else image.topics[topic].topic_id
    return [
        partition
        for key, partition in sorted(image.partitions.items())
        if topic_id is None or key.topic_id == topic_id
    ]


def _new_minimum(
    image: ClusterImage, partition: PartitionRegistration, topic: str | None, config: dict[str, str]
) -> int:
    """min.insync.replicas of a partition once `config` holds for the topic or the cluster."""
    own = config
    default = image.configs.get(keys.DEFAULT_CONFIG, {})
    if topic is None:
        name = image.topic_names.get(partition.topic_id, "")
        own, default = image.configs.get(keys.topic_config(name), {}), config
    minimum = own.get(MIN_INSYNC_REPLICAS) or default.get(MIN_INSYNC_REPLICAS)
    return image.min_insync_default if minimum is None else int(minimum)


def keys_of(plan: Plan) -> Iterable[str]:
    """Every key that must be free before the plan is carried out."""
    for step in plan.steps:
        for write in step:
            yield write.op.key
    yield from plan.also_busy
