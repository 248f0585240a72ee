"""The loop of `tidelog consume`: read records and print them until a limit is reached.

Records are printed unchanged; on a terminal, control characters are escaped. Invariants:

- With a group, an offset is committed only after all records before it are printed. A member that
  takes over may print records twice, but misses none.
- When the reader of stdout ends (`| head`), the next write or flush raises `Closed`, and nothing is
  printed on stderr.
"""

import os
import re
import select
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NamedTuple, Protocol

from tidelog.apps.cli.records import envelope
from tidelog.apps.cli.records.format_string import compile_format
from tidelog.apps.cli.records.offset_range import BEGINNING, OffsetRange, Point, resolve
from tidelog.core.types import LeaderEpoch, Offset, TopicPartition
from tidelog.shell.client.client_errors import ClientError, NoSuchTopic
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.consumer import Chunk, Consumer, Span

TURN_S = 0.5
REFRESH_S = 5.0
"""How often the metadata is refreshed, to find new topics and partitions."""

Notify = Callable[[str], None]
Render = Callable[[Chunk, int], bytes]
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\udc80-\udcff]")


# -- printing --------------------------------------------------------------------------------


class Closed(Exception):
    """The reader of stdout has ended."""


class Printer:
    """Writes chunks to stdout, formatted by `json_lines` or a function of `formatted`."""

    def __init__(self, render: Render) -> None:
        self._render = render
        self._output = sys.stdout.buffer
        self._terminal = sys.stdout.isatty()
        self._poll = _pipe_poll(sys.stdout)
        self.count = 0

    def write(self, chunk: Chunk) -> None:
        """Write a chunk of records. Raises Closed."""
        data = self._render(chunk, self.count)
        self.count += len(chunk.records)
        try:
            self._output.write(readable(data) if self._terminal else data)
        except BrokenPipeError:
            raise self._closed() from None

    def flush(self) -> None:
        """Flush stdout. Raises Closed if the reader has ended, even if nothing was written."""
        try:
            self._output.flush()
        except BrokenPipeError:
            raise self._closed() from None
        if self._poll is not None and any(
            event & (select.POLLERR | select.POLLHUP) for _, event in self._poll.poll(0)
        ):
            raise self._closed()

    def _closed(self) -> Closed:
        """Redirect stdout, because Python would fail to flush it at exit."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Closed()


def _pipe_poll(stream: object) -> "select.poll | None":
    """Return a poll object that detects a closed pipe; None if not supported."""
    try:
        file = stream.fileno()  # type: ignore[attr-defined]
        watch = select.poll()
    except (OSError, AttributeError, ValueError):
        return None
    watch.register(file, 0)
    return watch


def readable(data: bytes) -> bytes:
    """Escape control characters and invalid UTF-8, for a terminal."""
    text = data.decode(errors="surrogateescape")
    if text.isprintable():
        return data
    return _UNSAFE.sub(lambda found: f"\\x{ord(found[0]) & 0xFF:02x}", text).encode()


def json_lines(chunk: Chunk, _number: int) -> bytes:
    """Return a line of JSON for each record."""
    topic, partition = chunk.key
    return b"".join(
        [envelope.dump(topic, partition, record, chunk.broker) for record in chunk.records]
    )


def formatted(template: str, null: bytes) -> Render:
    """Return a function that formats records by a format string. Raises ValueError."""
    render = compile_format(template, null)
    return lambda chunk, number: render(*chunk.key, chunk.records, number)


# -- reading ---------------------------------------------------------------------------------


class Wanted(NamedTuple):
    """What to read, and where to stop."""

    topics: tuple[str, ...]
    regex: bool
    partitions: tuple[int, ...]
    """Empty means all."""
    offsets: OffsetRange
    to_the_end: bool
    isolation: int

    @property
    def endless(self) -> bool:
        return not self.to_the_end and self.offsets.end is None


class Source(Protocol):
    """A source of chunks of records."""

    @property
    def done(self) -> bool:
        """Whether there are no more records to read."""

    def poll(self, timeout_s: float) -> Iterator[Chunk]:
        """Yield chunks that arrive within the time."""

    def written(self, key: TopicPartition, offset: Offset, epoch: LeaderEpoch) -> None:
        """Note that all records of the partition below `offset` are printed."""

    def close(self) -> None:
        """Stop reading."""


def chosen_topics(cluster: Cluster, wanted: Wanted) -> list[str]:
    """Return the topics to read. A regex matches internal topics only if it begins with `_`."""
    if not wanted.regex:
        return [cluster.topic(name).name for name in dict.fromkeys(wanted.topics)]
    patterns = [re.compile(text) for text in wanted.topics]
    internal = any(text.lstrip("^").startswith("_") for text in wanted.topics)
    return sorted(
        topic.name
        for topic in cluster.refresh().topics.values()
        if not topic.error
        and (internal or not topic.internal)
        and any(pattern.search(topic.name) for pattern in patterns)
    )


def chosen_partitions(cluster: Cluster, wanted: Wanted) -> list[TopicPartition]:
    """Return all partitions of the topics, or those of -p. Raises NoSuchTopic."""
    found = []
    for name in chosen_topics(cluster, wanted):
        for partition in wanted.partitions or cluster.topic(name).partitions:
            cluster.partition(name, partition)
            found.append(TopicPartition(name, partition))
    return found


def spans_of(
    cluster: Cluster, keys: Collection[TopicPartition], wanted: Wanted
) -> dict[TopicPartition, Span]:
    """Return the range of offsets to read in each partition."""
    return resolve(cluster, keys, wanted.offsets, wanted.isolation, to_the_end=wanted.to_the_end)


class PartitionReader:
    """Reads fixed partitions; without an end also partitions that are created later."""

    def __init__(self, cluster: Cluster, wanted: Wanted, notify: Notify) -> None:
        self._cluster = cluster
        self._wanted = wanted
        self._notify = notify
        patience_s = None if wanted.endless else cluster.timeout_s
        self._consumer = Consumer(cluster, wanted.isolation, notify, patience_s=patience_s)
        self._known = set(chosen_partitions(cluster, wanted))
        if not self._known:
            raise NoSuchTopic(f"topic that matches {' or '.join(wanted.topics)}")
        self._consumer.add(spans_of(cluster, self._known, wanted))
        self._refresh_at = time.monotonic() + REFRESH_S

    @property
    def done(self) -> bool:
        return not self._wanted.endless and self._consumer.done

    def poll(self, timeout_s: float) -> Iterator[Chunk]:
        if self._wanted.endless and not self._wanted.partitions:
            self._add_new_partitions()
        return self._consumer.poll(timeout_s)

    def _add_new_partitions(self) -> None:
        if time.monotonic() < self._refresh_at:
            return
        self._refresh_at = time.monotonic() + REFRESH_S
        try:
            if not self._wanted.regex:
                self._cluster.refresh(self._wanted.topics)
            new = set(chosen_partitions(self._cluster, self._wanted)) - self._known
            first = self._wanted._replace(offsets=OffsetRange(Point(BEGINNING)))
            self._consumer.add(spans_of(self._cluster, new, first))
        except ClientError:
            return  # the consumer reports lasting errors
        self._known |= new
        for key in sorted(new):
            self._notify(f"new partition {key}; reading it from the beginning")

    def written(self, key: TopicPartition, offset: Offset, epoch: LeaderEpoch) -> None:
        """Do nothing: without a group no offsets are committed."""

    def close(self) -> None:
        self._consumer.close()


def group_reader(cluster: Cluster, wanted: Wanted, group: str, notify: Notify) -> Source:
    """Join a group; read from committed offsets, or without them from the requested start."""
    from tidelog.shell.client.groups.group_admin import Committed
    from tidelog.shell.client.groups.group_consumer import GroupConsumer

    def begin(
        keys: Collection[TopicPartition], committed: Mapping[TopicPartition, Committed]
    ) -> dict[TopicPartition, Span]:
        spans = spans_of(cluster, keys, wanted)
        for key, known in committed.items():
            spans[key] = Span(known.offset, spans[key].end, known.leader_epoch)
        return spans

    chosen_topics(cluster, wanted)  # raises NoSuchTopic before the group rebalances
    patience_s = None if wanted.endless else cluster.timeout_s
    consumer = Consumer(cluster, wanted.isolation, notify, patience_s=patience_s)
    return GroupConsumer(consumer, group, lambda: chosen_topics(cluster, wanted), begin)


def print_records(source: Source, printer: Printer, count: int | None) -> None:
    """Print records until the limit, the end, a closed stdout or an interrupt.

    Raises ClientError.
    """
    printed: dict[TopicPartition, tuple[Offset, LeaderEpoch]] = {}
    try:
        with _terminated_as_interrupted():
            while not source.done and (count is None or printer.count < count):
                _print_some(source, printer, count, printed)
                _mark_printed(source, printer, printed)
    except KeyboardInterrupt:
        with suppress(Closed):
            _mark_printed(source, printer, printed)
    except Closed:
        pass
    finally:
        source.close()


def _print_some(
    source: Source,
    printer: Printer,
    count: int | None,
    printed: dict[TopicPartition, tuple[Offset, LeaderEpoch]],
) -> None:
    for chunk in source.poll(TURN_S):
        wanted = chunk
        if count is not None and printer.count + len(chunk.records) > count:
            wanted = chunk._replace(records=chunk.records[: count - printer.count])
        printer.write(wanted)
        last = wanted.records[-1]
        printed[chunk.key] = (last.offset + 1, last.leader_epoch)
        if count is not None and printer.count >= count:
            return


def _mark_printed(
    source: Source, printer: Printer, printed: dict[TopicPartition, tuple[Offset, LeaderEpoch]]
) -> None:
    """Flush stdout, and mark the printed records for commit."""
    printer.flush()
    for key, (offset, epoch) in printed.items():
        source.written(key, offset, epoch)
    printed.clear()


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C, so that a member commits and leaves its group."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
