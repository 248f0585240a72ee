"""The coordinator's markers are sent again after an error, also when nothing else happens."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tidelog.core.errors import ErrorCode
from tidelog.core.node.calls import Calls
from tidelog.core.node.coordinating.coordinator_host import CoordinatorHost
from tidelog.core.node.coordinating.marker_sender import RETRY_MS, MarkerSender
from tidelog.core.node.messages import WriteTxnMarkers, WriteTxnMarkersResponse
from tidelog.core.node.turn import Turn
from tidelog.core.transactions.shard import SendMarkers
from tidelog.core.transactions.transaction import ProducerIdentity
from tidelog.core.types import TopicPartition

BROKER = 1
FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
Answered = Callable[[WriteTxnMarkersResponse], None]


def sender_of_own_partitions(turn: Turn, sent: list[tuple[WriteTxnMarkers, Answered]]) -> Any:
    """Return a sender whose broker leads all partitions, and the partitions that it reports."""
    done: list[TopicPartition] = []
    parts: dict[str, Any] = dict.fromkeys(CoordinatorHost._fields)
    parts |= {
        "config": SimpleNamespace(broker_id=BROKER, request_timeout_ms=1_000),
        "turn": turn,
        "calls": Calls(turn),
        "image": SimpleNamespace(revision=0, partition=lambda *_: SimpleNamespace(leader=BROKER)),
        "write_markers": lambda request, answered: sent.append((request, answered)),
    }

    def written(_hosted: object, _name: str, names: frozenset[TopicPartition]) -> None:
        done.extend(names)

    return MarkerSender(CoordinatorHost(**parts), written), done


def test_a_failed_marker_lets_the_node_compute_again_when_it_wakes() -> None:
    """The response may arrive in a follower's fetch, after which a node keeps its wake time unless
    a coordinator has something to do (simulator seed 50165)."""
    turn = Turn(0)
    sent: list[tuple[WriteTxnMarkers, Answered]] = []
    sender, done = sender_of_own_partitions(turn, sent)
    hosted: Any = SimpleNamespace(leader_epoch=0, is_current=True)
    names = frozenset({FIRST, SECOND})
    sender.send(hosted, SendMarkers("id", ProducerIdentity(7, 1), True, names, 2))
    sender.flush()
    assert not sender.is_active

    [(_, answered)] = sent
    results = {FIRST: ErrorCode.NOT_LEADER_OR_FOLLOWER, SECOND: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    answered(WriteTxnMarkersResponse(((7, results),)))
    assert sender.is_active
    assert sender.next_ms() == RETRY_MS
    sender.flush()
    assert not sender.is_active
    assert (len(sent), done) == (1, [])

    turn.now_ms = RETRY_MS
    sender.tick()
    sender.flush()
    request, answered = sent[1]
    assert set(request.markers[0].partitions) == names
    answered(WriteTxnMarkersResponse(((7, dict.fromkeys(names, ErrorCode.NONE)),)))
    assert set(done) == names
    assert not sender.is_active
