"""Install packages of Debian or Ubuntu with apt-get; needs root.

A script that needs a program or a library finds it itself, and uses this module if it is missing.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache


def install(packages: list[str], why: str) -> bool:
    """Install the packages; return whether that succeeded.

    `why` completes the sentence "the packages are needed …": "to test web pages". A failure prints
    one line to stderr: the packages, their purpose, the reason, and what to do.
    """
    names = " ".join(packages)
    problem = obstacle()
    if problem is None:
        _update()
        done = _apt("install", "-y", "-qq", "--no-install-recommends", *packages)
        if not done:
            return True
        problem = f"`apt-get install {names}` ended with exit code {done}; its error is above"
    sys.stderr.write(f"cannot install {names}, needed {why}: {problem}\n")
    return False


def obstacle() -> str | None:
    """Return why this process can't install packages, and what to do; None if it can."""
    if shutil.which("apt-get") is None:
        return "this machine has no apt-get; install it with the machine's own package manager"
    if os.geteuid() != 0:
        return "only root can install packages; install it with sudo apt-get install"
    return None


@cache
def _update() -> None:
    """Update the list of packages, once a process.

    A failure is ignored: without a network, the packages may still be in apt's cache.
    """
    _apt("update", "-qq")


def _apt(*arguments: str) -> int:
    """Run apt-get without questions, and print only its errors; return its exit code."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", *arguments]
    return subprocess.run(command, env=environment, stdout=subprocess.DEVNULL).returncode


def print_path(find: Callable[[], str | None], package: str, why: str) -> int:
    """Print the path that `find` returns; install the package first if `find` returns None.

    Return the exit code of the script: 0, or 1 if the path is still missing.
    """
    path = find()
    if path is None and install([package], why):
        path = find()
        if path is None:
            sys.stderr.write(f"{package} is installed, but not in the expected place\n")
    if path is None:
        return 1
    sys.stdout.write(f"{path}\n")
    return 0
