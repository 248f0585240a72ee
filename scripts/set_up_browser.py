"""Find a headless browser for the test of web pages, or install one if possible.

`python scripts/set_up_browser.py` prints its path. Without a browser, and if the installation
fails, it prints one line and exits with 1.
"""

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PACKAGE = "chromium"


def find_browser() -> str | None:
    """Return the path of Chromium or Chrome from the PATH."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


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
    """Find or install the browser; return the exit code."""
    why = None if find_browser() else install()
    found = find_browser()
    if found is None:
        sys.stderr.write(f"no browser: install the package {PACKAGE} ({why})\n")
        return 1
    sys.stdout.write(f"{found}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
