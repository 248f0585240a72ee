"""The history store: what changed from sample to sample, in one bounded SQLite file.

A row of a partition is written when its shape changes, and when its numbers (offsets, sizes) have
moved and its last row is at least SAMPLE_MS old. So `state_at` returns the last sample up to a
time, with numbers that are at most SAMPLE_MS older than it.

The state of a broker that does not respond is kept as it was, and left out when it is read: a
short pause of a broker with thousands of replicas costs one row, not thousands. When the file
reaches its bound, the oldest tenth is deleted; rows that still hold at the new start are kept.

Invariants: times of samples increase, also if the clock is set back; one sample is one
transaction; only the process that has the lock writes.
"""

import hashlib
import json
import os
import sqlite3
import threading
import zlib
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from tidelog.apps.console.history import derive
from tidelog.apps.console.history.group_rows import GroupRows, groups_at
from tidelog.apps.console.history.group_rows import delete_before as delete_groups_before
from tidelog.apps.console.history.known import KnownBroker, KnownPartition
from tidelog.apps.console.history.marks import KINDS, MARKS_MAX, as_row, marks_of
from tidelog.apps.console.history.row_codec import (
    Numbers,
    Shape,
    decode_numbers,
    decode_shape,
    encode_numbers,
    encode_shape,
    join,
    numbers_of,
    pack,
    slow_part,
    unpack,
)
from tidelog.apps.console.history.schema import (
    WriterLock,
    file_bytes,
    open_reader,
    open_writer,
    used_bytes,
)
from tidelog.apps.console.recorder import HistorySpan
from tidelog.apps.console.sample import Seen
from tidelog.apps.views.broker import State
from tidelog.apps.views.group_sample import GroupSample
from tidelog.core.history import HistoryEvent
from tidelog.core.types import BrokerId, TopicPartition
from tidelog.shell.client.cluster_metadata import (
    BrokerAddress,
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
)

MAX_BYTES = 256 << 20
SAMPLE_MS = 1_000
GAP_MS = 60_000
"""A longer time without samples is an event."""
CLOCK_MS = 500
"""How far a broker's monotonic clock may drift from the one of this machine before it is stored
again."""
FULL = 0.9
"""The part of the bound that data may use; the rest is for the write-ahead log and free pages."""
CORRUPT = (sqlite3.Error, zlib.error, ValueError, KeyError)
"""What a damaged file raises."""
_FOREVER_MS = 1 << 53
_SHAPES_MAX = 20_000
_STATES_MAX = 4
_MOMENT = tuple[Mapping[BrokerId, State], ClusterMetadata]
_VOLATILE = ("partitions", "now_ms", "scrub", "revision")
"""Fields of a broker's state. If only these change, no row is written."""
_SAMPLED = ("scrub", "revision")
"""The volatile fields that are stored with the next row."""


class HistoryStore:
    """A `Recorder` (apps/console/recorder.py) on a file."""

    def __init__(
        self,
        path: str,
        max_bytes: int = MAX_BYTES,
        *,
        sample_ms: int = SAMPLE_MS,
        read_only: bool = False,
    ) -> None:
        """Open the store to write, or only to read if another process writes it. With `read_only`
        no file is created, changed or locked."""
        self.path = path
        self.max_bytes = max_bytes
        self._sample_ms = sample_ms
        self._file_lock = WriterLock(path)
        self._writing = threading.Lock()
        self._reading = threading.Lock()
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._partitions: dict[TopicPartition, KnownPartition] = {}
        self._brokers: dict[BrokerId, KnownBroker] = {}
        self._metadata: ClusterMetadata | None = None
        self._groups = GroupRows()
        self._shape_ids: dict[bytes, int] = {}
        self._shapes: dict[int, Shape] = {}
        self._moments: dict[int, _MOMENT] = {}
        self._last_ms = 0
        self._closed = False
        self.problem = ""
        """Why samples are not recorded; empty if they are."""
        if not read_only:
            self._try_to_write()

    @property
    def writes(self) -> bool:
        """Whether this process records samples."""
        return self._writer is not None

    def close(self) -> None:
        """Close the file and release the lock."""
        with self._writing, self._reading:
            self._closed = True
            for each in (self._reader, self._writer):
                if each is not None:
                    each.close()
            self._reader = self._writer = None
            self._file_lock.release()

    def _try_to_write(self) -> None:
        if self._closed or not self._file_lock.acquire():
            self.problem = self._file_lock.problem
            return
        db = None
        try:
            db = open_writer(self.path, self.max_bytes)
            self._load(db)
        except (OSError, *CORRUPT) as error:
            self.problem = f"can't write {self.path}: {error}"
            if db is not None:
                db.close()
            self._forget()
            self._file_lock.release()
        else:
            self._writer = db

    # -- writing -------------------------------------------------------------------------------

    def record(
        self, at_ms: int, states: Mapping[BrokerId, State], metadata: ClusterMetadata
    ) -> None:
        """Store the changes since the last sample; do nothing if another process records."""
        with self._writing:
            if self._writer is not None and not os.path.exists(self.path):
                self._stop_writing(self._writer)  # the data folder was deleted
            if self._writer is None:
                self._try_to_write()
            if self._writer is None:
                return
            db = self._writer
            at_ms = max(at_ms, self._last_ms + 1)
            try:
                with db:
                    self._record(db, at_ms, states, metadata)
                self._last_ms = at_ms
                if used_bytes(db) > self.max_bytes * FULL:
                    self._prune(db)
                self.problem = ""
            except (OSError, *CORRUPT) as error:
                # For example, the disk is full. The state in memory may be newer than the file:
                # read it again.
                self._stop_writing(db)
                self.problem = f"can't write {self.path}: {error}"

    def record_groups(self, at_ms: int, groups: Sequence[GroupSample], *, complete: bool) -> None:
        """Keep what changed about groups; nothing while no samples are recorded."""
        with self._writing:
            db = self._writer
            if db is None:
                return
            at_ms = max(at_ms, self._groups.last_ms + 1)
            try:
                with db:
                    self._write_events(
                        db, self._groups.record(db, at_ms, groups, complete=complete)
                    )
                self.problem = ""
            except (OSError, *CORRUPT) as error:
                self._stop_writing(db)
                self.problem = f"can't write {self.path}: {error}"

    def _stop_writing(self, db: sqlite3.Connection) -> None:
        db.close()
        self._writer = None
        self._forget()
        self._file_lock.release()
        with self._reading:
            if self._reader is not None:
                self._reader.close()
            self._reader = None
            self._moments.clear()
            self._shapes.clear()

    def _record(
        self,
        db: sqlite3.Connection,
        at_ms: int,
        states: Mapping[BrokerId, State],
        metadata: ClusterMetadata,
    ) -> None:
        events: list[HistoryEvent] = []
        if self._last_ms and at_ms - self._last_ms > GAP_MS:
            events.append(derive.gap_event(self._last_ms, at_ms))
        db.execute("INSERT INTO sample VALUES (?)", (at_ms,))
        old, self._metadata = self._metadata, metadata
        if old is None or _cluster_row(old) != _cluster_row(metadata):
            db.execute("INSERT INTO cluster VALUES (?, ?)", (at_ms, pack(_cluster_row(metadata))))
        if old is not None and old is not metadata:
            events += derive.cluster_events(at_ms, old, metadata)
        in_both = metadata.brokers.keys() & (old or metadata).brokers.keys()
        for broker in sorted({*self._brokers, *states}):
            state = states.get(broker)
            events += self._record_broker(db, at_ms, broker, state, known=broker in in_both)
        events += self._record_partitions(db, at_ms, states, metadata)
        self._write_events(db, events)

    def _record_broker(
        self,
        db: sqlite3.Connection,
        at_ms: int,
        broker: BrokerId,
        state: State | None,
        *,
        known: bool,
    ) -> Iterable[HistoryEvent]:
        """Write a broker's row if it changed; return the events."""
        last = self._brokers.get(broker, KnownBroker())
        own = None if state is None else {k: v for k, v in state.items() if k not in _VOLATILE}
        now_ms = last.now_ms if state is None else int(state.get("now_ms") or 0)
        base = last.clock_base if state is None else at_ms - now_ms
        drifted = abs(base - last.clock_base) > CLOCK_MS
        events: list[HistoryEvent] = []
        if own != last.own:
            first = broker not in self._brokers
            if not first:
                events += derive.broker_events(at_ms, broker, last.own, own, known=known)
            if state is not None:
                # A broker that did not respond for a while reports the same losses again.
                events += derive.loss_events(at_ms, broker, last.reported, state)
        if own != last.own or drifted:
            body = None
            if state is not None:
                more = {name: state.get(name) for name in _SAMPLED}
                body = pack({"own": own, "base": base, "more": more})
            db.execute("INSERT OR REPLACE INTO broker VALUES (?, ?, ?)", (broker, at_ms, body))
            last = KnownBroker(own, own or last.reported, base)
        self._brokers[broker] = last._replace(now_ms=now_ms)
        return events

    def _record_partitions(
        self,
        db: sqlite3.Connection,
        at_ms: int,
        states: Mapping[BrokerId, State],
        metadata: ClusterMetadata,
    ) -> Iterable[HistoryEvent]:
        reported: dict[TopicPartition, dict[BrokerId, State]] = {}
        for broker, state in states.items():
            for each in state["partitions"]:
                if each["topic"] is not None:
                    key = TopicPartition(each["topic"], each["partition"])
                    reported.setdefault(key, {})[broker] = each
        listed = {
            TopicPartition(topic.name, number): (topic, each)
            for topic in metadata.topics.values()
            for number, each in topic.partitions.items()
        }
        events: list[HistoryEvent] = []
        gone = [key for key in self._partitions if key not in listed and key not in reported]
        rows: list[tuple[int, int, int | None, bytes | None]] = [
            (self._partitions.pop(key).number, at_ms, None, None) for key in gone
        ]
        now_ms = {broker: each.now_ms for broker, each in self._brokers.items()}
        for key in sorted(listed.keys() | reported.keys()):
            known = self._partitions.get(key)
            own = reported.get(key, {})
            topic, found = listed.get(key, (None, None))
            if known is None:
                known = self._partitions[key] = KnownPartition(_partition_id(db, key))
            if known.is_same(own, found, states.keys()):
                continue
            merged = {b: s for b, s in known.raw.items() if b not in states} | own
            events += self._record_partition(
                db, at_ms, key, known, merged, (topic, found), now_ms, rows, own.keys()
            )
        db.executemany("INSERT OR REPLACE INTO state VALUES (?, ?, ?, ?)", rows)
        return events

    def _record_partition(
        self,
        db: sqlite3.Connection,
        at_ms: int,
        key: TopicPartition,
        known: KnownPartition,
        replicas: Mapping[BrokerId, State],
        listed: tuple[TopicMetadata | None, PartitionMetadata | None],
        now_ms: Mapping[BrokerId, int],
        rows: list[tuple[int, int, int | None, bytes | None]],
        fresh: Set[BrokerId],
    ) -> Iterable[HistoryEvent]:
        """Add a partition's row if it changed; return the events. `fresh`: the replicas whose
        brokers responded."""
        topic, found = listed
        parts = {broker: slow_part(state) for broker, state in replicas.items()}
        facts = None if topic is None else (topic.error, topic.id.hex(), topic.internal)
        shape = Shape(
            None if found is None else found._replace(partition=0),
            facts,
            {broker: slow for broker, (slow, _) in parts.items()},
            {broker: followers for broker, (_, followers) in parts.items() if followers},
        )
        numbers = numbers_of(replicas, now_ms)
        changed = shape != known.shape
        old = at_ms - known.at_ms >= self._sample_ms or not known.silent.isdisjoint(fresh)
        moved = numbers != known.numbers and old
        events: list[HistoryEvent] = []
        if changed:
            events += known.events(at_ms, key, found, replicas)
            known.shape, known.shape_id = shape, self._shape_id(db, shape)
        known.raw, known.metadata = dict(replicas), found
        if changed or moved:
            known.numbers, known.at_ms = numbers, at_ms
            known.silent = frozenset(replicas.keys() - fresh)
            body = encode_numbers(shape, numbers)
            rows.append((known.number, at_ms, known.shape_id, body))
        else:
            known.behind = numbers != known.numbers
        if changed or moved:
            known.behind = False
        return events

    def _shape_id(self, db: sqlite3.Connection, shape: Shape) -> int:
        body = encode_shape(shape)
        mark = hashlib.blake2b(body, digest_size=12).digest()
        found = self._shape_ids.get(mark)
        if found is None:
            row = db.execute("SELECT id FROM shape WHERE hash = ?", (mark,)).fetchone()
            if row is None:
                sql = "INSERT INTO shape (hash, body) VALUES (?, ?) RETURNING id"
                row = db.execute(sql, (mark, body)).fetchone()
            if len(self._shape_ids) >= _SHAPES_MAX:
                self._shape_ids.clear()
            found = self._shape_ids[mark] = int(row[0])
        return found

    def _write_events(self, db: sqlite3.Connection, events: Iterable[HistoryEvent]) -> None:
        rows = []
        for each in events:
            key = each.partition
            number = None if key is None else _partition_id(db, key)
            body = json.dumps(each.as_data(), separators=(",", ":"))
            rows.append((each.at_ms, number, body, each.fields.get("group")))
        sql = "INSERT INTO event (at_ms, partition, body, of_group) VALUES (?, ?, ?, ?)"
        db.executemany(sql, rows)

    # -- the bound -----------------------------------------------------------------------------

    def _prune(self, db: sqlite3.Connection) -> None:
        """Delete the oldest tenth of the samples, and again until a tenth of the bound is free."""
        while used_bytes(db) > self.max_bytes * FULL * FULL:
            (count,) = db.execute("SELECT count(*) FROM sample").fetchone()
            if count < 2:
                break
            skip = max(1, count // 10)
            sql = "SELECT at_ms FROM sample ORDER BY at_ms LIMIT 1 OFFSET ?"
            (start,) = db.execute(sql, (skip,)).fetchone()
            with db:
                self._delete_before(db, start)
        self._shape_ids.clear()
        db.execute("PRAGMA incremental_vacuum").fetchall()
        with self._reading:
            self._moments.clear()

    def _delete_before(self, db: sqlite3.Connection, start: int) -> None:
        """Delete rows that were replaced by others up to `start`, the new first sample."""
        for table, owner in (("state", "partition"), ("broker", "broker")):
            owners = db.execute(f"SELECT DISTINCT {owner} FROM {table}").fetchall()
            db.executemany(
                f"DELETE FROM {table} WHERE {owner} = ?1 AND at_ms < (SELECT max(at_ms)"
                f" FROM {table} WHERE {owner} = ?1 AND at_ms <= ?2)",
                [(number, start) for (number,) in owners],
            )
        db.execute(
            "DELETE FROM cluster WHERE at_ms < (SELECT max(at_ms) FROM cluster WHERE at_ms <= ?)",
            (start,),
        )
        delete_groups_before(db, start)
        db.execute("DELETE FROM sample WHERE at_ms < ?", (start,))
        db.execute("DELETE FROM event WHERE at_ms < ?", (start,))
        db.execute("DELETE FROM state WHERE shape IS NULL AND at_ms <= ?", (start,))
        db.execute("DELETE FROM broker WHERE body IS NULL AND at_ms <= ?", (start,))
        db.execute(
            "DELETE FROM shape WHERE id NOT IN"
            " (SELECT DISTINCT shape FROM state WHERE shape IS NOT NULL)"
        )
        db.execute(
            "DELETE FROM partition WHERE NOT EXISTS"
            " (SELECT 1 FROM state WHERE partition = partition.id)"
            " AND NOT EXISTS (SELECT 1 FROM event WHERE partition = partition.id)"
        )

    # -- after opening -------------------------------------------------------------------------

    def _forget(self) -> None:
        self._partitions, self._brokers, self._metadata = {}, {}, None
        self._shape_ids, self._last_ms = {}, 0
        self._groups.forget()

    def _load(self, db: sqlite3.Connection) -> None:
        """Read the last sample, so that the next one is compared with it."""
        self._groups.load(db)
        (last,) = db.execute("SELECT max(at_ms) FROM sample").fetchone()
        if last is None:
            return
        self._last_ms = last
        for broker, body in _brokers_at(db, last):
            if body is None:
                self._brokers[broker] = KnownBroker()
                continue
            data = unpack(body)
            own, base = data["own"], data["base"]
            self._brokers[broker] = KnownBroker(own, own, base, last - base)
        now_ms = {broker: each.now_ms for broker, each in self._brokers.items()}
        rows = []
        for number, key, shape_id, body, at_ms in _rows_at(db, last):
            shape = self._decoded(db, shape_id)
            numbers = decode_numbers(shape, body)
            raw = join(shape, numbers, *key, now_ms)
            found = KnownPartition(number, shape, shape_id, numbers, at_ms, raw, shape.metadata)
            self._partitions[key] = found
            rows.append((key, shape, numbers))
        self._metadata = _metadata_at(db, last, rows)

    # -- reading -------------------------------------------------------------------------------

    def state_at(self, at_ms: int, topic: str | None = None) -> _MOMENT | None:
        """Return the last sample up to this time; None if the store begins later.

        With a topic, other topics may be left out.
        """
        with self._reading:
            db = self._open_reader()
            if db is None:
                return None
            db.execute("BEGIN")  # the writer may delete old rows meanwhile
            try:
                return self._moment_up_to(db, at_ms, topic)
            finally:
                db.execute("COMMIT")

    def _moment_up_to(
        self, db: sqlite3.Connection, at_ms: int, topic: str | None
    ) -> _MOMENT | None:
        sql = "SELECT max(at_ms) FROM sample WHERE at_ms <= ?"
        (found,) = db.execute(sql, (at_ms,)).fetchone()
        if found is None:
            return None
        moment = self._moments.get(found)
        if moment is None and topic is not None:
            return self._moment(db, found, topic)
        if moment is None:
            moment = self._moment(db, found)
            if len(self._moments) >= _STATES_MAX:
                del self._moments[next(iter(self._moments))]
            self._moments[found] = moment
        return moment

    def sampled_at(self, at_ms: int) -> int | None:
        """Return the time of the sample that `state_at` returns."""
        row = self._one("SELECT max(at_ms) FROM sample WHERE at_ms <= ?", at_ms)
        return None if row is None or row[0] is None else int(row[0])

    def last_seen(self, at_ms: int, topic: str, partition: int) -> dict[BrokerId, Seen]:
        """Return the last states of the brokers that were silent at this time, with one partition
        only: the rows of their replicas stayed as they were."""
        with self._reading:
            db = self._open_reader()
            if db is None:
                return {}
            db.execute("BEGIN")
            try:
                sql = "SELECT max(at_ms) FROM sample WHERE at_ms <= ?"
                (found,) = db.execute(sql, (at_ms,)).fetchone()
                return {} if found is None else self._silent(db, found, topic, partition)
            finally:
                db.execute("COMMIT")

    def _silent(
        self, db: sqlite3.Connection, at_ms: int, topic: str, partition: int
    ) -> dict[BrokerId, Seen]:
        sql = (
            "SELECT broker, at_ms FROM broker b WHERE body IS NULL AND at_ms ="
            " (SELECT max(at_ms) FROM broker WHERE broker = b.broker AND at_ms <= ?)"
        )
        since = dict(db.execute(sql, (at_ms,)).fetchall())
        found: dict[BrokerId, Seen] = {}
        for _, key, shape_id, body, _ in _rows_at(db, at_ms, topic) if since else ():
            if key.partition != partition:
                continue
            shape = self._decoded(db, shape_id)
            for broker, state in join(shape, decode_numbers(shape, body), *key, {}).items():
                if broker in since:
                    found[broker] = Seen(since[broker], {"partitions": [state]})
        return found

    def _moment(self, db: sqlite3.Connection, at_ms: int, topic: str | None = None) -> _MOMENT:
        states: dict[BrokerId, dict[str, Any]] = {}
        now_ms: dict[BrokerId, int] = {}
        for broker, body in _brokers_at(db, at_ms):
            if body is not None:
                data = unpack(body)
                now_ms[broker] = at_ms - data["base"]
                states[broker] = {
                    **data["own"],
                    **data["more"],
                    "now_ms": now_ms[broker],
                    "partitions": [],
                }
        rows: list[tuple[TopicPartition, Shape, Numbers]] = []
        for _, key, shape_id, body, _ in _rows_at(db, at_ms, topic):
            shape = self._decoded(db, shape_id)
            numbers = decode_numbers(shape, body)
            rows.append((key, shape, numbers))
            for broker, state in join(shape, numbers, *key, now_ms).items():
                if broker in states:
                    states[broker]["partitions"].append(state)
        return states, _metadata_at(db, at_ms, rows)

    def _decoded(self, db: sqlite3.Connection, shape_id: int) -> Shape:
        found = self._shapes.get(shape_id)
        if found is None:
            (body,) = db.execute("SELECT body FROM shape WHERE id = ?", (shape_id,)).fetchone()
            if len(self._shapes) >= _SHAPES_MAX:
                self._shapes.clear()
            found = self._shapes[shape_id] = decode_shape(body)
        return found

    def groups_at(self, at_ms: int) -> tuple[int, list[GroupSample]] | None:
        """Return the time of the last sample of groups up to this time, and the groups."""
        with self._reading:
            db = self._open_reader()
            if db is None:
                return None
            db.execute("BEGIN")
            try:
                sql = "SELECT max(at_ms) FROM group_sample WHERE at_ms <= ?"
                (found,) = db.execute(sql, (at_ms,)).fetchone()
                return None if found is None else (int(found), groups_at(db, found))
            finally:
                db.execute("COMMIT")

    def group_events(self, group: str, to_ms: int | None, limit: int) -> list[dict[str, Any]]:
        """Return events of a group, newest first."""
        sql = "SELECT body FROM event WHERE of_group = ? AND at_ms <= ?"
        with self._reading:
            db = self._open_reader()
            rows = []
            if db is not None:
                last = (group, _FOREVER_MS if to_ms is None else to_ms, limit)
                rows = db.execute(f"{sql} ORDER BY at_ms DESC, id DESC LIMIT ?", last).fetchall()
        return [as_row(HistoryEvent.from_data(json.loads(body))) for (body,) in rows]

    def span(self) -> HistorySpan | None:
        """Return what the store covers; None if it is empty."""
        row = self._one("SELECT min(at_ms), max(at_ms) FROM sample")
        if row is None or row[0] is None:
            return None
        return HistorySpan(row[0], row[1], file_bytes(self.path), self.max_bytes)

    def events(
        self,
        from_ms: int | None,
        to_ms: int | None,
        topic: str | None,
        partition: int | None,
        limit: int,
    ) -> list[dict[str, Any]]:
        """Return events, newest first; with a topic or partition, only events about it."""
        found = self._events(from_ms, to_ms, topic, partition, limit)
        return [as_row(each) for each in found]

    def timeline(self, topic: str | None, partition: int | None) -> dict[str, Any]:
        """Return {from_ms, to_ms, marks}; marks of a partition include those of brokers."""
        span = self.span()
        if span is None:
            return {"from_ms": None, "to_ms": None, "marks": []}
        found = self._events(None, None, topic, partition, MARKS_MAX, brokers=True)
        marks = marks_of(reversed([each for each in found if each.event in KINDS]))
        return {"from_ms": span.from_ms, "to_ms": span.to_ms, "marks": marks}

    def _events(
        self,
        from_ms: int | None,
        to_ms: int | None,
        topic: str | None,
        partition: int | None,
        limit: int,
        *,
        brokers: bool = False,
    ) -> list[HistoryEvent]:
        where, values = ["1"], list[Any]()
        if topic is not None:
            chosen = "SELECT id FROM partition WHERE topic = ?"
            values.append(topic)
            if partition is not None:
                chosen += " AND partition = ?"
                values.append(partition)
            about = f"partition IN ({chosen})"
            where.append(f"(partition IS NULL OR {about})" if brokers else about)
        for bound, sign in ((from_ms, ">="), (to_ms, "<=")):
            if bound is not None:
                where.append(f"at_ms {sign} ?")
                values.append(bound)
        sql = (
            f"SELECT body FROM event WHERE {' AND '.join(where)}"
            " ORDER BY at_ms DESC, id DESC LIMIT ?"
        )
        with self._reading:
            db = self._open_reader()
            rows = [] if db is None else db.execute(sql, (*values, limit)).fetchall()
        return [HistoryEvent.from_data(json.loads(body)) for (body,) in rows]

    def _one(self, sql: str, *values: Any) -> tuple[Any, ...] | None:
        with self._reading:
            db = self._open_reader()
            found: tuple[Any, ...] | None = (
                None if db is None else db.execute(sql, values).fetchone()
            )
            return found

    def _open_reader(self) -> sqlite3.Connection | None:
        if self._reader is None and not self._closed:
            self._reader = open_reader(self.path)
        return self._reader


# -- rows ------------------------------------------------------------------------------------


def _partition_id(db: sqlite3.Connection, key: TopicPartition) -> int:
    sql = "SELECT id FROM partition WHERE topic = ? AND partition = ?"
    row = db.execute(sql, key).fetchone()
    if row is None:
        sql = "INSERT INTO partition (topic, partition) VALUES (?, ?) RETURNING id"
        row = db.execute(sql, key).fetchone()
    return int(row[0])


def _rows_at(
    db: sqlite3.Connection, at_ms: int, topic: str | None = None
) -> list[tuple[int, TopicPartition, int, bytes, int]]:
    """Return each partition's row of this time: id, name, shape, numbers, time of the row."""
    sql = (
        "SELECT p.id, p.topic, p.partition, s.shape, s.numbers, s.at_ms FROM partition p"
        " JOIN state s ON s.partition = p.id AND s.at_ms ="
        " (SELECT max(at_ms) FROM state WHERE partition = p.id AND at_ms <= ?)"
        " WHERE s.shape IS NOT NULL"
    )
    chosen = () if topic is None else (topic,)
    sql += "" if topic is None else " AND p.topic = ?"
    rows = db.execute(f"{sql} ORDER BY p.topic, p.partition", (at_ms, *chosen)).fetchall()
    return [(row[0], TopicPartition(row[1], row[2]), row[3], row[4], row[5]) for row in rows]


def _brokers_at(db: sqlite3.Connection, at_ms: int) -> list[tuple[BrokerId, bytes | None]]:
    sql = (
        "SELECT broker, body FROM broker b WHERE at_ms ="
        " (SELECT max(at_ms) FROM broker WHERE broker = b.broker AND at_ms <= ?)"
    )
    return db.execute(sql, (at_ms,)).fetchall()


def _cluster_row(metadata: ClusterMetadata) -> dict[str, Any]:
    """Return what is not in the rows of partitions."""
    return {
        "id": metadata.cluster_id,
        "controller": metadata.controller_id,
        "brokers": [list(each) for each in metadata.brokers.values()],
        "empty": [
            [topic.name, topic.error, topic.id.hex(), topic.internal]
            for topic in metadata.topics.values()
            if not topic.partitions
        ],
    }


def _metadata_at(
    db: sqlite3.Connection, at_ms: int, rows: Iterable[tuple[TopicPartition, Shape, Numbers]]
) -> ClusterMetadata:
    sql = "SELECT body FROM cluster WHERE at_ms <= ? ORDER BY at_ms DESC LIMIT 1"
    (body,) = db.execute(sql, (at_ms,)).fetchone()
    data = unpack(body)
    topics = {
        name: TopicMetadata(name, error, bytes.fromhex(topic_id), internal, {})
        for name, error, topic_id, internal in data["empty"]
    }
    for key, shape, _ in rows:
        if shape.metadata is None or shape.topic is None:
            continue
        if key.topic not in topics:
            error, topic_id, internal = shape.topic
            found = TopicMetadata(key.topic, error, bytes.fromhex(topic_id), internal, {})
            topics[key.topic] = found
        listed = shape.metadata._replace(partition=key.partition)
        topics[key.topic].partitions[key.partition] = listed
    return ClusterMetadata(
        data["id"],
        data["controller"],
        {row[0]: BrokerAddress(*row) for row in data["brokers"]},
        topics,
    )
