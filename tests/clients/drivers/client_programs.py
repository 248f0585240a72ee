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
JAVA, GO, KCAT = "java", "franz-go", "kcat"
PYTHON_CLIENTS = (CONFLUENT, KAFKA_PYTHON, AIOKAFKA)
PYTHON_DRIVERS = {
    CONFLUENT: "drive_confluent.py",
    KAFKA_PYTHON: "drive_kafka_python.py",
    AIOKAFKA: "drive_aiokafka.py",
}
SLOW_CLIENTS = tuple(pytest.param(name, marks=pytest.mark.slow) for name in (JAVA, GO))
ALL_CLIENTS = (*PYTHON_CLIENTS, *SLOW_CLIENTS)
CI_CLIENTS = tuple(pytest.param(n, marks=pytest.mark.ci) for n in (KAFKA_PYTHON, AIOKAFKA))
CONFLUENT_FIRST = (CONFLUENT, *CI_CLIENTS, *SLOW_CLIENTS)
"""For what takes many seconds: one client in `make test`, all of Python's in `make ci`."""
BUILD_S, JOB_S = 280, 150


class Program:
    """The process of a client, and the lines that it has printed so far."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
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

    def lines(self) -> Iterator[dict[str, Any]]:
        """Return all lines when the process has ended; it must end in time with code 0."""
        end = time.monotonic() + JOB_S
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no end after {JOB_S} s: {self.last_words}") from None
            if line is None:
                break
            yield json.loads(line)
        assert self.process.wait(JOB_S) == 0, self.last_words

    @property
    def last_words(self) -> str:
        return "".join(self.trouble)[-4000:]

    def done(self) -> None:
        self.process.kill()
        self.process.wait(JOB_S)
        for reader in self._readers:
            reader.join(JOB_S)
        for pipe in (self.process.stdout, self.process.stderr):
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
    return {JAVA: java_driver, GO: go_driver}[client]()


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


@cache
def java_tools() -> list[str]:
    """Return a Java command line with Kafka's jars; the caller appends a class and its options."""
    java = shutil.which("java")
    if java is None:
        pytest.skip("there is no Java here: install openjdk-17-jdk-headless")
    fetch = PROJECT / "scripts/fetch_kafka.py"
    jars = _built([sys.executable, str(fetch), str(BUILD / "kafka")], "no jars of Kafka's")
    return [java, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", jars]


@cache
def java_driver() -> list[str]:
    *java, jars = java_tools()
    javac = shutil.which("javac")
    if javac is None:
        pytest.skip("there is no Java compiler here: install openjdk-17-jdk-headless")
    classes = _folder("java")
    source = str(DRIVERS / "Driver.java")
    _built([javac, "-cp", jars, "-d", classes, source], "the Java program does not compile")
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    return [*java[:-1], quiet, "-cp", os.pathsep.join((classes, jars)), "Driver"]


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
