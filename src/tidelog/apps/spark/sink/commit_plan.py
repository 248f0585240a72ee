"""Decide what the driver commits, from the messages of the tasks alone.

If the ledger has a decision for this micro-batch, an earlier run was interrupted while it was
committing. The tasks have settled the transactions of that decision: each was committed, or had
been aborted (usually by its time-out), and then its task has written its rows in a new transaction.

Invariants: all tasks saw the same line of the ledger, and the decision is written as the next line,
so no other run has decided in between. A transaction that no line names is never committed. If part
of a decision was committed and part must be written again, the row counts of all tasks must be
those of the interrupted run.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.apps.spark.sink.delivery import Delivered
from tidelog.apps.spark.sink.found_rows import Ends
from tidelog.apps.spark.sink.identity import Origin
from tidelog.apps.spark.sink.ledger import Line
from tidelog.apps.spark.sink.sink_errors import RowsDiffer, RunsElsewhere
from tidelog.apps.spark.sink.task_transaction import TaskTransaction


class Written(NamedTuple):
    """A task's result for the driver."""

    origin: Origin
    run: str
    line: Line | None
    """The query's line in the ledger when the task began; None if the ledger is not used."""
    delivered: Delivered | None
    """The result of the task; None if an earlier run had written the rows."""
    transaction: TaskTransaction | None = None
    """The open transaction with its rows; or, if it wrote nothing, the committed one of an earlier
    run."""
    read: int = 0
    """The number of its rows if an earlier run had written them."""

    @property
    def opened(self) -> TaskTransaction | None:
        """The transaction that this attempt has opened."""
        return None if self.delivered is None else self.transaction


class CommitPlan(NamedTuple):
    """What the driver does with the transactions of a micro-batch."""

    commit: tuple[TaskTransaction, ...] = ()
    """Commit these; if there are none, the micro-batch is complete."""
    committed: tuple[TaskTransaction, ...] = ()
    """These are committed already."""
    discard: tuple[TaskTransaction, ...] = ()
    """Abort these: their rows are committed by other transactions."""


def line_of(written: Sequence[Written]) -> Line | None:
    """Return the line that all tasks saw; None if the ledger is not used. Raises RunsElsewhere."""
    lines = [each.line for each in written if each.line is not None]
    if not lines:
        return None
    if len({line.number for line in lines}) > 1:
        raise RunsElsewhere(written[0].origin.query)
    return lines[0]


def is_complete(written: Sequence[Written]) -> bool:
    """Whether a task saw in the ledger that the micro-batch is complete."""
    return any(each.line and each.line.batch >= each.origin.batch for each in written)


def opened(written: Sequence[Written]) -> tuple[TaskTransaction, ...]:
    """Return the transactions that the tasks of this run have opened."""
    return tuple(each.opened for each in written if each.opened is not None)


def unsettled(line: Line | None, written: Sequence[Written]) -> list[TaskTransaction]:
    """Return the transactions of the ledger's decision that no task of this run has settled,
    because this run has fewer tasks."""
    if line is None or line.pending is None:
        return []
    present = {each.origin.task for each in written}
    return [each for each in line.pending.transactions if each.task not in present]


def plan_commit(
    line: Line | None,
    written: Sequence[Written],
    settled: Sequence[TaskTransaction] = (),
    *,
    accept_mismatch: bool = False,
) -> CommitPlan:
    """Return what to commit. `settled` are those of `unsettled` that were committed.

    Raises RowsDiffer.
    """
    new = opened(written)
    if line is None or line.pending is None:
        return CommitPlan(new)
    reported = [each.transaction for each in written if each.delivered is None and each.transaction]
    committed = (*reported, *settled)
    if len(committed) == len(line.pending.transactions):
        return CommitPlan(committed=committed, discard=new)
    if not committed:
        return CommitPlan(new)
    if not accept_mismatch:
        _check_rows(line, written)
    return CommitPlan(new, committed)


def _check_rows(line: Line, written: Sequence[Written]) -> None:
    """Check that each task has as many rows as in the interrupted run. Raises RowsDiffer."""
    pending = line.pending
    assert pending is not None, "only a decision is compared"
    what = f"batch {pending.batch} was committed in part"
    if len(written) != pending.tasks:
        raise RowsDiffer(f"{what}; it had {pending.tasks} tasks, and now has {len(written)}")
    for each in written:
        before = pending.of_task(each.origin.task)
        rows_before = 0 if before is None else before.rows
        done = each.delivered
        rows = each.read if done is None else done.rows + done.found
        if rows != rows_before:
            raise RowsDiffer(
                f"{what}; task {each.origin.task} had {rows_before} rows, and now has {rows}"
            )


def ends_after(before: Ends, delivered: Sequence[Delivered]) -> Ends:
    """Return the ends of the topics after the batch."""
    reported: Ends = {}
    for each in delivered:
        for topic, partitions in each.ends.items():
            known = reported.setdefault(topic, {})
            for partition, end in partitions.items():
                known[partition] = max(known.get(partition, 0), end)
    return {
        topic: {**before.get(topic, {}), **reported.get(topic, {})}
        for topic in {**before, **reported}
    }
