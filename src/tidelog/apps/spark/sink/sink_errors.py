"""The errors of the sink. Each message is one line that says what to do."""

from tidelog.core.types import TopicPartition


class SinkError(Exception):
    """The write can't continue. The message is written for users."""


class WrongColumns(ValueError):
    """The DataFrame does not have the columns that a sink needs."""


class Conflict(SinkError):
    """Another attempt of the same task is writing too, or has written other bytes."""

    def __init__(self, key: TopicPartition, sequence: int, why: str) -> None:
        super().__init__(
            f"{key}: another attempt of this task has written record {sequence} of this batch"
            f" ({why}); this attempt stops, the next attempt keeps the rows already written"
        )


class TooLate(SinkError):
    """A later micro-batch of this query is already in the topic."""

    def __init__(self, key: TopicPartition) -> None:
        super().__init__(
            f"{key}: the topic already has a later batch of this query. If Spark has abandoned this"
            " attempt, ignore this error; if the ledger topic was lost, use a new checkpoint"
        )


class RunsElsewhere(SinkError):
    """Two runs of a query write at the same time."""

    def __init__(self, query: str) -> None:
        super().__init__(
            f"query {query} is also running elsewhere: another run has written to the ledger while"
            " this micro-batch was written; stop one of the two runs"
        )


class Fenced(SinkError):
    """The coordinator has ended the transaction of this attempt."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(
            f"the transaction {name} has ended while rows were written ({why}): a newer attempt"
            " has begun, or it was open longer than kafka.transaction.timeout.ms; this attempt"
            " stops, its rows stay invisible to committed readers"
        )


class TransactionLost(SinkError):
    """A transaction was aborted before the driver could commit it."""

    def __init__(self, name: str, timeout_ms: int, visible: str) -> None:
        super().__init__(
            f"transaction {name} was aborted before its commit: it was open longer than"
            f" kafka.transaction.timeout.ms ({timeout_ms}), or another run of the query has begun;"
            f" {visible}"
        )


class NotReadable(SinkError):
    """The leader has rows of this task that clients can't read yet."""

    def __init__(self, key: TopicPartition, sequence: int) -> None:
        super().__init__(
            f"{key}: rows of an earlier attempt (up to number {sequence - 1}) are not replicated"
            " yet, so they can't be read; check with `tidelog cluster health` that enough replicas"
            " are in sync"
        )


class RowsDiffer(SinkError):
    """A replay lacks rows that an earlier attempt has written."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}; a task must have the same rows when Spark runs its batch again. To continue"
            " with possible duplicates, set onReplayMismatch=accept for one run"
        )


class RowsCompacted(SinkError):
    """Rows of an earlier attempt can't be compared, because compaction has removed some."""

    def __init__(self, topic: str, count: int) -> None:
        super().__init__(
            f"{topic}: compaction removed {count} rows of an earlier attempt, so its rows can't be"
            " compared with the rows of this attempt. To write all rows of this task to the"
            " partitions again, set onReplayMismatch=accept for one run"
        )


class TooLarge(SinkError):
    """A batch is larger than the topic allows."""

    def __init__(self, key: TopicPartition, size: int, count: int, batch_bytes: int) -> None:
        if count == 1:
            advice = "it is a single row, so raise max.message.bytes of the topic"
        else:
            advice = (
                f"raise max.message.bytes of the topic, or set kafka.batch.size below it"
                f" (it is {batch_bytes})"
            )
        super().__init__(f"{key} rejects a batch of {size} bytes ({count} rows); {advice}")
