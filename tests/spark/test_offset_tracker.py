"""A stream's next offset at each trigger, while topics are created, deleted and damaged."""

import json
from collections.abc import Mapping
from time import sleep
from typing import cast

import pytest

from tidelog.apps.spark.client_options import ClientSettings
from tidelog.apps.spark.source.checkpoint import (
    StreamOffset,
    WrongCheckpoint,
    from_json,
    id_text,
    lag,
)
from tidelog.apps.spark.source.data_loss import (
    DataLost,
    LossKind,
    LostRange,
    OnDataLoss,
    Place,
    fail_on_loss,
    read_report,
    report_loss,
)
from tidelog.apps.spark.source.offset_tracker import OffsetTracker, Target, next_offset, up_to
from tidelog.apps.spark.source.partition_lookup import PartitionLookup, SubscribedPartitions
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.shell.client.client_errors import BrokerError, ClientError, NoSuchTopic
from tidelog.shell.client.cluster_metadata import NO_TOPIC_ID
from tidelog.shell.client.offsets import EARLIEST, Found, FoundOffset


class Topics:
    """Replaces PartitionLookup: returns the responses that a test sets."""

    def __init__(self) -> None:
        self.client = ClientSettings("nowhere:1", metadata_age_s=0.0, patience_s=0.5)
        self.ids: dict[str, bytes] = {}
        self.logs: dict[TopicPartition, tuple[int, Place]] = {}
        """Log start, and end."""
        self.epoch_ends: dict[TopicPartition, int] = {}
        self.floors: dict[TopicPartition, int] = {}
        """The epochs that these are the ends of, if it is not the one asked for."""
        self.epoch_starts: dict[TopicPartition, int] = {}
        self.unanswered: set[TopicPartition] = set()
        self.epochs_asked = 0

    def put(self, name: str, *ends: tuple[int, int], number: int = 1, start: int = 0) -> None:
        self.drop(name)
        self.ids[name] = bytes([number]) * 16 if number else NO_TOPIC_ID
        for partition, (offset, epoch) in enumerate(ends):
            self.logs[TopicPartition(name, partition)] = (start, Place(offset, epoch))

    def drop(self, name: str) -> None:
        self.ids.pop(name, None)
        for key in [key for key in self.logs if key.topic == name]:
            del self.logs[key]

    def reads(self, key: TopicPartition) -> bool:
        return key.topic != "other"

    def find(self, _known: Mapping[str, bytes]) -> SubscribedPartitions:
        return SubscribedPartitions(frozenset(self.logs), dict(self.ids))

    def list_offsets(self, wanted: Mapping[TopicPartition, int]) -> Found:
        found: Found = {}
        for key, time in wanted.items():
            start, end = self.logs[key]
            if key in self.unanswered:
                found[key] = BrokerError("no leader", ErrorCode.LEADER_NOT_AVAILABLE)
            else:
                found[key] = FoundOffset(start if time == EARLIEST else end.offset, -1, end.epoch)
        return found

    def epoch_end(self, key: TopicPartition, epoch: int) -> tuple[int, int] | None:
        self.epochs_asked += 1
        return self.floors.get(key, epoch), self.epoch_ends.get(key, self.logs[key][1].offset)

    def epoch_start(self, key: TopicPartition, _epoch: int) -> int:
        return self.epoch_starts.get(key, -1)


@pytest.fixture
def topics() -> Topics:
    return Topics()


@pytest.fixture
def tracker(topics: Topics) -> OffsetTracker:
    return OffsetTracker(cast(PartitionLookup, topics))


def at(**places: tuple[int, ...]) -> StreamOffset:
    """Return an offset from `t_0=(offset, epoch)`, in a topic with id 1."""
    keys = {TopicPartition(*_split(name)): Place(*found) for name, found in places.items()}
    return StreamOffset(keys, {key.topic: b"\x01" * 16 for key in keys})


def _split(name: str) -> tuple[str, int]:
    topic, partition = name.split("_")
    return topic, int(partition)


def advance(tracker: OffsetTracker, start: StreamOffset, limit: int | None = None) -> StreamOffset:
    available = tracker.find(start)
    shares = None if limit is None else dict.fromkeys(available.ends, limit)
    return next_offset(start, available, shares)


T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_without_new_data_the_offset_stays_the_same(topics: Topics, tracker: OffsetTracker) -> None:
    topics.put("t", (10, 3))
    start = at(t_0=(10, 3))
    assert advance(tracker, start) is start
    topics.put("t", (10, 7))  # a new leader that nobody wrote to
    assert advance(tracker, start) is start
    assert advance(tracker, start) is start
    assert topics.epochs_asked == 1


def test_data_is_read_up_to_the_end_or_a_limit(topics: Topics, tracker: OffsetTracker) -> None:
    topics.put("t", (50, 4), (7, 4))
    start = at(t_0=(10, 3), t_1=(7, 2))
    end = advance(tracker, start)
    assert end.places == {T0: Place(50, 4), T1: Place(7, 2)}
    assert (end.starts, end.lost) == ({}, ())
    assert advance(tracker, start, 5).places[T0] == Place(15, 4)


def test_a_checkpoint_without_epochs_and_ids_gets_them(
    topics: Topics, tracker: OffsetTracker
) -> None:
    topics.put("t", (50, 4), (7, 4))
    start = from_json({"t": {"0": 50, "1": 5}})
    end = advance(tracker, start)
    assert end.places == {T0: Place(50, 4), T1: Place(7, 4)}
    assert (end.ids, end.starts, end.lost) == ({"t": b"\x01" * 16}, {}, ())
    assert advance(tracker, end) is end


def test_the_first_batch_records_its_start(topics: Topics, tracker: OffsetTracker) -> None:
    topics.put("t", (50, 4), (7, 4))
    start = at(t_0=(10, 4), t_1=(7, 4))
    end = next_offset(start, tracker.find(start), is_first=True)
    assert end.starts == {T0: 10, T1: 7}
    nothing = at(t_0=(50, 4), t_1=(7, 4))
    assert next_offset(nothing, tracker.find(nothing), is_first=True).starts == {T0: 50, T1: 7}


def test_new_partitions_and_topics_begin_at_their_start(
    topics: Topics, tracker: OffsetTracker
) -> None:
    topics.put("t", (10, 3), (4, 3))
    topics.put("u", (9, 0), number=2, start=5)
    end = advance(tracker, at(t_0=(10, 3)))
    new = TopicPartition("u", 0)
    assert end.places == {T0: Place(10, 3), T1: Place(4, 3), new: Place(9, 0)}
    assert end.starts == {T1: 0, new: 5}
    assert not end.lost


def test_a_truncated_log_is_read_again_from_the_truncation(
    topics: Topics, tracker: OffsetTracker
) -> None:
    topics.put("t", (95, 5))
    topics.epoch_ends[T0] = 80
    end = advance(tracker, at(t_0=(100, 3)))
    assert (end.places[T0], end.starts) == (Place(95, 5), {T0: 80})
    assert end.lost == (LostRange("t", 0, LossKind.TRUNCATED, 80, 100, 80, 3),)
    assert end.lost_offsets == 20
    topics.epoch_ends.clear()
    assert advance(tracker, end) is end


def test_an_older_epoch_may_be_longer_under_a_later_leader(
    topics: Topics, tracker: OffsetTracker
) -> None:
    """Its leader died with records that no other replica had.

    The records that the next leader wrote at the same offsets were read. Now the first one leads
    again.
    """
    topics.put("t", (100, 3))
    topics.epoch_starts[T0] = 70
    start = advance(tracker, at(t_0=(60, 2)))
    assert start.places[T0] == Place(100, 3, 70)
    start = from_json(start.to_json())
    topics.put("t", (85, 4))
    topics.floors[T0], topics.epoch_ends[T0], topics.epoch_starts[T0] = 2, 80, 80
    end = advance(tracker, start)
    assert end.lost == (LostRange("t", 0, LossKind.TRUNCATED, 70, 100, 70, 3),)
    assert (end.places[T0], end.starts) == (Place(85, 4, 80), {T0: 70})


def test_retention_deletes_unread_records(topics: Topics, tracker: OffsetTracker) -> None:
    topics.put("t", (200, 3), start=150)
    end = advance(tracker, at(t_0=(100, 3)), limit=10)
    assert (end.places[T0], end.starts) == (Place(160, 3), {T0: 150})
    assert end.lost == (LostRange("t", 0, LossKind.RETENTION, 100, 150, 150),)


def test_a_recreated_topic_is_read_from_its_start(topics: Topics, tracker: OffsetTracker) -> None:
    topics.put("t", (5, 0), number=2)
    end = advance(tracker, at(t_0=(100, 3), t_1=(50, 3)))
    ids = id_text(b"\x01" * 16), id_text(b"\x02" * 16)
    assert end.lost == (
        LostRange("t", 0, LossKind.RECREATED, 100, None, 0, -1, *ids),
        LostRange("t", 1, LossKind.RECREATED, 50, None, None, -1, *ids),
    )
    assert (end.places, end.starts) == ({T0: Place(5, 0)}, {T0: 0})
    assert end.ids == {"t": b"\x02" * 16}
    assert advance(tracker, end) is end


@pytest.mark.parametrize("number", [2, 0])
def test_a_recreated_topic_of_which_nothing_was_read(
    topics: Topics, tracker: OffsetTracker, number: int
) -> None:
    """The position is of the old topic; the new leaders do not know the old topic's epoch."""
    topics.put("t", (0, 0), (5, 0), number=number)
    start = at(t_0=(0, 3), t_1=(50, 3))
    start = start._replace(ids={"t": b"\x01" * 16 if number else NO_TOPIC_ID})
    end = advance(tracker, start)
    assert [each.kind for each in end.lost] == [LossKind.RECREATED] * 2
    assert end.places == {T0: Place(0, 0), T1: Place(5, 0)}
    assert advance(tracker, end) is end


def test_a_recreated_topic_whose_old_id_is_unknown(topics: Topics, tracker: OffsetTracker) -> None:
    topics.put("t", (5, 0), number=2)
    end = advance(tracker, StreamOffset({T0: Place(100, 3)}, {"t": NO_TOPIC_ID}))
    assert [each.kind for each in end.lost] == [LossKind.RECREATED]
    assert (end.places[T0], end.starts[T0], end.ids["t"]) == (Place(5, 0), 0, b"\x02" * 16)


def test_an_open_transaction_is_waited_for(topics: Topics, tracker: OffsetTracker) -> None:
    """The position may be after the last stable offset."""
    topics.put("t", (90, 3))
    topics.epoch_ends[T0] = 130
    start = at(t_0=(100, 3))
    assert advance(tracker, start) is start
    topics.put("t", (120, 3))
    end = advance(tracker, start)
    assert (end.places[T0], end.starts, end.lost) == (Place(120, 3), {}, ())


def test_a_recreated_topic_is_not_taken_for_the_old_one(
    topics: Topics, tracker: OffsetTracker
) -> None:
    topics.client = topics.client._replace(metadata_age_s=1000.0)
    topics.put("t", (100, 0))
    start = at(t_0=(100, 0))
    assert advance(tracker, start) is start
    topics.put("t", (250, 0), number=2)
    end = advance(tracker, start)
    assert [each.kind for each in end.lost] == [LossKind.RECREATED]
    assert (end.places[T0], end.starts[T0]) == (Place(250, 0), 0)


def test_a_recreated_topic_is_judged_as_a_whole(topics: Topics, tracker: OffsetTracker) -> None:
    topics.put("t", (5, 0), (6, 0), number=2)
    topics.unanswered = {T1}
    start = at(t_0=(100, 3), t_1=(50, 3))
    assert advance(tracker, start) is start
    topics.unanswered = set()
    assert len(advance(tracker, start).lost) == 2


def test_a_deleted_topic_is_a_loss_unless_it_is_unsubscribed(
    topics: Topics, tracker: OffsetTracker
) -> None:
    topics.put("u", (9, 0))
    end = advance(tracker, at(t_0=(100, 3), u_0=(9, 0), other_0=(5, 0)))
    assert [(e.topic, e.kind, e.start, e.end) for e in end.lost] == [
        ("t", LossKind.DELETED, 100, None)
    ]
    assert list(end.places) == [TopicPartition("u", 0)]


def test_a_partition_without_a_leader_does_not_delay_others(
    topics: Topics, tracker: OffsetTracker
) -> None:
    topics.put("t", (50, 4), (70, 4))
    topics.unanswered = {T1}
    start = at(t_0=(10, 4), t_1=(60, 4))
    end = advance(tracker, start)
    assert end.places == {T0: Place(50, 4), T1: Place(60, 4)}
    topics.unanswered = set()
    assert advance(tracker, end).places[T1] == Place(70, 4)


def test_a_partition_missing_in_metadata_is_not_a_loss(
    topics: Topics, tracker: OffsetTracker
) -> None:
    topics.put("t", (50, 4))
    end = advance(tracker, at(t_0=(10, 4), t_1=(60, 4)))
    assert (end.places, end.lost) == ({T0: Place(50, 4), T1: Place(60, 4)}, ())


def test_a_partition_that_never_responds_fails_the_query(
    topics: Topics, tracker: OffsetTracker
) -> None:
    topics.put("t", (50, 4))
    topics.unanswered = {T0}
    topics.client = topics.client._replace(patience_s=-1.0)
    with pytest.raises(ClientError, match=r"t-0 did not respond for .*LEADER_NOT_AVAILABLE"):
        advance(tracker, at(t_0=(50, 4)))


def test_partitions_without_a_request_do_not_time_out(
    topics: Topics, tracker: OffsetTracker
) -> None:
    topics.put("t", (50, 4))
    topics.put("u", (9, 0))
    topics.unanswered = {T0}
    topics.client = topics.client._replace(patience_s=0.2)
    advance(tracker, at(u_0=(9, 0)))
    topics.drop("t")
    advance(tracker, at(u_0=(9, 0)))
    sleep(0.3)
    topics.put("t", (0, 0), number=2)
    assert list(advance(tracker, at(u_0=(9, 0))).places) == [TopicPartition("u", 0)]


def test_a_topic_is_deleted_during_an_epoch_request(
    topics: Topics, tracker: OffsetTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.put("t", (50, 5))

    def gone(_key: TopicPartition, _epoch: int) -> tuple[int, int]:
        topics.drop("t")
        raise NoSuchTopic("topic 't'", "t")

    monkeypatch.setattr(topics, "epoch_end", gone)
    assert [each.kind for each in advance(tracker, at(t_0=(10, 4))).lost] == [LossKind.DELETED]


def test_available_now_stops_at_the_ends_when_it_began(
    topics: Topics, tracker: OffsetTracker
) -> None:
    topics.put("t", (50, 4), (70, 4))
    topics.put("u", (9, 0), number=2)
    target = Target({T0: Place(40, 4), T1: Place(70, 4)}, {"t": b"\x01" * 16})
    start = at(t_0=(10, 4), t_1=(70, 4))
    end = next_offset(start, up_to(target, start, tracker.find(start)))
    assert end.places == {T0: Place(40, 4), T1: Place(70, 4)}
    assert next_offset(end, up_to(target, end, tracker.find(end))) is end
    topics.put("t", (5, 0), (1, 0), number=2)  # left to the next run
    assert next_offset(end, up_to(target, end, tracker.find(end))) is end


# -- as JSON ------------------------------------------------------------------------------------


def test_an_offset_survives_json() -> None:
    lost = LostRange("t", 0, LossKind.RECREATED, 5, None, 0, 3, "old", "new")
    offset = at(t_0=(10, 3, 8), t_1=(7, -1))._replace(starts={T0: 4}, lost=(lost,), lost_offsets=20)
    text = json.dumps(offset.to_json())
    assert from_json(json.loads(text)) == offset
    assert json.loads(text)["topics"]["t"]["partitions"]["0"] == {
        "offset": 10,
        "epoch": 3,
        "since": 8,
        "from": 4,
    }


def test_checkpoints_of_sparks_own_connector_are_read() -> None:
    found = from_json({"t": {"0": 5, "1": 7}, "version": {"0": 1}})
    assert found.places == {
        T0: Place(5, -1),
        T1: Place(7, -1),
        TopicPartition("version", 0): Place(1, -1),
    }
    assert set(found.ids.values()) == {NO_TOPIC_ID}


@pytest.mark.parametrize(
    "wrong",
    [
        {"version": 2, "topics": {}},
        {"version": 1},
        {"t": 5},
        {"t": {"x": 5}},
        {"version": 1, "topics": {"t": {"id": "short", "partitions": {}}}},
    ],
)
def test_an_invalid_checkpoint_is_rejected(wrong: dict[str, object]) -> None:
    with pytest.raises(WrongCheckpoint, match="the checkpoint's offsets"):
        from_json(wrong)


def test_lag_from_progress() -> None:
    ends, latest = at(t_0=(10, 3)).to_json(), at(t_0=(17, 4), t_1=(5, 4)).to_json()
    progress = {"endOffset": json.dumps(ends), "latestOffset": latest}
    assert lag(progress) == {"t-0": 7, "t-1": 5}
    assert lag({"endOffset": None, "latestOffset": None}) == {}
    assert lag({"endOffset": "null", "latestOffset": latest}) == {"t-0": 17, "t-1": 5}


def test_a_report_has_each_loss_once(tmp_path: object) -> None:
    lost = LostRange("t", 0, LossKind.TRUNCATED, 80, 100, 80, 3)
    fail_on_loss([lost], OnDataLoss.REPORT)
    with pytest.raises(DataLost, match=r"t-0: offsets 80 to 99 of leader epoch 3 or before were"):
        fail_on_loss([lost], OnDataLoss.FAIL)
    for _ in range(2):
        report_loss([lost], f"{tmp_path}/lost", "batch 7")
    report_loss([lost._replace(partition=1)], f"{tmp_path}/lost", "batch 8")
    found = read_report(f"{tmp_path}/lost")
    assert sorted((line["partition"], line["start"], line["end"]) for line in found) == [
        (0, 80, 100),
        (1, 80, 100),
    ]
