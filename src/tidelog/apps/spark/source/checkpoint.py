"""A stream's offset as JSON: the topics' ids, and offset and leader epoch of each partition.

Spark stores this offset in checkpoints and shows it as progress. A batch is planned only from its
start offset and its end offset, so that a batch replayed after a crash is the same batch. A batch
may not begin at the end of the previous batch (a new partition, a loss). Then its end offset
contains the start and the lost ranges. Checkpoints of Spark's Kafka connector are accepted too:
they have offsets without epochs and ids.

Invariant: `from_json` accepts the output of `to_json`. Keys are sorted, so that equal offsets are
equal text: Spark compares texts to find out whether there is new data.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, NamedTuple

from tidelog.apps.spark.source.data_loss import (
    UNKNOWN_EPOCH,
    UNKNOWN_OFFSET,
    LostRange,
    Place,
    lost_from_json,
)
from tidelog.core.types import Offset, TopicId, TopicPartition
from tidelog.shell.client.cluster_metadata import NO_TOPIC_ID

VERSION = 1


class WrongCheckpoint(Exception):
    """A stream's offset is invalid. The message is one line."""


class StreamOffset(NamedTuple):
    """The position of a stream."""

    places: Mapping[TopicPartition, Place] = {}
    """The end of the batch in each partition."""
    ids: Mapping[str, TopicId] = {}
    """Topic ids; NO_TOPIC_ID where brokers have none."""
    starts: Mapping[TopicPartition, Offset] = {}
    """The start of the batch, in partitions where it is not the end of the previous batch."""
    lost: tuple[LostRange, ...] = ()
    """Losses found when the batch was planned."""
    lost_offsets: int = 0
    """The number of lost offsets since the stream began."""

    def to_json(self) -> dict[str, Any]:
        """Return the offset as JSON data for Spark."""
        topics: dict[str, Any] = {}
        for key, place in sorted(self.places.items()):
            topic = topics.setdefault(key.topic, {"partitions": {}})
            found = {"offset": place.offset, "epoch": place.epoch}
            if place.since >= 0:
                found["since"] = place.since
            if key in self.starts:
                found["from"] = self.starts[key]
            topic["partitions"][str(key.partition)] = found
        for name, topic in topics.items():
            if self.ids.get(name, NO_TOPIC_ID) != NO_TOPIC_ID:
                topic["id"] = id_text(self.ids[name])
        result: dict[str, Any] = {"version": VERSION, "topics": topics}
        if self.lost:
            result["lost"] = [each.to_json() for each in self.lost]
        if self.lost_offsets:
            result["lostOffsets"] = self.lost_offsets
        return result


def from_json(found: Mapping[str, Any]) -> StreamOffset:
    """Parse an offset of this source or of Spark's Kafka connector. Raises WrongCheckpoint."""
    try:
        version = found.get("version")
        if not isinstance(version, int):
            return _connector_offset(found)
        if version != VERSION:
            raise WrongCheckpoint(
                f"the checkpoint's offsets have version {version}, but this tidelog supports"
                f" version {VERSION}; use a newer tidelog"
            )
        return _own_offset(found)
    except (AttributeError, KeyError, TypeError, ValueError, binascii.Error) as error:
        raise WrongCheckpoint(
            f"the checkpoint's offsets are invalid ({error!r}): {str(found)[:200]}"
        ) from None


def _own_offset(found: Mapping[str, Any]) -> StreamOffset:
    places, starts, ids = {}, {}, {}
    for name, topic in found["topics"].items():
        ids[name] = id_bytes(topic["id"]) if "id" in topic else NO_TOPIC_ID
        for partition, each in topic["partitions"].items():
            key = TopicPartition(name, int(partition))
            places[key] = Place(
                int(each["offset"]),
                int(each.get("epoch", UNKNOWN_EPOCH)),
                int(each.get("since", UNKNOWN_OFFSET)),
            )
            if "from" in each:
                starts[key] = int(each["from"])
    lost = tuple(lost_from_json(each) for each in found.get("lost", ()))
    return StreamOffset(places, ids, starts, lost, int(found.get("lostOffsets", 0)))


def _connector_offset(found: Mapping[str, Any]) -> StreamOffset:
    places = {
        TopicPartition(topic, int(partition)): Place(int(offset))
        for topic, partitions in found.items()
        for partition, offset in partitions.items()
    }
    return StreamOffset(places, dict.fromkeys(found, NO_TOPIC_ID))


def id_text(topic_id: TopicId) -> str:
    """Return the id as Kafka prints it; empty for NO_TOPIC_ID."""
    if topic_id == NO_TOPIC_ID:
        return ""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def id_bytes(text: str) -> TopicId:
    """Return the topic id for the output of `id_text`. Raises ValueError."""
    found = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(found) != len(NO_TOPIC_ID):
        raise ValueError(f"{text!r} is not a topic id")
    return found


def lag(progress: Mapping[str, Any]) -> dict[str, int]:
    """Return the lag of a stream in offsets, by `topic-partition`.

    `progress` is one of the `sources` of a query's progress. The lag is the difference between the
    newest offsets that the source found and the end of the batch.
    """
    import json

    def read(name: str) -> StreamOffset:
        text = progress.get(name)
        found = json.loads(text) if isinstance(text, str) else text
        return from_json(found) if found else StreamOffset()  # "null": a batch without data

    ends, latest = read("endOffset").places, read("latestOffset").places
    return {
        str(key): max(place.offset - ends[key].offset, 0) if key in ends else place.offset
        for key, place in latest.items()
    }
