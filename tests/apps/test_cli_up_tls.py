"""`tidelog up --tls`: each program that its output names works with the certificates it made."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.client import HTTPConnection
from pathlib import Path

import pytest
from real_cluster import eventually

from tidelog.shell.client.client_errors import ClientError
from tidelog.shell.client.cluster import Cluster

PATIENCE_S = 120.0
TIDELOG = [sys.executable, "-m", "tidelog"]
LONG = ("--timeout", "60")
"""How long a command waits for a response."""


class Started:
    """A cluster in `tidelog-data` of a folder of its own, and what `tidelog up` printed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {k: v for k, v in os.environ.items() if k != "KAFKA_BOOTSTRAP_SERVERS"}
        began = self.tidelog("up", "--tls", "--detach", "--port", "0")
        assert began.returncode == 0, began.stderr
        self.lines = [line.strip() for line in began.stdout.splitlines()]

    def tidelog(self, *words: str, given: str = "") -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*TIDELOG, *words],
            input=given,
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )

    @property
    def bootstrap(self) -> str:
        return next(line.split()[1] for line in self.lines if line.startswith("bootstrap"))


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    cluster = Started(tmp_path_factory.mktemp("up"))
    yield cluster
    assert cluster.tidelog("down").returncode == 0


def test_commands_in_the_folder_need_no_option(started: Started) -> None:
    """And with the printed options they work in any folder."""
    eventually(lambda: started.tidelog("status").returncode == 0, "all brokers are up")
    words = ("produce", "lines", "--create", "-b", started.bootstrap, *LONG)
    [config] = [line.split()[1] for line in started.lines if line.startswith("--command-config")]
    assert started.tidelog(*words, "--command-config", config, given="one\n").returncode == 0
    assert started.tidelog("consume", "lines", "-e", *LONG).stdout == "one\n"

    def plain_is_refused() -> bool:
        plain = started.tidelog("topic", "list", "-b", started.bootstrap)
        assert plain.returncode == 1
        return "if its port requires TLS" in plain.stderr

    eventually(plain_is_refused, "the advice to use TLS")


def test_completion_uses_the_clients_file(started: Started, tmp_path: Path) -> None:
    """Of the cluster in the folder, of `--command-config`, and of TIDELOG_COMMAND_CONFIG."""
    assert started.tidelog("topic", "create", "to-complete").returncode == 0
    [file] = [line.split()[1] for line in started.lines if line.startswith("--command-config")]
    named = f"-b {started.bootstrap} "
    for folder, words, more in (
        (started.folder, "", {}),
        (tmp_path, f"{named}--command-config {file} ", {}),
        (tmp_path, named, {"TIDELOG_COMMAND_CONFIG": file}),
    ):
        line = f"tidelog topic describe {words}to-com"
        asked = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), **more}
        environ = {**started.environ, "_TIDELOG_COMPLETE": "bash_complete", **asked}
        eventually(partial(_completed, folder, environ), line, PATIENCE_S)


def _completed(folder: Path, environ: dict[str, str]) -> bool:
    done = subprocess.run(TIDELOG, cwd=folder, env=environ, capture_output=True, check=False)
    return b"to-complete" in done.stdout


def test_the_printed_python_example_works(started: Started) -> None:
    code = "\n".join(started.lines[started.lines.index("from confluent_kafka import Producer") :])
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE_S)
    assert started.tidelog("consume", "greetings", "-e", *LONG).stdout == "hello\n"


def test_a_command_gets_the_settings(tmp_path: Path) -> None:
    """`tidelog up -- COMMAND`: its tidelog commands need no option."""
    up = [*TIDELOG, "up", "--tls", "--ephemeral", "--port", "0", "--brokers", "1", "--", *TIDELOG]
    ran = subprocess.run(
        [*up, "topic", "list", *LONG], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


def test_files_are_private_and_made_once(started: Started, tmp_path: Path) -> None:
    folder = started.folder / "tidelog-data" / "tls"
    assert sorted(each.name for each in folder.iterdir()) == [
        "broker.pem",
        "ca.pem",
        "client.properties",
    ], "no key of the authority is left"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "broker.pem").stat().st_mode & 0o777 == 0o600
    another = Started(tmp_path)
    certificate = (tmp_path / "tidelog-data" / "tls" / "ca.pem").read_bytes()
    assert certificate != (folder / "ca.pem").read_bytes()
    assert another.tidelog("down").returncode == 0
    again = another.tidelog("up", "--detach", "--port", "0")
    try:
        assert again.returncode == 0, again.stderr
        assert "clients trust" in again.stdout, "without --tls too"
        assert (tmp_path / "tidelog-data" / "tls" / "ca.pem").read_bytes() == certificate
    finally:
        assert another.tidelog("down").returncode == 0


def test_plain_clients_are_refused(started: Started) -> None:
    with Cluster(started.bootstrap, timeout_s=1) as cluster, pytest.raises(ClientError):
        cluster.refresh()


def test_the_console_shows_the_cluster(started: Started) -> None:
    console = subprocess.Popen(
        [*TIDELOG, "console", "--port", "0"],
        cwd=started.folder,
        env=started.environ,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert console.stdout is not None
    try:
        line = console.stdout.readline()
        assert "Tidelog console" in line
        port = int(re.findall(r":(\d+)", line)[0])

        def brokers_up() -> bool:
            connection = HTTPConnection("localhost", port, timeout=PATIENCE_S)
            connection.request("GET", "/api/overview")
            found = json.loads(connection.getresponse().read())
            connection.close()
            return [each["unreachable"] for each in found.get("brokers", ())] == [None] * 3

        eventually(brokers_up, "the console shows three brokers")
    finally:
        console.terminate()
        console.wait(PATIENCE_S)
        console.stdout.close()
