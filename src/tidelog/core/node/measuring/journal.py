"""Events for the broker's log: names with fields, formatted later by the host.

Thousands of partitions may get another leader in one step, which is too many lines to read. So a
note is a small tuple, only the first notes of each event are kept until the host takes them, and
the rest are counted. The table has the fields and the text of each event.

Invariant: a note that is not kept is counted.
"""

from typing import Any, NamedTuple

KEPT_MAX = 20
"""How many notes of one event are kept until the host takes them."""

INFO, WARN, ERROR = "INFO", "WARN", "ERROR"


class Event(NamedTuple):
    """One kind of event."""

    level: str
    fields: tuple[str, ...]
    text: str
    always: bool = False
    """Log every occurrence, however many there are in a second."""


_PARTITION = ("topic", "partition")

EVENTS: dict[str, Event] = {
    "leadership_gained": Event(
        INFO,
        (*_PARTITION, "leader_epoch", "offset", "isr"),
        "leads {topic}-{partition} from offset {offset} on: leader epoch {leader_epoch}, ISR {isr}",
    ),
    "leadership_lost": Event(
        INFO,
        (*_PARTITION, "leader_epoch", "leader"),
        "no longer leads {topic}-{partition}: leader {leader}, leader epoch {leader_epoch}",
    ),
    "isr_shrunk": Event(
        WARN,
        (*_PARTITION, "leader_epoch", "isr", "left"),
        "ISR of {topic}-{partition} shrank to {isr}: {left} left",
    ),
    "isr_expanded": Event(
        INFO,
        (*_PARTITION, "leader_epoch", "isr", "joined"),
        "ISR of {topic}-{partition} grew to {isr}: {joined} joined",
    ),
    "isr_change_overdue": Event(
        WARN,
        (*_PARTITION, "leader_epoch", "isr"),
        "{topic}-{partition}: the controller answered the change of the ISR to {isr}, and the"
        " metadata does not show it; sending it again",
    ),
    "truncated": Event(
        INFO,
        (*_PARTITION, "leader_epoch", "start", "end"),
        "{topic}-{partition}: dropped offsets {start} to {end} (exclusive), which the leader of"
        " epoch {leader_epoch} does not have; none was known to be committed",
    ),
    "records_lost": Event(
        WARN,
        (*_PARTITION, "leader_epoch", "start", "end", "lost"),
        "{topic}-{partition}: dropped offsets {start} to {end} (exclusive): the leader of epoch"
        " {leader_epoch} does not have the same records there; {lost} of them may have been"
        " committed. This replica copies the leader's records at these offsets",
    ),
    "segment_deleted": Event(
        INFO,
        (*_PARTITION, "segment", "start", "end", "bytes", "reason"),
        "{topic}-{partition}: deleted segment {segment}, offsets {start} to {end} (exclusive):"
        " {reason}",
        always=True,
    ),
    "clock_jumped": Event(
        WARN,
        ("by_ms", "ahead_ms", "hold_ms"),
        "the clock of this machine jumped by {by_ms} ms and is {ahead_ms} ms ahead of the last"
        " confirmed time. Until it has run without a jump for {hold_ms} ms (tidelog.clock.hold.ms),"
        " the earlier of the two times decides which records are old enough to delete. If the clock"
        " is wrong, correct it; if it is right, do nothing",
    ),
    "clock_trusted": Event(
        INFO,
        (),
        "the clock of this machine agrees with the confirmed time again",
    ),
    "clock_confirmed": Event(
        WARN,
        ("ahead_ms", "hold_ms"),
        "the clock of this machine has run without a jump for {hold_ms} ms and is trusted: ages of"
        " records increase by {ahead_ms} ms",
    ),
    "log_lost": Event(
        WARN,
        _PARTITION,
        "{topic}-{partition}: its folder is not in the log directory, though this broker is one of"
        " its replicas; it is not elected while another replica may have records",
        always=True,
    ),
    "directory_failed": Event(
        WARN,
        ("directory", "reason", "replicas"),
        "log directory {directory} failed: {reason}. Its {replicas} replicas are offline, all"
        " others are served. Replace the disk or remove the directory from log.dirs, and restart"
        " this broker",
        always=True,
    ),
    "log_moved": Event(
        INFO,
        (*_PARTITION, "source", "target", "bytes"),
        "{topic}-{partition}: moved {bytes} bytes from {source} to {target}",
    ),
    "move_failed": Event(
        WARN,
        (*_PARTITION, "target", "reason"),
        "{topic}-{partition}: can't be moved to {target}: {reason}. It stays where it is",
    ),
    "log_offline": Event(
        WARN,
        _PARTITION,
        "{topic}-{partition}: its log is not in the log directories that can be used; it is offline"
        " until all directories of this broker can be used again",
        always=True,
    ),
    "log_damaged": Event(
        WARN,
        (*_PARTITION, "offset", "reason"),
        "{topic}-{partition}: damaged from offset {offset} on: {reason}; this replica does not"
        " lead while another one has the records",
        always=True,
    ),
    "damage_repaired": Event(
        INFO,
        (*_PARTITION, "offset", "end"),
        "{topic}-{partition}: replaced the damaged offsets {offset} to {end} (exclusive) with"
        " records from the leader",
        always=True,
    ),
    "damage_truncated": Event(
        INFO,
        (*_PARTITION, "offset", "end"),
        "{topic}-{partition}: truncated to offset {offset} because of damage; copies offsets"
        " {offset} to {end} (exclusive) from the leader",
        always=True,
    ),
    "truncation_refused": Event(
        WARN,
        (*_PARTITION, "leader", "leader_epoch", "offset", "high_watermark"),
        "{topic}-{partition}: the leader, broker {leader} in leader epoch {leader_epoch}, lacks"
        " committed records from offset {offset} up to {high_watermark} (exclusive); this replica"
        " keeps them and asks the controller for another leader",
        always=True,
    ),
    "leader_elected": Event(
        INFO,
        (*_PARTITION, "leader", "leader_epoch", "old_leader", "isr"),
        "elected broker {leader} for {topic}-{partition}: leader epoch {leader_epoch}, old"
        " leader {old_leader}, ISR {isr}",
    ),
    "unclean_election": Event(
        WARN,
        (*_PARTITION, "leader", "leader_epoch", "old_leader", "old_isr", "old_elr"),
        "elected broker {leader} for {topic}-{partition} uncleanly, leader epoch {leader_epoch}:"
        " committed records may be lost; the old ISR was {old_isr}, the old ELR {old_elr}",
        always=True,
    ),
    "compacted": Event(
        INFO,
        (*_PARTITION, "end_offset", "bytes_read", "bytes_written", "records_read", "records_kept"),
        "compacted {topic}-{partition} up to offset {end_offset}: {bytes_read} bytes became"
        " {bytes_written}, {records_kept} of {records_read} records stay",
    ),
    "compaction_failed": Event(
        WARN,
        (*_PARTITION, "reason", "retry_ms"),
        "could not compact {topic}-{partition}: {reason}; retrying in {retry_ms} ms",
    ),
    "controller_gained": Event(INFO, ("controller_epoch",), "became the controller"),
    "controller_lost": Event(WARN, ("reason",), "is no longer the controller: {reason}"),
    "operation_refused": Event(
        WARN,
        ("principal", "host", "api", "operation", "resource_type", "resource", "more"),
        "{principal} at {host} may not {operation} {resource_type} {resource}, which {api} needs;"
        " refused, and {more} operations of this principal since its last line",
    ),
    "session_lapsed": Event(
        WARN,
        (),
        "could not renew its session with the metadata store in time; serves acks=all and reads of"
        " partitions whose in-sync followers keep fetching, and nothing else",
    ),
    "session_resumed": Event(
        INFO, (), "renewed its session with the metadata store; serves all its partitions again"
    ),
    "session_lost": Event(WARN, (), "lost its session with the metadata store; registering again"),
    "unregistered": Event(
        WARN, (), "was unregistered by an administrator: stays out of the cluster until restarted"
    ),
    "registered": Event(INFO, ("broker_epoch",), "registered, broker epoch {broker_epoch}"),
}


class Note(NamedTuple):
    """One occurrence of an event; the values are in the order of its fields."""

    event: str
    values: tuple[Any, ...]

    def fields(self) -> dict[str, Any]:
        """Return the values by field name."""
        return dict(zip(EVENTS[self.event].fields, self.values, strict=True))

    def text(self) -> str:
        """Return the text for the log."""
        shown = {name: _shown(value) for name, value in self.fields().items()}
        return EVENTS[self.event].text.format(**shown)


class Journal:
    """Notes that the host has not taken yet."""

    __slots__ = ("_counts", "notes")

    def __init__(self) -> None:
        self.notes: list[Note] = []
        self._counts: dict[str, int] = {}

    def note(self, event: str, *values: Any) -> None:
        """Add a note."""
        count = self._counts[event] = self._counts.get(event, 0) + 1
        if count <= KEPT_MAX or EVENTS[event].always:
            self.notes.append(Note(event, values))

    def take(self) -> tuple[list[Note], dict[str, int]]:
        """Remove and return the notes, and how many more there were of each event."""
        notes, self.notes = self.notes, []
        counts, self._counts = self._counts, {}
        more = {event: n - KEPT_MAX for event, n in counts.items() if n > KEPT_MAX}
        return notes, {event: n for event, n in more.items() if not EVENTS[event].always}


def _shown(value: object) -> object:
    if value is None:
        return "none"
    if isinstance(value, tuple | frozenset | set):
        return "[" + ", ".join(map(str, value)) + "]" if value else "empty"
    return value
