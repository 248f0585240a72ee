"""Files of a broker are private whatever the umask; a folder open to all users is reported."""

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tidelog.shell.os_disk import OsDisk, make_folders, warning_if_open


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_files_and_folders_are_private(tmp_path: Path) -> None:
    root = tmp_path / "above" / "logs"
    disk = OsDisk(str(root))
    disk.make_dir("orders-0")
    disk.append("orders-0/0.log", [b"x"])
    disk.write("checkpoint", b"y")
    disk.close()
    assert {mode(path) for path in (root.parent, root, root / "orders-0")} == {0o700}
    assert {mode(path) for path in (root / "orders-0" / "0.log", root / "checkpoint")} == {0o600}


def test_a_folder_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir(0o775)
    make_folders(str(tmp_path / "shared"))
    assert mode(tmp_path / "shared") == 0o775


def test_a_file_in_the_way_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        make_folders(str(tmp_path / "file"))


def test_a_relative_path_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_folders("a/b")
    assert mode(tmp_path / "a") == mode(tmp_path / "a" / "b") == 0o700


@pytest.mark.parametrize(
    ("above", "own", "warned"),
    [
        (0o755, 0o755, True),
        (0o711, 0o704, True),
        (0o700, 0o755, False),
        (0o755, 0o700, False),
        (0o755, 0o770, False),
    ],
)
def test_a_warning_if_all_users_can_open_it(above: int, own: int, warned: bool) -> None:
    with TemporaryDirectory(dir="/tmp") as made:  # pytest's own folders are private
        reachable = Path(made).resolve()
        reachable.chmod(above)
        folder = reachable / "logs"
        folder.mkdir(own)
        text = f"{folder} is open to all users of this machine (mode {own:o}); run: chmod 700 "
        assert warning_if_open(str(folder)) == (f"{text}{folder}" if warned else None)
