"""The web console of `tidelog up --console`: a process beside the brokers, which runs this module.

Its socket is bound here, so the URL is known at once. Invariant: it ends with the process that
started it, also if that is killed: its standard input is a pipe that then closes.
"""

import os
import signal
import socket
import subprocess
import sys
from threading import Thread
from typing import TYPE_CHECKING

from tidelog.apps.console.listener import bind
from tidelog.apps.install_advice import CONSOLE, console_installed
from tidelog.shell.supervisor.data_folder import Refusal, WrongSetting

if TYPE_CHECKING:
    from tidelog.apps.console.server import Console

HOST, PORT = "localhost", 8080
LOG = "console.log"
"""The log file, in the data folder."""
STOP_S = 5.0
ALLOWED = "allow-actions"


def check_installed() -> None:
    """Check that the console's packages are installed. Raises Refusal."""
    if not console_installed():
        raise WrongSetting(f"--console needs more packages: {CONSOLE}")


class ConsoleChild:
    """The console's process."""

    def __init__(self, data: str, port: int | None, *, allow_actions: bool) -> None:
        """Start the process; without a port, on 8080 or a free port if that is in use. Raises
        Refusal."""
        listener = _bind(port)
        self.url = f"http://{HOST}:{listener.getsockname()[1]}"
        words = [data, str(listener.fileno()), ALLOWED if allow_actions else ""]
        command = [sys.executable, "-m", __name__, *words]
        try:
            with listener, open(os.path.join(data, LOG), "ab") as log:
                # In a session of its own, so that Ctrl-C in the terminal does not reach it.
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    pass_fds=[listener.fileno()],
                    start_new_session=True,
                )
        except OSError as error:
            raise Refusal(f"can't start the console: {error.strerror}") from error

    def close(self) -> None:
        """Stop the process, and wait until it has ended."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _bind(port: int | None) -> socket.socket:
    try:
        return bind(HOST, PORT if port is None else port)
    except OSError as error:
        if port is not None:
            why = error.strerror
            raise Refusal(f"can't listen on {HOST}:{port} for the console: {why}") from error
    try:
        return bind(HOST, 0)
    except OSError as error:
        raise Refusal(f"can't listen on {HOST} for the console: {error.strerror}") from error


# -- in the console's process ----------------------------------------------------------------


def _serve(data: str, number: str, allowed: str) -> None:
    from tidelog.apps.console.history.place import recorder_for
    from tidelog.apps.console.server import Console, Options
    from tidelog.apps.console.target import FolderCluster

    listener = socket.socket(fileno=int(number))
    allow_actions = allowed == ALLOWED
    recorder = recorder_for(data)
    target = FolderCluster(data)
    served = Console(Options(target, listener, HOST, None, allow_actions, recorder))
    Thread(target=_stop_with_stdin, args=(served,), daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn stops, then sends the signal again
    served.run()


def _stop_with_stdin(served: "Console") -> None:
    """Stop when the process that started this one closes the pipe, or has ended."""
    while os.read(0, 4096):
        pass
    served.stop()


if __name__ == "__main__":
    _serve(*sys.argv[1:])
