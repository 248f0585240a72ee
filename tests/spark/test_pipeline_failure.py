"""What a failed pipeline says: one line, out of traces of Java and Python."""

import pytest

from tidelog.apps.pipeline.failure import one_line, said
from tidelog.apps.pipeline.plan import BadPlan

CRASH = """An error occurred while calling o194.save.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 \
times: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)
\tat org.apache.spark.scheduler.DAGScheduler.abort(DAGScheduler.scala:1)
Caused by: java.io.EOFException
"""
TOLD_BY_A_TASK = """An error occurred while calling o194.save.
: org.apache.spark.SparkException: Job aborted due to stage failure: Traceback:
  File "task.py", line 1, in read
tidelog.apps.spark.source.range_errors.RangeUnreachable: orders-0 [0, 9) can't be read on
"""


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RuntimeError(CRASH), "Python worker exited unexpectedly (crashed)"),
        (RuntimeError(TOLD_BY_A_TASK), "orders-0 [0, 9) can't be read on"),
        (RuntimeError("Traceback:\nValueError: no such thing"), "ValueError: no such thing"),
        (BadPlan("topics", "a plan needs one"), "a plan needs one"),
        (OSError(28, "No space left on device", "/lake/x"), "/lake/x: No space left on device"),
    ],
)
def test_the_innermost_that_was_said_is_told_in_one_line(error: Exception, told: str) -> None:
    assert said(error).endswith(told)
    assert "\n" not in said(error)
    assert one_line(error).startswith(said(error))


def test_what_people_can_not_mend_at_once_says_how_to_go_on() -> None:
    assert "run it again" in one_line(RuntimeError(CRASH))
    assert "run it again" not in one_line(BadPlan("topics", "a plan needs one"))
