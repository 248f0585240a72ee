"""Print the path of the fastest interpreter of this Python version on the machine.

`make setup` creates `.venv` with it. Version managers often build Python without profile-guided
optimisation. Such an interpreter needs up to a third more CPU for each small request than the
system's own. If the choice is not the `python3` of the PATH, a line on stderr says so. `make
PYTHON=…` skips the choice.
"""

import os
import subprocess
import sys
import time

WORTH_IT = 0.92
"""Choose another interpreter only if it needs at most this share of the time."""
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
USUAL_PLACES = ("/usr/bin", "/usr/local/bin")


class _Entry:
    __slots__ = ("epoch", "offset")

    def __init__(self, epoch: int, offset: int) -> None:
        self.epoch = epoch
        self.offset = offset

    def later(self, other: int) -> int:
        return self.offset + other if other & 1 else self.epoch


def seconds() -> float:
    """Measure the CPU time of a small loop like a broker's; the best of 40 rounds."""
    best = float("inf")
    for _ in range(40):
        began = time.process_time()
        found: dict[int, tuple[int, int]] = {}
        for number in range(6000):
            entry = _Entry(number, number + 1)
            found[number & 63] = (entry.epoch, entry.later(number))
        best = min(best, time.process_time() - began)
    return best


def others() -> list[str]:
    """Return other interpreters with the usual names, from the PATH and the usual places."""
    names = ("python3", f"python3.{sys.version_info.minor}")
    places = [*os.get_exec_path(), *USUAL_PLACES]
    paths = [os.path.join(place, name) for place in places for name in names]
    real = {os.path.realpath(path): path for path in paths if os.access(path, os.X_OK)}
    real.pop(os.path.realpath(sys.executable), None)
    return list(real.values())


def measured(path: str) -> tuple[float, str]:
    """Return the time that an interpreter needs, and its real path.

    The time is infinite if the interpreter has another version, or lacks a module that a virtual
    environment needs.
    """
    took = []
    for _ in range(2):
        done = subprocess.run([path, __file__, "--measure"], capture_output=True, text=True)
        printed = done.stdout.strip().split(" ", 2)
        if done.returncode or printed[0] != VERSION:
            return float("inf"), path
        took.append(float(printed[1]))
    return min(took), printed[2]


def main() -> None:
    """Print the choice; with --measure, print this interpreter's version, time and path."""
    if "--measure" in sys.argv:
        import ensurepip  # noqa: F401  (a package of its own on some systems; venv needs it)
        import sqlite3  # noqa: F401
        import ssl  # noqa: F401

        sys.stdout.write(f"{VERSION} {seconds()} {sys.executable}\n")
        return
    own, own_path = measured(sys.executable)
    fastest, path = min(map(measured, others()), default=(own, own_path))
    if fastest >= own * WORTH_IT:
        path = own_path
    else:
        sys.stderr.write(
            f"using {path}, which needs {fastest / own:.0%} of the CPU time of {own_path};"
            " to use another interpreter: make setup PYTHON=/path/to/python3\n"
        )
    sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
