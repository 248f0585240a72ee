"""`tidelog audit` without Spark: arguments and errors; and its reference page."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from mini_cluster import make_mini_cluster

from tidelog.apps.audit.folders.discovery import NothingThere, find_log_dirs, replica_names
from tidelog.apps.audit.report.kinds import DAMAGE, KINDS, NOTICE
from tidelog.apps.cli.main import cli

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "audit.md"


def test_wrong_folders_are_refused_before_spark_starts(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    problems = {tmp_path: "no log found in ", missing: f"file or folder '{missing}' does not exist"}
    for path, problem in problems.items():
        outcome = CliRunner().invoke(cli, ["audit", str(path)])
        assert outcome.exit_code == 2
        assert outcome.stderr.startswith(f"tidelog: {problem}")
        assert outcome.stderr.count("\n") == 1


def test_wrong_settings_are_refused(tmp_path: Path) -> None:
    outcome = CliRunner().invoke(cli, ["audit", str(tmp_path), "--conf", "nonsense"])
    assert outcome.exit_code == 2
    assert "'nonsense' is not in the form KEY=VALUE" in outcome.stderr


@pytest.mark.spark
def test_without_java_the_error_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_mini_cluster(tmp_path / "c")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    outcome = CliRunner().invoke(cli, ["audit", str(tmp_path / "c")])
    assert outcome.exit_code == 2
    assert "install openjdk-17-jre-headless" in outcome.stderr
    assert outcome.stderr.count("\n") == 1


def test_folders_are_found_by_their_content(tmp_path: Path) -> None:
    """`broker-1` looks like partition 1 of a topic `broker`."""
    cluster = make_mini_cluster(tmp_path / "data" / "c")
    (tmp_path / "link").symlink_to(tmp_path / "data")
    brokers = [str(tmp_path / "data" / "c" / f"broker-{n}") for n in (1, 2, 3)]
    for path in ("data", "data/c", "link", "."):
        found = find_log_dirs([str(tmp_path / path)])
        assert [each.path for each in found] == brokers
        assert [len(each.folders) for each in found] == [1, 1, 1]
    assert list(replica_names(brokers).values()) == ["broker-1", "broker-2", "broker-3"]
    twice = find_log_dirs([str(tmp_path / "link"), str(cluster.folder(2))])
    assert [each.path for each in twice] == brokers
    segment = cluster.segments(3)[1]
    (single,) = find_log_dirs([str(segment)])
    assert [folder.only for folder in single.folders] == [segment.name]
    with pytest.raises(NothingThere):
        find_log_dirs([str(cluster.root / "broker-1" / "meta.properties")])


def test_every_finding_is_explained() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (damage|notice) \|", PAGE.read_text(), re.MULTILINE)
    assert dict(rows) == {name: kind.severity for name, kind in KINDS.items()}
    assert {kind.severity for kind in KINDS.values()} == {DAMAGE, NOTICE}
