"""What the driver of a transactional sink decides, for each state that a run can leave behind."""

import pytest

from tidelog.apps.spark.sink.commit_plan import (
    CommitPlan,
    Written,
    is_complete,
    line_of,
    plan_commit,
    unsettled,
)
from tidelog.apps.spark.sink.delivery import Delivered
from tidelog.apps.spark.sink.identity import Origin
from tidelog.apps.spark.sink.ledger import Line, read_line
from tidelog.apps.spark.sink.sink_errors import RowsDiffer, RunsElsewhere
from tidelog.apps.spark.sink.task_transaction import (
    Pending,
    TaskTransaction,
    is_of_query,
    transactional_id,
)
from tidelog.core.types import TopicPartition

BATCH = 7
LINE = Line(BATCH - 1, "run 1", {"t": {0: 5}}, 20, 1_000, True)


def held(task: int, rows: int = 10, attempt: int = 0) -> TaskTransaction:
    return TaskTransaction(task, attempt, 100 + task, 3, rows, TopicPartition("t", task), 40)


def decided(*transactions: TaskTransaction, tasks: int = 2) -> Line:
    return LINE._replace(number=21, pending=Pending(BATCH, tasks, transactions))


def wrote(task: int, rows: int = 10, line: Line | None = LINE, attempt: int = 1) -> Written:
    """A task that has written its rows in a new transaction; without rows it has none."""
    delivered = Delivered(rows, 0, {}, frozenset())
    transaction = held(task, rows, attempt) if rows else None
    return Written(Origin("q", BATCH, task), "run 2", line, delivered, transaction)


def settled(task: int, line: Line, read: int = 10) -> Written:
    """A task whose transaction of an earlier run was committed."""
    origin = Origin("q", BATCH, task)
    return Written(origin, "run 2", line, None, held(task), read)


def test_without_a_decision_all_transactions_are_committed() -> None:
    done = [wrote(0), wrote(1, rows=0), wrote(2)]
    assert line_of(done) == LINE
    assert plan_commit(LINE, done) == CommitPlan((held(0, attempt=1), held(2, attempt=1)))
    assert plan_commit(None, [wrote(0, line=None)]) == CommitPlan((held(0, attempt=1),))
    assert plan_commit(LINE, [wrote(0, rows=0)]) == CommitPlan()


def test_a_decision_whose_transactions_are_all_committed_completes_the_batch() -> None:
    """Whatever rows the tasks have now: those of the decision are in the topic."""
    line = decided(held(0), held(1))
    both = (held(0), held(1))
    assert plan_commit(line, [settled(0, line), settled(1, line, read=3)]).committed == both
    more = [settled(0, line), settled(1, line), wrote(2, line=line)]
    assert plan_commit(line, more) == CommitPlan((), both, (held(2, attempt=1),))
    fewer = [settled(0, line)]
    assert unsettled(line, fewer) == [held(1)]
    assert plan_commit(line, fewer, [held(1)]) == CommitPlan((), both)


def test_a_decision_of_which_nothing_was_committed_is_replaced() -> None:
    line = decided(held(0), held(1))
    again = [wrote(0, rows=4, line=line)]
    assert plan_commit(line, again) == CommitPlan((held(0, 4, attempt=1),))


def test_the_rest_of_a_decision_is_written_again_if_the_row_counts_are_the_same() -> None:
    line = decided(held(0), held(1), tasks=3)
    rest = [settled(0, line), wrote(1, line=line), wrote(2, rows=0, line=line)]
    plan = plan_commit(line, rest)
    assert plan == CommitPlan((held(1, attempt=1),), (held(0),))


@pytest.mark.parametrize(
    ("place", "now", "told"),
    [
        (0, lambda line: settled(0, line, read=9), "task 0 had 10 rows, and now has 9"),
        (1, lambda line: wrote(1, rows=11, line=line), "task 1 had 10 rows, and now has 11"),
        (2, lambda line: wrote(2, rows=1, line=line), "task 2 had 0 rows, and now has 1"),
        (2, None, "it had 3 tasks, and now has 2"),
    ],
)
def test_a_part_is_not_mixed_with_other_rows(place: int, now: object, told: str) -> None:
    line = decided(held(0), held(1), tasks=3)
    rest = [settled(0, line), wrote(1, line=line), wrote(2, rows=0, line=line)]
    if callable(now):
        rest[place] = now(line)
    else:
        del rest[place]
    with pytest.raises(RowsDiffer, match=told):
        plan_commit(line, rest)
    assert plan_commit(line, rest, accept_mismatch=True).committed == (held(0),)


def test_tasks_that_saw_different_lines_are_not_committed_together() -> None:
    with pytest.raises(RunsElsewhere):
        line_of([wrote(0), wrote(1, line=decided(held(0)))])
    assert line_of([wrote(0, line=None)]) is None


def test_a_batch_that_the_ledger_has_is_complete() -> None:
    complete = LINE._replace(batch=BATCH)
    skipped = Written(Origin("q", BATCH, 0), "run 2", complete, None)
    assert is_complete([wrote(1), skipped])
    assert not is_complete([wrote(1)])


def test_lines_with_a_decision_are_read_back_and_others_keep_the_old_version() -> None:
    for line in (LINE, decided(held(0), held(5)), decided(held(0))._replace(transactional=False)):
        assert read_line(line.value()) == line
    plain = LINE._replace(transactional=False)
    assert plain.value() == (
        b'{"version":1,"batch":6,"run":"run 1","ends":{"t":{"0":5}},"number":20,"time_ms":1000}'
    )
    assert read_line(plain.value()) == plain


def test_transactional_ids_belong_to_one_query() -> None:
    assert is_of_query("a", transactional_id("a", 12, 3))
    assert not is_of_query("a", transactional_id("a-1", 12, 3))
    assert not is_of_query("a-1", transactional_id("a", 1, 3))
    assert not is_of_query("a", "other-a-1-3")
