"""A planned range, and the errors that say why it could not be read to its end."""

from typing import NamedTuple

from tidelog.core.types import LeaderEpoch, Offset, TopicId
from tidelog.shell.client.client_errors import ClientError


class RangeToRead(NamedTuple):
    """The planned range of a task: [start, end) of one partition."""

    topic: str
    topic_id: TopicId
    """Zeros if the broker has no topic ids."""
    partition: int
    start: Offset
    end: Offset
    epoch_max: LeaderEpoch = -1
    """No record in the range has a higher leader epoch; -1: unknown."""
    epoch_since: Offset = -1
    """From this offset on, all records have epoch `epoch_max`; -1: unknown."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


class RangeError(ClientError):
    """The range could not be read to its end.

    Rows below `offset` were returned; in a damaged range maybe not all of them.
    """

    def __init__(self, wanted: RangeToRead, offset: Offset, why: str) -> None:
        super().__init__(f"{wanted} can't be read on from offset {offset}: {why}")
        self.wanted = wanted
        self.offset = offset


class RangeOutOfRange(RangeError):
    """The log does not have the offset: it was deleted or truncated."""

    def __init__(
        self, wanted: RangeToRead, offset: Offset, log_start: Offset, log_end: Offset
    ) -> None:
        super().__init__(wanted, offset, f"the log is [{log_start}, {log_end}) now")
        self.log_start = log_start
        self.log_end = log_end


class RangeOverwritten(RangeError):
    """The log was truncated and has new records since the range was planned."""

    def __init__(self, wanted: RangeToRead, offset: Offset, batch_epoch: LeaderEpoch) -> None:
        why = (
            f"the batch there is of leader epoch {batch_epoch}, the range was planned when"
            f" {wanted.epoch_max} was the latest: it was overwritten since"
        )
        super().__init__(wanted, offset, why)
        self.batch_epoch = batch_epoch


class TopicRecreated(RangeError):
    """The topic was deleted, and maybe recreated, since the range was planned."""

    def __init__(self, wanted: RangeToRead, offset: Offset, found_id: TopicId | None) -> None:
        now = "there is none now" if found_id is None else f"now it has id {found_id.hex()}"
        why = f"topic {wanted.topic!r} had id {wanted.topic_id.hex()} when it was planned, {now}"
        super().__init__(wanted, offset, why)
        self.found_id = found_id


class RangeUnreachable(RangeError):
    """No record arrived within the time limit."""

    def __init__(
        self, wanted: RangeToRead, offset: Offset, log_end: Offset, timeout_s: float, why: str
    ) -> None:
        told = f"nothing came within {timeout_s:g} s; {why}"
        super().__init__(wanted, offset, told)
        self.log_end = log_end
        """The end of the readable records in the leader's last response; -1: no response."""


class RangeCorrupt(RangeError):
    """The received bytes are damaged."""

    def __init__(self, wanted: RangeToRead, offset: Offset, reason: str) -> None:
        super().__init__(wanted, offset, f"{reason}; `tidelog audit` tells which replicas have it")
        self.reason = reason
