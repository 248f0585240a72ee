"""Programs that use one client library each: how to start them, and their output.

The Python programs always run. The tests of other programs are skipped, with the reason, if Java,
Go or a download is not available.
"""

import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from group_member import AIOKAFKA, CONFLUENT, KAFKA_PYTHON

DRIVERS = Path(__file__).parent
PROJECT = DRIVERS.parents[2]
BUILD = PROJECT / "build"
GROUP_MEMBER = PROJECT / "tests/cluster/groups/group_member.py"
JAVA, JAVA_3, GO, KCAT = "java", "java-3.9", "franz-go", "kcat"
STREAMS = "streams"
PYTHON_CLIENTS = (CONFLUENT, KAFKA_PYTHON, AIOKAFKA)
PYTHON_DRIVERS = {
    CONFLUENT: "drive_confluent.py",
    KAFKA_PYTHON: "drive_kafka_python.py",
    AIOKAFKA: "drive_aiokafka.py",
}
SLOW_CLIENTS = tuple(pytest.param(name, marks=pytest.mark.slow) for name in (JAVA, GO))
ALL_CLIENTS = (*PYTHON_CLIENTS, *SLOW_CLIENTS)
TRANSACTIONAL_CLIENTS = (*ALL_CLIENTS, pytest.param(JAVA_3, marks=pytest.mark.slow))
"""Java's client of before transaction version 2 is one more."""
CI_CLIENTS = tuple(pytest.param(n, marks=pytest.mark.ci) for n in (KAFKA_PYTHON, AIOKAFKA))
CONFLUENT_FIRST = (CONFLUENT, *CI_CLIENTS, *SLOW_CLIENTS)
"""For what takes many seconds: one client in `make test`, all of Python's in `make ci`."""
BUILD_S, JOB_S, TOOL_S = 280, 300, 120


class Program:
    """The process of a client, and the lines that it has printed so far."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.trouble: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._readers = [
            threading.Thread(target=self._listen),
            threading.Thread(target=self._listen_for_trouble),
        ]
        for reader in self._readers:
            reader.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _listen_for_trouble(self) -> None:
        assert self.process.stderr is not None
        self.trouble += self.process.stderr

    def line(self, end: float | None = None) -> dict[str, Any] | None:
        """Return the next line; None if the process has ended."""
        left_s = JOB_S if end is None else max(0.0, end - time.monotonic())
        try:
            line = self._lines.get(timeout=left_s)
        except queue.Empty:
            raise AssertionError(f"no line in {JOB_S} s: {self.last_words}") from None
        return None if line is None else dict(json.loads(line))

    def lines(self) -> Iterator[dict[str, Any]]:
        """Return all lines when the process has ended; it must end in time with code 0."""
        end = time.monotonic() + JOB_S
        while (line := self.line(end)) is not None:
            yield line
        assert self.process.wait(JOB_S) == 0, self.last_words

    def until_paused(self) -> None:
        """Wait until the program waits for `proceed`; all its steps must succeed."""
        while "paused" not in (line := self.line() or {"failed": self.last_words}):
            assert "failed" not in line, line

    def proceed(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    @property
    def last_words(self) -> str:
        return "".join(self.trouble)[-4000:]

    def done(self) -> None:
        self.process.kill()
        self.process.wait(JOB_S)
        for reader in self._readers:
            reader.join(JOB_S)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()


@contextmanager
def program(client: str, job: str, **conf: Any) -> Iterator[Program]:
    running = Program([*command(client), job, json.dumps(conf)])
    try:
        yield running
    finally:
        running.done()


def result(client: str, job: str, **conf: Any) -> dict[str, Any]:
    """Run a job that prints one line, and return that line."""
    with program(client, job, **conf) as running:
        [told] = running.lines()
    return told


def read_back(client: str, **conf: Any) -> list[dict[str, Any]]:
    wanted = {"isolation": "read_uncommitted", "timestamp": None, **conf}
    with program(client, "read", **wanted) as running:
        return [line["record"] for line in running.lines()]


# -- where they come from --------------------------------------------------------------------


def command(client: str) -> list[str]:
    """Return the command line of a client's program; the caller appends the job."""
    if client in PYTHON_DRIVERS:
        return [sys.executable, str(DRIVERS / PYTHON_DRIVERS[client])]
    programs = {JAVA: java_driver, JAVA_3: java_3_driver, STREAMS: word_count, GO: go_driver}
    return programs[client]()


def member_command(client: str) -> list[str]:
    """Return the command line of a group member, as in group_member.py."""
    if client in PYTHON_DRIVERS:
        return [sys.executable, str(GROUP_MEMBER)]
    return [*command(client), "member"]


def _built(words: list[str], why: str, **more: Any) -> str:
    """Return the output of a build; skip the test if the build fails."""
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=BUILD_S, check=False, **more
    )
    if done.returncode:
        pytest.skip(f"{why}: {done.stderr.strip()[-500:]}")
    return str(done.stdout).strip()


def jars(listed: str) -> str:
    """Return a class path of the jars of a list; skip the test if they can't be downloaded."""
    fetch = [sys.executable, str(PROJECT / "scripts/fetch_kafka.py"), str(BUILD / "kafka")]
    return _built([*fetch, str(PROJECT / "scripts" / listed)], f"no jars of {listed}")


@cache
def java_tools() -> list[str]:
    """Return a Java command line with Kafka's jars; the caller appends a class and its options."""
    java = shutil.which("java")
    if java is None:
        pytest.skip("there is no Java here: install openjdk-17-jdk-headless")
    return [java, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", jars("kafka_jars.txt")]


def run_tool(bootstrap: str, name: str, *options: str, error: str = "", given: str = "") -> str:
    """Run a tool of Kafka until it exits; return its standard output."""
    scala = name == "ConfigCommand"
    full_name = f"kafka.admin.{name}" if scala else f"org.apache.kafka.tools.{name}"
    where = [] if name == "DumpLogSegments" else ["--bootstrap-server", bootstrap]
    done = subprocess.run(
        [*java_tools(), full_name, *where, *options],
        capture_output=True,
        text=True,
        timeout=TOOL_S,
        input=given,
        check=False,
    )
    said = done.stdout + done.stderr
    if error:
        # Do not check the exit code: some tools exit with 0 after an error.
        assert error in said
    else:
        assert done.returncode == 0, said
    return done.stdout


@cache
def java_driver() -> list[str]:
    return java_program("Driver", java_tools()[-1])


@cache
def java_3_driver() -> list[str]:
    """The same program, on the client of Kafka 3.9: its transactional jobs can run on it."""
    *java, class_path, main = java_driver()
    return [*java, os.pathsep.join((jars("kafka_3_jars.txt"), class_path)), main]


@cache
def word_count() -> list[str]:
    """Kafka Streams; it has no other job than to count words."""
    return java_program("WordCount", os.pathsep.join((java_tools()[-1], jars("streams_jars.txt"))))


def java_program(name: str, class_path: str) -> list[str]:
    """Return the command line of a program of this folder; the caller appends its options."""
    *java, _ = java_tools()
    javac = shutil.which("javac")
    if javac is None:
        pytest.skip("there is no Java compiler here: install openjdk-17-jdk-headless")
    classes = _folder("java")
    source = str(DRIVERS / f"{name}.java")
    _built([javac, "-cp", class_path, "-d", classes, source], f"{name}.java does not compile")
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    return [*java[:-1], quiet, "-cp", os.pathsep.join((classes, class_path)), name]


@cache
def go_driver() -> list[str]:
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        pytest.skip("there is no Go here: install Go 1.26 or newer")
    binary = Path(_folder("go")) / "driver"
    _built([go, "build", "-o", str(binary), "."], "franz-go can't be built", cwd=DRIVERS / "go")
    return [str(binary)]


@cache
def kcat() -> str:
    found = shutil.which("kcat") or shutil.which("kafkacat")
    if found is None:
        pytest.skip("there is no kcat here: install Debian's package kcat")
    return found


def _folder(name: str) -> str:
    """Return a build folder for this test process: two processes may build at the same time."""
    parent = BUILD / "clients"
    parent.mkdir(parents=True, exist_ok=True)
    return mkdtemp(prefix=f"{name}-", dir=parent)
