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
  folder elsewhere, before the damage is mended, counts as above;
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

    __slots__ = ("damaged", "folderless", "min_isr", "unsettled", "void_from", "wounded")

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

    def damage(self, broker: BrokerId, revision: int) -> None:
        """Its files are not as they were written. By itself that allows no loss."""
        self.damaged.add(broker)
        self.unsettled[broker] = revision
        self._judge()

    def emptied(self, broker: BrokerId, revision: int) -> None:
        """Its folder is gone: all records, and where the log had started."""
        self.folderless.add(broker)
        self.unsettled[broker] = revision
        self.lost(broker, 0)

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
        self.damaged.discard(broker)
        if not self.wounded:
            self.void_from = None

    def waiting(self, isr: Collection[BrokerId]) -> list[BrokerId]:
        """Who might be settled now."""
        return [broker for broker in self.unsettled if broker in isr]

    def allows_loss_from(self, offset: Offset) -> bool:
        return self.void_from is not None and offset >= self.void_from

    def _judge(self) -> None:
        if self.wounded and len(self.unsettled) >= self.min_isr:
            first = 0 if self.damaged else min(self.wounded.values())
            self.void_from = first if self.void_from is None else min(first, self.void_from)
