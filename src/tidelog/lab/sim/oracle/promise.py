"""What a committed record may rely on, and when that ends.

Committed means: some leader's high watermark passed it. An acks=all answer says so about
its records, and consumers only see such records. The promise:

- any number of killed, stopped and restarted processes loses nothing;
- with flush-before-ack any number of power failures loses nothing either;
- without it, power failures lose nothing as long as fewer than min.insync.replicas replicas
  are unsettled at a time. A replica is unsettled from an unclean stop until it is in the ISR
  again: a kill counts as much as a power failure, because the cluster can't tell them apart;
- a folder removed by hand counts as an unclean stop that lost everything. Whose folder is
  gone never makes others throw records away: it leads only if nobody else has any, or if
  an unclean election had no other choice;
- damage to the files of one replica loses nothing that another replica in sync has. It is
  only done where there is one, and to one replica at a time; a power failure or a removed
  folder elsewhere, before the damage is mended, counts as above. What is committed while only
  damaged replicas are in sync may be lost. A disk that lied about its syncs, and then lost
  power, is damaged. A replica whose log was replaced by an old copy may lead for a moment, but
  no other replica drops a committed record;
- where several replicas are damaged at a time, records may be lost, but never silently
  (admissions.py);
- an unclean election, where allowed, may lose whatever the new leader lacks. It must be
  recorded in the partition's registration, and what replicas then throw away must be
  reported by them, range for range.

acks=1 promises only that the leader has the record while it leads; acks=0 nothing.

This file keeps the books of the third, fourth and fifth rule for one partition.
"""

from collections.abc import Collection

from tidelog.core.types import BrokerId, Offset


class Promise:
    """Who is unsettled, who really lost something, and from where on the promise is void."""

    __slots__ = (
        "alone_from",
        "damaged",
        "decayed",
        "folderless",
        "mended",
        "min_isr",
        "outdated",
        "unsettled",
        "void_from",
        "wounded",
    )

    def __init__(self, min_isr: int) -> None:
        self.min_isr = min_isr
        self.unsettled: dict[BrokerId, int] = {}
        """With the store's revision when it stopped: registrations before it are not news."""
        self.wounded: dict[BrokerId, Offset] = {}
        """The first committed record that a power failure, or a person, took from it."""
        self.void_from: Offset | None = None
        self.folderless: set[BrokerId] = set()
        """Whose folder was removed, and who has not been in the ISR since."""
        self.damaged: set[BrokerId] = set()
        """Whose files were damaged, and are not mended yet."""
        self.decayed: set[BrokerId] = set()
        """Those of them whose broker has run ever since: it may not have noticed yet."""
        self.outdated: set[BrokerId] = set()
        """Those of them whose log was replaced by an old copy, which the broker can't detect."""
        self.alone_from: Offset | None = None
        """The first record that was committed while only damaged replicas were in sync."""
        self.mended = 0

    def damage(self, broker: BrokerId, revision: int) -> None:
        """Its files are not as they were written. By itself that allows no loss."""
        self.damaged.add(broker)
        self.unsettled[broker] = revision
        self._judge()

    def decay(self, broker: BrokerId) -> None:
        """The same under its running broker: it need not register again to be settled."""
        self.decayed.add(broker)
        self.damage(broker, -1)

    def committed(self, offset: Offset, isr: Collection[BrokerId]) -> None:
        """A record was committed by these replicas."""
        if self.alone_from is None and self.damaged.issuperset(isr):
            self.alone_from = offset

    def emptied(self, broker: BrokerId, revision: int) -> None:
        """Its folder is gone: all records, and where the log had started."""
        self.folderless.add(broker)
        self.unsettled[broker] = revision
        self.lost(broker, 0)

    def stopped(self, broker: BrokerId) -> None:
        """The next process checks whatever it reads."""
        self.decayed.discard(broker)

    def stopped_uncleanly(self, broker: BrokerId, revision: int) -> None:
        self.unsettled[broker] = revision
        self._judge()

    def lost(self, broker: BrokerId, offset: Offset) -> None:
        self.wounded[broker] = min(offset, self.wounded.get(broker, offset))
        self._judge()

    def settle(self, broker: BrokerId) -> None:
        """It is in the ISR again, and has everything."""
        self.unsettled.pop(broker, None)
        self.wounded.pop(broker, None)
        self.folderless.discard(broker)
        self.mended += broker in self.damaged
        self.damaged.discard(broker)
        self.outdated.discard(broker)
        self.decayed.discard(broker)
        if not self.wounded:
            self.void_from = None
        if not self.damaged:
            self.alone_from = None

    def waiting(self, isr: Collection[BrokerId]) -> list[BrokerId]:
        """Who might be settled now."""
        return [broker for broker in self.unsettled if broker in isr]

    def allows_loss_from(self, offset: Offset) -> bool:
        froms = (self.void_from, self.alone_from)
        return any(first is not None and offset >= first for first in froms)

    def is_intact(self) -> bool:
        """Whether no record may be lost, so that no person has to decide anything."""
        return self.void_from is None and self.alone_from is None and not self.folderless

    def _judge(self) -> None:
        if self.wounded and len(self.unsettled) >= self.min_isr:
            first = 0 if self.damaged else min(self.wounded.values())
            self.void_from = first if self.void_from is None else min(first, self.void_from)
