"""Report batches that differ between replicas, once for each range and each wrong replica.

A replica is wrong if it differs from most others. If there is no majority, it is wrong if it
differs from the reference log. Offsets with damage that is already reported are skipped.
"""

from collections import Counter
from typing import NamedTuple

from tidelog.apps.audit.checks.lineage_fork import Agreement, Side
from tidelog.apps.audit.checks.replica_log import Cleaning, ReplicaLog
from tidelog.core.record.record_batch import CONTROL, DELETE_HORIZON


class Bounds(NamedTuple):
    """The offsets within which a replica is compared."""

    replica: str
    start: int
    until: int


class Compared(NamedTuple):
    """A partition with several replicas to compare."""

    topic: str
    partition: int
    sides: list[Side]
    agreement: Agreement

    def bounds(self) -> list[Bounds]:
        """Return, by replica, the range from its first segment to the end of its agreement."""
        return [
            Bounds(
                side.log.replica,
                side.log.segments[0].base_offset if side.log.segments else 0,
                self.agreement.until[side.log.replica],
            )
            for side in self.sides
        ]

    def is_the_same(self) -> bool:
        """Return whether digests show that all replicas have the same batches."""
        whole = {
            (side.log.digest, side.log.batches, side.log.log_end, bounds.start, bounds.until)
            for side, bounds in zip(self.sides, self.bounds(), strict=True)
        }
        return len(whole) == 1


class Copy(NamedTuple):
    """A replica's copy of a batch."""

    last_offset: int
    leader_epoch: int
    crc: int
    segment: str
    position: int
    records: int = 0
    attributes: int = 0

    @property
    def identity(self) -> tuple[int, int, int]:
        return self[:3]


class Differing(NamedTuple):
    """An offset at which the replicas do not all have the same batch."""

    base_offset: int
    copies: dict[str, Copy]


class _Fault(NamedTuple):
    kind: str
    first: int
    last: int
    segment: str
    position: int
    text: str
    whole: bool = False
    """Whether a whole segment is missing; then gaps between its batches belong to the range."""


def report_differences(compared: Compared, differing: list[Differing]) -> None:
    """Add findings about the differing batches to the logs of the partition."""
    logs = {side.log.replica: side.log for side in compared.sides}
    cleaning = compared.sides[0].log.cleaning
    faults: dict[str, list[_Fault]] = {}
    for each in differing:
        credible = {
            name: copy
            for name, copy in each.copies.items()
            if not logs[name].has_damage_in(
                each.base_offset, max(each.base_offset, copy.last_offset)
            )
        }
        last = max(copy.last_offset for copy in each.copies.values())
        covering = [
            name
            for name, start, until in compared.bounds()
            if start <= each.base_offset
            and until > last
            and (name in credible or not logs[name].has_damage_in(each.base_offset, last))
        ]
        with_other_starts = _with_other_starts(logs, each.base_offset, last, credible, covering)
        if compared.agreement.reference.log.replica in credible and len(with_other_starts) == len(
            credible
        ):
            with_other_starts = []
        if with_other_starts and len(with_other_starts) >= len(credible):
            for name, copy in credible.items():
                text = f"batches start at other offsets than on {', '.join(with_other_starts)}"
                place = (copy.last_offset, copy.segment, copy.position, text)
                kind = _kind(compared, each.base_offset)
                faults.setdefault(name, []).append(_Fault(kind, each.base_offset, *place))
            continue
        for name, fault in _faults(compared, each.base_offset, credible, covering):
            here = credible[name].last_offset if name in credible else fault.last
            if here < fault.last and logs[name].has_damage_in(here + 1, fault.last):
                fault = fault._replace(last=here)
            lost = "" if fault.segment else _missing_segment(logs, name, credible)
            if lost:
                fault = fault._replace(text=f"{lost} is missing here", whole=True)
            elif _is_cleaning(each.base_offset, fault, credible, cleaning):
                fault = fault._replace(kind="compacted-apart")
            faults.setdefault(name, []).append(fault)
    for name, found in faults.items():
        _add_merged(logs[name], found)


def _kind(compared: Compared, base_offset: int) -> str:
    committed = base_offset < compared.agreement.committed
    return "replica-divergence" if committed else "uncommitted-differs"


def _with_other_starts(
    logs: dict[str, ReplicaLog],
    base_offset: int,
    last: int,
    copies: dict[str, Copy],
    covering: list[str],
) -> list[str]:
    """Return replicas that have these offsets, but in batches that begin elsewhere."""
    return [
        name
        for name in covering
        if name not in copies
        and base_offset >= logs[name].cleaning.upto
        and logs[name].holds(base_offset, last)
    ]


def _missing_segment(logs: dict[str, ReplicaLog], name: str, copies: dict[str, Copy]) -> str:
    """Return a segment that this replica lacks, although another has it with records.

    Both must be cleaned up to the same offset. Tombstones, markers and empty batches do not
    count: each replica removes them at its own time.
    """
    here = logs[name]
    files = {segment.file for segment in here.segments}
    found = (
        f"{copy.segment} of {other}"
        for other, copy in copies.items()
        if copy.segment not in files
        and copy.records > 0
        and not copy.attributes & (DELETE_HORIZON | CONTROL)
        and logs[other].clean
        and here.clean
        and copy.last_offset < logs[other].cleaner_checkpoint == here.cleaner_checkpoint
    )
    return next(found, "")


def _is_cleaning(
    base_offset: int, fault: _Fault, copies: dict[str, Copy], cleaning: Cleaning
) -> bool:
    """Return whether cleaners explain a difference.

    One cleaner may be ahead of another, or have set the delete horizon of tombstones. A cleaner
    only removes records, so copies with equal record counts must have the same records.
    """
    if fault.kind == "epoch-order" or base_offset >= cleaning.upto:
        return False
    counts = {copy.records for copy in copies.values()}
    noted = any(copy.attributes & DELETE_HORIZON for copy in copies.values())
    return not fault.segment or len(counts) > 1 or noted


def _faults(
    compared: Compared, base_offset: int, copies: dict[str, Copy], covering: list[str]
) -> list[tuple[str, _Fault]]:
    reference = compared.agreement.reference.log.replica
    counted = Counter(copy.identity for copy in copies.values())
    if not counted:
        return []
    most = max(counted.values())
    leading = [identity for identity, votes in counted.items() if votes == most]
    right = leading[0]
    tie = len(copies) == len(leading) == 2
    if len(leading) > 1 and reference in copies:
        right = copies[reference].identity
    others = sorted(name for name, copy in copies.items() if copy.identity == right)
    found = []
    for name in covering:
        copy = copies.get(name)
        if copy is None:
            text = f"missing here; {', '.join(others)} have them"
            found.append((name, _Fault("replica-divergence", base_offset, right[0], "", -1, text)))
        elif copy.identity != right:
            kind, what = _what(copy, right)
            if kind == "replica-divergence" or base_offset >= compared.agreement.committed:
                kind = _kind(compared, base_offset)
            last = max(copy.last_offset, right[0])
            undecided = "; only two replicas, so it is unknown which one is right" if tie else ""
            text = f"{what} than on {', '.join(others)}{undecided}"
            fault = _Fault(kind, base_offset, last, copy.segment, copy.position, text)
            found.append((name, fault))
    return found


def _what(copy: Copy, right: tuple[int, int, int]) -> tuple[str, str]:
    if copy.crc == right[2] and copy.last_offset == right[0]:
        epochs = f"({copy.leader_epoch} here, {right[1]} there)"
        return "epoch-order", f"another leader epoch {epochs}"
    if copy.last_offset != right[0]:
        return "replica-divergence", f"batches end at other offsets ({copy.last_offset} here)"
    return "replica-divergence", "other records"


def _add_merged(log: ReplicaLog, faults: list[_Fault]) -> None:
    """Add the faults to the log; adjacent offsets with the same fault become one finding."""
    merged: list[_Fault] = []
    for fault in sorted(faults, key=lambda each: (each.kind, each.first)):
        apart = fault.kind == "compacted-apart"  # many ranges with one reason
        same = merged[-1:] and merged[-1].kind == fault.kind
        whole = fault.whole and same and merged[-1].text == fault.text
        if same and (merged[-1].last + 1 >= fault.first or apart or whole):
            merged[-1] = merged[-1]._replace(last=max(merged[-1].last, fault.last))
        else:
            merged.append(fault)
    for fault in merged:
        log.findings = [
            each
            for each in log.findings
            if each.kind != "offset-jump" or (each.first_offset, each.last_offset) != fault[1:3]
        ]
        log.add(
            log.place.finding(
                fault.kind,
                fault.segment,
                f"offsets {fault.first} to {fault.last}: {fault.text}",
                position=fault.position,
                offsets=(fault.first, fault.last),
            )
        )
