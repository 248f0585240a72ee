"""Plans for requests about topics, configuration and brokers: the transactions to commit.

A topic exists from the moment `topics/name/<t>` is written, and partition p once its count
is above p. Partitions that do not fit into one transaction are written first, in several
transactions, and committed by this one key. An interrupted creation leaves only partitions that
are not visible; they are deleted when the creation fails or a new controller is elected.
"""

import re
from collections.abc import Callable, Iterable, Mapping

from tidelog.core.controller.effects import Response
from tidelog.core.controller.election import Target, next_registration
from tidelog.core.controller.events import (
    AlterConfigReceived,
    CreatePartitionsReceived,
    CreateTopicReceived,
    DeleteTopicReceived,
    UnregisterBrokerReceived,
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
from tidelog.core.controller.placement import NotEnoughBrokers, place
from tidelog.core.controller.store_transactions import Write, pack
from tidelog.core.controller.upkeep import ControllerTerm
from tidelog.core.errors import ErrorCode
from tidelog.core.settings.broker_keys import broker_setting
from tidelog.core.settings.setting import spell
from tidelog.core.settings.topic_keys import TOPIC
from tidelog.core.settings.topic_values import broker_problem, normal, topic_problem
from tidelog.core.slotted import field, replace, slotted
from tidelog.core.types import BrokerId, TopicId

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@slotted
class Plan:
    """An error, or transactions (`steps`) to commit one after the other.

    `also_busy` are keys that are not written but must not change until then.
    """

    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    steps: list[list[Write]] = field(default_factory=list)
    also_busy: frozenset[str] = frozenset()
    topic_id: TopicId = b""
    partitions: int = -1
    replication_factor: int = -1
    answer: Response | None = None
    """The response, if it is not a TopicAnswer."""


def create_topic(term: ControllerTerm, event: CreateTopicReceived) -> Plan:
    """Place the replicas, then write partitions, configuration and, last, the name."""
    image = term.image
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
    plan = _partitions_plan(term, event.topic_id, range(count), replicas, commit)
    plan.partitions, plan.replication_factor = count, len(replicas[0])
    # Two topics whose names collide must not be created at the same time.
    plan.also_busy = frozenset({_unified(event.name)})
    return plan


def _unified(name: str) -> str:
    """Return the same text for all names that collide. It is not a key of the store."""
    return f"{keys.TOPIC_NAMES}{name.replace('.', '_')}*"


def _collision(image: ClusterImage, name: str) -> str | None:
    """Return a topic whose name differs only in '.' and '_', if there is one."""
    if "." not in name and "_" not in name:
        return None
    unified = _unified(name)
    return next((other for other in image.topics if _unified(other) == unified), None)


def create_partitions(term: ControllerTerm, event: CreatePartitionsReceived) -> Plan:
    """Add partitions after the existing ones, which stay as they are."""
    image = term.image
    topic = image.topics.get(event.name)
    if topic is None:
        return Plan(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {event.name} does not exist.")
    added = range(topic.partition_count, event.partitions)
    if not added:
        has = f"Topic {topic.name} has {topic.partition_count} partitions; it can only grow."
        return Plan(ErrorCode.INVALID_PARTITIONS, has)
    first = image.partitions[PartitionKey(topic.topic_id, 0)]
    factor = len(first.replicas) - len(first.adding)
    given = event.assignment
    if given is not None and len(given) != len(added):
        wanted = f"{len(added)} partitions are new, but the assignment has {len(given)}."
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
    return _partitions_plan(term, topic.topic_id, added, replicas, commit)


def delete_topic(term: ControllerTerm, event: DeleteTopicReceived) -> Plan:
    """Delete name, configuration and all partitions in one transaction."""
    image = term.image
    wanted = event.name or image.topic_names.get(event.topic_id or b"", "")
    topic = image.topics.get(wanted)
    if event.topic_id is not None and (topic is None or topic.topic_id != event.topic_id):
        return Plan(ErrorCode.UNKNOWN_TOPIC_ID, "No topic has this id.")
    if topic is None:
        return Plan(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {event.name} does not exist.")
    name = keys.topic_name(topic.name)
    writes = [
        Write(Delete(name), (Guard(name, image.mod_rev(name)),)),
        Write(Delete(keys.topic_config(topic.name)), ()),
        Write(Delete(keys.topic_id(topic.topic_id), prefix=True), ()),
    ]
    return Plan(steps=[writes], topic_id=topic.topic_id)


def alter_config(term: ControllerTerm, event: AlterConfigReceived) -> Plan:
    """Change the settings of a topic, a broker or all brokers. Without a change there is no step.

    A lower min.insync.replicas lets a leader commit with fewer replicas, so ELR members must be
    removed before it is in force; no partition under it changes until that is done.
    """
    image = term.image
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
            term.rules(partition.key, image.active),
            min_insync_replicas=_new_minimum(image, partition, event.topic, config),
        )
        if len(partition.isr) >= min(rules.min_insync_replicas, len(partition.replicas)):
            new = next_registration(partition, Target(candidate=partition.leader), rules)
            if new is not partition:
                writes.append(term.write(partition, new))
    still = frozenset(keys.partition(*partition.key) for partition in concerned)
    return Plan(steps=_committed_by(commit, writes), also_busy=still)


def sweep(image: ClusterImage, among: frozenset[str] | None = None) -> list[list[Write]]:
    """Delete partitions that were written but never committed: all, or only those `among`."""
    orphans = sorted(keys.partition(*key) for key in image.uncommitted())
    return [[Write(Delete(key), ())] for key in orphans if among is None or key in among]


def _committed_by(commit: list[Write], writes: list[Write]) -> list[list[Write]]:
    """Return one transaction if everything fits, else several with the commit point last."""
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
            return Plan(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"no broker of {replicas} is active")
    if len({len(replicas) for replicas in given}) > 1:
        return Plan(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "replica lists have different lengths")
    return list(given)


def assignment_problem(image: ClusterImage, replicas: tuple[BrokerId, ...]) -> str | None:
    """Return what is wrong with an assigned replica list, or None."""
    if not replicas or len(set(replicas)) < len(replicas):
        return f"replica list {replicas} is empty or has duplicates"
    for broker in replicas:
        if broker not in image.brokers:
            return f"broker {broker} is not registered"
    return None


def _partitions_plan(
    term: ControllerTerm,
    topic_id: TopicId,
    indexes: range,
    assignment: list[tuple[BrokerId, ...]],
    commit: list[Write],
) -> Plan:
    """Write partitions, with their active brokers in sync, and then what commits them."""
    writes = []
    for index, replicas in zip(indexes, assignment, strict=True):
        isr = tuple(broker for broker in replicas if broker in term.image.active)
        new = PartitionRegistration(topic_id, index, replicas, isr, isr[0])
        writes.append(term.write(None, new))
    return Plan(steps=_committed_by(commit, writes), topic_id=topic_id)


def _check_configs(configs: dict[str, str]) -> Plan | None:
    problem = config_problem(configs)
    return None if problem is None else Plan(ErrorCode.INVALID_CONFIG, problem)


def _check_size(configs: dict[str, str]) -> Plan | None:
    """Check the size of the encoded settings: the store limits the size of a value."""
    size = len(values.encode_config(configs))
    if size <= VALUE_BYTES_MAX:
        return None
    problem = f"the settings take {size} bytes; the limit is {VALUE_BYTES_MAX}"
    return Plan(ErrorCode.INVALID_CONFIG, problem)


def _check_alteration(
    image: ClusterImage, event: AlterConfigReceived, changes: dict[str, str | None]
) -> Plan | None:
    configs = {name: value for name, value in changes.items() if value is not None}
    if event.topic is not None:
        if event.topic not in image.topics:
            return Plan(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {event.topic} does not exist")
        return _check_configs(configs)
    if event.broker is not None:
        if event.broker not in image.brokers:
            missing = f"broker {event.broker} is not registered"
            return Plan(ErrorCode.BROKER_ID_NOT_REGISTERED, missing)
        if MIN_INSYNC_REPLICAS in changes:
            # Otherwise the rule for a commit would change with the leader.
            only = f"{MIN_INSYNC_REPLICAS} can be set for a topic or for all brokers, not for one"
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
    """Return min.insync.replicas of a partition under the new config of topic or cluster."""
    own = config
    default = image.configs.get(keys.DEFAULT_CONFIG, {})
    if topic is None:
        name = image.topic_names.get(partition.topic_id, "")
        own, default = image.configs.get(keys.topic_config(name), {}), config
    minimum = own.get(MIN_INSYNC_REPLICAS) or default.get(MIN_INSYNC_REPLICAS)
    return image.min_insync_default if minimum is None else int(minimum)


def keys_of(plan: Plan) -> Iterable[str]:
    """Return every key that must not be busy when the plan is sent."""
    for step in plan.steps:
        for write in step:
            yield write.op.key
    yield from plan.also_busy


def resolve_changes(
    current: Mapping[str, str], event: AlterConfigReceived
) -> dict[str, str | None]:
    """Return the new value of each changed setting; None unsets it. Values are normalised,
    because brokers read them as they are."""
    changes = dict.fromkeys(current) if event.whole else {}
    changes.update(event.changes)
    setting_of = broker_setting if event.topic is None else TOPIC.get
    for name in (*event.appended, *event.subtracted):
        setting = setting_of(name)
        before = current.get(name, spell(setting.default) or "" if setting is not None else "")
        items = [item for item in before.split(",") if item]
        if name in event.appended:
            more = [item for item in event.appended[name].split(",") if item]
            items += [item for item in dict.fromkeys(more) if item not in items]
        else:
            fewer = event.subtracted[name].split(",")
            items = [item for item in items if item not in fewer]
        changes[name] = normal(name, ",".join(items))
    return changes


def config_problem(configs: dict[str, str]) -> str | None:
    """Return what is wrong with the first invalid topic setting, or None."""
    return _first(configs, topic_problem)


def broker_config_problem(configs: dict[str, str]) -> str | None:
    """Return what is wrong with the first setting that running brokers can't change, or None."""
    return _first(configs, broker_problem)


def _first(configs: dict[str, str], problem: Callable[[str, str], str | None]) -> str | None:
    for name, value in configs.items():
        if (found := problem(name, value)) is not None:
            return found
        if normal(name, value) != value:
            return f"{name}={value!r} must be spelled {normal(name, value)!r}"
    return None


def unregister_broker(term: ControllerTerm, event: UnregisterBrokerReceived) -> Plan:
    """Delete the controller's state of a broker, and the broker's own key if it is online.

    This is the only way a registration ends. `upkeep` then removes the broker from leaderships
    and ISRs, as after a crash, and also from ELRs: its log no longer counts. It stays in the
    replica lists, as in Kafka; reassignments change those.
    """
    image = term.image
    known = image.brokers.get(event.broker)
    if known is None:
        missing = f"Broker {event.broker} is not registered."
        return Plan(ErrorCode.BROKER_ID_NOT_REGISTERED, missing)
    state, own = keys.broker_state(known.id), keys.broker_id(known.id)
    session = Guard(own, known.epoch if known.online else ABSENT, "create")
    writes = [
        Write(Delete(state), (Guard(state, image.mod_rev(state)),)),
        Write(Delete(own), (session,)),
    ]
    return Plan(steps=[writes])
