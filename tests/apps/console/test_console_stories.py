"""Stories and lessons over HTTP."""

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest
from console_client import PATIENCE_S, Client, serve

from tidelog.apps.console import story_routes as subject
from tidelog.apps.console.target import RemoteCluster
from tidelog.apps.stories.bounded import TEXT_BYTES_MAX
from tidelog.apps.stories.lessons import lessons
from tidelog.apps.stories.shelf import included, played

LOSS = "truncation/hw-loses-acked-record"
NOBODY = "127.0.0.1:1"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A console without a cluster: stories need none."""
    folder = tmp_path_factory.mktemp("pages")
    with serve(RemoteCluster(NOBODY), folder) as found:
        yield found


def post(client: Client, body: bytes, headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", client.console.port, timeout=PATIENCE_S)
    try:
        connection.request("POST", "/api/stories/run", body, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def run(client: Client, text: object) -> tuple[int, dict[str, Any]]:
    return post(client, json.dumps({"text": text}).encode(), {"X-Tidelog-Console": "1"})


def test_the_list_has_all_stories_and_lessons(client: Client) -> None:
    found = client.get("/api/stories").json()
    assert len(found["stories"]) == len(included())
    assert set(found["stories"][0]) == {"name", "folder", "title", "policies", "covers"}
    assert found["lessons"] == [lesson.as_data() for lesson in lessons()]


def test_a_story_is_played(client: Client) -> None:
    assert client.get(f"/api/stories/{LOSS}").json() == json.loads(json.dumps(played(LOSS)))


@pytest.mark.parametrize(
    "name", ["truncation/none", "..%2f..%2fetc/passwd", "truncation/..%2fREADME", "run/x"]
)
def test_another_name_is_not_found(client: Client, name: str) -> None:
    assert client.get(f"/api/stories/{name}").status == 404


def test_an_edited_story_is_run(client: Client) -> None:
    status, found = run(client, "# Mine\n\ncluster A B\nproduce m1\ncheck hw-below-leo\n")
    assert status == 200
    assert found["title"] == "Mine"
    assert found["passed"]
    assert len(found["steps"]) == 3


def test_a_mistake_is_refused_with_its_line(client: Client) -> None:
    status, found = run(client, "cluster A B\nproduce m1\n----\n----\n")
    assert status == 400
    assert found["line"] == 4
    status, found = run(client, "x" * (TEXT_BYTES_MAX + 1))
    assert (status, found["line"]) == (400, None)
    assert run(client, 7)[0] == 400
    assert post(client, b"[", {"X-Tidelog-Console": "1"})[0] == 400
    assert post(client, b"x" * (1 << 20), {"X-Tidelog-Console": "1"})[0] == 413


def test_a_run_needs_the_header_that_other_sites_cannot_send(client: Client) -> None:
    assert post(client, b'{"text": "cluster A"}', {})[0] == 403


def test_only_a_few_edited_stories_run_at_once(client: Client) -> None:
    for _ in range(subject.RUNS_MAX):
        subject._runs.acquire()
    try:
        assert run(client, "cluster A\n")[0] == 503
    finally:
        for _ in range(subject.RUNS_MAX):
            subject._runs.release()
    assert run(client, "cluster A\n")[0] == 200
