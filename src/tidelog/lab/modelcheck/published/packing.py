"""A whole state in one int, which is cheap to hash, compare, send and rename.

From the high bits down, there is one field for each replica, then the field of the quorum. A
replica's field holds its log, high watermark, epoch, leader and ISR. The quorum's field holds the
request of each epoch, the ISR and the next record id. Every value has its own bits and a code for
"none", so packing loses nothing.
"""

from collections.abc import Callable
from functools import cache
from itertools import permutations
from typing import TypeVar

from tidelog.lab.modelcheck.published.replication import (
    NONE,
    LeaderAndIsr,
    Quorum,
    Record,
    Replica,
    Size,
)

K = TypeVar("K")
V = TypeVar("V")


class Table(dict[K, V]):
    """A dict that computes a missing value at its first look-up and keeps it."""

    def __init__(self, answer: Callable[[K], V]) -> None:
        super().__init__()
        self._answer = answer

    def __missing__(self, question: K) -> V:
        answer = self[question] = self._answer(question)
        return answer


def bits_for(largest: int) -> int:
    """Return the number of bits that hold values from 0 to `largest`."""
    return largest.bit_length()


@cache
def members(isr_bits: int) -> frozenset[int]:
    """Return the replicas whose bits are set."""
    return frozenset(n for n in range(isr_bits.bit_length()) if isr_bits >> n & 1)


@cache
def isr_bits(isr: frozenset[int]) -> int:
    """Return an ISR as bits: bit `n` is set if replica `n` is a member."""
    return sum(1 << name for name in isr)


class Packing:
    """The field widths for one size, and the functions that pack and unpack states."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self._epochs = size.max_leader_epoch + 1
        self._record_bits = bits_for(size.max_records * self._epochs)
        self._offset_bits = bits_for(size.log_size)
        self._epoch_bits = bits_for(self._epochs)
        self._leader_bits = bits_for(size.replicas)
        self._request_bits = bits_for((size.replicas + 1) << size.replicas)
        self._id_bits = bits_for(size.max_records)
        self.replica_bits = (
            size.log_size * self._record_bits
            + self._offset_bits
            + self._epoch_bits
            + self._leader_bits
            + size.replicas
        )
        self.named_bits = self._leader_bits + size.replicas
        self.shifts = [self.replica_bits * name for name in reversed(range(size.replicas))]
        self.quorum_bits = self._id_bits + size.replicas + self._epochs * self._request_bits

    def pack(self, quorum: Quorum, replicas: list[Replica]) -> int:
        state = 0
        for replica in replicas:
            state = state << self.replica_bits | self.pack_replica(replica)
        return state << self.quorum_bits | self.pack_quorum(quorum)

    def unpack(self, state: int) -> tuple[Quorum, list[Replica]]:
        part, field = self._split(state, self.quorum_bits)
        replicas = [self.unpack_replica(name, f) for name, f in enumerate(self.fields(part))]
        return self.unpack_quorum(field), replicas

    def fields(self, replicas: int) -> tuple[int, ...]:
        """Split the replicas' part of a state into one field for each replica."""
        mask = (1 << self.replica_bits) - 1
        return tuple([replicas >> shift & mask for shift in self.shifts])

    def pack_replica(self, replica: Replica) -> int:
        packed = 0
        for offset in range(self.size.log_size):
            packed <<= self._record_bits
            if replica.has_offset(offset):
                record = replica.log[offset]
                packed |= 1 + record.id * self._epochs + record.epoch
        packed = packed << self._offset_bits | replica.high_watermark
        packed = packed << self._epoch_bits | replica.leader_epoch + 1
        packed = packed << self._leader_bits | replica.leader + 1
        return packed << self.size.replicas | isr_bits(replica.isr)

    def unpack_replica(self, name: int, packed: int) -> Replica:
        packed, isr = self._split(packed, self.size.replicas)
        packed, leader = self._split(packed, self._leader_bits)
        packed, epoch = self._split(packed, self._epoch_bits)
        packed, high_watermark = self._split(packed, self._offset_bits)
        log: list[Record] = []
        for _ in range(self.size.log_size):
            packed, code = self._split(packed, self._record_bits)
            if code:
                log.append(Record(*divmod(code - 1, self._epochs)))
        return Replica(
            name, tuple(reversed(log)), high_watermark, epoch - 1, leader - 1, members(isr)
        )

    def pack_quorum(self, quorum: Quorum) -> int:
        packed = 0
        for epoch in range(self._epochs):
            packed <<= self._request_bits
            if epoch <= quorum.leader_epoch:
                request = quorum.requests[epoch]
                packed |= 1 + ((request.leader + 1) << self.size.replicas | isr_bits(request.isr))
        packed = packed << self.size.replicas | isr_bits(quorum.isr)
        return packed << self._id_bits | quorum.next_record_id

    def unpack_quorum(self, packed: int) -> Quorum:
        packed, next_record_id = self._split(packed, self._id_bits)
        packed, isr = self._split(packed, self.size.replicas)
        requests: list[LeaderAndIsr] = []
        for epoch in reversed(range(self._epochs)):
            packed, code = self._split(packed, self._request_bits)
            if code:
                leader, request_isr = self._split(code - 1, self.size.replicas)
                requests.append(LeaderAndIsr(epoch, leader - 1, members(request_isr)))
        return Quorum(tuple(reversed(requests)), members(isr), next_record_id)

    @staticmethod
    def _split(packed: int, width: int) -> tuple[int, int]:
        return packed >> width, packed & (1 << width) - 1


class Renaming:
    """One permutation of the replicas' names, as tables from packed to packed fields."""

    def __init__(self, packing: Packing, order: tuple[int, ...]) -> None:
        self._packing = packing
        self.order = order
        self._targets = [packing.shifts[name] for name in order]
        self.replica = Table(self._rename_replica)
        self.quorum = Table(self._rename_quorum)

    def apply(self, fields: tuple[int, ...]) -> int:
        """Return the replicas' part with each field renamed and moved to its new position."""
        renamed, part = self.replica, 0
        for field, target in zip(fields, self._targets, strict=True):
            part |= renamed[field] << target
        return part

    def _rename_replica(self, field: int) -> int:
        replica = self._packing.unpack_replica(0, field)
        return self._packing.pack_replica(
            replica._replace(leader=self._name(replica.leader), isr=self._names(replica.isr))
        )

    def _rename_quorum(self, field: int) -> int:
        quorum = self._packing.unpack_quorum(field)
        requests = tuple(
            LeaderAndIsr(epoch, self._name(leader), self._names(isr))
            for epoch, leader, isr in quorum.requests
        )
        return self._packing.pack_quorum(
            Quorum(requests, self._names(quorum.isr), quorum.next_record_id)
        )

    def _name(self, name: int) -> int:
        return NONE if name == NONE else self.order[name]

    def _names(self, isr: frozenset[int]) -> frozenset[int]:
        return frozenset(self.order[name] for name in isr)


def renamings(packing: Packing, *, symmetric: bool) -> list[Renaming]:
    """Return all renamings, or without `symmetric` only the identity."""
    names = range(packing.size.replicas)
    orders = permutations(names) if symmetric else [tuple(names)]
    return [Renaming(packing, order) for order in orders]
