"""The cache of incremental fetch sessions: limits, eviction, and session epochs."""

from dataclasses import replace

import pytest

from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import (
    SESSION_EPOCH_MAX,
    Fetch,
    FetchPartition,
    FetchPartitionResponse,
    Reader,
)
from tidelog.core.node.serving import fetch_sessions
from tidelog.core.node.serving.fetch_sessions import (
    EVICTION_MS,
    FetchSession,
    FetchSessions,
    Sessionless,
)
from tidelog.core.principal import Principal
from tidelog.core.replication.log_end_offset import NEVER_MS
from tidelog.core.slotted import slotted
from tidelog.core.storage.disk import Region
from tidelog.core.types import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
TOPIC = b"t" * 16


def asked(name: TopicPartition = A, offset: int = 0, epoch: int = 0) -> FetchPartition:
    return FetchPartition(name, TOPIC, offset, 1000, epoch)


def request(
    *partitions: FetchPartition,
    session: int = 0,
    epoch: int = 0,
    replica: int | None = None,
    forgotten: tuple[TopicPartition, ...] = (),
    reader: Reader | None = None,
) -> Fetch:
    given = (0, 1, 1000, list(partitions), session, epoch, list(forgotten))
    return Fetch(replica, None, *given, reader=reader)


def opened(sessions: FetchSessions, fetch: Fetch, now_ms: int = 0) -> FetchSession:
    session = sessions.open(fetch, now_ms)
    assert isinstance(session, FetchSession)
    return session


def answer(
    name: TopicPartition = A,
    high_watermark: int = 0,
    log_start: int = 0,
    error: ErrorCode = ErrorCode.NONE,
    records: Region | None = None,
) -> FetchPartitionResponse:
    return FetchPartitionResponse(
        name, TOPIC, error, high_watermark, high_watermark, log_start, None, records
    )


def test_an_incremental_request_changes_adds_and_forgets() -> None:
    sessions = FetchSessions(10, seed=1)
    session = opened(sessions, request(asked(A)))
    again = opened(sessions, request(asked(B), session=session.id, epoch=1, forgotten=(A,)))
    assert again is session
    assert list(session.partitions) == [B]


STRANGER = TopicPartition("?" + "00" * 16, 0)


def test_topic_with_an_unknown_id_gets_no_session() -> None:
    sessions = FetchSessions(10, seed=1)
    session = sessions.open(request(asked(A), asked(STRANGER)), 0)
    assert isinstance(session, Sessionless)
    assert list(session.active) == [A, STRANGER]
    assert len(sessions) == 0


@pytest.mark.parametrize("forgotten", [False, True], ids=["named", "forgotten"])
def test_a_topic_that_lost_its_name_ends_the_session(forgotten: bool) -> None:
    """Otherwise a deleted topic would stay in the session: a request could not remove it by id."""
    sessions = FetchSessions(10, seed=1)
    session = opened(sessions, request(asked(A)))
    next_one = request(
        *(() if forgotten else (asked(STRANGER),)),
        session=session.id,
        epoch=1,
        forgotten=(STRANGER,) if forgotten else (),
    )
    assert sessions.open(next_one, 0) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert session.closed
    assert len(sessions) == 0
    opened(sessions, request(asked(A)))


def test_a_stored_leader_epoch_is_refreshed() -> None:
    """Regression test for KAFKA-9338."""
    sessions = FetchSessions(10, seed=1)
    session = opened(sessions, request(asked(A, epoch=3)))
    told = session.partitions[A]
    opened(sessions, request(asked(A, epoch=4), session=session.id, epoch=1))
    assert session.partitions[A].asked.leader_epoch == 4
    assert session.partitions[A] is told, "what was told stays known"


def test_everything_is_sent_again_under_a_new_leader_epoch() -> None:
    session = opened(FetchSessions(10, seed=1), request(asked(A, epoch=3)))
    session.changes([answer(A, high_watermark=5)])
    session.update(request(asked(A, epoch=3, offset=1)))
    assert session.changes([answer(A, high_watermark=5)]) == []
    session.update(request(asked(A, epoch=4)))
    assert session.changes([answer(A, high_watermark=5)])


def test_another_topic_id_is_another_partition() -> None:
    sessions = FetchSessions(10, seed=1)
    session = opened(sessions, request(asked(A)))
    session.changes([answer(A, high_watermark=5)])
    new = FetchPartition(A, b"u" * 16, 0, 1000)
    opened(sessions, request(new, session=session.id, epoch=1))
    assert session.partitions[A].high_watermark == -1


@pytest.mark.parametrize(
    ("session", "epoch", "error"),
    [
        (1, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (None, 2, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
    ],
    ids=["unknown session", "a request went missing"],
)
def test_requests_out_of_step_are_refused(
    session: int | None, epoch: int, error: ErrorCode
) -> None:
    sessions = FetchSessions(10, seed=1)
    known = opened(sessions, request(asked(A)))
    found = sessions.open(request(session=known.id if session is None else session, epoch=epoch), 0)
    assert found is error


def test_repeated_request_is_refused() -> None:
    sessions = FetchSessions(10, seed=1)
    session = opened(sessions, request(asked(A)))
    opened(sessions, request(session=session.id, epoch=1))
    again = sessions.open(request(session=session.id, epoch=1), 0)
    assert again is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_the_epoch_wraps_to_one() -> None:
    sessions = FetchSessions(10, seed=1)
    session = opened(sessions, request(asked(A)))
    session.epoch = SESSION_EPOCH_MAX
    opened(sessions, request(session=session.id, epoch=SESSION_EPOCH_MAX))
    opened(sessions, request(session=session.id, epoch=1))


@pytest.mark.parametrize("epoch", [0, -1], ids=["a new one", "none"])
def test_a_full_request_closes_the_session_it_names(epoch: int) -> None:
    sessions = FetchSessions(10, seed=1)
    session = opened(sessions, request(asked(A)))
    sessions.open(request(asked(A), session=session.id, epoch=epoch), 0)
    found = sessions.open(request(session=session.id, epoch=1), 0)
    assert found is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@slotted
class ReaderOf:
    """A reader that may read everything."""

    principal: Principal
    host: str = "127.0.0.1"

    def may_read(self, topic: str) -> bool:
        return bool(topic)


ALICE, BOB = ReaderOf(Principal("User", "alice")), ReaderOf(Principal("User", "bob"))


@pytest.mark.parametrize(
    ("epoch", "found"),
    [
        (1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (7, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, FetchSession),
        (-1, Sessionless),
    ],
    ids=["the next", "a wrong one", "a new session", "a close"],
)
@pytest.mark.parametrize(
    ("owner", "other"),
    [
        (request(asked(A), replica=2), request(asked(B))),
        (request(asked(A), replica=2), request(asked(B), reader=ALICE)),
        (request(asked(A), replica=2), request(asked(B), replica=3)),
        (request(asked(A), replica=0), request(asked(B))),
        (request(asked(A)), request(asked(B), replica=2)),
        (request(asked(A), reader=ALICE), request(asked(B), replica=2)),
        (request(asked(A), reader=ALICE), request(asked(B), reader=BOB)),
    ],
    ids=[
        "a client in a follower's",
        "a principal in a follower's",
        "a follower in another's",
        "a client in that of broker 0",
        "a follower in a client's",
        "a follower in a principal's",
        "a principal in another's",
    ],
)
def test_a_session_of_another_owner_is_unknown(
    owner: Fetch, other: Fetch, epoch: int, found: object
) -> None:
    """As Kafka answers an unknown id: a full fetch is served, an incremental one is refused."""
    sessions = FetchSessions(10, seed=1)
    session = opened(sessions, owner, 10)
    session.responded_ms = 20
    other = replace(other, session_id=session.id, session_epoch=epoch, forgotten=[A])

    answered = sessions.open(other, 30)

    assert answered is found or type(answered) is found
    assert answered is not session
    assert (session.closed, session.epoch, session.used_ms) == (False, 1, 10)
    assert session.confirmed_ms == NEVER_MS
    assert session.request is owner
    assert list(session.partitions) == list(session.active) == [A]
    following = replace(owner, session_id=session.id, session_epoch=1)
    assert opened(sessions, following, 40) is session
    assert session.confirmed_ms == 20


def test_a_principal_may_use_its_session_from_another_host() -> None:
    sessions = FetchSessions(10, seed=1)
    session = opened(sessions, request(asked(A), reader=ALICE))
    moved = ReaderOf(ALICE.principal, "127.0.0.2")
    assert opened(sessions, request(session=session.id, epoch=1, reader=moved)) is session


def test_ids_of_two_starts_differ() -> None:
    first = opened(FetchSessions(10, seed=1), request(asked(A)))
    second = opened(FetchSessions(10, seed=2), request(asked(A)))
    assert first.id != second.id


def test_a_session_never_has_the_id_zero() -> None:
    assert opened(FetchSessions(10, seed=0), request(asked(A))).id > 0


@pytest.mark.parametrize(
    ("said", "news"),
    [
        (answer(A, high_watermark=5), False),
        (answer(A, high_watermark=6), True),
        (answer(A, high_watermark=5, log_start=1), True),
        (answer(A, high_watermark=5, error=ErrorCode.NOT_LEADER_OR_FOLLOWER), True),
        (answer(A, high_watermark=5, records=Region("x", 0, 9)), True),
        (answer(B, high_watermark=5), False),
    ],
    ids=["the same", "high watermark", "log start", "error", "records", "not asked"],
)
def test_only_changes_are_sent(said: FetchPartitionResponse, news: bool) -> None:
    session = opened(FetchSessions(10, seed=1), request(asked(A)))
    assert len(session.changes([answer(A, high_watermark=5)])) == 1
    assert bool(session.changes([said])) is news


def test_response_after_an_error_is_sent() -> None:
    session = opened(FetchSessions(10, seed=1), request(asked(A)))
    session.changes([answer(A, high_watermark=5, error=ErrorCode.UNKNOWN_LEADER_EPOCH)])
    assert session.changes([answer(A, high_watermark=5)])


def test_a_partition_that_got_records_is_read_last() -> None:
    session = opened(FetchSessions(10, seed=1), request(asked(A), asked(B)))
    session.changes([answer(A, records=Region("x", 0, 9)), answer(B)])
    assert list(session.active) == [B, A]


class TestFull:
    """Tests of a cache without a free slot."""

    def test_young_sessions_are_kept(self) -> None:
        sessions = FetchSessions(1, seed=1)
        first = opened(sessions, request(asked(A)))
        second = sessions.open(request(asked(A), asked(B)), EVICTION_MS)
        assert isinstance(second, Sessionless)
        assert second.id == 0
        opened(sessions, request(session=first.id, epoch=1))

    def test_idle_sessions_are_evicted(self) -> None:
        sessions = FetchSessions(1, seed=1)
        opened(sessions, request(asked(A)))
        opened(sessions, request(asked(A)), EVICTION_MS + 1)
        assert len(sessions) == 1

    def test_followers_come_before_clients(self) -> None:
        sessions = FetchSessions(1, seed=1)
        opened(sessions, request(asked(A)))
        opened(sessions, request(asked(A), replica=2))
        assert isinstance(sessions.open(request(asked(A)), 0), Sessionless)

    def test_larger_sessions_come_before_older_small_ones(self) -> None:
        sessions = FetchSessions(1, seed=1)
        first = opened(sessions, request(asked(A)))
        opened(sessions, request(session=first.id, epoch=1), EVICTION_MS)
        opened(sessions, request(asked(A), asked(B)), EVICTION_MS + 1)
        assert len(sessions) == 1

    def test_without_slots_there_are_no_sessions(self) -> None:
        assert isinstance(FetchSessions(0, seed=1).open(request(asked(A)), 0), Sessionless)


def test_partitions_in_sessions_of_clients_are_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_MAX", 3)
    sessions = FetchSessions(10, seed=1)
    first = opened(sessions, request(asked(A), asked(B)))
    second = opened(sessions, request(asked(A)))
    assert isinstance(sessions.open(request(asked(A)), 0), Sessionless)
    assert isinstance(sessions.open(request(asked(A), replica=2), 0), FetchSession)
    grown = sessions.open(request(asked(B), session=second.id, epoch=1), 0)
    assert grown is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    forgotten = opened(sessions, request(session=first.id, epoch=1, forgotten=(A, B)))
    assert not forgotten.partitions
    opened(sessions, request(asked(A), asked(B)))
