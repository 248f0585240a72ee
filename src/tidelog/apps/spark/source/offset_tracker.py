"""Find the offsets that a stream can read, and detect losses since its checkpoint.

Each trigger sends one ListOffsets request to each leader. Metadata and log start offsets are
requested when there is something to read, after errors, and when they are a second old. The ends of
epochs are requested when a leader's epoch has changed. Tasks detect later changes.

Invariant: the result covers every partition whose leader responded; the other partitions keep
their position. If a partition does not respond for `patience_s`, the query fails.
"""

import time
from collections.abc import Mapping
from typing import NamedTuple

from tidelog.apps.spark.source.checkpoint import StreamOffset, id_text
from tidelog.apps.spark.source.data_loss import (
    UNKNOWN_EPOCH,
    LossKind,
    LostRange,
    PartitionState,
    Place,
    StaleLeader,
    Verdict,
    judge,
    judge_new,
    judge_recreated,
    needs_epoch_end,
)
from tidelog.apps.spark.source.partition_lookup import (
    PartitionLookup,
    SubscribedPartitions,
    is_retriable_or_no_topic,
    is_same_topic,
)
from tidelog.core.types import LeaderEpoch, Offset, TopicId, TopicPartition
from tidelog.shell.client.client_errors import ClientError
from tidelog.shell.client.cluster_metadata import NO_TOPIC_ID
from tidelog.shell.client.offsets import EARLIEST, LATEST, FoundOffset
from tidelog.shell.client.retry import Retry

NEVER = float("-inf")


class AvailableOffsets(NamedTuple):
    """The offsets that a stream can read now."""

    starts: Mapping[TopicPartition, Offset]
    """The offset at which each partition continues."""
    ends: Mapping[TopicPartition, Place]
    """The end of the readable records of each partition."""
    ids: Mapping[str, TopicId]
    lost: tuple[LostRange, ...] = ()
    silent: frozenset[TopicPartition] = frozenset()
    """Partitions of the stream whose leader did not respond; they keep their position."""


class Target(NamedTuple):
    """The end of a run with Trigger.AvailableNow: the ends of the partitions when it began."""

    ends: Mapping[TopicPartition, Place]
    ids: Mapping[str, TopicId]


class OffsetTracker:
    """Finds the offsets that a stream can read, and detects losses."""

    def __init__(self, lookup: PartitionLookup) -> None:
        self.lookup = lookup
        self.latest: Mapping[TopicPartition, Place] = {}
        """The ends in the last response."""
        self.ids: Mapping[str, TopicId] = {}
        self._subscribed = SubscribedPartitions(frozenset(), {})
        self._refreshed_at = NEVER
        self._silent_since: dict[TopicPartition, float] = {}
        self._epochs_checked: dict[TopicPartition, tuple[Place, int]] = {}
        self._began: dict[TopicPartition, tuple[TopicId, LeaderEpoch, Offset]] = {}
        """The first offset of each leader's epoch: (topic id, epoch, offset) by partition."""

    def find(self, start: StreamOffset, *, of_all: bool = False) -> AvailableOffsets:
        """Return the new offsets since `start`, and the losses. Raises ClientError.

        With `of_all`, retry until every partition has responded.
        """
        retry = Retry(self.lookup.client.patience_s, retriable=is_retriable_or_no_topic)
        while True:
            try:
                return self._find(start, of_all)
            except StaleLeader as error:
                retry.wait(ClientError(str(error)))
            except ClientError as error:
                retry.failed(error)
            self._refreshed_at = NEVER

    def _find(self, start: StreamOffset, of_all: bool) -> AvailableOffsets:
        refreshed = self._refresh(start)
        ends = self._ends(of_all)
        if not refreshed and self._has_changes(start, ends):
            # Ends are requested by topic name. They belong to the topic that is being read only if
            # the topic's id is unchanged afterwards.
            before = self._subscribed
            self._refreshed_at = NEVER
            refreshed = self._refresh(start)
            if self._subscribed != before:
                ends = self._ends(of_all)
        subscribed = self._subscribed
        ends = {key: self._since(start, key, end) for key, end in ends.items()}
        to_request = {
            key
            for key, end in ends.items()
            if self._is_other_log(start, key)
            or (refreshed and end.offset != start.places[key].offset)
            or end.offset < start.places[key].offset
        }
        log_starts = {
            key: found.offset
            for key, found in self.lookup.list_offsets(dict.fromkeys(to_request, EARLIEST)).items()
            if isinstance(found, FoundOffset)
        }
        self.latest, self.ids = ends, subscribed.ids
        unknown = self._partitions_unknown(start, subscribed, ends, log_starts)
        starts: dict[TopicPartition, Offset] = {}
        lost: list[LostRange] = []
        for key in sorted(ends.keys() - unknown):
            verdict = self._judge(start, key, ends[key], log_starts.get(key))
            starts[key] = verdict.resume
            lost += verdict.lost
        lost += self._deleted(start, subscribed)
        known = {key: ends[key] for key in starts}
        silent = frozenset(unknown & start.places.keys())
        ids = {**subscribed.ids, **{key.topic: _id(start, key.topic) for key in silent}}
        return AvailableOffsets(starts, known, ids, tuple(lost), silent)

    def _partitions_unknown(
        self,
        start: StreamOffset,
        subscribed: SubscribedPartitions,
        ends: Mapping[TopicPartition, Place],
        log_starts: Mapping[TopicPartition, Offset],
    ) -> set[TopicPartition]:
        """Return the partitions whose state is unknown now.

        These include partitions of an existing topic that are missing in the metadata. If one
        partition of a recreated topic is unknown, all its partitions are: a checkpoint never has
        the topic's old offsets with its new id.
        """
        unknown = {
            key
            for key in start.places.keys() - subscribed.partitions
            if self.lookup.reads(key)
            and key.topic in subscribed.ids
            and not self._is_recreated(start, key.topic)
        }
        unknown |= {
            key
            for key in subscribed.partitions
            if key not in ends or (self._is_other_log(start, key) and key not in log_starts)
        }
        waiting = {key.topic for key in unknown if self._is_recreated(start, key.topic)}
        return unknown | {key for key in subscribed.partitions if key.topic in waiting}

    def _refresh(self, start: StreamOffset) -> bool:
        """Refresh the metadata if it is too old; return whether it was refreshed."""
        age_s = time.monotonic() - self._refreshed_at
        if age_s < self.lookup.client.metadata_age_s:
            return False
        self._subscribed = self.lookup.find(
            {key.topic: _id(start, key.topic) for key in start.places}
        )
        self._refreshed_at = time.monotonic()
        return True

    def _has_changes(self, start: StreamOffset, ends: Mapping[TopicPartition, Place]) -> bool:
        places = start.places
        return any(key not in places or places[key].offset != at.offset for key, at in ends.items())

    def _ends(self, of_all: bool) -> dict[TopicPartition, Place]:
        wanted = dict.fromkeys(self._subscribed.partitions, LATEST)
        if of_all:
            found = self.lookup.list_all_offsets(wanted)
            return {key: Place(each.offset, each.leader_epoch) for key, each in found.items()}
        now = time.monotonic()
        self._silent_since = {k: at for k, at in self._silent_since.items() if k in wanted}
        ends = {}
        for key, result in self.lookup.list_offsets(wanted).items():
            if isinstance(result, FoundOffset):
                ends[key] = Place(result.offset, result.leader_epoch)
                self._silent_since.pop(key, None)
                continue
            self._refreshed_at = NEVER
            since = self._silent_since.setdefault(key, now)
            patience_s = self.lookup.client.patience_s
            if not is_retriable_or_no_topic(result):
                raise result
            if now - since > patience_s:
                raise ClientError(f"{key} did not respond for {patience_s:g} s: {result}")
        return ends

    # -- judging ----------------------------------------------------------------------------

    def _is_other_log(self, start: StreamOffset, key: TopicPartition) -> bool:
        """Whether the partition is new, or of a recreated topic."""
        return key not in start.places or self._is_recreated(start, key.topic)

    def _is_recreated(self, start: StreamOffset, topic: str) -> bool:
        return not is_same_topic(_id(start, topic), self._subscribed.ids[topic])

    def _judge(
        self, start: StreamOffset, key: TopicPartition, end: Place, log_start: Offset | None
    ) -> Verdict:
        new_id = self._subscribed.ids[key.topic]
        if key not in start.places:
            known = key.topic in start.ids and not self._is_recreated(start, key.topic)
            return judge_new(key, log_start or 0, known_topic=known)
        place = start.places[key]
        if self._is_recreated(start, key.topic):
            ids = id_text(start.ids[key.topic]), id_text(new_id)
            return judge_recreated(key, place.offset, log_start or 0, *ids)
        facts = PartitionState(end, log_start, self._epoch_end(key, place, end))
        has_id = NO_TOPIC_ID not in (_id(start, key.topic), new_id)
        return judge(key, place, facts, has_id=has_id)

    def _epoch_end(self, key: TopicPartition, place: Place, end: Place) -> Offset | None:
        """Return the end of the position's epoch; request it once per position and leader epoch."""
        if not needs_epoch_end(place, end):
            return None
        checked = (place, end.epoch)
        if self._epochs_checked.get(key) == checked and end.epoch != place.epoch:
            return None
        found = self.lookup.epoch_end(key, place.epoch)
        if found is None:
            return None
        kept = place.kept(*found)
        if kept >= place.offset:
            self._epochs_checked[key] = checked
        return kept

    def _since(self, start: StreamOffset, key: TopicPartition, end: Place) -> Place:
        """Return `end` with `since` set: the first offset of its leader epoch.

        The offset is requested once for each leader epoch, when there is something to read.
        """
        old = start.places.get(key)
        is_same = old is not None and not self._is_recreated(start, key.topic)
        if old is not None and is_same and old.offset == end.offset:
            return end
        known = self._began.get(key)
        if known is None or known[:2] != (self._subscribed.ids[key.topic], end.epoch):
            if old is not None and is_same and old.epoch == end.epoch and old.since >= 0:
                since = old.since
            else:
                since = self.lookup.epoch_start(key, end.epoch)
            known = self._began[key] = (self._subscribed.ids[key.topic], end.epoch, since)
        return end._replace(since=known[2])

    def _deleted(self, start: StreamOffset, subscribed: SubscribedPartitions) -> list[LostRange]:
        """Return the losses by deleted topics, and by recreated topics with fewer partitions.

        Topics that the query no longer subscribes to do not count.
        """
        lost = []
        for key, place in sorted(start.places.items()):
            if key in subscribed.partitions or not self.lookup.reads(key):
                continue
            old_id = id_text(_id(start, key.topic))
            if key.topic not in subscribed.ids:
                kind, new_id = LossKind.DELETED, ""
            elif self._is_recreated(start, key.topic):
                kind, new_id = LossKind.RECREATED, id_text(subscribed.ids[key.topic])
            else:
                continue
            deleted = LostRange(*key, kind, place.offset, None, old_id=old_id, new_id=new_id)
            lost.append(deleted)
        return lost


def _id(start: StreamOffset, topic: str) -> TopicId:
    return start.ids.get(topic, NO_TOPIC_ID)


def next_offset(
    start: StreamOffset,
    available: AvailableOffsets,
    shares: Mapping[TopicPartition, int] | None = None,
    *,
    is_first: bool = False,
) -> StreamOffset:
    """Return the end of a batch from `start`: all available records, or the shares of a limit.

    Returns `start` itself if there is nothing new. The first batch records its start in every
    partition, because Spark stores only the ends of batches.
    """
    places: dict[TopicPartition, Place] = {key: start.places[key] for key in available.silent}
    starts: dict[TopicPartition, Offset] = {}
    recreated = {
        TopicPartition(each.topic, each.partition)
        for each in available.lost
        if each.kind == LossKind.RECREATED
    }
    for key, end in available.ends.items():
        begin = available.starts[key]
        old = start.places.get(key)
        until = end.offset if shares is None else min(end.offset, begin + shares.get(key, 0))
        until = max(until, begin)
        moved = old is None or begin != old.offset
        # A newer epoch without records is not a change: Spark would run an empty batch for it. An
        # epoch that was unknown (in a checkpoint of Spark's connector) is a change. So is the epoch
        # of a recreated topic: the old topic's epoch may exceed those of the new leaders.
        unknown = old is not None and old.epoch == UNKNOWN_EPOCH
        is_new = moved or unknown or until > begin or key in recreated
        places[key] = end._replace(offset=until) if is_new else start.places[key]
        if moved:
            starts[key] = begin
    if is_first:
        starts = {key: place.offset for key, place in start.places.items()} | starts
        starts = {key: begin for key, begin in starts.items() if key in places}
    names = {key.topic for key in places}
    ids = {name: available.ids.get(name, NO_TOPIC_ID) for name in names}
    ids |= {name: _id(start, name) for name in names if ids[name] == NO_TOPIC_ID}
    is_same = places == start.places and all(_id(start, name) == ids[name] for name in names)
    if is_same and not available.lost and not is_first:
        return start
    count = start.lost_offsets + sum(each.offsets for each in available.lost)
    return StreamOffset(places, ids, starts, available.lost, count)


def up_to(target: Target, start: StreamOffset, available: AvailableOffsets) -> AvailableOffsets:
    """Limit the offsets to the target.

    Topics that were created or recreated after the target was set are read in the next run.
    """
    in_target = {
        key
        for key in available.ends
        if key in target.ends and available.ids[key.topic] == target.ids[key.topic]
    }
    ends = {
        key: end._replace(offset=min(end.offset, target.ends[key].offset))
        for key, end in available.ends.items()
        if key in in_target
    }
    later = available.ends.keys() - in_target
    silent = available.silent | (later & start.places.keys())
    return AvailableOffsets(
        {key: available.starts[key] for key in in_target},
        ends,
        {**available.ids, **{key.topic: _id(start, key.topic) for key in silent}},
        tuple(e for e in available.lost if TopicPartition(e.topic, e.partition) not in later),
        frozenset(silent),
    )
