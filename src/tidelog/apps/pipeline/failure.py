"""Reduce a Spark exception to one line.

A failed query gives a Java stack trace around a Python traceback around the actual error.
Invariant: the line is the message of our own code if there is one, otherwise the first sentence
of Spark's message. It ends with what to do next.
"""

import re

from tidelog.apps import install_advice
from tidelog.apps.pipeline.decoding.avro import NoFastavro
from tidelog.apps.pipeline.lake.commit import LakeError
from tidelog.apps.pipeline.plan import BadPlan
from tidelog.apps.spark.session import NoJava


class CannotStart(Exception):
    """Spark is installed, but cannot start a session. The message is one line."""


OUR_OWN: tuple[type[Exception], ...] = (BadPlan, LakeError, NoFastavro, NoJava, CannotStart)
"""Exceptions whose message is written for the user."""
LENGTH_MAX = 600
_OURS = re.compile(r"^\s*(?:E\s+)?tidelog\.[\w.]+\.(\w+): (.+)$", re.MULTILINE)
_PYTHON = re.compile(r"^\s*(\w*(?:Error|Exception)): (.+)$", re.MULTILINE)
_JAVA = re.compile(r"^: [\w.$]+: (.+)$", re.MULTILINE)
"""The Java exception message, as Py4J formats it."""
_CONDITION = re.compile(r"^\[[A-Z_.0-9]+\] ?")
_RECORDS_MISSING = ("DataLost", "NoSuchTopic", "NoSuchPartition", "OptionError")
"""Names of exceptions that mean missing records; OptionError means offsets past the log's end."""
_CONTINUE = "; run it again to continue where it stopped; --verbose shows the stack trace"


def one_line(error: BaseException) -> str:
    """Return one line: what failed, and what to do next."""
    text, has_advice = _describe(error)
    return text if has_advice else text + _CONTINUE


def cause(error: BaseException) -> str:
    """Return one line: what failed."""
    return _describe(error)[0]


def _describe(error: BaseException) -> tuple[str, bool]:
    """Return what failed, and whether this text already says what to do next."""
    if isinstance(error, OUR_OWN):
        return str(error), True
    if isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] in (
        "pyspark",
        "pyarrow",
        "numpy",
    ):
        return f"{error.name} is not installed: {install_advice.SPARK}", True
    text = str(error)
    if ours := _OURS.findall(text):
        return _shorten(ours[-1][1]), True
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'a file'}: {error.strerror}", False
    if python := _PYTHON.findall(text):
        kind, what = python[-1]
        return _shorten(f"{kind}: {what}"), False
    return reason(error), False


def reason(error: BaseException) -> str:
    """Return the first line of Spark's own message."""
    text = str(error)
    java = _JAVA.search(text)
    lines = [java[1]] if java else [line.strip() for line in text.splitlines() if line.strip()]
    return _shorten(_CONDITION.sub("", lines[0]) if lines else type(error).__name__)


def is_missing_records(error: BaseException) -> bool:
    """Whether the source failed because the records to read no longer exist."""
    return any(kind in _RECORDS_MISSING for kind, _ in _OURS.findall(str(error)))


def _shorten(text: str) -> str:
    text = " ".join(text.split()).rstrip(". ")
    return text if len(text) <= LENGTH_MAX else f"{text[: LENGTH_MAX - 3]}..."
