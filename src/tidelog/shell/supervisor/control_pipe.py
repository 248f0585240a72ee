"""The pipe through which another process requests that `tidelog up` restart a broker.

It is a named pipe in the data folder: every user who may write to the folder may send requests.
One line for each request: `start 2`. When the supervisor has ended, the pipe has no reader, and a
request fails at once.
"""

import os

from tidelog.shell.supervisor.data_folder import Refusal

NAME = "up.control"
_START = b"start "
_READ_BYTES = 4096


class ControlPipe:
    """The supervisor's end. `fd` is readable when there is a request."""

    def __init__(self, data: str) -> None:
        self._path = os.path.join(data, NAME)
        remove(data)
        os.mkfifo(self._path, 0o600)
        # For writing too: a pipe without a writer would always be readable.
        self.fd = os.open(self._path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def read_starts(self) -> list[int]:
        """The brokers whose start was requested."""
        try:
            lines = os.read(self.fd, _READ_BYTES).splitlines()
        except BlockingIOError:
            return []
        numbers = [line[len(_START) :] for line in lines if line.startswith(_START)]
        return [int(number) for number in numbers if number.isdigit()]

    def close(self) -> None:
        """Accept no more requests."""
        os.close(self.fd)
        remove(os.path.dirname(self._path))


def remove(data: str) -> None:
    """Remove the pipe of a supervisor that has ended."""
    try:
        os.unlink(os.path.join(data, NAME))
    except FileNotFoundError:
        return


def request_start(data: str, broker: int) -> None:
    """Request the start of a broker; returns before it starts. Raises Refusal."""
    try:
        pipe = os.open(os.path.join(data, NAME), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise Refusal(
            f"can't request the start of broker {broker} from the supervisor of {data}:"
            f" {error.strerror}; see: tidelog status"
        ) from error
    try:
        os.write(pipe, b"%s%d\n" % (_START, broker))
    finally:
        os.close(pipe)
