"""Publish the entries of this broker's loss ledgers to the internal topic `__tidelog_losses`.

The ledger (core/storage/loss_ledger.py) is written before a loss, and never waits for this. A
thread reads its new lines and produces them with acks=all, as a client of its own broker. While the
cluster can't take them (no leader, too few replicas), it retries with pauses of up to a minute; the
entries stay in the ledger. The thread starts with the first entry: a broker without losses has
none, and imports no client.

`loss-ledger-published` beside the ledger has the position up to which lines were published, and the
topic's id. It is written after the records. So after a crash, or if the topic was deleted, entries
are published again; compaction keeps one of each. A position names the ledger file by its inode,
which stays when the file is renamed to `loss-ledger.old`.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from tidelog.core.storage import layout
from tidelog.core.storage.loss_ledger import FILES, PAGE_BYTES
from tidelog.core.types import LOSSES_TOPIC, BrokerId

if TYPE_CHECKING:
    from tidelog.shell.client.cluster import Cluster
    from tidelog.shell.client.security import ClientSecurity

ADMIN_CLIENT = "__admin_client"
"""The client id with which internal topics may be written (core/api/dispatch.py)."""
CONFIGS = {
    "cleanup.policy": "compact,delete",
    "retention.ms": "-1",
    "retention.bytes": str(32 << 20),
    "segment.bytes": str(4 << 20),
    "compression.type": "producer",
}
"""Compaction removes entries that were published twice. The bound in bytes holds tens of thousands
of entries; the oldest are deleted first."""
TIMEOUT_S = 10.0
PAUSE_S, PAUSE_MAX_S = 1.0, 60.0


class Position(NamedTuple):
    """The position up to which the lines of a log directory were published."""

    topic_id: str = ""
    inode: int = 0
    position: int = 0


class LossPublisher:
    """The thread of one broker. `check` and `close` are called by the broker's loop."""

    def __init__(
        self,
        roots: Sequence[str],
        broker: BrokerId,
        address: tuple[str, int],
        copies_max: int,
        report: Callable[[str], None],
        security: "Callable[[], ClientSecurity | None]" = lambda: None,
    ) -> None:
        """`address`: of this broker, for clients. `copies_max`: the largest replication factor. The
        thread calls `report` with a failure, or when it has ended; `security` returns the
        protection of its connections."""
        self._roots = list(roots)
        self._broker = broker
        self._address = address
        self._copies_max = copies_max
        self._report = report
        self._security = security
        self._checked: int | None = None
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._stopping = threading.Event()

    def check(self, recorded: int) -> None:
        """Publish if there are new entries. `recorded`: how many this process has written."""
        if recorded == self._checked:
            return
        first, self._checked = self._checked is None, recorded
        if first and not any(_unpublished(root) for root in self._roots):
            return
        self._wake.set()
        if self._thread is None:
            name = f"loss-publisher-{self._broker}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop the thread, without waiting for a request that may hang."""
        self._stopping.set()
        self._wake.set()

    def _run(self) -> None:
        from tidelog.shell.client.client_errors import ClientError

        pause_s, failure = PAUSE_S, ""
        while not self._stopping.is_set():
            self._wake.wait()
            self._wake.clear()
            if self._stopping.is_set():
                break
            try:
                self._publish()
            except (ClientError, OSError, ValueError) as error:
                if not failure:
                    failure = str(error)
                    self._report(
                        f"entries of the loss ledger are not in {LOSSES_TOPIC} yet: {failure};"
                        " retrying"
                    )
                self._stopping.wait(pause_s)
                pause_s = min(2 * pause_s, PAUSE_MAX_S)
                self._wake.set()
            else:
                if failure:
                    self._report(f"all entries of the loss ledger are in {LOSSES_TOPIC}")
                pause_s, failure = PAUSE_S, ""

    def _publish(self) -> None:
        """Publish all new entries. Raises ClientError, OSError."""
        from tidelog.shell.client.cluster import Cluster
        from tidelog.shell.client.connection import format_address

        address = format_address(*self._address)
        with Cluster(address, ADMIN_CLIENT, TIMEOUT_S, self._security()) as cluster:
            topic_id = self._topic(cluster)
            for root in self._roots:
                for lines, position in _pages(root, _position(root), topic_id):
                    if self._stopping.is_set():
                        return
                    self._produce(cluster, lines)
                    _write_position(root, position)

    def _topic(self, cluster: "Cluster") -> str:
        """Return the id of the topic; create it if it is missing."""
        from tidelog.core.errors import ErrorCode
        from tidelog.shell.client.admin import await_leaders, registered_brokers
        from tidelog.shell.client.administration.topics import NewTopic, create_topics
        from tidelog.shell.client.client_errors import BrokerError

        found = cluster.refresh([LOSSES_TOPIC]).topics.get(LOSSES_TOPIC)
        if found is None or found.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            # Brokers that are down count too: a topic created now keeps its replication factor.
            copies = max(1, min(self._copies_max, len(registered_brokers(cluster))))
            wanted = NewTopic(LOSSES_TOPIC, 1, copies, configs=CONFIGS)
            [(made, _, _)] = create_topics(cluster, [wanted])
            if made.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise BrokerError(f"creating topic {LOSSES_TOPIC}", made.error, made.message)
            await_leaders(cluster, LOSSES_TOPIC)
        return cluster.refresh([LOSSES_TOPIC]).topics[LOSSES_TOPIC].id.hex()

    def _produce(self, cluster: "Cluster", lines: Sequence[bytes]) -> None:
        from tidelog.core.record.record import Record
        from tidelog.shell.client.producer import Producer

        now_ms = time.time_ns() // 1_000_000
        records = [
            Record(key, line, now_ms) for line in lines if (key := record_key(line)) is not None
        ]
        if records:
            # Compaction removes duplicates, so the batch needs no producer id.
            producer = Producer(cluster, idempotent=False, timeout_s=TIMEOUT_S)
            producer.append(LOSSES_TOPIC, 0, records)


def record_key(line: bytes) -> bytes | None:
    """Return the record's key: the entry's id and the broker that wrote it, because the leader and
    the controller may know different things about one election. None: the line is damaged."""
    try:
        entry = json.loads(line)
        return f"{entry['broker']}:{entry['id']}".encode()
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


# -- files -----------------------------------------------------------------------------------


def _unpublished(root: str) -> bool:
    """Whether a log directory has lines after the published position, in the newest file."""
    try:
        found = os.stat(f"{root}/{layout.LOSSES}")
    except OSError:
        return os.path.exists(f"{root}/{layout.OLD_LOSSES}")
    known = _position(root)
    return (known.inode, known.position) != (found.st_ino, found.st_size)


def _position(root: str) -> Position:
    try:
        with open(f"{root}/{layout.LOSSES_PUBLISHED}", "rb") as file:
            data: Any = json.loads(file.read())
        return Position(str(data["topic_id"]), int(data["inode"]), int(data["position"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return Position()  # everything is published again


def _write_position(root: str, position: Position) -> None:
    path = f"{root}/{layout.LOSSES_PUBLISHED}"
    with open(f"{path}.tmp", "w", encoding="ascii") as file:
        json.dump(position._asdict(), file)
    os.replace(f"{path}.tmp", path)


def _pages(root: str, known: Position, topic_id: str) -> Iterator[tuple[list[bytes], Position]]:
    """Yield the complete lines after a position, a page at a time, and the position after each."""
    files: list[BinaryIO] = []
    try:
        # Open the newest first: if it is renamed in between, it is opened twice and read once.
        for name in reversed(FILES):
            with suppress(FileNotFoundError):
                files.insert(0, open(f"{root}/{name}", "rb"))  # noqa: SIM115 - closed below
        inodes = [os.fstat(file.fileno()).st_ino for file in files]
        if len(set(inodes)) < len(files):
            files.pop(0).close()
            inodes.pop(0)
        start = 0
        if known.topic_id == topic_id and known.inode in inodes:
            first = inodes.index(known.inode)
            for _ in range(first):
                files.pop(0).close()
            inodes, start = inodes[first:], known.position
        for file, inode in zip(files, inodes, strict=True):
            file.seek(start)
            while data := file.read(PAGE_BYTES):
                end = data.rfind(b"\n") + 1
                if not end:
                    break  # a line that is being written, or that a crash cut off
                start += end
                file.seek(start)
                yield data[:end].splitlines(), Position(topic_id, inode, start)
            start = 0
    finally:
        for file in files:
            file.close()
