"""Find libfaketime for the test of brokers with wrong clocks, or install it if possible.

`python scripts/set_up_faketime.py` prints its path. Without the library, and if the installation
fails, it prints one line and exits with 1. TIDELOG_FAKETIME names a copy elsewhere.
"""

import os
import shutil
import subprocess
import sys
from glob import glob

PACKAGE = "libfaketime"
PLACES = "/usr/lib/*/faketime/libfaketime.so.1"


def find_faketime() -> str | None:
    """Return the path of the library, from TIDELOG_FAKETIME or from Debian's folder."""
    return os.environ.get("TIDELOG_FAKETIME") or next(iter(glob(PLACES)), None)


def install() -> str | None:
    """Install it with apt, as root only; return the reason for a failure, else None."""
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
    """Find or install the library; return the exit code."""
    why = None if find_faketime() else install()
    found = find_faketime()
    if found is None:
        sys.stderr.write(f"no libfaketime: install the package {PACKAGE} ({why})\n")
        return 1
    sys.stdout.write(f"{found}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
