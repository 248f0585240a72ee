"""Names of files and directories, and back.

A partition lives in `topic-partition`; its files are named by the offset of their first
record in twenty digits, so that names sort as offsets do. Suffixes mark what a crash may
leave behind: `.deleted` waits for removal, `.cleaned` and `.swap` are stages of compaction.
Directories on their way out are `topic-partition.<id>-delete`, copies that are being moved
`-future`, and those that nobody claims `-stray`.

Always true: a topic name that passes `check_topic` can't leave the log directory.
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
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
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
        LEADER_EPOCHS,
        PARTITION_METADATA,
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
    """A topic name that Kafka would refuse too."""


class FileName(NamedTuple):
    """What the name of a file in a partition's directory says."""

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
    """None for a name that is not a segment's or a snapshot's."""
    match = _FILE.fullmatch(name)
    if match is None or int(match[1]) > _OFFSET_MAX:
        return None
    return FileName(int(match[1]), match[2], match[3] or "")


def is_file_name(name: str) -> bool:
    """Whether a broker writes a file of this name, in the log directory or in a partition's."""
    return parse_file(name) is not None or name.removesuffix(TEMPORARY_SUFFIX) in _SMALL_FILES


def check_topic(topic: str) -> None:
    """Raise InvalidTopic unless the name is one Kafka allows."""
    if not topic or topic in (".", ".."):
        raise InvalidTopic(f"{topic!r} is no topic name")
    if len(topic) > TOPIC_LENGTH_MAX:
        raise InvalidTopic(f"topic name of {len(topic)} characters; at most {TOPIC_LENGTH_MAX}")
    if _TOPIC.fullmatch(topic) is None:
        raise InvalidTopic(f"{topic!r}: only letters, digits, '.', '_' and '-'")


def partition_dir(partition: TopicPartition) -> str:
    """`orders-0`. Raises InvalidTopic for a name that could escape or confuse."""
    check_topic(partition.topic)
    return f"{partition.topic}-{partition.partition}"


def parse_dir(name: str) -> TopicPartition | None:
    """The partition a directory belongs to; None for marked ones and for strangers, among
    them every name that `partition_dir` would not give: it could hide another's log."""
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
    """The directory's name once it is a `delete`, `future` or `stray` one.

    The topic's id makes it unique: a topic of the same name can be created and deleted
    again while the first one's directory still waits for removal.
    """
    ending = f"-{partition.partition}.{(topic_id or bytes(16)).hex()}-{mark}"
    return partition.topic[: _NAME_LENGTH_MAX - len(ending)] + ending


def parse_mark(name: str) -> str | None:
    """`delete`, `future` or `stray` if the directory is marked so."""
    match = _MARKED.fullmatch(name)
    return None if match is None else match["mark"]


def deleted(path: str) -> str:
    """The name a file gets when it waits for its removal."""
    return path + DELETED_SUFFIX


def format_topic_id(topic_id: TopicId) -> str:
    """Sixteen bytes as 22 characters, the way Kafka spells ids in files."""
    return urlsafe_b64encode(topic_id).decode().rstrip("=")


def parse_topic_id(text: str) -> TopicId | None:
    """None for text that is no id."""
    try:
        topic_id = urlsafe_b64decode(text + "==")
    except ValueError:
        return None
    return topic_id if len(topic_id) == 16 else None
