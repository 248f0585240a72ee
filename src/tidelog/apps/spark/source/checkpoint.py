"""A stream's offset as JSON: the topics' ids, and offset and leader epoch of each partition.

Spark stores it in checkpoints and shows it as progress. A batch is planned from two of them and
nothing else, so that a batch replayed after a crash is the same batch. Where a batch does not
begin at the end of the previous one (a new partition, a loss), its end says so, and what was
lost. Checkpoints of Spark's Kafka connector can be read too: offsets without epochs and ids.

Invariant: `to_json` of what `from_json` read has the same meaning. Keys are sorted, so that equal
offsets are equal text: Spark compares texts to find out whether there is new data.
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
    """A stream's offset is invalid. The text is one line."""


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
        """For Spark."""
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
        whole: dict[str, Any] = {"version": VERSION, "topics": topics}
        if self.lost:
            whole["lost"] = [each.to_json() for each in self.lost]
        if self.lost_offsets:
            whole["lostOffsets"] = self.lost_offsets
        return whole


def from_json(found: Mapping[str, Any]) -> StreamOffset:
    """Read our offsets, or those of Spark's Kafka connector. Raises WrongCheckpoint."""
    try:
        version = found.get("version")
        if not isinstance(version, int):
            return _of_connector(found)
        if version != VERSION:
            raise WrongCheckpoint(
                f"the checkpoint's offsets are of version {version}, this tidelog reads"
                f" {VERSION}; use the tidelog that wrote them, or a newer one"
            )
        return _ours(found)
    except (AttributeError, KeyError, TypeError, ValueError, binascii.Error) as error:
        raise WrongCheckpoint(
            f"the checkpoint's offsets can't be understood ({error!r}): {str(found)[:200]}"
        ) from None


def _ours(found: Mapping[str, Any]) -> StreamOffset:
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


def _of_connector(found: Mapping[str, Any]) -> StreamOffset:
    places = {
        TopicPartition(topic, int(partition)): Place(int(offset))
        for topic, partitions in found.items()
        for partition, offset in partitions.items()
    }
    return StreamOffset(places, dict.fromkeys(found, NO_TOPIC_ID))


def id_text(topic_id: TopicId) -> str:
    """The id as Kafka prints it; empty for NO_TOPIC_ID."""
    if topic_id == NO_TOPIC_ID:
        return ""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def id_bytes(text: str) -> TopicId:
    """Read what `id_text` wrote. Raises ValueError."""
    found = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(found) != len(NO_TOPIC_ID):
        raise ValueError(f"{text!r} is not a topic id")
    return found


def lag(progress: Mapping[str, Any]) -> dict[str, int]:
    """Return by how many offsets a stream lags, by `topic-partition`.

    `progress` is one of the `sources` of a query's progress. The lag is the difference between the
    newest offsets that the source saw and the end of the batch.
    """
    import json

    def read(name: str) -> StreamOffset:
        told = progress.get(name)
        found = json.loads(told) if isinstance(told, str) else told
        return from_json(found) if found else StreamOffset()  # "null": a batch without data

    ends, latest = read("endOffset").places, read("latestOffset").places
    return {
        str(key): max(place.offset - ends[key].offset, 0) if key in ends else place.offset
        for key, place in latest.items()
    }
