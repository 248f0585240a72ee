"""The coordinator runtime with a tenant of its own: counters on `__counters`."""

from typing import Any, NamedTuple

import pytest
from node_cluster import Cluster

from tidelog.core.controller.events import CreateTopicReceived, DeleteTopicReceived
from tidelog.core.coordinator.lookup import (
    OFFSETS_TOPIC,
    CoordinatorType,
    FindCoordinator,
    partition_for,
)
from tidelog.core.coordinator.shard import APPEND_ERRORS, CoordinatorShard, DamagedRecord
from tidelog.core.errors import ErrorCode
from tidelog.core.groups.messages import OffsetCommit, OffsetToCommit
from tidelog.core.node import events as on
from tidelog.core.node.coordinating import coordinators
from tidelog.core.node.coordinating.coordinator_host import CoordinatorHost
from tidelog.core.node.coordinating.coordinator_runtime import CoordinatorRuntime, HostedShard
from tidelog.core.node.coordinating.coordinators import Tenant
from tidelog.core.node.effects import Respond
from tidelog.core.node.events import Peer, RequestHandler
from tidelog.core.node.messages import Produce, ProducePartition
from tidelog.core.record.control import ControlType
from tidelog.core.record.encoder import Producer, encode_batch, encode_marker
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import CONTROL, TRANSACTIONAL, parse
from tidelog.core.types import LeaderEpoch, TopicPartition

TOPIC = "__counters"
FIRST = TopicPartition(TOPIC, 0)
LIFETIME_MS = 30_000
PARTITIONS = 4


class Add(NamedTuple):
    """Add to a counter; the response follows when the new value is committed."""

    key: str
    amount: int


class Await(NamedTuple):
    """Wait until the counter reaches a value."""

    key: str
    value: int


class Total(NamedTuple):
    """Request the sum of all counters of a broker."""


class Announce(NamedTuple):
    """Let the runtime carry out an effect of the tenant."""

    key: str


class Value(NamedTuple):
    """The response to all requests."""

    error_code: ErrorCode
    value: int = 0


class Unheard(NamedTuple):
    """A request that no service handles."""


class Announced(NamedTuple):
    """An effect that only this tenant's runtime knows."""

    key: str


class CounterShard(CoordinatorShard[tuple[str]]):
    """Counters that are deleted some time after their last change."""

    def __init__(self, now_ms: int, leader_epoch: LeaderEpoch) -> None:
        super().__init__(now_ms)
        self.values: dict[str, int] = {}
        self.leader_epoch = leader_epoch
        self.deleted_topics: list[str] = []
        self._waiting: list[tuple[object, Await]] = []

    def replay(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            self.values.pop(key.decode(), None)
        elif len(value) != 4:
            raise DamagedRecord
        else:
            self.values[key.decode()] = int.from_bytes(value, "big")

    def on_loaded(self) -> None:
        for key in self.values:
            self._timers.arm((key,), self._now_ms + LIFETIME_MS)

    def on_unload(self, error: ErrorCode) -> None:
        for requester, _ in self._waiting:
            self._outbox.answer(requester, Value(error))

    def on_timer(self, timer: tuple[str]) -> None:
        (key,) = timer
        self._outbox.append([(key.encode(), None)], lambda *_: self._delete(key))

    def serve(self, requester: object, request: Any) -> None:
        if isinstance(request, Add):
            self._add(requester, request)
        elif isinstance(request, Announce):
            self._outbox.emit(Announced(request.key))
            self._outbox.answer(requester, Value(ErrorCode.NONE))
        else:
            self._waiting.append((requester, request))
            self._answer_waiting()

    def _add(self, requester: object, request: Add) -> None:
        key, value = request.key, self.values.get(request.key, 0) + request.amount

        def written(error: ErrorCode, now_ms: int) -> None:
            if error is ErrorCode.NONE:
                self.values[key] = value
                self._timers.arm((key,), now_ms + LIFETIME_MS)
            self._outbox.answer(requester, Value(APPEND_ERRORS.get(error, error), value))
            self._answer_waiting()

        self._outbox.append([(key.encode(), value.to_bytes(4, "big"))], written)

    def _answer_waiting(self) -> None:
        for entry in list(self._waiting):
            requester, request = entry
            if self.values.get(request.key, 0) >= request.value:
                self._waiting.remove(entry)
                self._outbox.answer(requester, Value(ErrorCode.NONE, self.values[request.key]))

    def _delete(self, key: str) -> None:
        self.values.pop(key, None)


class CounterCoordinator(CoordinatorRuntime[CounterShard]):
    """The counters that a broker coordinates."""

    topic = TOPIC

    def __init__(self, host: CoordinatorHost) -> None:
        super().__init__(host, write_timeout_ms=1_000)
        self.announced: list[tuple[int, str]] = []
        self.loaded: list[LeaderEpoch] = []

    def handlers(self) -> dict[type, RequestHandler]:
        return {**dict.fromkeys((Add, Await, Announce), self._serve), Total: self._total}

    def make_shard(self, leader_epoch: LeaderEpoch) -> CounterShard:
        return CounterShard(self._turn.now_ms, leader_epoch)

    def refused(self, _request: Any, error: ErrorCode) -> Value:
        return Value(error)

    def on_loaded(self, shard: CounterShard) -> None:
        self.loaded.append(shard.leader_epoch)

    def on_topics_deleted(self, shard: CounterShard, names: Any) -> None:
        shard.deleted_topics += names

    def carry_out(self, hosted: HostedShard[CounterShard], effect: Any) -> None:
        if isinstance(effect, Announced):
            self.announced.append((hosted.replica.topic_partition.partition, effect.key))
        else:
            super().carry_out(hosted, effect)

    def _serve(self, peer: Peer, correlation: int, request: Any) -> None:
        self.serve(request.key, peer, correlation, request)

    def _total(self, peer: Peer, correlation: int, _request: Total) -> None:
        shards = self.all_shards()
        if isinstance(shards, ErrorCode):
            answer = Value(shards)
        else:
            values = (value for shard in shards for value in shard.values.values())
            answer = Value(ErrorCode.NONE, sum(values))
        self._turn.emit(Respond(peer, correlation, answer))


COUNTERS = Tenant(CoordinatorType.TRANSACTION, TOPIC, __name__, CounterCoordinator)


@pytest.fixture(autouse=True)
def _counters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinators, "TENANTS", (*coordinators.TENANTS, COUNTERS))


def cluster_with_counters(replicas: tuple[int, ...] = (1, 2, 3)) -> Cluster:
    cluster = Cluster()
    cluster.start()
    cluster.create_topic(TOPIC, replicas, cleanup_policy="compact")
    return cluster


def loaded_leader(cluster: Cluster) -> int:
    """The leader of the first partition, once its shard serves."""
    found: list[int] = []

    def serves() -> bool:
        leader = cluster.leader(FIRST)
        hosted = None if leader is None else shards(cluster, leader).get(0)
        if leader is not None and hosted is not None and hosted.loaded:
            found.append(leader)
        return bool(found)

    cluster.run_until(serves)
    return found[0]


def shards(cluster: Cluster, broker: int) -> dict[int, HostedShard[CounterShard]]:
    return cluster.nodes[broker].coordinators.shards(TOPIC)


def runtime(cluster: Cluster, broker: int) -> CounterCoordinator:
    found = cluster.nodes[broker].coordinators._runtimes[TOPIC]
    assert isinstance(found, CounterCoordinator)
    return found


def cut_followers(cluster: Cluster, leader: int) -> None:
    for follower in {1, 2, 3} - {leader}:
        cluster.cut.add((follower, leader))


def test_a_change_counts_when_it_is_committed() -> None:
    cluster = cluster_with_counters()
    leader = loaded_leader(cluster)
    cut_followers(cluster, leader)
    number = cluster.ask(leader, Add("a", 5))
    cluster.run(500)
    assert number not in cluster.answers
    assert shards(cluster, leader)[0].shard.values == {}
    for follower in {1, 2, 3} - {leader}:
        cluster.crash(follower, proof=True)
    cluster.run_until(lambda: number in cluster.answers)
    assert cluster.answers[number] == Value(ErrorCode.NONE, 5)
    assert shards(cluster, leader)[0].shard.values == {"a": 5}


def test_a_write_has_the_timeout_of_its_coordinator() -> None:
    cluster = cluster_with_counters()
    leader = loaded_leader(cluster)
    cut_followers(cluster, leader)
    assert cluster.call(leader, Add("a", 5), 1_500).error_code is ErrorCode.REQUEST_TIMED_OUT


def test_the_next_leader_replays_the_log_under_its_own_epoch() -> None:
    cluster = cluster_with_counters()
    leader = loaded_leader(cluster)
    epoch = shards(cluster, leader)[0].shard.leader_epoch
    cluster.call(leader, Add("a", 5))
    cluster.call(leader, Add("a", 2))
    cluster.crash(leader, proof=True)
    cluster.run_until(lambda: cluster.leader(FIRST) not in (None, leader))
    successor = loaded_leader(cluster)
    assert cluster.call(successor, Await("a", 7)) == Value(ErrorCode.NONE, 7)
    assert shards(cluster, successor)[0].shard.leader_epoch > epoch
    assert runtime(cluster, successor).loaded == [shards(cluster, successor)[0].leader_epoch]


def test_requests_that_wait_fail_when_the_leader_moves() -> None:
    cluster = cluster_with_counters()
    leader = loaded_leader(cluster)
    cut_followers(cluster, leader)
    waiting = cluster.ask(leader, Await("a", 1))
    writing = cluster.ask(leader, Add("b", 1))
    cluster.lose_session(leader)
    for number in (waiting, writing):
        assert cluster.answers[number].error_code is ErrorCode.NOT_COORDINATOR
    assert shards(cluster, leader) == {}
    refused = cluster.call(leader, Add("a", 1)).error_code
    assert refused is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_stopping_broker_answers_requests_that_wait() -> None:
    cluster = cluster_with_counters((1,))
    leader = loaded_leader(cluster)
    waiting = cluster.ask(leader, Await("a", 1))
    cluster.step(leader, on.ShutdownRequested(cluster.now_ms))
    cluster.run_until(lambda: leader in cluster.halted)
    assert cluster.answers[waiting].error_code is ErrorCode.NOT_COORDINATOR


def test_a_leader_that_returns_loads_again() -> None:
    cluster = cluster_with_counters((1,))
    leader = loaded_leader(cluster)
    cluster.call(leader, Add("a", 1))
    before = shards(cluster, leader)[0]
    cluster.lose_session(leader)
    assert loaded_leader(cluster) == leader
    assert shards(cluster, leader)[0] is not before
    assert cluster.call(leader, Await("a", 1)) == Value(ErrorCode.NONE, 1)


def test_a_request_for_all_shards_fails_while_one_is_not_loaded() -> None:
    cluster = cluster_with_counters((1,))
    leader = loaded_leader(cluster)
    assert cluster.call(leader, Total()) == Value(ErrorCode.NONE, 0)
    shards(cluster, leader)[0].loaded = False
    node = cluster.nodes[leader]
    node.take(on.RequestReceived("client", 1, Total(), cluster.now_ms))
    (answer,) = (one.response for one in node.take_answers() if isinstance(one, Respond))
    assert answer == Value(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    cluster.lose_session(leader)
    assert cluster.call(leader, Total()) == Value(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def test_a_shard_serves_nothing_between_a_change_of_leadership_and_its_unloading() -> None:
    cluster = cluster_with_counters((1,))
    leader = loaded_leader(cluster)
    before = shards(cluster, leader)[0]
    replicas = runtime(cluster, leader)._replicas
    replicas.fail_waiters(before.replica, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert cluster.call(leader, Add("a", 1)) == Value(ErrorCode.NOT_COORDINATOR)
    assert loaded_leader(cluster) == leader
    assert shards(cluster, leader)[0] is not before
    assert cluster.call(leader, Add("a", 1)) == Value(ErrorCode.NONE, 1)


def test_timers_write_records() -> None:
    cluster = cluster_with_counters()
    leader = loaded_leader(cluster)
    cluster.call(leader, Add("a", 1))
    cluster.run(LIFETIME_MS - 1_000)
    assert shards(cluster, leader)[0].shard.values == {"a": 1}
    cluster.run(2_000)
    assert shards(cluster, leader)[0].shard.values == {}
    cluster.crash(leader, proof=True)
    cluster.run_until(lambda: cluster.leader(FIRST) not in (None, leader))
    assert shards(cluster, loaded_leader(cluster))[0].shard.values == {}


def test_timers_restart_when_a_shard_is_loaded() -> None:
    cluster = cluster_with_counters()
    leader = loaded_leader(cluster)
    cluster.call(leader, Add("a", 1))
    cluster.run(LIFETIME_MS - 1_000)
    cluster.crash(leader, proof=True)
    cluster.run_until(lambda: cluster.leader(FIRST) not in (None, leader))
    successor = loaded_leader(cluster)
    cluster.run(LIFETIME_MS - 1_000)
    assert shards(cluster, successor)[0].shard.values == {"a": 1}
    cluster.run(2_000)
    assert shards(cluster, successor)[0].shard.values == {}


def test_records_of_another_format_are_skipped_and_counted() -> None:
    cluster = cluster_with_counters((1,))
    leader = loaded_leader(cluster)
    cluster.call(leader, Add("a", 1))
    part = ProducePartition(FIRST, bytearray(encode_batch([Record(b"a", b"bad", 1)])))
    cluster.call(leader, Produce(-1, 1000, [part], internal_topics_allowed=True))
    cluster.lose_session(leader)
    hosted = shards(cluster, loaded_leader(cluster))[0]
    assert (hosted.damaged, hosted.shard.values) == (1, {"a": 1})


class LedgerShard(CounterShard):
    """Applies the records of a transaction when its marker commits them."""

    def __init__(self) -> None:
        super().__init__(0, 0)
        self.open: dict[tuple[int, int], list[tuple[bytes, bytes | None]]] = {}

    def replay_transactional(
        self, producer_id: int, producer_epoch: int, key: bytes, value: bytes | None
    ) -> None:
        self.open.setdefault((producer_id, producer_epoch), []).append((key, value))

    def replay_marker(self, producer_id: int, producer_epoch: int, *, committed: bool) -> None:
        records = self.open.pop((producer_id, producer_epoch), [])
        for key, value in records if committed else []:
            self.replay(key, value)


def test_transactional_records_and_markers_reach_the_shard() -> None:
    cluster = cluster_with_counters((1,))
    replica = cluster.replica(loaded_leader(cluster), FIRST)
    one, two, three = Producer(1, 0, 0), Producer(2, 5, 0), Producer(3, 0, 0)

    def transactional(producer: Producer, key: bytes, value: int) -> bytearray:
        records = [Record(key, value.to_bytes(4, "big"), 1)]
        return encode_batch(records, attributes=TRANSACTIONAL, producer=producer)

    written = [
        transactional(one, b"committed", 1),
        transactional(two, b"aborted", 2),
        transactional(three, b"open", 3),
        encode_marker(ControlType.COMMIT, one, 0, 1),
        encode_marker(ControlType.ABORT, two, 0, 1),
        encode_batch([Record(b"\0\0\0\2", b"", 1)], attributes=CONTROL),  # a leader change
        encode_batch([Record(b"\0", b"", 1)], attributes=CONTROL),  # damaged
    ]
    for data in written:
        batch = parse(data)
        batch.assign(replica.log.log_end_offset, 0)
        replica.log.append([batch], cluster.now_ms)
    ledger = HostedShard(LedgerShard(), replica)
    plain = HostedShard(CounterShard(0, 0), replica)
    assert ledger.read_slice() == plain.read_slice() > 0
    assert ledger.shard.values == {"committed": 1}
    assert list(ledger.shard.open) == [(3, 0)]
    assert (ledger.has_read_all, ledger.damaged) == (True, 1)
    assert plain.shard.values == {"committed": 1, "aborted": 2, "open": 3}


def test_each_key_has_a_partition_and_each_broker_its_shards() -> None:
    cluster = Cluster()
    cluster.start()
    cluster.run_until(lambda: all(node.acting for node in cluster.nodes.values()))
    layout = ((1, 2), (2, 3), (3, 1), (1, 3))
    request = CreateTopicReceived(0, TOPIC, b"c" * 16, PARTITIONS, 2, {}, layout)
    cluster.call(cluster.controller(), request)

    def all_loaded() -> bool:
        hosted = [one for broker in (1, 2, 3) for one in shards(cluster, broker).values()]
        return len(hosted) == PARTITIONS and all(one.loaded for one in hosted)

    cluster.run_until(all_loaded)
    assert {b: sorted(shards(cluster, b)) for b in (1, 2, 3)} == {1: [0, 3], 2: [1], 3: [2]}
    leads = {index: broker for broker in (1, 2, 3) for index in shards(cluster, broker)}
    keys = [f"key-{number}" for number in range(12)]
    for amount, key in enumerate(keys, 1):
        leader = leads[partition_for(key, PARTITIONS)]
        other = leader % 3 + 1
        assert cluster.call(other, Add(key, 9)).error_code is ErrorCode.NOT_COORDINATOR
        assert cluster.call(leader, Add(key, amount)) == Value(ErrorCode.NONE, amount)
    totals = {broker: cluster.call(broker, Total()).value for broker in (1, 2, 3)}
    assert sum(totals.values()) == sum(range(1, 13))
    assert totals[1] == sum(
        amount for amount, key in enumerate(keys, 1) if partition_for(key, PARTITIONS) in (0, 3)
    )


def test_coordinators_on_one_broker_are_independent() -> None:
    cluster = cluster_with_counters()
    cluster.create_topic(OFFSETS_TOPIC, topic_id=b"o" * 16, cleanup_policy="compact")
    leader = loaded_leader(cluster)
    group_leader = cluster.leader(TopicPartition(OFFSETS_TOPIC, 0))
    assert group_leader is not None
    assert cluster.call(leader, Add("g", 1)) == Value(ErrorCode.NONE, 1)
    commit = OffsetCommit("g", -1, "", None, [OffsetToCommit("orders", 0, 9)])
    answer = cluster.call(group_leader, commit)
    assert answer.partitions[0].error_code is ErrorCode.NONE
    (group,) = cluster.nodes[group_leader].coordinators.shards(OFFSETS_TOPIC)[0].shard.groups
    assert group.group_id == "g"
    assert shards(cluster, leader)[0].shard.values == {"g": 1}


def test_every_broker_finds_the_coordinator_of_each_type() -> None:
    cluster = cluster_with_counters()
    leader = loaded_leader(cluster)
    for broker in (1, 2, 3):
        found = cluster.call(broker, FindCoordinator("a", CoordinatorType.TRANSACTION))
        assert (found.error_code, found.node_id) == (ErrorCode.NONE, leader)
        missing = cluster.call(broker, FindCoordinator("a"))
        assert missing.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert missing.error_message == f"{OFFSETS_TOPIC} is being created; retry later."


def test_shards_learn_of_deleted_topics() -> None:
    cluster = cluster_with_counters()
    cluster.create_topic("orders", topic_id=b"o" * 16)
    leader = loaded_leader(cluster)
    cluster.call(cluster.controller(), DeleteTopicReceived(0, "orders"))
    cluster.run_until(lambda: shards(cluster, leader)[0].shard.deleted_topics == ["orders"])


def test_a_deleted_internal_topic_ends_its_shards() -> None:
    cluster = cluster_with_counters()
    leader = loaded_leader(cluster)
    waiting = cluster.ask(leader, Await("a", 1))
    cluster.call(cluster.controller(), DeleteTopicReceived(0, TOPIC))
    cluster.run_until(lambda: not shards(cluster, leader))
    assert cluster.answers[waiting].error_code is ErrorCode.NOT_COORDINATOR


def test_runtime_carries_out_only_its_own_effects() -> None:
    cluster = cluster_with_counters()
    leader = loaded_leader(cluster)
    assert cluster.call(leader, Announce("a")) == Value(ErrorCode.NONE)
    assert runtime(cluster, leader).announced == [(0, "a")]
    hosted = shards(cluster, leader)[0]
    hosted.shard._outbox.emit("unknown")
    with pytest.raises(TypeError, match="CounterCoordinator does not know the effect 'unknown'"):
        cluster.call(leader, Announce("b"))


def test_a_request_without_a_service_is_an_error() -> None:
    cluster = cluster_with_counters((1,))
    with pytest.raises(TypeError, match="no service handles requests of type Unheard"):
        cluster.ask(1, Unheard())
    with pytest.raises(TypeError, match="no service handles requests of type object"):
        cluster.ask(1, object())
