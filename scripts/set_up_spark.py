"""Install PySpark into this Python's environment, and Java on the machine if this is root.

    .venv/bin/python scripts/set_up_spark.py            the project's version
    .venv/bin/python scripts/set_up_spark.py 4.0.0      another pinned version

PySpark is a source archive of 456 MB on the index. It is downloaded once, from the index in pip's
settings. The download is resumed after a broken connection (resumed_download.py), and checked
against pyspark_pins.txt. The archive is built into a wheel once, and the wheel is kept in
~/.cache/tidelog/wheels (TIDELOG_WHEELS names another folder). The next environment installs it from
there in seconds, without a network. The script needs only the standard library.

Invariant: a failure prints its reason in one line and exits with 1. Two set-ups at the same time
wait for each other.
"""

import argparse
import fcntl
import importlib.util
import os
import py_compile
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import debian_packages
from package_index import NoSuchArchive, PackageIndex
from resumed_download import NotDownloaded, Wanted, download

ROOT = Path(__file__).parents[1]
PINS = Path(__file__).with_name("pyspark_pins.txt")
NOT_IMPORTED = {"tests", "testing", "pandas", "ml", "mllib", "connect"}
"""Folders of PySpark that its worker processes do not import."""
JAVA_PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless", "default-jre-headless")
BUILD_ROOM = 6
"""Disk space that the build needs besides the archive, as a multiple of the archive's size.

The archive is unpacked, copied twice, and zipped.
"""
# Jars are compressed already: compressing them again takes a minute and saves nothing.
STORED = "--config-settings=--build-option=--compression=stored"


class NotSetUp(Exception):
    """The message is one line that says what failed and what to do next."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "version", nargs="?", help="a version in pyspark_pins.txt; default: the first"
    )
    parser.add_argument("--pins", type=Path, default=PINS, help="file with the pinned versions")
    parser.add_argument("--no-java", action="store_true", help="do not check or install Java")
    arguments = parser.parse_args()
    try:
        number, archive = pinned(arguments.pins, arguments.version)
        if _installed() == number and (arguments.no_java or not java_problem()):
            return 0
        folder = wheels_folder()
        with _locked(folder):
            if not arguments.no_java:
                have_java()
            have_pyspark(number, archive, folder)
    except (NotSetUp, NotDownloaded, NoSuchArchive, OSError) as error:
        sys.stderr.write(f"Spark is not set up: {error}\n")
        return 1
    return 0


def pinned(pins: Path, wanted: str | None) -> tuple[str, Wanted]:
    """Return the version and its archive."""
    lines = [line.split() for line in pins.read_text().splitlines() if not line.startswith("#")]
    for number, size, digest in lines:
        if wanted in (None, number):
            return number, Wanted(f"pyspark-{number}.tar.gz", int(size), digest)
    raise NotSetUp(f"pyspark {wanted} is not pinned in {pins}; pinned: {[e[0] for e in lines]}")


def wheels_folder() -> Path:
    named = os.environ.get("TIDELOG_WHEELS")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(named) if named else cache / "tidelog" / "wheels"
    folder.mkdir(parents=True, exist_ok=True)
    return folder.absolute()


def _print(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


# -- PySpark -------------------------------------------------------------------------------


def have_pyspark(number: str, archive: Wanted, folder: Path) -> None:
    """Install PySpark from the cache; build its wheel into the cache first if it is missing."""
    if _installed() == number:
        return
    wheel = _cached(folder, number) or _build(archive, folder, number)
    _print(f"installing {wheel.name} from {folder}")
    arguments = ["install", "--no-index", "--find-links", str(folder), f"pyspark=={number}"]
    _pip(arguments, f"cannot install {wheel}")
    importlib.invalidate_caches()
    found = importlib.util.find_spec("pyspark") if _installed() == number else None
    for place in found.submodule_search_locations or () if found else ():
        add_bytecode(Path(place) / "python" / "lib" / "pyspark.zip")


def add_bytecode(packed: Path) -> None:
    """Add bytecode to the zip file from which Spark's Python processes import PySpark.

    Python does not store bytecode for modules in a zip file. So each of half a dozen processes
    needs one second of CPU to compile them; with the bytecode it needs a third of that.
    """
    with tempfile.TemporaryDirectory(dir=packed.parent) as work, zipfile.ZipFile(packed) as old:
        if any(name.endswith(".pyc") for name in old.namelist()):
            return
        source, compiled, made = (Path(work) / name for name in ("a.py", "a.pyc", "made.zip"))
        shutil.copyfile(packed, made)
        modules = [name for name in old.namelist() if name.endswith(".py")]
        # Append: a process with the old file's directory in memory can still read the file.
        with zipfile.ZipFile(made, "a") as new:
            for name in modules:
                if NOT_IMPORTED.isdisjoint(name.split("/")):
                    source.write_bytes(old.read(name))
                    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
                    where = f"{packed}/{name}"
                    py_compile.compile(str(source), str(compiled), where, invalidation_mode=mode)
                    new.write(compiled, f"{name}c")
        made.replace(packed)


def _installed() -> str | None:
    try:
        return version("pyspark")
    except PackageNotFoundError:
        return None


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, so that one set-up uses it at a time; it ends with the process."""
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _print("another process is setting up Spark; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _cached(folder: Path, number: str) -> Path | None:
    for wheel in folder.glob(f"pyspark-{number}-*.whl"):
        if zipfile.is_zipfile(wheel):
            return wheel
        wheel.unlink()  # an incomplete file
    return None


def _build(archive: Wanted, folder: Path, number: str) -> Path:
    """Download the archive, and build its wheel and those of its dependencies into the folder."""
    index = PackageIndex()
    source = download(lambda: index.find("pyspark", archive.name), index.open, archive, folder)
    room, needed = shutil.disk_usage(folder).free, BUILD_ROOM * archive.size
    if room < needed:
        raise NotSetUp(
            f"{folder} has {room // 10**6} MB free, and the build needs {needed // 10**6} MB:"
            " free some space, or name another folder in TIDELOG_WHEELS"
        )
    _print(f"building the wheel of {source.name}; takes about 20 s, once")
    with tempfile.TemporaryDirectory(dir=folder, prefix=".build-") as work:
        made = Path(work) / "made"
        # The archive names its build backend; an older pip would use the installed setuptools.
        options = ["--use-pep517", "--no-cache-dir", STORED]
        arguments = ["wheel", *options, "--wheel-dir", str(made), str(source)]
        # pip unpacks into TMPDIR: this folder has enough space and is removed afterwards.
        _pip(arguments, f"cannot build {source.name}", TMPDIR=work)
        for wheel in made.glob("*.whl"):
            wheel.replace(folder / wheel.name)
    built = _cached(folder, number)
    if built is None:
        raise NotSetUp(f"the build of {source.name} made no wheel of version {number}")
    source.unlink()
    return built


def _pip(arguments: list[str], failure: str, **environment: str) -> None:
    quiet = ["--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *arguments, *quiet],
        env={**os.environ, **environment},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.stderr.write(done.stderr)
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise NotSetUp(f"{failure}: {errors[-1] if errors else 'see the output of pip above'}")


# -- Java ----------------------------------------------------------------------------------


def have_java() -> None:
    """Check the machine's Java; as root, install one if it is missing. Raises NotSetUp."""
    problem = java_problem()
    if problem and "JAVA_HOME" not in os.environ and debian_packages.obstacle() is None:
        _print("this machine has no Java that Spark can use; installing one with apt-get")
        if any(debian_packages.install([each], "to run Spark") for each in JAVA_PACKAGES):
            problem = java_problem()
    if problem:
        raise NotSetUp(problem)


def java_problem() -> str:
    """Return the reason why Spark cannot start with this machine's Java; "" if it can."""
    sys.path.insert(0, str(ROOT / "src"))  # tidelog may not be installed here
    from tidelog.apps.spark.session import NoJava, find_java

    try:
        find_java()
    except NoJava as error:
        return str(error)
    return ""


if __name__ == "__main__":
    sys.exit(main())
