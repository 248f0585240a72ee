"""The files in deploy/, each checked with its own tool, and without the tool by a strict parser."""

import json
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tidelog.shell.settings_sources import load_settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PATIENCE_S = 300.0


def test_the_example_has_valid_settings() -> None:
    resolved = load_settings(str(DEPLOY / "server.properties"))
    assert resolved.warnings == []
    assert resolved.settings.internal_listener == ("BROKERS", "10.0.0.1", 9091)


def test_systemd_accepts_the_unit() -> None:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd-analyze is not installed")
    command = [tool, "verify", "--man=no", str(DEPLOY / "tidelog.service")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, "tidelog.service" in done.stderr) == (0, False), done.stderr


def test_systemd_gives_the_broker_the_secret_of_the_example() -> None:
    """The user of the broker can't read a file that only root may read."""
    unit = (DEPLOY / "tidelog.service").read_text()
    setting = "tidelog.cluster.secret.file"
    path = load_settings(str(DEPLOY / "server.properties")).settings.get(setting)
    assert f"\nLoadCredential=cluster-secret:{path}\n" in unit
    [variable] = re.findall(r"^Environment=(\w+)=%d/cluster-secret$", unit, re.MULTILINE)
    resolved = load_settings(str(DEPLOY / "server.properties"), {variable: "/run/secret"})
    assert resolved.settings.get(setting) == "/run/secret"


def run_tool(*command: str) -> None:
    """Run a checker, from `.venv` too; a missing one is skipped with its name."""
    beside = str(Path(sys.executable).parent)
    tool = shutil.which(command[0]) or shutil.which(command[0], path=beside)
    if tool is None:
        pytest.skip(f"{command[0]} is not installed")
    words = [tool, *command[1:]]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# -- the container file


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Containerfile, with continued lines joined."""
    text = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    found = [re.fullmatch(r"([A-Z]+) (\S.*)", line) for line in lines]
    assert all(found), lines
    return [(one[1], one[2]) for one in found if one]


def test_hadolint_accepts_the_containerfile() -> None:
    run_tool("hadolint", str(DEPLOY / "Containerfile"))


def test_the_containerfile_builds_from_files_that_exist() -> None:
    known = {
        *("FROM", "WORKDIR", "COPY", "RUN", "USER", "VOLUME", "EXPOSE"),
        *("STOPSIGNAL", "ENTRYPOINT"),
    }
    parsed = instructions()
    assert {name for name, _ in parsed} <= known
    stages = [text.split(" AS ")[1] for name, text in parsed if name == "FROM" and " AS " in text]
    for name, text in parsed:
        if name == "COPY":
            *sources, _ = text.split()
            if sources[0].startswith("--from="):
                assert sources[0].removeprefix("--from=") in stages
            else:
                assert all((ROOT / source).exists() for source in sources), text
        if name in ("VOLUME", "ENTRYPOINT") or text.startswith("["):
            assert all(isinstance(word, str) for word in json.loads(text))
    assert json.loads(dict(parsed)["ENTRYPOINT"]) == ["tidelog", "broker"]
    assert dict(parsed)["USER"] == "10001"


# -- the compose file


def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = import_module("yaml").safe_load((DEPLOY / "compose.yaml").read_text())
    return loaded


def test_docker_compose_accepts_the_compose_file() -> None:
    if shutil.which("docker") is None:
        pytest.skip("docker is not installed")
    known = subprocess.run(
        ["docker", "compose", "version"], capture_output=True, timeout=PATIENCE_S, check=False
    )
    if known.returncode:
        pytest.skip("docker has no compose plugin")
    run_tool("docker", "compose", "-f", str(DEPLOY / "compose.yaml"), "config", "--quiet")


def test_the_schema_of_compose_accepts_the_compose_file() -> None:
    run_tool(
        *("check-jsonschema", "--builtin-schema", "vendor.compose-spec"),
        str(DEPLOY / "compose.yaml"),
    )


def test_the_compose_file_names_only_what_it_defines() -> None:
    file = compose()
    top = {"name", "services", "volumes", "secrets", "x-etcd", "x-broker", "x-settings"}
    assert set(file) == top
    services = file["services"]
    assert set(services) == {f"{kind}-{n}" for kind in ("etcd", "broker") for n in (1, 2, 3)}
    keys = {
        *("image", "restart", "command", "volumes", "build", "stop_grace_period", "secrets"),
        *("depends_on", "healthcheck", "ports", "environment"),
    }
    for name, service in services.items():
        assert set(service) <= keys, name
        assert {volume.partition(":")[0] for volume in service["volumes"]} == {name}
        assert set(service.get("depends_on", ())) <= set(services)
        assert set(service.get("secrets", ())) <= set(file["secrets"])
    assert set(file["volumes"]) == set(services)
    build = services["broker-1"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).is_file()


@pytest.mark.parametrize("broker", [1, 2, 3])
def test_the_brokers_of_the_compose_file_have_valid_settings(broker: int) -> None:
    service = compose()["services"][f"broker-{broker}"]
    resolved = load_settings(None, service["environment"])
    [warning] = resolved.warnings  # the port is not published: only other containers reach it
    assert "can read the metrics" in warning
    settings = resolved.settings
    assert settings.node_id == broker
    assert settings.get("broker.rack") == f"machine-{broker}"
    secret = settings.get("tidelog.cluster.secret.file")
    assert secret == f"/run/secrets/{service['secrets'][0]}"
    (volume,) = service["volumes"]
    assert settings.log_dir.startswith(f"{volume.partition(':')[2]}/")
    outside = service["ports"][0].split(":")[1]
    assert f"OUTSIDE://localhost:{outside}" in settings.get("advertised.listeners")
    nodes = settings.metadata_store.removeprefix("etcd://").partition("/")[0].split(",")
    assert nodes == [f"etcd-{n}:2379" for n in (1, 2, 3)]


@pytest.mark.parametrize("node", [1, 2, 3])
def test_the_etcd_nodes_of_the_compose_file_know_each_other(node: int) -> None:
    program, *options = compose()["services"][f"etcd-{node}"]["command"]
    assert program == "etcd"
    given = dict(option.removeprefix("--").split("=", 1) for option in options)
    members = dict(member.split("=") for member in given["initial-cluster"].split(","))
    assert members[given["name"]] == given["initial-advertise-peer-urls"]
    assert len(members) == 3
