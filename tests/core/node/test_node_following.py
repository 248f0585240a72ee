"""A follower's handling of responses: late, damaged, out of range, of another session.

The follower is a whole broker (1). The test plays its leader (2): it holds every request, and
chooses when and how to respond.
"""

from dataclasses import replace
from typing import Any

import pytest
from node_cluster import ORDERS, TTL_MS, Cluster

from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata import registrations as values
from tidelog.core.controller.metadata.metadata_store import Delete, Put
from tidelog.core.controller.metadata.mvcc import Mvcc
from tidelog.core.controller.metadata.registrations import (
    BrokerState,
    PartitionKey,
    PartitionRegistration,
    TopicImage,
    UncleanElection,
)
from tidelog.core.errors import ErrorCode
from tidelog.core.node import effects as do
from tidelog.core.node import events as on
from tidelog.core.node.config import NodeConfig
from tidelog.core.node.messages import (
    EARLIEST,
    LATEST,
    EpochPartitionResponse,
    Fetch,
    FetchPartitionResponse,
    FetchResponse,
    ListOffsets,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    OffsetForLeaderEpoch,
    OffsetForLeaderEpochResponse,
)
from tidelog.core.node.node import Node
from tidelog.core.record.encoder import encode_value
from tidelog.core.record.record_batch import parse
from tidelog.core.replication.truncation import LEADER_EPOCH, TruncationPolicy
from tidelog.core.storage.log_directory import LogDirectory
from tidelog.core.types import EpochEnd
from tidelog.lab.historical_truncation import Kip101Truncation
from tidelog.lab.memory_disk import MemoryDisk

TOPIC = b"t" * 16
SESSION = 55


class Follower:
    """Broker 1, following broker 2, in a store that the test writes by hand."""

    def __init__(self, policy: TruncationPolicy = LEADER_EPOCH) -> None:
        self.now_ms = 0
        self.store = Mvcc()
        self.disk = MemoryDisk()
        self.node = Node(NodeConfig(1), self.disk, 1, 0, policy)
        self.sent: list[do.Send] = []
        self.registration = PartitionRegistration(TOPIC, 0, (2, 1, 3), (2, 1, 3), 2)
        self.step(on.Started(0))
        session = self.store.open_session()
        self.epoch = 0
        register = self.step(on.SessionOpened(session, 10**9, 0))[0]
        answer = self.store.txn(register.guards, register.ops)
        self.step(on.TransactionAnswered(register.tag, answer, 0))
        self.step(on.StoreRead(self.store.range(""), 0))
        self.write(
            Put(keys.topic_name("orders"), values.encode_topic(TopicImage("orders", TOPIC, 1))),
            self.partition(),
        )

    def partition(self) -> Put:
        return Put(keys.partition(TOPIC, 0), values.encode_partition(self.registration))

    def write(self, *ops: Put) -> None:
        before = self.store.revision
        self.store.txn((), ops)
        if self.node.image.revision:
            for batch in self.store.watch("", before):  # type: ignore[union-attr]
                self.step(on.StoreChanged(batch, self.now_ms))

    def elect(self, leader: int | None, **changes: Any) -> None:
        old = self.registration
        self.registration = replace(
            old,
            leader=leader,
            leader_epoch=old.leader_epoch + 1,
            partition_epoch=old.partition_epoch + 1,
            **changes,
        )
        self.write(self.partition())

    def step(self, event: on.Event) -> list[Any]:
        effects = self.node.step(event)
        self.sent += [e for e in effects if isinstance(e, do.Send)]
        return effects

    def run(self, for_ms: int) -> None:
        end = self.now_ms + for_ms
        while (at := self.node.next_deadline_ms()) is not None and at <= end:
            self.now_ms = max(at, self.now_ms)
            self.step(on.Ticked(self.now_ms))
        self.now_ms = end

    def request(self, kind: type = Fetch) -> do.Send:
        """Return the one request that waits for a response."""
        assert [type(send.request) for send in self.sent] == [kind]
        return self.sent.pop()

    def answer(self, send: do.Send, response: object) -> None:
        self.step(on.ResponseReceived(send.correlation, response, self.now_ms))

    def give(self, send: do.Send, *parts: FetchPartitionResponse, session: int = SESSION) -> None:
        self.answer(send, FetchResponse(ErrorCode.NONE, session, list(parts)))

    @property
    def log_end(self) -> int:
        replica = self.node.replicas[ORDERS]
        assert replica.log.log_end_offset == replica.partition.log_end_offset
        return replica.log.log_end_offset


def batch(offset: int, epoch: int = 0, value: bytes = b"x") -> bytes:
    records = encode_value(value)
    parse(records).assign(offset, epoch)
    return bytes(records)


def part(
    records: bytes | None = None,
    error: ErrorCode = ErrorCode.NONE,
    high_watermark: int = 0,
    log_start: int = 0,
    diverging: EpochEnd | None = None,
) -> FetchPartitionResponse:
    return FetchPartitionResponse(
        ORDERS, TOPIC, error, high_watermark, high_watermark, log_start, diverging, records
    )


@pytest.fixture
def follower() -> Follower:
    return Follower()


def test_fetch_starts_at_the_log_end_with_the_leader_epoch(follower: Follower) -> None:
    send = follower.request()
    assert send.broker == 2
    fetch = send.request
    assert isinstance(fetch, Fetch)
    assert (fetch.replica, fetch.broker_epoch) == (1, follower.node.broker_epoch)
    assert [(p.offset, p.leader_epoch) for p in fetch.partitions] == [(0, 0)]
    follower.give(send, part(batch(0)))
    following = follower.request().request
    assert isinstance(following, Fetch)
    assert (following.session_id, following.session_epoch) == (SESSION, 1)
    assert [(p.offset, p.last_fetched_epoch) for p in following.partitions] == [(1, 0)]


def test_response_of_an_older_leader_epoch_is_ignored(follower: Follower) -> None:
    """KAFKA-7786, KAFKA-18991: the reply of epoch 0 arrives under epoch 1."""
    first = follower.request()
    follower.give(first, part(batch(0)))
    late = follower.request()
    follower.elect(2)
    follower.give(late, part(diverging=EpochEnd(0, 0)))
    assert follower.log_end == 1, "nothing was cut"
    fetch = follower.request().request
    assert isinstance(fetch, Fetch)
    assert [p.leader_epoch for p in fetch.partitions] == [1], "the session heard of the epoch"


def test_response_for_a_removed_partition_is_ignored(follower: Follower) -> None:
    """Regression test for KAFKA-8012 and KAFKA-13207."""
    send = follower.request()
    follower.elect(None)
    follower.give(send, part(batch(0)))
    assert follower.log_end == 0
    assert [s.request.forgotten for s in follower.sent if isinstance(s.request, Fetch)] == [
        [ORDERS]
    ]


def test_response_of_a_former_leader_is_ignored(follower: Follower) -> None:
    old = follower.request()
    follower.elect(3)
    new = follower.request()
    assert new.broker == 3
    follower.give(old, part(batch(0)))
    assert follower.log_end == 0
    follower.sent.clear()
    follower.give(new, part(batch(0, epoch=1)))
    assert follower.log_end == 1


def test_response_counts_once(follower: Follower) -> None:
    send = follower.request()
    follower.give(send, part(batch(0)))
    follower.request()
    follower.give(send, part(batch(0)))
    assert follower.log_end == 1
    assert follower.sent == []


def test_response_after_the_timeout_is_dropped(follower: Follower) -> None:
    send = follower.request()
    follower.run(30_000)
    assert follower.sent == [], "it backs off"
    follower.run(1000)
    again = follower.request()
    assert isinstance(again.request, Fetch)
    assert again.request.session_epoch == 0
    follower.give(send, part(batch(0)))
    assert follower.log_end == 0


def test_a_broken_connection_is_tried_again_after_the_backoff(follower: Follower) -> None:
    send = follower.request()
    follower.step(on.RequestFailed(send.correlation, follower.now_ms))
    for pause_ms in (10, 20, 40):
        follower.run(pause_ms - 1)
        assert follower.sent == []
        follower.run(1)
        send = follower.request()
        assert isinstance(send.request, Fetch)
        follower.step(on.RequestFailed(send.correlation, follower.now_ms))


def test_a_restarted_leader_gets_a_new_fetch_at_once(follower: Follower) -> None:
    follower.request()
    session = follower.store.open_session()
    follower.write(
        Put(keys.broker_id(2), values.encode_broker("2", (), None, -1), session),
        Put(keys.broker_state(2), values.encode_broker_state(BrokerState(1))),
    )
    send = follower.request()
    assert isinstance(send.request, Fetch)
    assert (send.request.session_epoch, len(send.request.partitions)) == (0, 1)


@pytest.mark.parametrize(
    "error",
    [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH],
    ids=["forgotten", "out of step"],
)
def test_invalid_session_starts_over(follower: Follower, error: ErrorCode) -> None:
    follower.give(follower.request(), part())
    follower.answer(follower.request(), FetchResponse(error, 0, []))
    fetch = follower.request().request
    assert isinstance(fetch, Fetch)
    assert (fetch.session_id, fetch.session_epoch, len(fetch.partitions)) == (SESSION, 0, 1)


def test_a_session_closed_by_the_leader_starts_over(follower: Follower) -> None:
    follower.give(follower.request(), part())
    follower.give(follower.request(), session=0)
    fetch = follower.request().request
    assert isinstance(fetch, Fetch)
    assert (fetch.session_epoch, len(fetch.partitions)) == (0, 1)


def test_without_a_session_every_fetch_is_full(follower: Follower) -> None:
    for _ in range(2):
        send = follower.request()
        assert isinstance(send.request, Fetch)
        assert (send.request.session_epoch, len(send.request.partitions)) == (0, 1)
        follower.give(send, part(), session=0)


def test_a_damaged_batch_is_fetched_again(follower: Follower) -> None:
    damaged = bytearray(batch(0))
    damaged[-1] ^= 1
    follower.give(follower.request(), part(bytes(damaged)))
    assert follower.log_end == 0
    rest = follower.request().request
    assert isinstance(rest, Fetch)
    assert rest.forgotten == [ORDERS]
    assert rest.partitions == []
    follower.give(do.Send(2, 1, rest), session=SESSION)
    follower.sent.clear()
    follower.run(1000)
    assert any(s.request.partitions for s in follower.sent if isinstance(s.request, Fetch))


def test_out_of_range_follower_requests_the_leaders_offsets(follower: Follower) -> None:
    follower.give(follower.request(), part(error=ErrorCode.OFFSET_OUT_OF_RANGE))
    (latest,) = [s for s in follower.sent if isinstance(s.request, ListOffsets)]
    assert isinstance(latest.request, ListOffsets)
    assert [p.timestamp for p in latest.request.partitions] == [LATEST]
    end = ListOffsetsPartitionResponse(ORDERS, ErrorCode.NONE, 20)
    follower.answer(latest, ListOffsetsResponse([end]))
    earliest = follower.sent[-1]
    assert isinstance(earliest.request, ListOffsets)
    assert [p.timestamp for p in earliest.request.partitions] == [EARLIEST]
    start = ListOffsetsPartitionResponse(ORDERS, ErrorCode.NONE, 15)
    follower.answer(earliest, ListOffsetsResponse([start]))
    assert follower.log_end == 15
    assert follower.node.losses.count == 0, "the log was empty"


def test_a_restart_at_the_leaders_start_is_recorded(follower: Follower) -> None:
    follower.give(follower.request(), part(batch(0), high_watermark=1))
    follower.give(follower.request(), part(error=ErrorCode.OFFSET_OUT_OF_RANGE))
    for offset in (20, 15):
        send = [s for s in follower.sent if isinstance(s.request, ListOffsets)][-1]
        answer = ListOffsetsPartitionResponse(ORDERS, ErrorCode.NONE, offset)
        follower.answer(send, ListOffsetsResponse([answer]))
    (loss,) = follower.node.losses.recent
    assert (loss.start, loss.end, loss.restarted_at) == (0, 1, 15)


@pytest.mark.parametrize("step", ["latest", "earliest"])
def test_rejected_list_offsets_is_sent_again_after_the_next_fetch(
    follower: Follower, step: str
) -> None:
    follower.give(follower.request(), part(error=ErrorCode.OFFSET_OUT_OF_RANGE))
    send = next(s for s in follower.sent if isinstance(s.request, ListOffsets))
    if step == "earliest":
        fine = ListOffsetsPartitionResponse(ORDERS, ErrorCode.NONE, 20)
        follower.answer(send, ListOffsetsResponse([fine]))
        send = follower.sent[-1]
    fetch = [s for s in follower.sent if isinstance(s.request, Fetch)][-1]
    follower.sent.clear()
    refused = ListOffsetsPartitionResponse(ORDERS, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    follower.answer(send, ListOffsetsResponse([refused]))
    assert not any(isinstance(s.request, ListOffsets) for s in follower.sent)
    follower.run(1000)
    assert not any(isinstance(s.request, ListOffsets) for s in follower.sent), "one fetch is out"
    follower.give(fetch)
    assert any(isinstance(s.request, ListOffsets) for s in follower.sent)


@pytest.mark.parametrize("how", ["lost", "leader restarted", "no longer followed"])
def test_list_offsets_without_response_is_sent_again(follower: Follower, how: str) -> None:
    follower.give(follower.request(), part(error=ErrorCode.OFFSET_OUT_OF_RANGE))
    question = next(s for s in follower.sent if isinstance(s.request, ListOffsets))
    fetches = [s for s in follower.sent if isinstance(s.request, Fetch)]
    follower.sent.clear()
    if how == "lost":
        follower.step(on.RequestFailed(question.correlation, follower.now_ms))
        for fetch in fetches:
            follower.give(fetch)
        assert any(isinstance(s.request, ListOffsets) for s in follower.sent)
    elif how == "leader restarted":
        session = follower.store.open_session()
        follower.write(Put(keys.broker_id(2), values.encode_broker("2", (), None, -1), session))
        assert any(isinstance(s.request, ListOffsets) for s in follower.sent)
    else:
        follower.elect(3)
        end = ListOffsetsPartitionResponse(ORDERS, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        follower.answer(question, ListOffsetsResponse([end]))
        assert all(s.broker == 3 for s in follower.sent if isinstance(s.request, ListOffsets))


def test_unreachable_leader_gets_no_requests_in_a_loop(follower: Follower) -> None:
    """A host reports a dead broker at once: an immediate retry would never end."""
    follower.give(follower.request(), part(error=ErrorCode.OFFSET_OUT_OF_RANGE))
    began, asked = follower.now_ms, 0
    while follower.now_ms < began + 10_000:
        unanswered, follower.sent = follower.sent, []
        asked += len(unanswered)
        assert asked < 30
        for send in unanswered:
            follower.step(on.RequestFailed(send.correlation, follower.now_ms))
        if not follower.sent:
            follower.run(100)
    assert asked > 5


def test_a_truncation_after_divergence_is_recorded(follower: Follower) -> None:
    follower.give(follower.request(), part(batch(0), high_watermark=0))
    follower.give(follower.request(), part(batch(1), high_watermark=1))
    assert follower.log_end == 2
    follower.sent.clear()
    follower.elect(3, unclean_election=UncleanElection(3, 1, 2, (), (), False))
    follower.give(follower.request(), part(diverging=EpochEnd(0, 0)))
    assert follower.log_end == 0
    (loss,) = follower.node.losses.recent
    assert (loss.start, loss.end, loss.committed) == (0, 2, 1)


def test_log_truncated_below_its_start_keeps_copied_records_after_a_crash(
    follower: Follower,
) -> None:
    for offset in range(3):
        follower.give(follower.request(), part(batch(offset), high_watermark=offset))
    follower.give(follower.request(), part(high_watermark=3, log_start=2))
    follower.run(60_000)
    assert b"orders 0 2" in follower.disk.files["log-start-offset-checkpoint"]
    follower.sent.clear()
    follower.elect(3, unclean_election=UncleanElection(3, 1, 2, (), (), False))
    follower.give(follower.request(), part(diverging=EpochEnd(0, 0)))
    follower.give(follower.request(), part(batch(0, epoch=1)))
    log = LogDirectory.open(follower.disk, 0).logs[ORDERS]
    assert (log.log_start_offset, log.log_end_offset) == (0, 1)


def test_historical_policies_request_the_epochs_end_first() -> None:
    follower = Follower(Kip101Truncation())
    follower.give(follower.request(), part(batch(0)))
    follower.give(follower.request(), part(batch(1)))
    follower.sent.clear()
    follower.elect(3)
    send = follower.request(OffsetForLeaderEpoch)
    assert isinstance(send.request, OffsetForLeaderEpoch)
    assert [(p.leader_epoch, p.epoch) for p in send.request.partitions] == [(1, 0)]
    end = EpochPartitionResponse(ORDERS, ErrorCode.NONE, EpochEnd(0, 1))
    follower.answer(send, OffsetForLeaderEpochResponse([end]))
    assert follower.log_end == 1
    assert isinstance(follower.request().request, Fetch)


def test_late_epoch_end_is_ignored() -> None:
    follower = Follower(Kip101Truncation())
    follower.give(follower.request(), part(batch(0)))
    follower.sent.clear()
    follower.elect(3)
    late = follower.request(OffsetForLeaderEpoch)
    follower.elect(2)
    end = EpochPartitionResponse(ORDERS, ErrorCode.NONE, EpochEnd(0, 0))
    follower.answer(late, OffsetForLeaderEpochResponse([end]))
    assert follower.log_end == 1


def test_an_unregistered_broker_does_not_fetch(follower: Follower) -> None:
    follower.request()
    follower.step(on.SessionLost(follower.now_ms))
    follower.elect(3)
    assert not any(isinstance(s.request, Fetch) for s in follower.sent)


def test_log_of_a_topic_deleted_while_down_is_set_aside() -> None:
    cluster = Cluster(brokers=(1,))
    cluster.start()
    cluster.create_topic(replicas=(1,))
    cluster.produce(1, b"one")
    cluster.crash(1)
    cluster.run(2 * TTL_MS)
    gone = (Delete(keys.topic_name("orders")), Delete(keys.topic_id(TOPIC), prefix=True))
    cluster.store.txn((), gone)
    cluster.start(1)
    cluster.run(10_000)
    node = cluster.nodes[1]
    assert ORDERS not in node.replicas
    assert ORDERS not in node.directory.logs
    (aside,) = [name for name in node.directory.disk.list_dir("") if name.endswith("-stray")]
    assert node.directory.disk.size(f"{aside}/00000000000000000000.log") > 0
    (warning,) = node.directory.warnings
    assert aside in warning
    cluster.crash(1)
    cluster.start(1)
    cluster.run(10_000)
    assert aside in cluster.nodes[1].directory.disk.list_dir("")


def test_partition_is_keyed_by_its_topic_id(follower: Follower) -> None:
    assert follower.node.image.name_of(PartitionKey(TOPIC, 0)) == ORDERS
