"""Metrics of transactions, of a coordinator and of the partitions of its transactions."""

from typing import Any

from scraped import Scraped
from txn_cluster import Coordinator, batch, request, started, write

from tidelog.core.coordinator.lookup import TRANSACTIONS_TOPIC
from tidelog.core.errors import ErrorCode
from tidelog.core.metrics.transaction_families import LATE_MS
from tidelog.core.node.measuring.load_times import WINDOW_MS
from tidelog.core.transactions import messages as on
from tidelog.core.transactions.config import TransactionConfig
from tidelog.core.transactions.transaction import ProducerIdentity
from tidelog.core.types import TopicPartition

CHANNEL = "kafka_coordinator_transaction_transactionmarkerchannelmanager"
LOAD_TIME = "kafka_server_transaction_coordinator_metrics_partition_load_time"
VERIFICATION = "kafka_server_addpartitionstotxnmanager"
MANAGER = "kafka_server_replicamanager"
TIMEOUT_MS = 60_000
NAME = "payments"


class Transactions:
    """A cluster with its own coordinator, and one transactional id."""

    def __init__(self, **settings: Any) -> None:
        self.cluster, self.leader = started(**settings)
        self.coordinator = self.leader % 3 + 1
        self.cluster.create_topic(TRANSACTIONS_TOPIC, (self.coordinator,), b"s" * 16)
        self.cluster.run_until(self._serves)
        self.producer = ProducerIdentity(-1, -1)

    def _serves(self) -> bool:
        coordinators = self.cluster.nodes[self.coordinator].coordinators
        hosted = coordinators.shards(TRANSACTIONS_TOPIC).get(0)
        return hosted is not None and hosted.loaded

    def scraped(self, broker: int) -> Scraped:
        return Scraped(self.cluster, broker)

    def init(self) -> None:
        while True:
            answer = self.cluster.call(self.coordinator, on.InitTransactionalId(NAME, TIMEOUT_MS))
            if answer.error_code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                break
            self.cluster.run(10)
        assert answer.error_code is ErrorCode.NONE
        self.producer = ProducerIdentity(answer.producer_id, answer.producer_epoch)

    def write(self) -> None:
        data = batch(0, of=self.producer.producer_id, epoch=self.producer.epoch)
        assert write(self.cluster, self.leader, data, transactional_id=NAME).error == 0

    def end(self, *, committed: bool) -> None:
        request = on.EndTransaction(NAME, self.producer, committed, 2)
        answer = self.cluster.call(self.coordinator, request)
        assert answer.error_code is ErrorCode.NONE
        self.producer = ProducerIdentity(answer.producer_id, answer.producer_epoch)

    def state(self) -> str:
        return str(self.cluster.call(self.coordinator, on.DescribeTransaction(NAME)).state)


def test_an_open_transaction_is_counted_where_it_is_open() -> None:
    it = Transactions()
    it.init()
    it.write()
    it.cluster.run(2_000)
    told = it.scraped(it.coordinator)
    assert told("tidelog_transactional_ids", state="Ongoing") == 1
    assert told("tidelog_transactional_ids", state="Empty") == 0
    told = it.scraped(it.leader)
    assert told("tidelog_transactions_open") == 1
    assert 2 <= told("tidelog_transaction_oldest_seconds") < 10
    assert told(f"{MANAGER}_produceridcount") == 1
    assert told(f"{VERIFICATION}_verificationtimems_count") == 1
    assert told(f"{VERIFICATION}_verificationfailurerate_total") == 0


def test_ended_transactions_are_counted_by_outcome() -> None:
    cleanup = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": 100}
    it = Transactions(transactions=TransactionConfig(**cleanup))

    def ended(outcome: str) -> float:
        return it.scraped(it.coordinator)("tidelog_transactions_ended_total", outcome=outcome)

    it.init()
    for committed in (True, True, False):
        it.write()
        it.end(committed=committed)
        it.cluster.run_until(lambda: it.state().startswith("Complete"))
    assert [ended(each) for each in ("committed", "aborted", "fenced", "timed_out")] == [2, 1, 0, 0]
    it.write()
    it.init()
    assert ended("fenced") == 1
    it.write()
    it.cluster.run_until(lambda: it.state() == "CompleteAbort", 2 * TIMEOUT_MS)
    assert ended("timed_out") == 1
    told = it.scraped(it.coordinator)
    assert told("kafka_server_txn_marker_channel_metrics_request_total") == 5
    assert told("tidelog_transaction_markers_waiting") == 0


def test_markers_for_a_partition_without_a_leader_are_counted() -> None:
    it = Transactions()
    [lone] = {1, 2, 3} - {it.leader, it.coordinator}
    alone = TopicPartition("alone", 0)
    it.cluster.create_topic(alone.topic, (lone,), b"a" * 16)
    it.init()
    it.write()
    data = batch(0, of=it.producer.producer_id, epoch=it.producer.epoch)
    made = request(data, transactional_id=NAME, names=(alone,))
    assert it.cluster.call(lone, made).partitions[0].error is ErrorCode.NONE
    it.cluster.crash(lone, proof=True)
    it.cluster.run_until(lambda: it.cluster.leader(alone) is None)
    it.end(committed=True)
    it.cluster.run(1_000)
    told = it.scraped(it.coordinator)
    assert told(f"{CHANNEL}_unknowndestinationqueuesize") == 1
    assert told("tidelog_transaction_markers_waiting") == 1
    assert told("tidelog_transactional_ids", state="PrepareCommit") == 1
    it.cluster.start(lone)
    it.cluster.run_until(lambda: it.state() == "CompleteCommit")
    assert it.scraped(it.coordinator)(f"{CHANNEL}_unknowndestinationqueuesize") == 0


def test_verifications_that_fail_are_counted() -> None:
    cluster, leader = started()
    coordinator = Coordinator(cluster, leader % 3 + 1)
    coordinator.answers = {"payments": ErrorCode.INVALID_PRODUCER_EPOCH}
    assert write(cluster, leader, batch(0)).error is not ErrorCode.NONE
    cluster.crash(coordinator.broker)
    assert write(cluster, leader, batch(0)).error is not ErrorCode.NONE
    told = Scraped(cluster, leader)
    assert told(f"{VERIFICATION}_verificationfailurerate_total") == 2
    assert told(f"{VERIFICATION}_verificationtimems_count") == 2


def test_a_transaction_is_late_five_minutes_after_the_longest_time_out() -> None:
    cluster, leader = started()
    Coordinator(cluster, leader % 3 + 1)
    assert write(cluster, leader, batch(0)).error is ErrorCode.NONE
    node, late = cluster.nodes[leader], f"{MANAGER}_partitionswithlatetransactionscount"
    [entry] = cluster.replica(leader).log.producers.producers.values()
    limit_ms = node.config.transactions.transaction_max_timeout_ms + LATE_MS
    entry.last_timestamp = node.wall_ms - limit_ms
    assert Scraped(cluster, leader)(late) == 0
    entry.last_timestamp -= 1
    assert Scraped(cluster, leader)(late) == 1
    follower = leader % 3 + 1
    assert Scraped(cluster, follower)(late) == 0


def test_load_times_are_those_of_the_last_minute() -> None:
    it = Transactions()
    load_times = it.cluster.nodes[it.coordinator].coordinators.running(TRANSACTIONS_TOPIC)
    assert load_times is not None
    assert len(load_times.load_times.recent(it.cluster.now_ms)) == 1
    load_times.load_times.note(it.cluster.now_ms, 40)
    load_times.load_times.note(it.cluster.now_ms, 20)
    told = it.scraped(it.coordinator)
    assert told(f"{LOAD_TIME}_max") == 40
    assert 20 <= told(f"{LOAD_TIME}_avg") <= 100 / 3
    it.cluster.run(WINDOW_MS)
    assert it.scraped(it.coordinator)(f"{LOAD_TIME}_max") == 0
    assert it.scraped(it.leader)(f"{LOAD_TIME}_avg") == 0, "it coordinates nothing"
