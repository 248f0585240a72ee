"""The how-to about SASL works as it is written, with another port."""

import os
import re
import subprocess
import sys
from pathlib import Path

from broker_process import STOP_S, free_port
from real_cluster import eventually

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "authenticate-clients.md"
BLOCK = re.compile(r"```(?:sh|properties)\n(.*?)```", re.DOTALL)
PATIENCE_S = 120
REFUSED = "Authentication failed during authentication due to invalid credentials"


def test_the_page_works_as_it_is_written(tmp_path: Path) -> None:
    page = PAGE.read_text().replace("localhost:9292", f"localhost:{free_port()}")
    server, admin, create, alice, use, remove = BLOCK.findall(page)
    programs = os.path.dirname(sys.executable)
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}

    def run(text: str) -> "subprocess.CompletedProcess[str]":
        command = ["bash", "-e", "-o", "pipefail", "-c", text]
        return subprocess.run(
            command,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def succeeds(text: str) -> str:
        def output() -> str | None:
            done = run(text)
            return done.stdout if done.returncode == 0 else None

        return str(eventually(output, "the commands succeed", PATIENCE_S))

    for name, text in (("server", server), ("admin", admin), ("alice", alice)):
        (tmp_path / f"{name}.properties").write_text(text)
    started = [sys.executable, "-m", "tidelog", "broker", "--config", "server.properties"]
    log = tmp_path / "log.txt"
    with log.open("wb") as file:
        process = subprocess.Popen(started, cwd=tmp_path, stderr=file)
    try:
        assert "SCRAM-SHA-512" in succeeds(create)
        assert "hello" in succeeds(use), log.read_text()
        succeeds(remove)
        eventually(lambda: REFUSED in run(use).stderr, "alice can't connect", PATIENCE_S)
    finally:
        process.terminate()
        process.wait(STOP_S)
    named = "failed authentication by SCRAM-SHA-512: wrong password or unknown user 'alice'"
    assert named in log.read_text()
    assert named in page
