"""The transaction of one attempt of a task, and the transactions that the driver has decided on.

Each attempt has a transactional id of its own, made from the query, the task and the number of the
attempt. So an attempt never ends the transaction of another one, and Spark decides which attempt
counts: the driver commits the transactions that the tasks' messages name, and no other. The next
micro-batch uses the same ids, so a query has few of them.
"""

import re
from typing import Any, NamedTuple

from tidelog.core.types import Offset, TopicPartition
from tidelog.shell.client.transactions import TransactionalProducer

PREFIX = "tidelog-spark-"
_TASK_AND_ATTEMPT = re.compile(r"\d+-\d+")


def transactional_id(query: str, task: int, attempt: int) -> str:
    """Return the transactional id of an attempt."""
    return f"{PREFIX}{query}-{task}-{attempt}"


def is_of_query(query: str, name: str) -> bool:
    """Whether a transactional id belongs to a task of this query."""
    prefix = f"{PREFIX}{query}-"
    return name.startswith(prefix) and _TASK_AND_ATTEMPT.fullmatch(name, len(prefix)) is not None


class TaskTransaction(NamedTuple):
    """A transaction that holds all rows of a task."""

    task: int
    attempt: int
    producer_id: int
    epoch: int
    rows: int
    key: TopicPartition
    offset: Offset
    """The offset of one of its batches in `key`: a marker after it shows how the transaction ended,
    also after the coordinator has deleted its state."""

    def producer(self, query: str) -> TransactionalProducer:
        """Return the producer of this transaction."""
        name = transactional_id(query, self.task, self.attempt)
        return TransactionalProducer(name, self.producer_id, self.epoch)

    def as_data(self) -> list[Any]:
        """Return the fields for the ledger, without their names: a batch may have many tasks."""
        return [*self[:5], self.key.topic, self.key.partition, self.offset]

    @classmethod
    def of_data(cls, data: list[Any]) -> "TaskTransaction":
        """Return what `as_data` was called on. Raises ValueError, TypeError."""
        task, attempt, producer_id, epoch, rows, topic, partition, offset = data
        key = TopicPartition(topic, partition)
        return cls(task, attempt, producer_id, epoch, rows, key, offset)


class Pending(NamedTuple):
    """The decision to commit a micro-batch: these transactions hold all its rows."""

    batch: int
    tasks: int
    """The number of tasks, including those without rows, which have no transaction."""
    transactions: tuple[TaskTransaction, ...]

    def of_task(self, task: int) -> TaskTransaction | None:
        """Return the transaction of a task; None if the task had no rows."""
        return next((each for each in self.transactions if each.task == task), None)

    def as_data(self) -> dict[str, Any]:
        return {
            "batch": self.batch,
            "tasks": self.tasks,
            "transactions": [each.as_data() for each in self.transactions],
        }

    @classmethod
    def of_data(cls, data: dict[str, Any]) -> "Pending":
        """Return what `as_data` was called on. Raises KeyError, ValueError, TypeError."""
        found = tuple(map(TaskTransaction.of_data, data["transactions"]))
        return cls(data["batch"], data["tasks"], found)
