"""The failure of a page's request: what failed, and what to do."""

from typing import Any

from tidelog.shell.client.client_errors import ClientError

UNAVAILABLE, NOT_FOUND, INVALID, FORBIDDEN, DEFECT = 503, 404, 400, 403, 500


class Failure(Exception):
    """A request of a page failed. `error` says what, `advice` what to do (may be empty)."""

    def __init__(self, status: int, error: str, advice: str = "") -> None:
        super().__init__(error)
        self.status = status
        self.error = error
        self.advice = advice

    def as_data(self) -> dict[str, Any]:
        return {"error": self.error, "advice": self.advice}


def before_history() -> Failure:
    """The failure of a request for a time before the first sample of the history."""
    return Failure(NOT_FOUND, "the history begins later", "choose a later time")


def of_client(error: ClientError, status: int = UNAVAILABLE) -> Failure:
    """Convert an error of the client, whose text is `what failed; what to do`."""
    what, _, advice = str(error).partition("; ")
    return Failure(status, what, advice)
