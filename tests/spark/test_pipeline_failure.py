"""A failed pipeline reports one line, taken from traces of Java and Python."""

import pytest

from tidelog.apps.pipeline.failure import cause, one_line
from tidelog.apps.pipeline.plan import BadPlan

CRASH = """An error occurred while calling o194.save.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 \
times: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)
\tat org.apache.spark.scheduler.DAGScheduler.abort(DAGScheduler.scala:1)
Caused by: java.io.EOFException
"""
TASK_FAILED = """An error occurred while calling o194.save.
: org.apache.spark.SparkException: Job aborted due to stage failure: Traceback:
  File "task.py", line 1, in read
tidelog.apps.spark.source.range_reader.RangeUnreachable: orders-0 [0, 9) can't be read on
"""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError(CRASH), "Python worker exited unexpectedly (crashed)"),
        (RuntimeError(TASK_FAILED), "orders-0 [0, 9) can't be read on"),
        (RuntimeError("Traceback:\nValueError: no such thing"), "ValueError: no such thing"),
        (BadPlan("topics", "a plan needs one"), "a plan needs one"),
        (OSError(28, "No space left on device", "/lake/x"), "/lake/x: No space left on device"),
    ],
)
def test_the_innermost_error_is_reported_in_one_line(error: Exception, expected: str) -> None:
    assert cause(error).endswith(expected)
    assert "\n" not in cause(error)
    assert one_line(error).startswith(cause(error))


def test_errors_without_advice_say_how_to_continue() -> None:
    assert "run it again" in one_line(RuntimeError(CRASH))
    assert "run it again" not in one_line(BadPlan("topics", "a plan needs one"))
