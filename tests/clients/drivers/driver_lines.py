"""Code that the Python client programs share: the records they send, the lines they print.

A program is called with the name of a job and its parameters in JSON. It prints one
JSON document per line, and ends with 0 when its job is done. What the jobs print is the same for
all clients, whatever language they are written in:

- produce: {"acked": [number, partition, offset]} or {"failed": [number, error]} for each record;
- read: {"record": {partition, offset, key, value, headers, timestamp}} for each;
- offsets: {"earliest": {partition: offset}, "latest": {...}, "at": [{...} for each timestamp]};
- admin: one line with the results of all calls;
- large: {"acked": offset, "error": the error for the record that is too large};
- transact: {"done": step} for each step of the list, or {"failed": step, "error": error} and the
  end; the step "pause" prints {"paused": true} and waits for a line on stdin;
- transform: {"committed": count} or {"aborted": count} for each transaction, until it is killed.
"""

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, NamedTuple, Protocol, TypeVar

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FIRST_TIMESTAMP = 1_700_000_000_000
PATIENCE_S = 120.0
LARGE, TOO_LARGE, CLIENT_LIMIT = 900_000, 2_000_000, 4_000_000
LONG_VALUE = 1000
BURST, PAUSE_S = 25, 0.02
PASSING_ERRORS = (3, 5, 6, 14, 15, 16, 41, 78, -188, -190)
"""Kafka's numbers of the errors that brokers return while a leader, coordinator or controller
changes, or before they know a new topic; librdkafka's for an unknown topic or partition. The
request changed nothing."""
RETENTION = "7200000"
"""What the job `admin` sets for its topic."""
Job = Callable[[dict[str, Any]], None]
T = TypeVar("T")


class Sample(NamedTuple):
    """A record whose content is computed from its number."""

    number: int
    partition: int
    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]]
    timestamp: int


def sample(number: int, partitions: int) -> Sample:
    return Sample(
        number,
        number % partitions,
        b"key-%d" % (number % 8),
        b"%08d" % number + b"-tide" * 12,
        [("number", b"%d" % number), ("empty", b"")],
        FIRST_TIMESTAMP + number,
    )


def samples(conf: dict[str, Any], codec: str) -> Iterator[Sample]:
    """The samples of one codec, at a rate that leaves time to kill a broker."""
    first = conf["count"] // len(CODECS) * CODECS.index(codec)
    for number in range(first, first + conf["count"] // len(CODECS)):
        if number % BURST == 0:
            time.sleep(PAUSE_S)  # must stay: limits the rate, so that a kill falls in between
        yield sample(number, conf["partitions"])


def large_value(size: int) -> bytes:
    return bytes(number * 7 % 251 for number in range(1000)) * (size // 1000)


def shown(value: bytes | None) -> str | None:
    if value is not None and len(value) > LONG_VALUE:
        return hashlib.sha256(value).hexdigest()
    return None if value is None else value.decode()


def say(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def say_record(
    partition: int, offset: int, key: bytes, value: bytes, headers: Any, timestamp: int
) -> None:
    told = {
        "partition": partition,
        "offset": offset,
        "key": shown(key),
        "value": shown(value),
        "headers": [[name, shown(content)] for name, content in headers or ()],
        "timestamp": timestamp,
    }
    say(record=told)


def until(look: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + PATIENCE_S
    while not (found := look()):
        if time.monotonic() > end:
            raise SystemExit(f"it never came: {what}")
        time.sleep(0.05)
    return found


def repeated(call: Callable[[], T]) -> T:
    """Make a call, and again while brokers return a passing error: the library does not retry."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            return call()
        except Exception as error:
            if error_number(error) not in PASSING_ERRORS or time.monotonic() > end:
                raise
        time.sleep(0.05)


def error_number(error: Exception) -> int | None:
    """Return Kafka's number of an error of librdkafka or of a library in Python."""
    first = error.args[0] if error.args else None
    code: Callable[[], int] | None = getattr(first, "code", None)
    number: int | None = getattr(error, "errno", None) if code is None else code()
    return number


def follow(
    conf: dict[str, Any], actions: Mapping[str, Callable[..., Any]], failures: type[Exception]
) -> None:
    """Do the steps of a transactional producer, up to the first that fails."""
    for step, *words in conf["steps"]:
        if step == "pause":
            say(paused=True)
            sys.stdin.readline()
            continue
        try:
            actions[step](*words)
        except failures as error:
            say(failed=step, error=repr(error))
            return
        say(done=step)


class Transformer(Protocol):
    """A consumer of one topic and a transactional producer to another."""

    @property
    def failures(self) -> type[Exception]:
        """The errors that the client raises."""

    def poll(self) -> list[tuple[int, int, bytes]]:
        """Return partition, offset and value of the next records, at most BURST."""

    def begin(self) -> None:
        """Begin a transaction."""

    def send(self, partition: int, value: bytes) -> None:
        """Send a record in the transaction."""

    def send_offsets(self, offsets: dict[int, int]) -> None:
        """Add the group's offsets to the transaction."""

    def commit(self) -> None:
        """Commit the transaction."""

    def abort(self) -> None:
        """Abort the transaction."""

    def rewind(self) -> None:
        """Continue at the group's committed offsets."""

    def must_abort(self, error: Any) -> bool:
        """Whether the transaction must be aborted, and the producer can continue."""


def transform_all(conf: dict[str, Any], client: Transformer) -> None:
    """Copy records in transactions; abort every few of them and copy their records again."""
    for number in count(1):
        batch = client.poll()
        if not batch:
            continue
        is_aborted = number % conf["abort_every"] == 0
        try:
            client.begin()
            for partition, _, value in batch:
                client.send(partition, value)
            client.send_offsets({partition: offset + 1 for partition, offset, _ in batch})
            if not is_aborted:
                client.commit()
        except client.failures as error:
            if not client.must_abort(error):
                raise
            is_aborted = True
        if is_aborted:
            client.abort()
            client.rewind()
            say(aborted=len(batch))
        else:
            say(committed=len(batch))


def run(*jobs: Job) -> None:
    {job.__name__: job for job in jobs}[sys.argv[1]](json.loads(sys.argv[2]))
