"""Print the path of a headless browser for the tests of web pages; install one if it is missing.

If the installation fails, the script prints the reason in one line and exits with 1.
"""

import shutil
import sys

from debian_packages import print_path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_browser() -> str | None:
    """Return the path of Chromium or Chrome from the PATH."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


if __name__ == "__main__":
    sys.exit(print_path(find_browser, "chromium", "to test web pages in a browser"))
