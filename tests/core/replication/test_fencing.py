"""Requests from another epoch are rejected with the right error."""

import pytest
from playbook import A, B, answer, consume, fetch, follower, leader

from tidelog.core.errors import ErrorCode
from tidelog.core.replication import effects as do
from tidelog.core.replication import events as on
from tidelog.core.replication.fencing import is_stale_incarnation, leader_epoch_error
from tidelog.core.replication.partition import Partition

NONE = ErrorCode.NONE
FENCED = ErrorCode.FENCED_LEADER_EPOCH
UNKNOWN = ErrorCode.UNKNOWN_LEADER_EPOCH
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        pytest.param(None, NONE, id="an old client sends none: no check"),
        pytest.param(7, NONE, id="same"),
        pytest.param(6, FENCED, id="older: the sender missed an election"),
        pytest.param(8, UNKNOWN, id="newer: we missed one"),
    ],
)
def test_leader_epoch(sent: int | None, error: ErrorCode) -> None:
    assert leader_epoch_error(7, sent) is error


@pytest.mark.parametrize(
    ("known", "sent", "stale"),
    [
        pytest.param(20, 19, True, id="a life before the last restart"),
        pytest.param(20, 20, False, id="this life"),
        pytest.param(20, 21, False, id="a newer one than metadata knows"),
        pytest.param(20, None, False, id="an old broker sends none"),
        pytest.param(None, 19, False, id="nothing known"),
    ],
)
def test_stale_incarnation(known: int | None, sent: int | None, stale: bool) -> None:
    assert is_stale_incarnation(known, sent) is stale


def error_of(partition: Partition, event: on.Event) -> ErrorCode:
    (effect,) = partition.step(event)
    assert isinstance(effect, do.AnswerFetch | do.AnswerEpochEnd | do.AnswerOffsets)
    return effect.error


@pytest.mark.parametrize("request_kind", ["follower fetch", "consumer", "epoch end", "offsets"])
@pytest.mark.parametrize(
    ("role", "sent", "error"),
    [
        ("leader", 2, FENCED),
        ("leader", 4, UNKNOWN),
        ("leader", 3, NONE),
        ("leader", None, NONE),
        ("follower", 2, FENCED),
        ("follower", 4, UNKNOWN),
        ("follower", 3, NOT_LEADER),
        ("follower", None, NOT_LEADER),
    ],
)
def test_every_request_is_checked_for_its_epoch_before_leadership(
    request_kind: str, role: str, sent: int | None, error: ErrorCode
) -> None:
    events: dict[str, on.Event] = {
        "follower fetch": fetch(B, 0, epoch=sent),
        "consumer": consume(0, epoch=sent),
        "epoch end": on.EpochEndRequested("r", sent, 3),
        "offsets": on.OffsetsRequested("r", sent, from_client=True, read_committed=False),
    }
    partition = leader(A, epoch=3) if role == "leader" else follower(A, of=B, epoch=3)
    assert error_of(partition, events[request_kind]) is error


def test_fenced_fetch_changes_no_progress() -> None:
    partition = leader(isr=(A, B), replicas=(A, B), epoch=3, log=(0, 5))
    before = partition.freeze()
    assert partition.step(fetch(B, 5, epoch=2)) == [answer("fetcher", 5, error=FENCED)]
    assert partition.step(fetch(B, 5, epoch=4)) == [answer("fetcher", 5, error=UNKNOWN)]
    assert partition.freeze() == before


def test_kip_903_fetch_of_a_former_incarnation_is_refused() -> None:
    partition = leader(isr=(A, B), replicas=(A, B), log=(0, 5), brokers={A: 10, B: 20})
    before = partition.freeze()
    refused = answer("fetcher", 5, error=NOT_LEADER)
    assert partition.step(fetch(B, 5, incarnation=19)) == [refused]
    assert partition.freeze() == before
    partition.step(fetch(B, 5, incarnation=20))
    assert partition.high_watermark == 5
