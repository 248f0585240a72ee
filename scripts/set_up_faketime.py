"""Print the path of libfaketime for the tests of wrong clocks; install it if it is missing.

If the installation fails, the script prints the reason in one line and exits with 1.
TIDELOG_FAKETIME names a copy of the library elsewhere.
"""

import os
import sys
from glob import glob

from debian_packages import print_path

PLACES = "/usr/lib/*/faketime/libfaketime.so.1"


def find_faketime() -> str | None:
    """Return the path of the library, from TIDELOG_FAKETIME or from Debian's folder."""
    return os.environ.get("TIDELOG_FAKETIME") or next(iter(glob(PLACES)), None)


if __name__ == "__main__":
    sys.exit(print_path(find_faketime, "libfaketime", "to test brokers with wrong clocks"))
