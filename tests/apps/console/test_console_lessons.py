"""The brokers of a lesson: started by a page, bounded to one cluster, gone afterwards."""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from console_client import PATIENCE_S, UNAVAILABLE, Client, eventually, serve

from tidelog.apps.console.lesson.cluster import LessonCluster
from tidelog.apps.console.target import RemoteCluster
from tidelog.apps.stories.lessons import lessons

NOBODY = "127.0.0.1:1"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary folders."""
    found = tmp_path / "temporary"
    found.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(found))
    return found


@pytest.fixture
def client(tmp_path: Path, folder: Path) -> Iterator[Client]:
    """A console whose own cluster does not respond: lessons do not need it."""
    with serve(RemoteCluster(NOBODY), tmp_path / "pages", allow_actions=True) as found:
        yield found
    assert list(folder.iterdir()) == []
    assert pids(folder) == []


def pids(folder: Path) -> list[int]:
    """The processes that have a file in this folder open, as a broker has its lock."""
    found = []
    for descriptors in Path("/proc").glob("[0-9]*/fd"):
        try:
            files = [os.readlink(one) for one in descriptors.iterdir()]
        except OSError:
            continue
        if any(file.startswith(str(folder)) for file in files):
            found.append(int(descriptors.parent.name))
    return found


def post(client: Client, path: str, **body: Any) -> Any:
    found = client.post(f"/api/lesson/{path}", body)
    assert found.status == 200, found.body
    return found.json()


def start(client: Client, lesson: int) -> Any:
    """Start a lesson's brokers; the console gives up if they take long."""
    return client.post_until_done("/api/lesson/start", {"lesson": lesson}).json()


def test_a_lesson_runs_on_brokers_of_its_own(client: Client, folder: Path) -> None:
    assert client.read("lesson") == {"allowed": True, "state": "none", "lesson": None}
    assert client.get("/api/lesson/overview").status == 404
    assert start(client, 3)["state"] == "running"
    assert client.read("lesson") == {"allowed": True, "state": "running", "lesson": 3}
    client.create_topic("lesson3", "/api/lesson/actions/create-topic", assignment=[[1, 2, 3]])
    with client.page("lesson/partitions/lesson3/0") as page:
        page.until(lambda data: len(data["partition"]["isr"]) == 3)
        assert post(client, "actions/kill", broker=3)["message"] == "killed broker 3"
        page.until(lambda data: data["partition"]["isr"] == [1, 2])
        processes = {1: "running", 2: "running", 3: "stopped"}
        client.until(
            "lesson/overview",
            lambda data: {each["id"]: each["process"] for each in data["brokers"]} == processes,
        )
        again = client.post("/api/lesson/actions/kill", {"broker": 3})
        assert (again.status, again.json()["error"]) == (400, "broker 3 is not running")
        post(client, "actions/start", broker=3)
        page.until(lambda data: len(data["partition"]["isr"]) == 3)
    assert post(client, "stop", lesson=3)["state"] == "none"
    assert list(folder.iterdir()) == []


def test_a_second_lesson_replaces_the_brokers_of_the_first(client: Client, folder: Path) -> None:
    start(client, 1)
    first = pids(folder)
    assert len(first) == 3
    start(client, 2)
    assert len(list(folder.iterdir())) == 1
    assert len(pids(folder)) == 3
    assert not set(first) & set(pids(folder))
    assert post(client, "stop", lesson=1)["lesson"] == 2, "another lesson's brokers keep running"


def test_brokers_stop_with_an_open_page_when_the_console_ends(tmp_path: Path, folder: Path) -> None:
    with serve(RemoteCluster(NOBODY), tmp_path / "pages", allow_actions=True) as client:
        start(client, 1)
        connection = HTTPConnection("127.0.0.1", client.console.port, timeout=PATIENCE_S)
        connection.request("GET", "/api/live/lesson/overview")
        stream = connection.getresponse()
        assert stream.readline()
    assert pids(folder) == []
    stream.close()
    connection.close()


def test_brokers_stop_when_no_page_asks_for_them(folder: Path) -> None:
    cluster = LessonCluster(allowed=True, idle_s=0.5)
    try:
        cluster.start(1)
        eventually(lambda: not list(folder.iterdir()), "the deleted folder")
        assert cluster.state()["state"] == "none"
        assert pids(folder) == []
    finally:
        cluster.close()


def test_brokers_end_with_a_killed_console(tmp_path: Path) -> None:
    words = ["console", "-b", NOBODY, "--port", "0", "--allow-actions"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-m", "tidelog", *words],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as console:
        try:
            assert console.stdout is not None
            port = int(re.findall(r":(\d+)", console.stdout.readline())[0])
            connection = HTTPConnection("localhost", port, timeout=PATIENCE_S)
            connection.request(
                "POST", "/api/lesson/start", '{"lesson": 1}', {"X-Tidelog-Console": "1"}
            )
            assert connection.getresponse().status == 200
            connection.close()
            assert len(pids(tmp_path)) == 3
        finally:
            console.kill()
    eventually(lambda: not pids(tmp_path), "the end of the brokers")


def test_without_actions_no_broker_starts(tmp_path: Path, folder: Path) -> None:
    with serve(RemoteCluster(NOBODY), tmp_path / "pages") as client:
        assert client.read("lesson")["allowed"] is False
        found = client.post("/api/lesson/start", {"lesson": 1})
        assert (found.status, found.json()["error"]) == (403, "actions are off")
        assert client.post("/api/lesson/start", {"lesson": 1}, {}).status == 403
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("lesson", [0, 11, "1", None, True])
def test_an_unknown_lesson_is_refused(client: Client, lesson: object) -> None:
    assert client.post("/api/lesson/start", {"lesson": lesson}).status == 400


@pytest.mark.ci
@pytest.mark.parametrize("lesson", lessons(), ids=lambda each: str(each.number))
def test_the_buttons_of_a_lesson_do_what_it_says(client: Client, lesson: Any) -> None:
    start(client, lesson.number)
    for step in lesson.on_cluster:
        deadline = time.monotonic() + PATIENCE_S
        for action in step.actions:
            while True:
                found = client.post(f"/api/lesson/actions/{action.name}", dict(action.body))
                if found.status == 200 or step.exits:
                    break
                if not step.repeat and found.status != UNAVAILABLE:
                    break
                assert time.monotonic() < deadline, found.body
            assert (found.status == 200) is (step.exits == 0), (step.run, found.body)
