"""`tidelog demo`, for real."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidelog.apps.cli.main import cli


def test_nothing_is_lost_when_the_leader_is_killed(tmp_path: Path) -> None:
    report = tmp_path / "new" / "report.html"
    words = ["demo", "--no-spark", "--format", "json", "--report", str(report)]
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["holds"] is True
    assert found["lost"] == []
    assert found["acknowledged"] == found["sent"] == found["in_log"] > 100
    assert found["successor"] != found["killed"]
    assert found["in_sync"] == [1, 2, 3]
    assert found["report"] == str(report)
    text = report.read_text()
    assert f"{found['acknowledged']:,} acknowledged: 0 lost" in text
    assert f"kill -9 broker {found['killed']}" in text
    assert f"epoch {found['epoch']}: broker {found['successor']} leads" in text


def test_without_java_one_line_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    for package in ("pyspark", "numpy", "pyarrow"):
        if find_spec(package) is None:
            break
    else:
        package = "Java 17"
    result = CliRunner().invoke(cli, ["demo"])
    assert result.exit_code == 2
    [line] = result.stderr.splitlines()
    assert package in line
    assert line.endswith("tidelog demo --no-spark does without Spark")
