"""The addresses of the metrics of `tidelog up` brokers."""

import json
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tidelog.apps.cli.local.up_text import announcement
from tidelog.shell.settings_sources import load_settings
from tidelog.shell.supervisor import cluster_plan
from tidelog.shell.supervisor.cluster import LocalCluster
from tidelog.shell.supervisor.cluster_plan import ClusterPlan
from tidelog.shell.supervisor.up_file import BrokerEntry, UpFile

KEY = "tidelog.metrics.listener"


@pytest.mark.parametrize(
    ("sets", "wanted"),
    [
        ((), ["127.0.0.1:0"] * 3),
        ((f"{KEY}=127.0.0.1:9644",), ["127.0.0.1:9644", "127.0.0.1:9645", "127.0.0.1:9646"]),
        ((f"{KEY}=127.0.0.1:1", f"{KEY}=[::1]:7"), ["[::1]:7", "[::1]:8", "[::1]:9"]),
        ((f"{KEY}=",), [None] * 3),
        ((f"{KEY}=localhost:0",), ["localhost:0"] * 3),
    ],
)
def test_a_configured_metrics_port_is_the_first_brokers(
    sets: tuple[str, ...], wanted: list[str | None], tmp_path: Path
) -> None:
    plan = ClusterPlan(str(tmp_path), (1, 2, 3), 0, sets)
    found = [
        load_settings(
            None, {}, [*sets, *plan.own_settings(broker, 0)], cluster_plan.defaults(3)
        ).settings.get(KEY)
        for broker in plan.brokers
    ]
    assert found == wanted


@pytest.mark.parametrize("text", ["nowhere", "host:99999", "host:port"])
def test_a_wrong_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=KEY):
        load_settings(None, {}, ["node.id=1", f"{KEY}={text}"])


def up(*pages: str | None) -> UpFile:
    brokers = [
        BrokerEntry(n, 1, "", "localhost", 9091 + n, 1, "x.log", "up", page)
        for n, page in enumerate(pages, 1)
    ]
    return UpFile(1, "", "localhost:9092", "/data", False, False, False, brokers)


def test_up_prints_the_metrics_addresses() -> None:
    pages = [f"http://127.0.0.1:{port}/metrics" for port in (9644, 9645, 9646)]
    text = announcement(up(*pages), 0.1)
    assert "metrics    http://127.0.0.1:9644/metrics, and on 9645, 9646\n" in text
    assert "metrics    off\n" in announcement(up(None, None), 0.1)


def test_brokers_in_one_process_have_a_page_each() -> None:
    with LocalCluster(brokers=2, one_process=True) as cluster:
        told = []
        for broker in cluster.ids:
            with urllib.request.urlopen(cluster.metrics_url(broker), timeout=120) as answer:
                text = answer.read().decode()
            told.append(f'broker="{broker}"}} 1' in text)
        assert told == [True, True]


def test_a_broker_without_the_setting_has_no_metrics_listener() -> None:
    assert load_settings(None, {}, ["node.id=1"]).settings.metrics_listener is None


def test_an_address_in_use_is_reported_with_the_settings_name(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        sets = ["node.id=1", "listeners=PLAINTEXT://localhost:0", f"{KEY}={address}"]
        sets.append("tidelog.log.format=json")
        options = [word for text in sets for word in ("--set", text)]
        command = [sys.executable, "-m", "tidelog", "broker", "--data", str(tmp_path), *options]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 1
    said = [json.loads(line) for line in ran.stderr.splitlines()]
    assert said[-1]["event"] == "failed"
    assert said[-1]["reason"].startswith(f"{KEY}: can't listen on {address}: ")
