"""Spark's set-up with a faulty package index: a tiny archive replaces PySpark.

The script runs as `make spark` runs it, in a separate process with pip's real settings. The archive
contains its build back end, so no other index is needed.
"""

import fcntl
import hashlib
import importlib
import io
import os
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "set_up_spark.py"
VERSION = "0.0.1"
ARCHIVE = f"pyspark-{VERSION}.tar.gz"
LIMIT_S = 300

PYPROJECT = """
[build-system]
requires = []
build-backend = "tiny"
backend-path = ["."]
"""
BACKEND = """
import pathlib, zipfile

NAME, FOLDER = "pyspark-0.0.1-py3-none-any.whl", "pyspark-0.0.1.dist-info"
METADATA = "Metadata-Version: 2.1\\nName: pyspark\\nVersion: 0.0.1"
WHEEL = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any"

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / NAME, "w") as wheel:
        wheel.writestr("pyspark/__init__.py", "from_the_wheel = True")
        wheel.writestr(f"{FOLDER}/METADATA", METADATA)
        wheel.writestr(f"{FOLDER}/WHEEL", WHEEL)
        wheel.writestr(f"{FOLDER}/RECORD", "")
    return NAME
"""


def archive() -> bytes:
    """Create a source archive that pip can build; most of it is data that does not compress."""
    files = {
        "pyproject.toml": PYPROJECT.encode(),
        "tiny.py": BACKEND.encode(),
        "PKG-INFO": f"Metadata-Version: 2.1\nName: pyspark\nVersion: {VERSION}\n".encode(),
        "ballast": os.urandom(1 << 20),
    }
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"pyspark-{VERSION}/{name}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


class Index(ThreadingHTTPServer):
    """A package index that closes connections after some bytes, or does not support ranges."""

    def __init__(self, content: bytes) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.content = content
        self.cuts: list[int] = []
        """After how many bytes each of the next answers ends."""
        self.ranges = True
        self.asked: list[tuple[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/simple"


class Answers(BaseHTTPRequestHandler):
    server: Index

    def do_GET(self) -> None:
        wanted = self.headers.get("Range", "")
        self.server.asked.append((self.path, wanted))
        if self.path == "/simple/pyspark/":
            page = f'<a href="../../files/{ARCHIVE}#sha256=0">{ARCHIVE}</a>'.encode()
            self._answer(200, page, len(page))
        elif self.path == f"/files/{ARCHIVE}":
            begin = int(wanted.removeprefix("bytes=").rstrip("-") or 0) if self.server.ranges else 0
            rest = self.server.content[begin:]
            cut = self.server.cuts.pop(0) if self.server.cuts else len(rest)
            self._answer(206 if begin else 200, rest[:cut], len(rest))
        else:
            self.send_error(404)

    def _answer(self, status: int, content: bytes, promised: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(promised))
        self.end_headers()
        self.wfile.write(content)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


class Place:
    """A cache folder, an environment, an index, pins."""

    def __init__(self, folder: Path, index: Index) -> None:
        self.wheels, self.environment = folder / "wheels", folder / "environment"
        self.pins, self.index = folder / "pins.txt", index
        self.pin(index.content)

    def pin(self, content: bytes, size: int | None = None) -> None:
        digest = hashlib.sha256(content).hexdigest()
        self.pins.write_text(f"# version bytes sha256\n{VERSION} {size or len(content)} {digest}\n")

    def set_up(self, **environment: str) -> tuple[int, str]:
        """Run the script; return its exit code and output."""
        with self.start(**environment) as script:
            said, _ = script.communicate(timeout=LIMIT_S)
            return script.returncode, said

    def start(self, **environment: str) -> "subprocess.Popen[str]":
        """Start the script, with one pipe for all that it prints."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("PIP_")}
        set_here = {
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_INDEX_URL": self.index.url,
            "PIP_TARGET": str(self.environment),
            "TIDELOG_WHEELS": str(self.wheels),
            "NO_PROXY": "127.0.0.1",
        }
        return subprocess.Popen(
            [sys.executable, str(SCRIPT), "--no-java", "--pins", str(self.pins)],
            env={**kept, **set_here, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def is_installed(self) -> bool:
        module = self.environment / "pyspark" / "__init__.py"
        return module.exists() and "from_the_wheel" in module.read_text()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with Index(archive()) as index:
        thread = threading.Thread(target=index.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield Place(tmp_path, index)
        finally:
            index.shutdown()
            thread.join()


def test_an_interrupted_download_resumes_and_the_second_run_needs_no_index(place: Place) -> None:
    place.index.cuts = [300_000, 400_000]
    code, said = place.set_up()
    assert code == 0, said
    ranges = [wanted for path, wanted in place.index.asked if path.endswith(ARCHIVE)]
    assert ranges == ["", "bytes=300000-", "bytes=700000-"]
    assert f"resuming at {0.3} MB" in said
    assert "(100 %)" in said
    assert place.is_installed()
    assert [path.name for path in place.wheels.glob("pyspark*")] == [
        f"pyspark-{VERSION}-py3-none-any.whl"
    ]

    place.index.asked.clear()
    place.environment = place.environment.with_name("another")
    code, said = place.set_up()
    assert code == 0, said
    assert place.is_installed()
    assert not place.index.asked

    (wheel,) = place.wheels.glob("pyspark*.whl")
    wheel.write_bytes(wheel.read_bytes()[:-100])
    place.environment = place.environment.with_name("third")
    code, said = place.set_up()
    assert code == 0, said
    assert place.is_installed()
    assert place.index.asked, "a wheel without its end is made anew"


def test_a_partial_download_is_kept_for_the_next_run(place: Place) -> None:
    place.wheels.mkdir()
    (place.wheels / f"{ARCHIVE}.part").write_bytes(place.index.content[:500_000])
    code, said = place.set_up()
    assert code == 0, said
    assert (f"/files/{ARCHIVE}", "bytes=500000-") in place.index.asked


def test_an_index_without_ranges_restarts_the_download(place: Place) -> None:
    place.index.ranges = False
    place.index.cuts = [300_000]
    code, said = place.set_up()
    assert code == 0, said
    assert place.is_installed()


def test_an_archive_with_other_content_is_not_kept(place: Place) -> None:
    right = place.index.content
    place.index.content = right[:-1] + bytes([right[-1] ^ 1])
    code, said = place.set_up()
    assert code == 1
    assert "another SHA-256 than the pinned one" in said.splitlines()[-1]
    assert not place.is_installed()
    assert not list(place.wheels.glob("pyspark*"))


def test_a_full_disk_is_reported_before_the_download(place: Place) -> None:
    place.pin(place.index.content, size=1 << 60)
    code, said = place.set_up()
    assert code == 1
    assert "MB free" in said
    assert "TIDELOG_WHEELS" in said
    assert not [path for path, _ in place.index.asked if path.endswith(ARCHIVE)]


def test_an_archive_that_no_index_has_is_named(place: Place) -> None:
    place.pins.write_text(f"9.9.9 10 {'0' * 64}\n")
    code, said = place.set_up()
    assert code == 1
    assert said.splitlines() == [
        "Spark is not set up: no package index in pip's settings has pyspark-9.9.9.tar.gz"
        f" ({place.index.url})"
    ]
    code, said = place.set_up(PIP_NO_INDEX="1", PIP_INDEX_URL="")
    assert code == 1
    assert "PIP_NO_INDEX" in said
    assert len(said.splitlines()) == 1


def test_an_index_that_refuses_is_not_retried_repeatedly(place: Place) -> None:
    code, said = place.set_up(PIP_INDEX_URL=f"{place.index.url}/elsewhere")
    assert code == 1
    assert len(place.index.asked) == 1
    assert "HTTP Error 404" in said
    assert len(said.splitlines()) == 1


def test_two_runs_at_once_wait_for_each_other(place: Place) -> None:
    place.wheels.mkdir()
    with (place.wheels / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = place.start(PYTHONUNBUFFERED="1")
        assert second.stdout is not None
        waiting = second.stdout.readline()
        assert "another process is setting up Spark" in waiting
        with pytest.raises(subprocess.TimeoutExpired):
            second.wait(1)
        assert not place.index.asked
    with second:
        said, _ = second.communicate(timeout=LIMIT_S)
    assert second.returncode == 0, said
    assert place.is_installed()


def test_a_missing_java_is_reported_in_one_line(place: Place) -> None:
    command = [sys.executable, str(SCRIPT), "--pins", str(place.pins)]
    environment = {
        **os.environ,
        "JAVA_HOME": str(place.wheels),
        "TIDELOG_WHEELS": str(place.wheels),
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("Spark is not set up: Spark needs Java 17 or newer")
    assert "install" in line


def test_installed_modules_are_imported_as_bytecode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    script = importlib.import_module(SCRIPT.stem)
    packed = tmp_path / "pyspark.zip"
    with zipfile.ZipFile(packed, "w") as made:
        made.writestr("some/__init__.py", "")
        made.writestr("some/module.py", "ANSWER = 42")
        made.writestr("some/tests/test_module.py", "never imported")
    for _ in range(2):
        script.add_bytecode(packed)
    with zipfile.ZipFile(packed) as seen:
        assert sorted(set(seen.namelist())) == sorted(seen.namelist())
        assert "some/tests/test_module.pyc" not in seen.namelist()
    show = "import some.module as m; print(m.ANSWER, m.__file__)"
    command = [sys.executable, "-c", show]
    told = subprocess.run(command, env={"PYTHONPATH": str(packed)}, capture_output=True, text=True)
    assert told.stdout.split() == ["42", str(packed / "some" / "module.pyc")]
