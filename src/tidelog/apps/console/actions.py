"""Changes that a page requests: on the cluster through `apps/changes`, on local brokers.

Invariant: nothing is changed unless the console was started with `--allow-actions`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidelog.apps.changes.election import elect_leaders
from tidelog.apps.changes.group_offsets import (
    SHIFT_BY,
    TO_CURRENT,
    TO_EARLIEST,
    TO_LATEST,
    TO_OFFSET,
    TO_TIME,
    NewOffset,
    ResetRule,
    check_idle,
    plan_reset,
)
from tidelog.apps.changes.outcome import Change
from tidelog.apps.changes.reassignment import begin
from tidelog.apps.changes.topic import create_topics
from tidelog.apps.changes.transaction import (
    NotAborted,
    Target,
    abort_ids,
    abort_in_partition,
    find_target,
)
from tidelog.apps.console import local_control
from tidelog.apps.console.cluster_pool import ClusterPool
from tidelog.apps.console.failure import FORBIDDEN, INVALID, NOT_FOUND, Failure, of_client
from tidelog.apps.console.local_control import NO_SWITCHES, BrokerControl
from tidelog.core.record.record import Header, Record
from tidelog.core.types import TopicPartition
from tidelog.shell.client import admin
from tidelog.shell.client.administration.topics import CLUSTER_DEFAULT, NewTopic
from tidelog.shell.client.administration.transactions import NoSuchTransaction
from tidelog.shell.client.client_errors import ClientError, NoSuchTopic
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.groups.group_admin import Committed, NoSuchGroup, commit_offsets
from tidelog.shell.client.partitioner import partition_of_key
from tidelog.shell.client.producer import ALL, Producer

Json = dict[str, Any]
ON_CLUSTER = (
    "create-topic",
    "produce",
    "elect",
    "reassign",
    "reset-offsets",
    "abort-transaction",
)
NOT_ALLOWED = ("actions are off", "start the console with --allow-actions")
NOT_LOCAL = ("the brokers are not processes of a data folder", "start the console with --data DIR")
SWITCHES_KEY = "tidelog.fault.switches"
PRODUCED_MAX = 10_000
"""The most records that one action produces."""
PRODUCE_S, PRODUCE_S_MAX = 10, 60
_RULES = {
    "earliest": TO_EARLIEST,
    "latest": TO_LATEST,
    "current": TO_CURRENT,
    "offset": TO_OFFSET,
    "shift": SHIFT_BY,
    "time": TO_TIME,
}


class Actions:
    """The actions of one console."""

    def __init__(
        self,
        pool: ClusterPool,
        control: BrokerControl | None,
        changed: Callable[[], None],
        *,
        allowed: bool,
    ) -> None:
        """`changed` is called after each action."""
        self._pool = pool
        self._control = control
        self._changed = changed
        self.allowed = allowed

    def offered(self) -> list[Json]:
        """Return each action, and the reason if it is not available."""
        return [
            {"name": name, "offered": reason is None, "reason": reason and "; ".join(reason)}
            for name in (*ON_CLUSTER, *local_control.ACTIONS)
            for reason in [self._missing(name)]
        ]

    def _missing(self, name: str) -> tuple[str, str] | None:
        if not self.allowed:
            return NOT_ALLOWED
        if name in ON_CLUSTER:
            return None
        if self._control is None:
            return NOT_LOCAL
        if name in ("isolate", "reconnect") and not self._has_switches(self._control):
            return NO_SWITCHES
        return None

    def _has_switches(self, control: BrokerControl) -> bool:
        """Whether the brokers have fault switches. Request their setting until it is known to be
        true."""
        if not control.switches:
            try:
                with self._pool.borrow() as cluster:
                    brokers = list(cluster.refresh([]).brokers)
                    values = admin.broker_configs(cluster, brokers[0], [SWITCHES_KEY])
                    if values.get(SWITCHES_KEY) == "true":
                        control.found_switches()
            except (ClientError, Failure, IndexError):
                return False
        return control.switches

    def run(self, name: str, body: Mapping[str, Any]) -> Json:
        """Carry out an action. Raises Failure, ClientError."""
        if name not in (*ON_CLUSTER, *local_control.ACTIONS):
            raise Failure(NOT_FOUND, f"there is no action {name!r}", "")
        if (reason := self._missing(name)) is not None:
            raise Failure(FORBIDDEN, *reason)
        if name not in ON_CLUSTER:
            assert self._control is not None
            done = {"message": self._control.run(name, _number(body, "broker"))}
        else:
            with self._pool.borrow() as cluster:
                try:
                    done = _CHANGES[name](cluster, body)
                except (NoSuchTopic, NoSuchGroup) as error:
                    raise Failure(NOT_FOUND, str(error)) from error
                except ValueError as error:
                    raise Failure(INVALID, str(error)) from error
        self._changed()
        return done


# -- changes of the cluster ------------------------------------------------------------------


def _create_topic(cluster: Cluster, body: Mapping[str, Any]) -> Json:
    configs = body.get("configs") or {}
    if not isinstance(configs, dict) or not all(
        isinstance(each, str) for pair in configs.items() for each in pair
    ):
        raise Failure(INVALID, "'configs' must be an object of strings")
    assignment = body.get("assignment") or []
    if not isinstance(assignment, list) or not all(
        isinstance(each, list) and each and all(type(broker) is int for broker in each)
        for each in assignment
    ):
        raise Failure(INVALID, "'assignment' must be a list of broker ids for each partition")
    wanted = NewTopic(
        _text(body, "topic"),
        _number(body, "partitions", CLUSTER_DEFAULT),
        _number(body, "replication_factor", CLUSTER_DEFAULT),
        assignment,
        configs,
    )
    return _result(create_topics(cluster, [wanted], if_not_exists=False, validate_only=False))


def _produce(cluster: Cluster, body: Mapping[str, Any]) -> Json:
    topic = _text(body, "topic")
    count = _number(body, "count", 1)
    if not 1 <= count <= PRODUCED_MAX:
        raise Failure(INVALID, f"'count' must be 1 to {PRODUCED_MAX}")
    key = _optional_bytes(body, "key")
    headers = body.get("headers") or {}
    if not isinstance(headers, dict):
        raise Failure(INVALID, "'headers' must be an object")
    made = tuple(Header(str(name), str(value).encode()) for name, value in headers.items())
    record = Record(key, _optional_bytes(body, "value"), time.time_ns() // 1_000_000, made)
    acks = {"all": ALL, "1": 1, "0": 0}.get(str(body.get("acks", "all")))
    if acks is None:
        raise Failure(INVALID, "'acks' must be all, 1 or 0")
    timeout_s = _number(body, "timeout_s", PRODUCE_S)
    if not 1 <= timeout_s <= PRODUCE_S_MAX:
        raise Failure(INVALID, f"'timeout_s' must be 1 to {PRODUCE_S_MAX}")
    partitions = cluster.topic(topic).partitions
    partition = _number(body, "partition", -1)
    if partition < 0:
        partition = 0 if key is None else partition_of_key(key, len(partitions))
    cluster.partition(topic, partition)
    producer = Producer(cluster, acks, idempotent=acks == ALL, timeout_s=float(timeout_s))
    first = producer.append(topic, partition, [record] * count)
    text = f"wrote {count} record{'' if count == 1 else 's'} to {topic}/{partition}"
    if first >= 0:
        text += f" at offset {first}"
    return {"message": text, "partition": partition, "offset": first if first >= 0 else None}


def _elect(cluster: Cluster, body: Mapping[str, Any]) -> Json:
    partition = body.get("partition")
    number = None if partition is None else _number(body, "partition")
    unclean = body.get("unclean") is True
    return _result(elect_leaders(cluster, [(_text(body, "topic"), number)], unclean=unclean))


def _reassign(cluster: Cluster, body: Mapping[str, Any]) -> Json:
    replicas = body.get("replicas")
    if not isinstance(replicas, list) or not all(type(each) is int for each in replicas):
        raise Failure(INVALID, "'replicas' must be a list of broker ids")
    key = TopicPartition(_text(body, "topic"), _number(body, "partition"))
    cluster.partition(*key)
    return _result(begin(cluster, {key: replicas}))


def _reset_offsets(cluster: Cluster, body: Mapping[str, Any]) -> Json:
    group, kind = _text(body, "group"), _text(body, "to")
    if kind not in _RULES:
        raise Failure(INVALID, f"'to' must be one of: {', '.join(_RULES)}")
    topic, partition = body.get("topic"), body.get("partition")
    topics: Sequence[tuple[str, list[int] | None]] = ()
    if topic is not None:
        numbers = None if partition is None else [_number(body, "partition")]
        topics = [(_text(body, "topic"), numbers)]
    notes: list[str] = []
    check_idle(cluster, group, may_be_new=topic is not None)
    rule = ResetRule(_RULES[kind], _number(body, "number", 0))
    planned = plan_reset(cluster, group, topics, rule, notes.append)
    commit_offsets(cluster, group, {each.key: Committed(each.new) for each in planned})
    return {
        "message": "; ".join([f"reset {len(planned)} offsets of group {group}", *notes]),
        "offsets": [_offset(each) for each in planned],
    }


def _abort_transaction(cluster: Cluster, body: Mapping[str, Any]) -> Json:
    """Abort the transaction of an id, or one that hangs in a partition."""
    try:
        if body.get("topic") is None:
            return _result(abort_ids(cluster, [_text(body, "transactional_id")]))
        key = TopicPartition(_text(body, "topic"), _number(body, "partition"))
        cluster.partition(*key)
        target = Target(key, _number(body, "offset"), None)
        return _result([abort_in_partition(cluster, find_target(cluster, target, force=False))])
    except NoSuchTransaction as error:
        raise of_client(error, NOT_FOUND) from error
    except NotAborted as error:
        raise of_client(error, INVALID) from error


def _offset(each: NewOffset) -> Json:
    key = each.key
    return {
        "topic": key.topic,
        "partition": key.partition,
        "offset": each.new,
        "before": each.prior,
    }


_CHANGES: dict[str, Callable[[Cluster, Mapping[str, Any]], Json]] = {
    "create-topic": _create_topic,
    "produce": _produce,
    "elect": _elect,
    "reassign": _reassign,
    "reset-offsets": _reset_offsets,
    "abort-transaction": _abort_transaction,
}


def _result(changes: list[Change]) -> Json:
    """Return the message of all changes. Raises Failure if one was rejected."""
    rejected = [each.message or each.error or "" for each in changes if not each.holds]
    if rejected:
        what, _, advice = rejected[0].partition("; ")
        raise Failure(INVALID, what, advice)
    return {"message": "; ".join(each.done for each in changes)}


# -- fields of a request ---------------------------------------------------------------------


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise Failure(INVALID, f"{name!r} must be a string")
    return value


def _number(body: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = body.get(name)
    if value is None and default is not None:
        return default
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise Failure(INVALID, f"{name!r} must be a whole number")
    return value


def _optional_bytes(body: Mapping[str, Any], name: str) -> bytes | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise Failure(INVALID, f"{name!r} must be a string or null")
    return None if value is None else value.encode(errors="surrogatepass")
