"""A SparkSession with recommended settings, and a check for Java before Spark starts.

Without Java, Spark's own message is a stack trace; ours is one line that says what to install.
Invariant: settings of the caller take precedence over the recommended ones.
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
    # Workers and the JVM use a Unix socket: 40 ms less for each task than loopback.
    "spark.python.unix.domain.socket.enabled": "true",
    # Writes a checkpoint file and renames it; the default starts a shell process for each file.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
LOOPBACK = "127.0.0.1"
ON_THIS_MACHINE: Mapping[str, str] = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
}
"""Only for a master on this machine: remote executors must be able to reach the driver."""
_LOCAL_MASTERS = re.compile(r"local\b.*|spark://(127\.0\.0\.1|localhost):\d+")
JVM_OPTIONS = (
    "-XX:+UseParallelGC"
    " -Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
)
"""These turn off Arrow's checks at each access: batches of our workers are always within bounds."""


class NoJava(Exception):
    """Java is missing or too old for Spark. The message says what to install."""


def find_java() -> str:
    """Return the `java` that Spark will start. Raises NoJava."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    wanted = (
        f"Spark needs Java {JAVA_MIN} or newer:"
        " install openjdk-17-jre-headless (Debian, Ubuntu) or set JAVA_HOME"
    )
    if java is None or not os.access(java, os.X_OK):
        raise NoJava(f"{wanted}; {'JAVA_HOME has no bin/java' if home else 'no java in PATH'}")
    try:
        output = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=JAVA_WAIT_S, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoJava(f"{wanted}; {java} does not start: {error}") from None
    found = _VERSION.search(output)
    if found is None or int(found[1]) < JAVA_MIN:
        raise NoJava(
            f"{wanted}; {java} is {output.splitlines()[0] if output else 'of unknown version'}"
        )
    return java


def recommended(master: str) -> dict[str, str]:
    """Return the recommended settings for a master."""
    return {**RECOMMENDED, **(ON_THIS_MACHINE if is_local(master) else {})}


def is_local(master: str) -> bool:
    """Whether a master and its workers run on this machine only."""
    return _LOCAL_MASTERS.fullmatch(master) is not None


def settle_environment(master: str) -> None:
    """Set the environment variables that Spark reads, unless they are set."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if is_local(master):
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)


def spark_session(
    name: str = "tidelog",
    master: str = "local[*]",
    settings: Mapping[str, str] | None = None,
) -> Any:
    """Return the running session, or a new one, with `format("tidelog")`.

    Raises NoJava, or ImportError without pyspark.
    """
    find_java()
    from pyspark.sql import SparkSession

    from tidelog.apps.spark.data_source import register

    settle_environment(master)
    builder = SparkSession.builder.appName(name).master(master)
    wanted = {
        **recommended(master),
        "spark.driver.extraJavaOptions": JVM_OPTIONS,
        **(settings or {}),
    }
    for key, value in wanted.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    register(session)
    return session
