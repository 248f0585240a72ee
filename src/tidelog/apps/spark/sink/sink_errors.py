"""The errors of the sink; each text is one line that says what to do."""

from tidelog.core.types import TopicPartition


class SinkError(Exception):
    """The write can't continue; the text is for users."""


class WrongColumns(ValueError):
    """The DataFrame does not have the columns of a sink."""


class Conflict(SinkError):
    """Another attempt of the same task is writing too, or has written other bytes."""

    def __init__(self, key: TopicPartition, sequence: int, why: str) -> None:
        super().__init__(
            f"{key}: another attempt of this task has written record {sequence} of this batch"
            f" ({why}); this attempt ends, the next one takes over what is there"
        )


class TooLate(SinkError):
    """A later micro-batch of this query is already in the topic."""

    def __init__(self, key: TopicPartition) -> None:
        super().__init__(
            f"{key}: a later batch of this query is in the topic already; this attempt is one"
            " that was given up, or the ledger topic was lost: start with a new checkpoint"
        )


class NotReadable(SinkError):
    """The leader has rows of this task that clients can't read yet."""

    def __init__(self, key: TopicPartition, sequence: int) -> None:
        super().__init__(
            f"{key}: rows of an earlier attempt (up to number {sequence - 1}) are not replicated"
            " yet, so they can't be compared; are enough replicas in sync?"
        )


class RowsDiffer(SinkError):
    """A replay lacks rows that an earlier attempt has written."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}; the rows of a task must be the same when a batch is run again. To go on,"
            " and have those rows twice, set onReplayMismatch=accept for one run"
        )


class RowsGone(SinkError):
    """Rows of an earlier attempt can't be compared: compaction has removed some."""

    def __init__(self, topic: str, count: int) -> None:
        super().__init__(
            f"{topic}: {count} rows that an earlier attempt wrote were compacted away, so it can't"
            " be told which. To go on, and write the rows of this task to those partitions once"
            " more, set onReplayMismatch=accept for one run"
        )


class TooLarge(SinkError):
    """A batch is larger than the topic allows."""

    def __init__(self, key: TopicPartition, size: int, count: int, batch_bytes: int) -> None:
        if count == 1:
            advice = "raise max.message.bytes of the topic: this is one row"
        else:
            advice = (
                f"raise max.message.bytes of the topic, or set kafka.batch.size below it"
                f" (it is {batch_bytes})"
            )
        super().__init__(f"{key} refuses a batch of {size} bytes ({count} rows); {advice}")
