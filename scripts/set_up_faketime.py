"""libfaketime for the test of brokers with wrong clocks: found, or installed where that may be.

`python scripts/set_up_faketime.py` prints where it is. Exit code 1 and one line where there is
none and it can't be installed. TIDELOG_FAKETIME names a copy elsewhere.
"""

import os
import shutil
import subprocess
import sys
from glob import glob

PACKAGE = "libfaketime"
PLACES = "/usr/lib/*/faketime/libfaketime.so.1"


def find_faketime() -> str | None:
    """The library, where Debian puts it."""
    return os.environ.get("TIDELOG_FAKETIME") or next(iter(glob(PLACES)), None)


def install() -> str | None:
    """Install it with apt, as root only. Return why it can't be, None if it is installed."""
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        return "needs apt-get and root"
    quiet = {"env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, "check": False}
    for words in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", PACKAGE]):
        done = subprocess.run([apt, *words], stdout=subprocess.DEVNULL, **quiet)
        if done.returncode:
            return f"apt-get {words[0]} ended with {done.returncode}"
    return None


def main() -> int:
    """Find or install; the exit code."""
    why = None if find_faketime() else install()
    found = find_faketime()
    if found is None:
        sys.stderr.write(f"no libfaketime: install the package {PACKAGE} ({why})\n")
        return 1
    sys.stdout.write(f"{found}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
