"""Producers and a consumer, and the responses they received.

Only an acknowledgement with acks=all is a promise, so `history.acked` contains only those
records. The consumer keeps its position and every record it read.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tidelog.core.errors import ErrorCode
from tidelog.core.lineage.transaction_index import AbortedTransaction
from tidelog.core.node import events as on
from tidelog.core.node.messages import (
    DeleteRecords,
    DeleteRecordsPartition,
    DeleteRecordsResponse,
    Fetch,
    FetchPartition,
    FetchResponse,
    ListOffsets,
    ListOffsetsPartition,
    ListOffsetsResponse,
    Produce,
    ProducePartition,
    ProduceResponse,
)
from tidelog.core.record.compression import Codec
from tidelog.core.record.encoder import NO_PRODUCER, Producer
from tidelog.core.replication.events import ACKS_ALL, ACKS_NONE
from tidelog.core.storage.disk import Region, read_region
from tidelog.core.types import Offset, TopicPartition
from tidelog.lab.spec.snapshot import LogEntry
from tidelog.lab.story.stage.broker import StoryBroker
from tidelog.lab.story.stage.controller import PARTITION
from tidelog.lab.story.stage.narration import CLIENT, Line, message, names, shorten
from tidelog.lab.story.stage.records import decode_data, encode_names
from tidelog.lab.story.stage.world import World

TIMEOUT_MS = 120_000
"""The default timeout of a client request: Kafka's delivery.timeout.ms."""
READ_BYTES = 1 << 20
ACKS_NAMES = {ACKS_ALL: "all", 1: "1", ACKS_NONE: "0"}


Respond: TypeAlias = Callable[[Any], str | ErrorCode]


@dataclass(slots=True)
class Pending:
    """A client request without a response yet."""

    broker: StoryBroker
    names: tuple[str, ...] = ()
    acks: int = ACKS_ALL
    client: str = CLIENT
    respond: Respond | None = None
    """Returns the text of the response, if that is not a response to a reader or a writer of the
    story's partition."""


class Clients:
    """The clients of the cluster: their requests, and the results they received."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.produced: set[str] = set()
        self.acked: set[str] = set()
        """Records acknowledged with any value of acks."""
        self.positions: defaultdict[TopicPartition, Offset] = defaultdict(int)
        self.last_read: list[LogEntry] = []
        self.listed: Offset | None = None
        self._pending: dict[int, Pending] = {}
        self._correlation = 0
        self._ack_names: list[str] = []
        self._ack_line: Line | None = None
        world.on_answer = self._answered

    def produce(
        self,
        broker: StoryBroker,
        batch: Sequence[str],
        acks: int,
        codec: Codec = Codec.NONE,
        producer: Producer = NO_PRODUCER,
        timeout_ms: int = TIMEOUT_MS,
    ) -> None:
        """Send one batch."""
        text = f"produce {shorten(batch)} acks={ACKS_NAMES[acks]}"
        self.world.last_error = ErrorCode.NONE
        records = encode_names(batch, self.world.now_ms, codec, producer)
        request = Produce(acks, timeout_ms, [ProducePartition(broker.served, records)])
        self.send(text, request, Pending(broker, tuple(batch), acks))

    def delete_records(self, broker: StoryBroker, offset: Offset) -> None:
        """Send a request to delete all records before `offset`."""
        self.world.last_error = ErrorCode.NONE
        request = DeleteRecords(TIMEOUT_MS, [DeleteRecordsPartition(PARTITION, offset)])
        self.send(f"DeleteRecords before={offset}", request, Pending(broker))

    def list_offsets(
        self, broker: StoryBroker, timestamp: int, text: str, *, committed: bool = False
    ) -> None:
        """Request the offset where the log starts or ends for clients."""
        self.world.last_error = ErrorCode.NONE
        self.listed = None
        asked = ListOffsetsPartition(PARTITION, None, timestamp)
        self.send(f"ListOffsets {text}", ListOffsets(None, [asked], committed), Pending(broker))

    def report_no_leader(self) -> None:
        """Record that a client found no leader for the partition."""
        self.world.last_error = ErrorCode.LEADER_NOT_AVAILABLE
        self.last_read, self.listed = [], None
        self.world.add_line(f"{CLIENT}: the partition has no leader")

    def consume(
        self,
        broker: StoryBroker,
        offset: Offset | None,
        epoch: int | None,
        *,
        committed: bool = False,
    ) -> None:
        """Read from the position, or from `offset`, until a fetch returns nothing new."""
        self.world.last_error = ErrorCode.NONE
        self.last_read = []
        if offset is not None:
            self.positions[broker.served] = offset
        while self._read(broker, epoch, committed=committed):
            epoch = None
        if self.world.last_error is ErrorCode.NONE:
            text = f"[{names(self.last_read)}]"
            self.world.lines.append(message(broker.name, CLIENT, text))
        if broker.served == PARTITION:
            self.world.history.consumed += self.last_read
            if committed:
                self.world.history.read_committed += self.last_read

    def _read(self, broker: StoryBroker, epoch: int | None, *, committed: bool) -> bool:
        before = self.positions[broker.served]
        part = FetchPartition(broker.served, None, before, READ_BYTES, epoch)
        request = Fetch(None, None, 0, 0, READ_BYTES, [part], read_committed=committed)
        self.send("", request, Pending(broker))
        return self.positions[broker.served] > before

    def send(self, text: str, request: object, pending: Pending) -> None:
        """Send a request, and print it as `text`."""
        broker = pending.broker
        lost = not broker.alive or not self.world.reachable(CLIENT, broker.name)
        if text:
            mark = "lost" if lost else ""
            self.world.lines.append(message(pending.client, broker.name, text, mark))
        if lost:
            return
        self._correlation += 1
        self._pending[self._correlation] = pending
        event = on.RequestReceived(CLIENT, self._correlation, request, self.world.now_ms)
        self.world.step(broker, event)

    def _answered(self, correlation: int, response: object) -> None:
        pending = self._pending.pop(correlation)
        if pending.respond is not None:
            self._print_outcome(pending, pending.respond(response))
            return
        match response:
            case ProduceResponse(partitions=[produced]):
                self._acknowledged(pending, produced.error, produced.base_offset)
            case FetchResponse(partitions=[fetched]):
                if fetched.error is not ErrorCode.NONE:
                    self._print_error(pending, fetched.error)
                elif isinstance(fetched.records, Region):
                    records = read_region(pending.broker.disk, fetched.records)
                    self._read_records(pending, records, fetched.aborted or ())
            case DeleteRecordsResponse(partitions=[deleted]):
                if deleted.error is ErrorCode.NONE:
                    self._print_response(pending, f"low watermark {deleted.low_watermark}")
                else:
                    self._print_error(pending, deleted.error)
            case ListOffsetsResponse(partitions=[listed]):
                self.listed = listed.offset
                if listed.error is ErrorCode.NONE:
                    self._print_response(pending, f"offset={listed.offset}")
                else:
                    self._print_error(pending, listed.error)

    def _read_records(
        self, pending: Pending, records: bytes, aborted: Iterable[AbortedTransaction]
    ) -> None:
        found, after = decode_data(records, aborted)
        position, shown = self.positions[pending.broker.served], pending.broker.visible
        end = min(after, shown.high_watermark)
        self.last_read += [entry for entry in found if position <= entry.offset < end]
        self.positions[pending.broker.served] = max(position, end)

    def _acknowledged(self, pending: Pending, error: ErrorCode, base: Offset | None) -> None:
        if error is not ErrorCode.NONE:
            self._print_error(pending, error)
            return
        if pending.broker.served != PARTITION:
            self._print_ack(pending)
            return
        self.acked.update(pending.names)
        assert base is not None, "an acknowledged batch has its place"
        if pending.acks == ACKS_ALL:
            place = {entry.offset: entry for entry in pending.broker.visible_state().log}
            ends = range(base, base + len(pending.names))
            self.world.history.acked += [place[offset] for offset in ends if offset in place]
        self._print_ack(pending)

    def _print_ack(self, pending: Pending) -> None:
        """Print an acknowledgement; consecutive ones of a broker share one line."""
        lines = self.world.lines
        link = (pending.broker.name, pending.client)
        if lines and lines[-1] is self._ack_line and link == (lines[-1].sender, lines[-1].receiver):
            lines.pop()
        else:
            self._ack_names = []
        self._ack_names += pending.names
        self._print_response(pending, f"ack {shorten(self._ack_names)}")
        self._ack_line = lines[-1]

    def _print_outcome(self, pending: Pending, outcome: str | ErrorCode) -> None:
        if isinstance(outcome, ErrorCode):
            self._print_error(pending, outcome)
        elif outcome:
            self._print_response(pending, outcome)

    def _print_error(self, pending: Pending, error: ErrorCode) -> None:
        self.world.last_error = error
        self._print_response(pending, error.name)

    def _print_response(self, pending: Pending, text: str) -> None:
        self.world.lines.append(message(pending.broker.name, pending.client, text))
