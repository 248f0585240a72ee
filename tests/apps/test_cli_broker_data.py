"""`tidelog broker --data` and `--set` must not name different places."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tidelog.apps.cli.main import cli


@pytest.mark.parametrize("name", ["tidelog.metadata.store", "log.dirs", "log.dir"])
def test_a_set_that_contradicts_data_is_refused(tmp_path: Path, name: str) -> None:
    other = f"{'sqlite:' if 'store' in name else ''}{tmp_path}/other"
    words = ["broker", "--set", "node.id=1", "--set", f"{name}={other}", "--data", str(tmp_path)]
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 2
    assert f"--set {name}={other} contradicts --data" in result.stderr
    assert not list(tmp_path.iterdir()), "nothing was made"


def test_a_folder_with_a_comma_is_refused(tmp_path: Path) -> None:
    """`log.dirs` would be two folders, and the second one relative to the current folder."""
    data = tmp_path / "a,b"
    words = ["broker", "--set", "node.id=1", "--data", str(data)]
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 2
    assert "has a comma" in result.stderr
    assert not list(tmp_path.iterdir()), "nothing was made"
