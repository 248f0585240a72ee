"""`tidelog demo`, for real."""

import json
from pathlib import Path

from click.testing import CliRunner

from tidelog.apps.cli.main import cli


def test_nothing_is_lost_when_the_leader_is_killed(tmp_path: Path) -> None:
    report = tmp_path / "new" / "report.html"
    result = CliRunner().invoke(cli, ["demo", "--format", "json", "--report", str(report)])
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
