"""The text that a step prints.

A line is a message between two parties, or an event on one of them. Only this module
chooses the wording, so that the same event always has the same text. The events of a broker
come from a comparison of its state before and after a step. So the broker's code contains
nothing for stories.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tidelog.core.controller.events import AlterPartitionReceived, LogReportsReceived
from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import (
    EARLIEST,
    AddPartitionsToTxn,
    AddPartitionsToTxnResponse,
    Fetch,
    FetchResponse,
    ListOffsets,
    ListOffsetsResponse,
    OffsetForLeaderEpoch,
    OffsetForLeaderEpochResponse,
    TxnMarker,
    WriteTxnMarkers,
    WriteTxnMarkersResponse,
)
from tidelog.core.types import BrokerId, EpochEnd, LeaderEpoch, Offset, TopicPartition
from tidelog.lab.spec.snapshot import LogEntry, ReplicaSnapshot
from tidelog.lab.story.stage.records import decode_names

CONTROLLER = "controller"
CLIENT = "client"
NAMES_MAX = 5


@dataclass(frozen=True, slots=True)
class Line:
    """One line of output; with a sender and a receiver it is a message."""

    text: str
    sender: str = ""
    receiver: str = ""
    lost: bool = False
    mark: str = ""
    """What happens to the message: `lost`, `held`, `late`, or empty if it arrives. Part of the
    text."""

    @property
    def content(self) -> str:
        """The text without the mark."""
        return self.text.removesuffix(f"  ({self.mark})") if self.mark else self.text

    def __str__(self) -> str:
        if not self.sender:
            return self.text
        return f"{self.sender} -> {self.receiver}  {self.text}"


def message(sender: str, receiver: str, text: str, mark: str = "") -> Line:
    """Return the line of a message; `mark` says if it is lost, held or late."""
    lost = mark == "lost"
    return Line(f"{text}  ({mark})" if mark else text, sender, receiver, lost, mark)


def names(entries: Iterable[LogEntry]) -> str:
    """Return `m1 m2`, or only the first and the last of a long list."""
    return shorten([str(entry.id) for entry in entries])


def shorten(found: Sequence[str]) -> str:
    """Join the names; of more than five, only the first and the last."""
    return " ".join(found) if len(found) <= NAMES_MAX else f"{found[0]} … {found[-1]}"


def members(brokers: Iterable[str]) -> str:
    """Return a set of brokers as `{A B}`."""
    return "{" + " ".join(brokers) + "}"


def format_offsets(snapshot: ReplicaSnapshot) -> str:
    """Return `LEO=2 HW=1`, with the log start if it is not 0, and `LSO=1` in stories about
    transactions."""
    start = f"start={snapshot.log_start_offset} " if snapshot.log_start_offset else ""
    text = f"{start}LEO={snapshot.log_end_offset} HW={snapshot.high_watermark}"
    stable = snapshot.last_stable_offset
    return text if stable is None else f"{text} LSO={stable}"


def compares_epochs(request: object) -> bool:
    """Return whether a request asks the leader to compare the end of the follower's log."""
    match request:
        case Fetch(partitions=[part]):
            return part.last_fetched_epoch is not None
        case _:
            return False


def request_text(request: object, compares: bool = False) -> str:
    """Return the text of a request; `compares` adds the epoch of the follower's last record."""
    match request:
        case Fetch(partitions=[part]):
            text = f"Fetch offset={part.offset} epoch={part.leader_epoch}"
            return text + (f" last_epoch={part.last_fetched_epoch}" if compares else "")
        case OffsetForLeaderEpoch(partitions=[part]):
            return f"OffsetForLeaderEpoch epoch={part.epoch}"
        case ListOffsets(partitions=[part]):
            return "ListOffsets " + ("earliest" if part.timestamp == EARLIEST else "latest")
        case AlterPartitionReceived():
            return "AlterPartition"
        case WriteTxnMarkers():
            return "WriteTxnMarkers " + "; ".join(map(_marker_text, request.markers))
        case AddPartitionsToTxn(transactions=(asked,)):
            verb = "verify " if asked.verify_only else ""
            producer = f"producer={asked.producer_id} epoch={asked.producer_epoch}"
            return f"AddPartitionsToTxn {verb}{topics(asked.partitions)} {producer}"
        case _:
            return type(request).__name__


def response_text(response: object, compared: bool = False) -> str:
    """Return the text of a response; `compared` adds that the leader found no divergence."""
    match response:
        case FetchResponse(partitions=[part]):
            if part.error is not ErrorCode.NONE:
                return part.error.name
            if part.diverging is not None:
                return f"diverging: {_end(part.diverging)}"
            records = b"" if part.records is None else part.records
            assert isinstance(records, bytes), "regions are read before they are sent"
            text = f"[{names(decode_names(records))}] HW={part.high_watermark}"
            text += f" start={part.log_start_offset}" if part.log_start_offset else ""
            return text + (", no divergence" if compared else "")
        case OffsetForLeaderEpochResponse(partitions=[epoch]):
            if epoch.error is not ErrorCode.NONE:
                return epoch.error.name
            return "undefined" if epoch.end is None else _end(epoch.end)
        case ListOffsetsResponse(partitions=[offset]):
            failed = offset.error is not ErrorCode.NONE
            return offset.error.name if failed else f"offset={offset.offset}"
        case FetchResponse(error=error):
            return error.name
        case WriteTxnMarkersResponse():
            return _errors_text(results for _, results in response.markers)
        case AddPartitionsToTxnResponse():
            return _errors_text(response.results)
        case _:
            return type(response).__name__


def _marker_text(marker: TxnMarker) -> str:
    outcome = "commit" if marker.committed else "abort"
    producer = f"producer={marker.producer_id} epoch={marker.producer_epoch}"
    return f"{outcome} {topics(marker.partitions)} {producer}"


def topics(partitions: Iterable[TopicPartition]) -> str:
    """Return the names of the topics, each of which has one partition."""
    return ",".join(sorted(partition.topic for partition in partitions)) or "none"


def _errors_text(results: Iterable[Mapping[TopicPartition, ErrorCode]]) -> str:
    """Return the errors of a response, or NONE."""
    errors = {error for by_partition in results for error in by_partition.values()}
    return ", ".join(sorted(error.name for error in errors))


def report_text(report: LogReportsReceived) -> str:
    """Return the text of a broker's report about its log."""
    kinds = {"lost": report.lost, "found": report.found, "damaged": report.damaged}
    kinds["offline"] = report.offline
    texts = [f"log is {kind}" for kind, logs in kinds.items() if logs]
    texts += ["leader lacks committed records"] * bool(report.refused)
    for log in report.logs.values():
        cut = ", and was cut" if log.cut else ""
        texts.append(f"log ends at {log.log_end_offset}, epoch {log.leader_epoch}{cut}")
    return "; ".join(texts)


def _end(end: EpochEnd) -> str:
    return f"epoch {end.epoch} ends at {end.end_offset}"


@dataclass(frozen=True, slots=True)
class VisibleState:
    """The visible state of a replica, from which the output is derived."""

    leads: bool
    leader: BrokerId | None
    leader_epoch: LeaderEpoch
    log_start_offset: Offset
    log_end_offset: Offset
    high_watermark: Offset
    log: tuple[LogEntry, ...]
    isr: str
    """The committed ISR in the leader's view, as text; empty on a follower."""
    proposed: str
    """The ISR of a pending proposal, as text; empty without one."""
    refused: Offset | None = None
    """The offset to which the replica refuses to truncate its log, if any."""
    last_stable_offset: Offset | None = None
    """None if the story has no transactions."""


def describe_writes(name: str, before: VisibleState, after: VisibleState) -> Iterator[str]:
    """Yield the text of each record that a coordinator has appended."""
    if after.leads:
        for entry in after.log:
            if entry.offset >= before.log_end_offset:
                yield f"{name} writes {entry.id}"


def describe_changes(
    name: str, before: VisibleState, after: VisibleState, why: str
) -> Iterator[str]:
    """Yield the text of each change between two states of a replica."""
    if after.log_start_offset > before.log_end_offset:
        yield f"{name} drops its log and restarts it at {after.log_start_offset}"
    else:
        kept = set(after.log)
        dropped = [e for e in before.log if e not in kept and e.offset >= after.log_start_offset]
        if dropped:
            cut = min(dropped[0].offset, after.log_end_offset)
            yield f"{name} truncates to {cut}{why and f' ({why})'}, dropping {names(dropped)}"
        if after.log_start_offset > before.log_start_offset:
            yield f"{name} log start {before.log_start_offset} -> {after.log_start_offset}"
        restored = [e for e in set(after.log) - set(before.log) if e.offset < before.log_end_offset]
        if restored and not dropped:
            yield f"{name} has {names(sorted(restored))} again"
    if after.refused is not None and before.refused is None:
        yield f"{name} refuses to truncate to {after.refused}, below its HW {after.high_watermark}"
    if after.log_end_offset > before.log_end_offset:
        yield f"{name} LEO {before.log_end_offset} -> {after.log_end_offset}"
    if after.leads and after.leader_epoch > before.leader_epoch:
        yield (
            f"{name} leads epoch {after.leader_epoch} from offset {after.log_end_offset},"
            f" ISR={after.isr}"
        )
    elif after.leads and after.isr != before.isr:
        yield f"{name} ISR {before.isr} -> {after.isr}"
    if after.proposed and after.proposed != before.proposed:
        yield f"{name} proposes ISR={after.proposed}"
    if after.high_watermark != before.high_watermark:
        yield f"{name} HW {before.high_watermark} -> {after.high_watermark}"
    stable = before.last_stable_offset, after.last_stable_offset
    if None not in stable and stable[0] != stable[1]:
        yield f"{name} LSO {stable[0]} -> {stable[1]}"
