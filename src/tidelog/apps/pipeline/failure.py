"""Reduce a Spark exception to one line.

A failed query gives a Java stack trace around a Python traceback around the actual error.
Invariant: the line is the message of our own code if there is one, otherwise the first sentence
of Spark's message. It ends with what to do next.
"""

import re

from tidelog.apps import install_advice
from tidelog.apps.pipeline.decoding.avro_values import NoFastavro
from tidelog.apps.pipeline.lake.commit import LakeRefuses
from tidelog.apps.pipeline.plan import BadPlan
from tidelog.apps.spark.session import NoJava


class CannotStart(Exception):
    """Spark is installed, but cannot start a session. The message is one line."""


OUR_OWN: tuple[type[Exception], ...] = (BadPlan, LakeRefuses, NoFastavro, NoJava, CannotStart)
"""Exceptions whose message is written for the user."""
LENGTH_MAX = 600
_OURS = re.compile(r"^\s*(?:E\s+)?tidelog\.[\w.]+\.(\w+): (.+)$", re.MULTILINE)
_PYTHON = re.compile(r"^\s*(\w*(?:Error|Exception)): (.+)$", re.MULTILINE)
_JAVA = re.compile(r"^: [\w.$]+: (.+)$", re.MULTILINE)
"""The Java exception message, as Py4J formats it."""
_CONDITION = re.compile(r"^\[[A-Z_.0-9]+\] ?")
_GONE = ("DataLost", "NoSuchTopic", "NoSuchPartition", "OptionError")
"""Errors for missing records. OptionError: offsets past the end of a truncated or recreated log."""
_CONTINUE = "; run it again to go on where it was, --verbose shows the trace"


def one_line(error: BaseException) -> str:
    """Return one line: what failed, and what to do next."""
    text, next_is_clear = _told(error)
    return text if next_is_clear else text + _CONTINUE


def said(error: BaseException) -> str:
    """Return one line: what failed."""
    return _told(error)[0]


def _told(error: BaseException) -> tuple[str, bool]:
    """Return what failed, and whether the text already says what to do next."""
    if isinstance(error, OUR_OWN):
        return str(error), True
    if isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] in (
        "pyspark",
        "pyarrow",
        "numpy",
    ):
        return f"pipelines need {error.name}: {install_advice.SPARK}", True
    text = str(error)
    if ours := _OURS.findall(text):
        return _cut(ours[-1][1]), True
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'a file'}: {error.strerror}", False
    if python := _PYTHON.findall(text):
        kind, what = python[-1]
        return _cut(f"{kind}: {what}"), False
    return reason(error), False


def reason(error: BaseException) -> str:
    """Return the first line of Spark's own message."""
    text = str(error)
    java = _JAVA.search(text)
    lines = [java[1]] if java else [line.strip() for line in text.splitlines() if line.strip()]
    return _cut(_CONDITION.sub("", lines[0]) if lines else type(error).__name__)


def is_gone(error: BaseException) -> bool:
    """Whether the source failed because the records to read no longer exist."""
    return any(kind in _GONE for kind, _ in _OURS.findall(str(error)))


def _cut(text: str) -> str:
    text = " ".join(text.split()).rstrip(". ")
    return text if len(text) <= LENGTH_MAX else f"{text[: LENGTH_MAX - 3]}..."
