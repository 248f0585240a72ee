"""A planned range, and the errors that say why it could not be read to its end."""

from typing import NamedTuple

from tidelog.core.types import LeaderEpoch, Offset, TopicId
from tidelog.shell.client.client_errors import ClientError


class RangeToRead(NamedTuple):
    """What a task is to read: [start, end) of one partition, as it was planned."""

    topic: str
    topic_id: TopicId
    """Zeros where the broker has no ids."""
    partition: int
    start: Offset
    end: Offset
    epoch_max: LeaderEpoch = -1
    """No record of the range is of a later leader epoch; -1: not known."""
    epoch_since: Offset = -1
    """And from here on none of an earlier one; -1: not known."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


class RangeError(ClientError):
    """The range ends early. Rows below `offset` were handed over (of a damaged range maybe not
    all of them)."""

    def __init__(self, wanted: RangeToRead, offset: Offset, why: str) -> None:
        super().__init__(f"{wanted} can't be read on from offset {offset}: {why}")
        self.wanted = wanted
        self.offset = offset


class RangeOutOfRange(RangeError):
    """The log does not have the offset: deleted, or cut off."""

    def __init__(
        self, wanted: RangeToRead, offset: Offset, log_start: Offset, log_end: Offset
    ) -> None:
        super().__init__(wanted, offset, f"the log is [{log_start}, {log_end}) now")
        self.log_start = log_start
        self.log_end = log_end


class RangeOverwritten(RangeError):
    """The log was cut and written anew after the range was planned."""

    def __init__(self, wanted: RangeToRead, offset: Offset, batch_epoch: LeaderEpoch) -> None:
        why = (
            f"the batch there is of leader epoch {batch_epoch}, the range was planned when"
            f" {wanted.epoch_max} was the latest: it was overwritten since"
        )
        super().__init__(wanted, offset, why)
        self.batch_epoch = batch_epoch


class TopicRecreated(RangeError):
    """The topic was deleted, and maybe made anew, since the range was planned."""

    def __init__(self, wanted: RangeToRead, offset: Offset, found_id: TopicId | None) -> None:
        now = "there is none now" if found_id is None else f"now it has id {found_id.hex()}"
        why = f"topic {wanted.topic!r} had id {wanted.topic_id.hex()} when it was planned, {now}"
        super().__init__(wanted, offset, why)
        self.found_id = found_id


class RangeUnreachable(RangeError):
    """Nothing more came within the time."""

    def __init__(
        self, wanted: RangeToRead, offset: Offset, log_end: Offset, timeout_s: float, why: str
    ) -> None:
        told = f"nothing came within {timeout_s:g} s; {why}"
        super().__init__(wanted, offset, told)
        self.log_end = log_end
        """What readers may see ends there, as the leader said last; -1: nobody said."""


class RangeCorrupt(RangeError):
    """The bytes that came are damaged."""

    def __init__(self, wanted: RangeToRead, offset: Offset, reason: str) -> None:
        super().__init__(wanted, offset, f"{reason}; `tidelog audit` tells which replicas have it")
        self.reason = reason
