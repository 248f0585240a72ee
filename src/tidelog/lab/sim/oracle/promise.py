"""The durability promise for committed records, and the faults that end it.

A record is committed once some leader's high watermark has passed it. An acks=all response
confirms that its records are committed, and consumers read only committed records. The promise:

1. Any number of killed, stopped and restarted processes loses no committed record.
2. With flush-before-ack, any number of power failures loses no committed record either.
3. Without flush-before-ack, power failures lose no committed record while fewer than
   min.insync.replicas replicas are unsettled. A replica is unsettled from an unclean stop until
   it is in the ISR again. A kill counts like a power failure, because the cluster can't
   distinguish them.
4. A folder that an operator removed counts as an unclean stop that lost every record. A replica
   without its folder never makes other replicas drop records. It leads only if no other
   replica has records, or if an unclean election had no other choice.
5. Damage to the files of one replica loses no record that another in-sync replica has.
   - The simulator damages a replica only if there is such another replica, and only one replica
     at a time. A power failure or a removed folder elsewhere, before the damage is repaired,
     counts as above.
   - Records that are committed while only damaged replicas are in sync may be lost.
   - A disk that confirmed syncs it had not done, and then lost power, is damaged.
   - A replica whose log was replaced by an old copy may lead for a moment, but no other replica
     drops a committed record.
6. Where several replicas are damaged at a time, records may be lost, but never silently
   (`LossReports`).
7. An unclean election, where allowed, may lose every record that the new leader lacks. The
   partition's registration must record the election. The replicas must report each range of
   records that they then drop.

acks=1 promises only that the leader has the record while it leads. acks=0 promises nothing.

`Promise` tracks rules 3, 4 and 5 for one partition, `LossReports` rule 6.
"""

from collections.abc import Collection, Sequence

from tidelog.core.node.measuring.journal import Note
from tidelog.core.types import BrokerId, Offset, TopicPartition


class Promise:
    """The faults of one partition's replicas, and the offset from which records may be lost.

    From `unprotected_from` on, rule 3 or 4 no longer protects records.
    """

    __slots__ = (
        "damaged",
        "damaged_only_from",
        "decayed",
        "decayed_until_ms",
        "first_lost",
        "folderless",
        "min_isr",
        "outdated",
        "repaired",
        "shortened",
        "unprotected_from",
        "unsettled",
    )

    def __init__(self, min_isr: int) -> None:
        self.min_isr = min_isr
        self.unsettled: dict[BrokerId, int] = {}
        """The store's revision when each broker stopped; only a later registration counts."""
        self.first_lost: dict[BrokerId, Offset] = {}
        """The first committed record that each replica lost by a power failure or an operator."""
        self.unprotected_from: Offset | None = None
        self.folderless: set[BrokerId] = set()
        """Brokers whose folder was removed, and that have not been in the ISR since."""
        self.damaged: set[BrokerId] = set()
        """Brokers whose files were damaged and are not repaired yet."""
        self.decayed: set[BrokerId] = set()
        """Damaged brokers that have run ever since: they may not have detected the damage yet."""
        self.decayed_until_ms: dict[BrokerId, int] = {}
        """When each of those stopped or was repaired. Responses that it sent before may arrive
        later."""
        self.outdated: set[BrokerId] = set()
        """Damaged brokers whose log was replaced by an old copy, which they can't detect."""
        self.shortened: set[BrokerId] = set()
        """Brokers that lost records while they were down, committed or not, and that have not been
        in the ISR since."""
        self.damaged_only_from: Offset | None = None
        """The first record that was committed while only damaged replicas were in sync."""
        self.repaired = 0

    def damage(self, broker: BrokerId, revision: int) -> None:
        """Record damage to a broker's files. Damage alone allows no loss."""
        self.damaged.add(broker)
        self.unsettled[broker] = revision
        self._update_unprotected()

    def decay(self, broker: BrokerId) -> None:
        """Record damage to a running broker's files. It can settle without a new registration."""
        self.decayed.add(broker)
        self.damage(broker, -1)

    def committed(self, offset: Offset, isr: Collection[BrokerId]) -> None:
        """Record that an ISR of these brokers committed the records from `offset` on."""
        if self.damaged_only_from is None and self.damaged.issuperset(isr):
            self.damaged_only_from = offset

    def emptied(self, broker: BrokerId, revision: int) -> None:
        """Record that a replica's folder was removed, with all records and the log start."""
        self.folderless.add(broker)
        self.unsettled[broker] = revision
        self.lost(broker, 0)

    def stopped(self, broker: BrokerId, now_ms: int) -> None:
        """Record that a process ended: the next one checks every record before it serves it."""
        if broker in self.decayed:
            self.decayed.discard(broker)
            self.decayed_until_ms[broker] = now_ms

    def may_serve_damage(self, broker: BrokerId, requested_ms: int) -> bool:
        """Return whether this broker's response to a request of that time may have damaged
        records: bytes changed after its process wrote or checked them."""
        until_ms = self.decayed_until_ms.get(broker, -1)
        return broker in self.decayed or requested_ms <= until_ms

    def stopped_uncleanly(self, broker: BrokerId, revision: int) -> None:
        self.unsettled[broker] = revision
        self._update_unprotected()

    def lost(self, broker: BrokerId, offset: Offset) -> None:
        self.first_lost[broker] = min(offset, self.first_lost.get(broker, offset))
        self._update_unprotected()

    def settle(self, broker: BrokerId, now_ms: int) -> None:
        """Clear the faults of a broker that is in the ISR again with every committed record."""
        self.stopped(broker, now_ms)
        self.unsettled.pop(broker, None)
        self.first_lost.pop(broker, None)
        self.folderless.discard(broker)
        self.repaired += broker in self.damaged
        self.damaged.discard(broker)
        self.outdated.discard(broker)
        self.shortened.discard(broker)
        if not self.first_lost:
            self.unprotected_from = None
        if not self.damaged:
            self.damaged_only_from = None

    def waiting(self, isr: Collection[BrokerId]) -> list[BrokerId]:
        """Return the unsettled brokers that are in the ISR."""
        return [broker for broker in self.unsettled if broker in isr]

    def allows_loss_from(self, offset: Offset) -> bool:
        froms = (self.unprotected_from, self.damaged_only_from)
        return any(first is not None and offset >= first for first in froms)

    def is_intact(self) -> bool:
        """Return whether every committed record must survive without an operator's decision."""
        return (
            self.unprotected_from is None and self.damaged_only_from is None and not self.folderless
        )

    def _update_unprotected(self) -> None:
        if self.first_lost and len(self.unsettled) >= self.min_isr:
            first = 0 if self.damaged else min(self.first_lost.values())
            self.unprotected_from = (
                first if self.unprotected_from is None else min(first, self.unprotected_from)
            )


_DROPPED = ("truncated", "records_lost")


class LossReports:
    """The offsets of one partition that brokers or the controller reported as damaged or dropped.

    When several replicas are damaged at a time, no rule can save a record that all of them lack.
    Then no record may be lost silently: a report of damage at or before its offset, a report of
    dropped records, or an election that is recorded as unclean covers each committed record that
    the next leader lacks. A report counts until every replica is repaired.
    """

    __slots__ = ("_damaged_from", "_dropped", "_name")

    def __init__(self, name: TopicPartition) -> None:
        self._name = name
        self._damaged_from: Offset | None = None
        self._dropped: list[tuple[Offset, Offset]] = []

    def noted(self, notes: Sequence[Note]) -> None:
        """Read the events that a broker logged (core/node/measuring/journal.py)."""
        for note in notes:
            if note.values[:2] != self._name:
                continue
            fields = note.fields()
            if note.event == "log_damaged":
                self._add_damage(fields["offset"])
            elif note.event == "log_lost":
                self._add_damage(0)
            elif note.event in _DROPPED:
                self._dropped.append((fields["start"], fields["end"]))

    def _add_damage(self, offset: Offset) -> None:
        known = self._damaged_from
        self._damaged_from = offset if known is None else min(offset, known)

    def covers(self, offset: Offset) -> bool:
        """Return whether a broker reported the loss of this record."""
        if self._damaged_from is not None and self._damaged_from <= offset:
            return True
        return any(start <= offset < end for start, end in self._dropped)

    def clear(self) -> None:
        """Drop all reports: every replica is repaired, so later losses need new reports."""
        self._damaged_from = None
        self._dropped.clear()
