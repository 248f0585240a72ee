"""The console of a data folder: brokers that die, clusters that stop and return, actions."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from socket import create_connection
from typing import Any

import pytest
from console_client import PATIENCE_S, Client, eventually, serve

from tidelog.apps.console.target import FolderCluster
from tidelog.shell.supervisor import up_file

TIDELOG = [sys.executable, "-m", "tidelog"]
SESSIONS = ["--set", "broker.session.timeout.ms=2000", "--set", "broker.heartbeat.interval.ms=500"]
"""A broker that is paused or isolated loses its leaderships after two seconds."""
PARTITION = "partitions/orders/0"


def tidelog(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*TIDELOG, *words], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )


def up(data: Path, *words: str) -> dict[str, Any]:
    done = tidelog(
        "up", "--data", str(data), "--port", "0", "--detach", "--format", "json", *SESSIONS, *words
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A cluster of three brokers with fault switches, and the topic `orders`."""
    folder = tmp_path / "data"
    up(folder, "--set", "tidelog.fault.switches=true")
    try:
        yield folder
    finally:
        tidelog("down", "--data", str(folder), "--wait", "10")


@pytest.fixture
def client(data: Path, tmp_path: Path) -> Iterator[Client]:
    with serve(FolderCluster(str(data)), tmp_path / "pages", allow_actions=True) as found:
        found.create_topic("orders", partitions=1)
        yield found


def act(client: Client, name: str, **body: Any) -> str:
    found = client.post(name, body)
    assert found.status == 200, found.body
    message: str = found.json()["message"]
    return message


def switch(client: Client, name: str, broker: int) -> None:
    """Set a broker's fault switch; a broker that gets no CPU time may not respond in time."""
    client.post_until_done(name, {"broker": broker})


def leader(data: dict[str, Any]) -> int | None:
    found: int | None = data["partition"]["leader"]
    return found


def isr(data: dict[str, Any]) -> set[int]:
    return set(data["partition"]["isr"])


def processes(data: dict[str, Any]) -> dict[int, str]:
    return {each["id"]: each["process"] for each in data["brokers"]}


def problems(data: dict[str, Any]) -> list[str]:
    return [each["kind"] for each in data["problems"]]


def test_kill_of_the_leader_is_seen_and_so_is_its_return(client: Client) -> None:
    with client.page(PARTITION) as page:
        first = leader(page.until(lambda data: leader(data) and len(isr(data)) == 3))
        assert first is not None
        act(client, "kill", broker=first)
        page.until(lambda data: leader(data) not in (None, first))
        client.until("overview", lambda data: processes(data)[first] == "stopped")
        client.until("overview", lambda data: problems(data) == ["under_replicated"])
        epochs = page.until(lambda data: first not in isr(data))["partition"]["leader_epoch"]
        assert epochs >= 1
        act(client, "start", broker=first)
        page.until(lambda data: isr(data) == {1, 2, 3})
    client.until("overview", lambda data: set(processes(data).values()) == {"running"})


def test_a_paused_broker_delays_no_page(client: Client) -> None:
    with client.page(PARTITION) as page:
        follower = 3 if leader(page.until(leader)) != 3 else 2
        act(client, "pause", broker=follower)
        page.until(
            lambda data: any(
                each["broker"] == follower and each["unreachable"]
                for each in data["partition"]["replicas"]
            )
        )
        client.until("overview", lambda data: processes(data)[follower] == "paused")
        record = {"topic": "orders", "partition": 0, "value": "x", "acks": "1"}
        client.post_until_done("produce", record)
        page.until(
            lambda data: any(
                (each["log_end_offset"] or 0) >= 1
                for each in data["partition"]["replicas"]
                if each["broker"] == leader(data)
            )
        )
        page.until(lambda data: follower not in isr(data))
        act(client, "resume", broker=follower)
        page.until(lambda data: isr(data) == {1, 2, 3})


def test_an_isolated_leader_is_shown_beside_the_new_one(client: Client) -> None:
    client.read("session")
    with client.page(PARTITION) as page:
        first = leader(page.until(lambda data: leader(data) and len(isr(data)) == 3))
        assert first is not None
        switch(client, "isolate", first)
        page.until(lambda data: leader(data) not in (None, first))

        def is_isolated_and_responds(data: dict[str, Any]) -> bool:
            (found,) = (each for each in data["brokers"] if each["id"] == first)
            return found["isolated"] is True and found["unreachable"] is None

        client.until("overview", is_isolated_and_responds)
        switch(client, "reconnect", first)
        page.until(lambda data: isr(data) == {1, 2, 3})
    client.until("overview", lambda data: {each["isolated"] for each in data["brokers"]} == {False})


def test_a_stopped_cluster_is_an_error_and_its_return_is_seen(client: Client, data: Path) -> None:
    with client.page("overview") as page:
        page.until(lambda state: len(state["topics"]) == 1)
        switch(client, "reconnect", 1)
        assert tidelog("down", "--data", str(data)).returncode == 0
        error = page.until(lambda found: "no cluster is up" in found["error"], "error")
        assert error["status"] == 503
        assert "tidelog up" in error["advice"]
        found = client.get("/api/overview")
        assert found.status == 503
        assert set(found.json()) == {"error", "advice"}
        assert client.get("/api/records/orders/0").status == 503
        assert client.read("session")["bootstrap"] is None
        up(data)  # on other ports
        page.until(lambda state: [each["fenced"] for each in state["brokers"]] == [False] * 3)
    assert client.post("isolate", {"broker": 1}).json()["error"].startswith("the brokers were not")


def test_actions_change_the_cluster(client: Client) -> None:
    assert act(client, "produce", topic="orders", value="x", count=3).endswith("at offset 0")
    client.post_until_done("elect", {"topic": "orders", "partition": 0})
    moved = {"topic": "orders", "partition": 0, "replicas": [2, 3]}
    client.post_until_done("reassign", moved)
    client.until(PARTITION, lambda data: data["partition"]["replicas"][0]["broker"] == 2)
    reset = {"group": "readers", "topic": "orders", "to": "offset", "number": 2}
    client.post_until_done("reset-offsets", reset)
    (row,) = client.until("groups/readers", lambda data: data["offsets"])["offsets"]
    assert row["current_offset"] == 2


@pytest.mark.parametrize(
    ("name", "body", "status", "error"),
    [
        ("create-topic", {"topic": "orders"}, 400, "TOPIC_ALREADY_EXISTS"),
        ("create-topic", {"topic": "<script>"}, 400, "INVALID_TOPIC"),
        ("create-topic", {"topic": "x", "configs": {"a": 1}}, 400, "configs"),
        ("produce", {"topic": "none", "value": "x"}, 404, "none"),
        ("produce", {"topic": "orders", "partition": 7, "value": "x"}, 404, "7"),
        ("produce", {"topic": "orders", "count": 10**9}, 400, "count"),
        ("produce", {"topic": ["orders"]}, 400, "topic"),
        ("elect", {"topic": "orders", "partition": "0"}, 400, "partition"),
        ("reassign", {"topic": "orders", "partition": 0, "replicas": [1, True]}, 400, "replicas"),
        ("reset-offsets", {"group": "none", "to": "latest"}, 404, "none"),
        ("reset-offsets", {"group": "g", "to": "nowhere"}, 400, "to"),
        ("kill", {"broker": 9}, 400, "9"),
        ("kill", {"broker": "1; rm -rf"}, 400, "broker"),
        ("start", {"broker": 1}, 400, "already running"),
    ],
)
def test_wrong_requests_are_rejected_with_a_reason(
    shared: Client, name: str, body: object, status: int, error: str
) -> None:
    found = shared.post_settled(name, body)
    assert found.status == status, found.body
    assert error in found.json()["error"]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A console on a cluster that no test changes."""
    folder = tmp_path_factory.mktemp("shared")
    up(folder / "data")
    try:
        with serve(
            FolderCluster(str(folder / "data")), folder / "pages", allow_actions=True
        ) as found:
            found.create_topic("orders")
            yield found
    finally:
        tidelog("down", "--data", str(folder / "data"))


def test_up_serves_the_console_until_it_stops(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    started = up(folder, "--console", "--allow-actions")
    try:
        url = started["console"]
        port = int(url.rpartition(":")[2])

        def session() -> Any:
            connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
            try:
                connection.request("GET", "/api/session")
                return json.loads(connection.getresponse().read())
            except (OSError, HTTPException):
                return None
            finally:
                connection.close()

        found = eventually(session, "the console responds")
        assert found["data"] == str(folder)
        assert found["local"] is True
        # Some actions are offered only when a broker has returned its settings.
        eventually(
            lambda: (now := session()) and all(each["offered"] for each in now["actions"]),
            "all actions are offered",
        )
    finally:
        tidelog("down", "--data", str(folder))
    eventually(lambda: session() is None, "the console has ended")


def test_the_console_ends_with_a_killed_supervisor(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    started = up(folder, "--console")
    running = up_file.read(str(folder))
    assert running is not None
    port = int(started["console"].rpartition(":")[2])

    def serves() -> bool:
        try:
            create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return False
        return True

    eventually(serves, "it serves")
    os.kill(running.pid, signal.SIGKILL)
    eventually(lambda: not serves(), "it has ended")
    tidelog("down", "--data", str(folder))


def test_console_stops_cleanly_on_sigterm_with_an_open_page(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*TIDELOG, "console", "-b", "127.0.0.1:1", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        connection = HTTPConnection("127.0.0.1", int(url.rpartition(":")[2]), timeout=PATIENCE_S)
        connection.request("GET", "/api/live/overview")
        response = connection.getresponse()
        while response.readline().strip() != b"event: error":
            pass
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        connection.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        process.stderr.close()
