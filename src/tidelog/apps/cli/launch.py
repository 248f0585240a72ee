"""What the `tidelog` script calls. The way to a plain `tidelog up` is short, for its speed.

Always true: it does what the tree of commands would do, with the same exit code; the tree is
only not imported where it is not needed.
"""

import gc
import os
import signal
import sys
import time

REFUSED, INTERRUPTED = 1, 130
RUN_BROKERS = ("up", "status", "down", "broker", "verify")
"""Commands for systems with forks, signals and locks that end with a process."""


def main() -> None:
    """Run the command, and end the process."""
    if sys.stdin is None or sys.stdout is None or sys.stderr is None:
        _open_streams()
    try:
        _run(time.monotonic())
    except KeyboardInterrupt:  # most of a short command's time is imports, before click looks
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.stderr.write("\ntidelog: interrupted\n")
        sys.exit(INTERRUPTED)


def _open_streams() -> None:
    """Somebody closed them (`>&-`): there is nothing to read, and nobody to be told."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            file = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(file, "w" if number else "r", encoding="utf-8"))


def _run(began: float) -> None:
    words = sys.argv[1:]
    if os.name != "posix" and words[:1] and words[0] in RUN_BROKERS:
        sys.stderr.write("tidelog: brokers run on Linux and macOS; on Windows use WSL\n")
        sys.exit(REFUSED)
    if words[:1] == ["up"] and "_TIDELOG_COMPLETE" not in os.environ:
        from tidelog.apps.cli.local.up_options import read_plain

        options = read_plain(words[1:])
        if options is not None:
            gc.disable()  # nothing of what is imported now will ever be garbage
            from tidelog.apps.cli.local.bring_up import bring_up

            sys.exit(bring_up(options, began))
    from tidelog.apps.cli import main as tree

    tree.main()
