"""The how-to about access tokens works as it is written, with keys and a token in files."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

from issuer import jwks, key_of, public_jwk, token
from real_cluster import eventually

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "authenticate-with-tokens.md"
BLOCK = re.compile(r"```(?:sh|properties)\n(.*?)```", re.DOTALL)
PATIENCE_S = 120


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def test_the_page_works_as_it_is_written(tmp_path: Path) -> None:
    text = PAGE.read_text()
    page = text.replace("localhost:9292", f"localhost:{free_port()}")
    page = page.replace("https://issuer.example/jwks", f"file://{tmp_path}/keys.json")
    page = page.replace("file:///run/secrets/token", f"file://{tmp_path}/token")
    server, client, use = BLOCK.findall(page)
    (tmp_path / "keys.json").write_bytes(jwks(public_jwk(key_of("RS256"))))
    (tmp_path / "token").write_text(token())
    for name, block in (("server", server), ("client", client)):
        (tmp_path / f"{name}.properties").write_text(block)
    programs = os.path.dirname(sys.executable)
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}

    def run() -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", use],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    started = [sys.executable, "-m", "tidelog", "broker", "--config", "server.properties"]
    log = tmp_path / "log.txt"
    with log.open("wb") as file:
        process = subprocess.Popen(started, cwd=tmp_path, stderr=file)
    try:
        done = eventually(
            lambda: done if (done := run()).returncode == 0 else None,
            "the commands succeed",
            PATIENCE_S,
        )
        assert "hello" in done.stdout
        (tmp_path / "token").write_text(token(aud="account"))
        eventually(lambda: "invalid_token" in run().stderr, "the token is refused", PATIENCE_S)
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
    reason = "the token's audience is 'account'; expected is kafka"
    assert reason in log.read_text()
    assert reason in text
