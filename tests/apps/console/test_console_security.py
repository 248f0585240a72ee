"""Who may use the console: token, Host, header of actions, headers of responses."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from console_client import PATIENCE_S, Client, serve

from tidelog.apps.console.security import TokenUnusable, read_token
from tidelog.apps.console.target import RemoteCluster

TOKEN = "a-token-of-more-than-16-letters"
NOBODY = "127.0.0.1:1"


@pytest.fixture(scope="module")
def open_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A console on loopback, without a cluster."""
    with serve(RemoteCluster(NOBODY), tmp_path_factory.mktemp("pages")) as found:
        yield found


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A console that other machines can reach, with a token and actions."""
    with serve(
        RemoteCluster(NOBODY),
        tmp_path_factory.mktemp("pages"),
        host="0.0.0.0",
        token=TOKEN,
        allow_actions=True,
    ) as found:
        yield found


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "localhost.evil.example", ""]
)
def test_another_host_is_refused(open_client: Client, host: str) -> None:
    found = open_client.get("/api/session", {"Host": host})
    assert found.status == 403
    assert "host" in found.json()["error"]


@pytest.mark.parametrize("host", ["localhost", "localhost:9999", "127.0.0.1", "[::1]:8080"])
def test_names_of_loopback_are_served(open_client: Client, host: str) -> None:
    assert open_client.get("/api/session", {"Host": host}).status == 200


@pytest.mark.parametrize("path", ["/", "/api/session", "/assets/app-1a2b.js", "/api/nothing"])
def test_responses_have_a_strict_policy(open_client: Client, path: str) -> None:
    headers = open_client.get(path).headers
    assert headers["content-security-policy"].startswith("default-src 'self';")
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


@pytest.mark.parametrize("path", ["/", "/topics/x", "/api/session", "/api/live/overview"])
def test_without_the_token_nothing_is_served(guarded: Client, path: str) -> None:
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Cookie": f"tidelog_console_{guarded.console.port}=wrong"},
    ):
        found = guarded.get(path, headers)
        assert found.status == 401
        assert TOKEN not in found.body.decode()
    assert guarded.get("/api/session?token=wrong").status == 401


def test_the_token_in_the_url_becomes_a_cookie(guarded: Client) -> None:
    found = guarded.get(f"/topics/x?a=1&token={TOKEN}")
    assert found.status == 303
    assert found.headers["location"] == "/topics/x?a=1"
    cookie = found.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert guarded.get("/api/session", {"Cookie": cookie.partition(";")[0]}).status == 200


def test_no_token_stays_in_the_url_of_a_browser_that_is_signed_in(guarded: Client) -> None:
    cookie = {"Cookie": f"tidelog_console_{guarded.console.port}={TOKEN}"}
    found = guarded.get(f"/topics/x?token={TOKEN}", cookie)
    assert (found.status, found.headers["location"]) == (303, "/topics/x")
    assert guarded.get("/api/session?token=of-an-earlier-console", cookie).status == 200


def test_the_redirect_never_leads_to_another_site(guarded: Client) -> None:
    for path in ("//evil.example/", "/\\evil.example/", "///evil.example"):
        found = guarded.get(f"{path}?token={TOKEN}")
        assert found.status == 303
        assert found.headers["location"].startswith("/")
        assert found.headers["location"][1:2] not in ("/", "\\")


def test_the_token_in_a_header_is_accepted(guarded: Client) -> None:
    assert guarded.get("/api/session", {"Authorization": f"Bearer {TOKEN}"}).status == 200


def test_actions_need_the_header_and_the_own_origin(guarded: Client) -> None:
    signed_in = {"Authorization": f"Bearer {TOKEN}"}
    assert guarded.post("produce", {}, signed_in).status == 403
    port = guarded.console.port
    ours = {**signed_in, "X-Tidelog-Console": "1", "Host": f"127.0.0.1:{port}"}
    for origin in ("http://evil.example", "null", "http://[", f"http://127.0.0.1:{port + 1}"):
        found = guarded.post("produce", {}, {**ours, "Origin": origin})
        assert found.status == 403
        assert "another site" in found.json()["error"]
    # Accepted so far; there is no cluster.
    found = guarded.post("produce", {"topic": "x"}, {**ours, "Origin": f"http://127.0.0.1:{port}"})
    assert found.status == 503


def test_actions_are_off_by_default(open_client: Client) -> None:
    for name in ("create-topic", "produce", "kill"):
        found = open_client.post(name, {"topic": "x", "broker": 1})
        assert found.status == 403
        assert "--allow-actions" in found.json()["advice"]


def test_requests_that_are_too_large_or_no_objects_are_rejected(guarded: Client) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}", "X-Tidelog-Console": "1"}
    assert guarded.post("produce", "x" * (3 << 20), headers).status == 413
    assert guarded.post("produce", ["x"], headers).status == 400
    assert guarded.post("nothing", {}, headers).status == 404
    assert guarded.post("kill", {"broker": 1}, headers).status == 403  # not local


def test_token_file_is_created_for_this_user_only(tmp_path: Path) -> None:
    path = tmp_path / "token"
    token = read_token(str(path))
    assert len(token) >= 32
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_token(str(path)) == token
    assert read_token(None) != read_token(None)


@pytest.mark.parametrize("content", ["", "short", "with a space and more letters", "\u00e4" * 20])
def test_unusable_token_files_are_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "token"
    path.write_text(content)
    with pytest.raises(TokenUnusable, match="no usable token"):
        read_token(str(path))


def test_credentials_of_the_console_need_a_token(tmp_path: Path) -> None:
    """Else every user of the machine could act with them."""
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.username=alice\nsasl.password=secret\n"
    )
    words = ["console", "--bootstrap", "127.0.0.1:1", "--port", "0"]
    for more, has_token in (([], False), (["--command-config", str(config)], True)):
        with subprocess.Popen(
            [sys.executable, "-m", "tidelog", *words, *more],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            address = process.stdout.readline()
            process.terminate()
            assert ("token=" in address) is has_token
            assert process.wait(PATIENCE_S) == 0
