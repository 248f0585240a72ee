"""Names of files and directories: how they are built and parsed.

A partition's directory is `topic-partition`. Its files are named by the offset of their first
record in twenty digits, so that names sort like offsets. Suffixes mark temporary files: `.deleted`
waits for removal, `.cleaned` and `.swap` are steps of a segment swap. Deleted directories are named
`topic-partition.<id>-delete`, copies that are being moved `-future`, and those of unknown topics
`-stray`.

Invariant: a path with a topic name that passes `check_topic` stays inside the log directory.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple

from tidelog.core.storage.disk import DELETED_SUFFIX, TEMPORARY_SUFFIX
from tidelog.core.types import Offset, TopicId, TopicPartition

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
SEGMENT_KINDS = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX)

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
DAMAGED_LOGS = "damage-checkpoint"
EPOCH_CHECKSUMS = "epoch-checksums"
CHECKPOINT_CHECKSUMS = "checkpoint-checksums"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
METADATA_REVISION = "metadata-revision"
METADATA_COPY = "metadata-copy"
CONFIRMED_CLOCK = "confirmed-clock"
DISK_CHECK = "disk-check"
LOSSES = "loss-ledger"
OLD_LOSSES = "loss-ledger.old"
LOSSES_PUBLISHED = "loss-ledger-published"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
ACKS_HISTORY = "acks-history"
MOVE_COMPLETE = "move-complete"
"""Marks the complete copy of a log that is being moved (log_copy.py)."""
_SMALL_FILES = frozenset(
    {
        RECOVERY_POINTS,
        HIGH_WATERMARKS,
        LOG_STARTS,
        CLEANER_OFFSETS,
        CHECKPOINT_CHECKSUMS,
        META_PROPERTIES,
        CLEAN_SHUTDOWN,
        METADATA_REVISION,
        METADATA_COPY,
        CONFIRMED_CLOCK,
        LOSSES,
        OLD_LOSSES,
        LOSSES_PUBLISHED,
        LEADER_EPOCHS,
        PARTITION_METADATA,
        ACKS_HISTORY,
    }
)

TOPIC_LENGTH_MAX = 249
_NAME_LENGTH_MAX = 255
_PARTITION_MAX = 2**31 - 1
_OFFSET_MAX = 2**63 - 1
_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")
_FILE = re.compile(
    r"([0-9]{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)(\.deleted|\.cleaned|\.swap)?"
)
_DIRECTORY = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>0|[1-9][0-9]{0,9})")
_MARKED = re.compile(
    r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>[0-9]{1,10})\.[0-9a-zA-Z]+-(?P<mark>delete|future|stray)"
)


class InvalidTopic(ValueError):
    """A topic name that Kafka rejects, too."""


class FileName(NamedTuple):
    """The parsed name of a file in a partition's directory."""

    base_offset: Offset
    kind: str
    """`.log`, `.index`, `.timeindex`, `.txnindex` or `.snapshot`."""
    suffix: str
    """`.deleted`, `.cleaned`, `.swap`, or empty."""

    def __str__(self) -> str:
        return f"{self.base_offset:020d}{self.kind}{self.suffix}"


def file_name(base_offset: Offset, kind: str) -> str:
    """`00000000000000000042.log`."""
    return f"{base_offset:020d}{kind}"


def parse_file(name: str) -> FileName | None:
    """Parse the name of a segment's file or a snapshot; None for other names."""
    match = _FILE.fullmatch(name)
    if match is None or int(match[1]) > _OFFSET_MAX:
        return None
    return FileName(int(match[1]), match[2], match[3] or "")


def is_file_name(name: str) -> bool:
    """Whether a broker writes files of this name."""
    return parse_file(name) is not None or name.removesuffix(TEMPORARY_SUFFIX) in _SMALL_FILES


def check_topic(topic: str) -> None:
    """Raise InvalidTopic unless Kafka allows this topic name."""
    if not topic or topic in (".", ".."):
        raise InvalidTopic(f"{topic!r} is not a valid topic name")
    if len(topic) > TOPIC_LENGTH_MAX:
        raise InvalidTopic(
            f"topic name has {len(topic)} characters; at most {TOPIC_LENGTH_MAX} are allowed"
        )
    if _TOPIC.fullmatch(topic) is None:
        raise InvalidTopic(
            f"{topic!r} is not a valid topic name: use letters, digits, '.', '_' and '-'"
        )


def partition_dir(partition: TopicPartition) -> str:
    """Return the directory of a partition, such as `orders-0`. Raises InvalidTopic."""
    check_topic(partition.topic)
    return f"{partition.topic}-{partition.partition}"


def parse_dir(name: str) -> TopicPartition | None:
    """Return the partition of a directory; None for marked directories, and for all names that
    `partition_dir` does not return."""
    if _MARKED.fullmatch(name) is not None:
        return None
    match = _DIRECTORY.fullmatch(name)
    if match is None or int(match["partition"]) > _PARTITION_MAX:
        return None
    try:
        check_topic(match["topic"])
    except InvalidTopic:
        return None
    return TopicPartition(match["topic"], int(match["partition"]))


def marked_dir(partition: TopicPartition, topic_id: TopicId | None, mark: str) -> str:
    """Return the name of a directory that is marked as `delete`, `future` or `stray`.

    The topic's id makes it unique: a topic of the same name can be created and deleted
    again while the first one's directory still waits for removal.
    """
    ending = f"-{partition.partition}.{(topic_id or bytes(16)).hex()}-{mark}"
    return partition.topic[: _NAME_LENGTH_MAX - len(ending)] + ending


def parse_mark(name: str) -> str | None:
    """Return the mark of a directory: `delete`, `future`, `stray` or None."""
    match = _MARKED.fullmatch(name)
    return None if match is None else match["mark"]


def deleted(path: str) -> str:
    """Return the path of a file that waits for its removal."""
    return path + DELETED_SUFFIX


def format_topic_id(topic_id: TopicId) -> str:
    """Return a topic id as Kafka writes it in files: sixteen bytes as 22 characters."""
    return urlsafe_b64encode(topic_id).decode().rstrip("=")


def parse_topic_id(text: str) -> TopicId | None:
    """Parse a topic id; None if it is invalid."""
    try:
        topic_id = urlsafe_b64decode(text + "==")
    except ValueError:
        return None
    return topic_id if len(topic_id) == 16 else None
