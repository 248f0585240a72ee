"""The how-to about TLS works as it is written, with another port."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from broker_process import STOP_S, free_port
from certificates import openssl
from real_cluster import eventually

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "encrypt-connections.md"
BLOCK = re.compile(r"```(sh|properties)\n(.*?)```", re.DOTALL)


@pytest.mark.ci
def test_the_page_works_as_it_is_written(tmp_path: Path) -> None:
    openssl(tmp_path, "version")  # skips where there is none
    page = PAGE.read_text().replace("localhost:9192", f"localhost:{free_port()}")
    blocks = BLOCK.findall(page)
    authority, broker_key, broker, client, commands = (text for _, text in blocks)
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
            timeout=120,
            check=False,
        )

    for text in (authority, broker_key):
        done = run(text)
        assert done.returncode == 0, done.stderr
    (tmp_path / "server.properties").write_text(broker)
    (tmp_path / "client.properties").write_text(client)
    started = [sys.executable, "-m", "tidelog", "broker", "--config", "server.properties"]
    log = tmp_path / "log.txt"
    with log.open("wb") as file:
        process = subprocess.Popen(started, cwd=tmp_path, stderr=file)
    try:
        done = eventually(
            lambda: done if (done := run(commands)).returncode == 0 else None,
            "the commands succeed",
            120,
        )
    finally:
        process.terminate()
        process.wait(STOP_S)
    assert "hello" in done.stdout, log.read_text()
