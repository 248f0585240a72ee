"""A headless browser for the test that looks at pages: found, or installed where that may be.

`python scripts/set_up_browser.py` prints where it is. Exit code 1 and one line where there is
none and it can't be installed.
"""

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PACKAGE = "chromium"


def find_browser() -> str | None:
    """Chromium or its kin, in PATH."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def install() -> str | None:
    """Install it with apt, as root only. Why not, if not."""
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
    why = None if find_browser() else install()
    found = find_browser()
    if found is None:
        sys.stderr.write(f"no browser: install the package {PACKAGE} ({why})\n")
        return 1
    sys.stdout.write(f"{found}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
