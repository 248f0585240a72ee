"""Entry point of the `tidelog` script. A plain `tidelog up` skips click, to start faster.

Invariant: the result and the exit code are the same as through the tree of commands.
"""

import gc
import os
import signal
import sys
import time

REFUSED, INTERRUPTED = 1, 130
RUN_BROKERS = ("up", "status", "down", "broker", "console", "verify")
"""Commands that need a POSIX system: fork, signals, file locks."""


def main() -> None:
    """Run the command, and exit."""
    if sys.stdin is None or sys.stdout is None or sys.stderr is None:
        _open_streams()
    try:
        _run(time.monotonic())
    except KeyboardInterrupt:  # click handles it only after the imports
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.stderr.write("\ntidelog: interrupted\n")
        sys.exit(INTERRUPTED)


def _open_streams() -> None:
    """Open /dev/null for streams that the caller closed (`>&-`)."""
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
            gc.disable()  # imported modules are never garbage
            from tidelog.apps.cli.local.bring_up import bring_up

            sys.exit(bring_up(options, began))
    from tidelog.apps.cli import main as tree

    tree.main()
