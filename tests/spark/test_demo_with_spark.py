"""The demo as `make demo` runs it: a Spark job continues while the leader is killed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

LIMIT_S = 600
"""Under a minute on two idle cores; Spark is ten times slower where others use them too."""
LOG_CHARS = 8_000


@pytest.mark.spark
def test_a_spark_job_continues_when_the_leader_is_killed(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    words = ["-m", "tidelog", "demo", "--format", "json", "--report", str(report)]
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    log = tmp_path / "spark.log"  # it is there when the job failed
    why = log.read_text()[-LOG_CHARS:] if log.exists() else ""
    assert done.returncode == 0, done.stderr + done.stdout[-2000:] + why
    found = json.loads(done.stdout)
    spark = found["spark"]
    promised = found["acknowledged"]
    assert found["holds"] is True
    assert found["sent"] == found["in_log"] == spark["lake"]["found"] == promised > 1_000
    for place in ("table", "topic"):
        assert spark[place]["orders"] == promised - 1, "all but the order that closes the windows"
        assert spark[place]["missing"] == spark[place]["wrong"] == []
    assert spark["audit"]["damage"] == 0
    ends = {row["log end"] for row in spark["audit"]["replicas"] if row["partition"] == "orders/0"}
    assert ends == {promised}
    for query in ("land", "sums"):
        phases = {batch["phase"] for batch in spark["batches"] if batch["query"] == query}
        assert "all in sync" in phases
        assert len(phases) > 1, "it went on after the kill"
    text = report.read_text()
    assert "landed in the lake" in text
    assert f"kill -9 broker {found['killed']}" in text
