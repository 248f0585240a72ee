"""Findings of the audit: damage and notices, each with its exact place."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tidelog.apps.audit.report.kinds import DAMAGE, KINDS
from tidelog.apps.audit.scan.summary import Remark
from tidelog.core.storage import layout


class Finding(NamedTuple):
    """One damage or notice, with its file, position and offsets."""

    kind: str
    replica: str
    topic: str
    partition: int
    file: str
    """Path relative to the replica's log directory."""
    position: int
    """Byte position in the file; -1 if it does not apply."""
    first_offset: int
    last_offset: int
    """Both are -1 if the finding is not about offsets."""
    text: str

    @property
    def severity(self) -> str:
        return KINDS[self.kind].severity

    @property
    def is_damage(self) -> bool:
        return self.severity == DAMAGE

    def as_data(self) -> dict[str, Any]:
        kind = KINDS[self.kind]
        return {
            "kind": self.kind,
            "severity": kind.severity,
            **{name: value for name, value in self._asdict().items() if name != "kind"},
            "meaning": kind.meaning,
            "advice": kind.advice,
        }


class Place(NamedTuple):
    """The replica, and if known the partition, that findings belong to."""

    replica: str
    topic: str = ""
    partition: int = -1

    @property
    def folder(self) -> str:
        return f"{self.topic}-{self.partition}/" if self.topic else ""

    def finding(
        self,
        kind: str,
        file: str,
        text: str,
        *,
        position: int = -1,
        offsets: tuple[int, int] = (-1, -1),
    ) -> Finding:
        """Return a finding about a file of this place."""
        path = f"{self.folder}{file}"
        return Finding(kind, *self, path, position, *offsets, text)

    def remarked(self, remarks: Iterable[Remark], file: str = "") -> list[Finding]:
        """Convert remarks of a single file or stretch to findings."""
        return [
            self.finding(
                each.kind,
                each.file or file,
                each.text,
                position=each.position,
                offsets=(each.first, each.last),
            )
            for each in remarks
        ]


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings without duplicates, damage first, then sorted by place."""
    return sorted(
        dict.fromkeys(findings),
        key=lambda f: (not f.is_damage, f.topic, f.partition, f.replica, f.file, f.position),
    )


Explains = Callable[[Finding, Finding], bool]


def _touch(one: Finding, two: Finding) -> bool:
    return one.first_offset <= two.last_offset and two.first_offset <= one.last_offset


def _touch_or_follow(cause: Finding, each: Finding) -> bool:
    """Return whether the cause covers the finding's offsets or the offset before them.

    A sequence number looks wrong if its batch, or the batch before it, was replaced.
    """
    return _touch(cause, each._replace(first_offset=each.first_offset - 1))


def _same_segment(cause: Finding, each: Finding) -> bool:
    stem = each.file.removesuffix(layout.TIME_INDEX)
    return cause.position >= 0 and cause.file == stem + layout.LOG


_EXPLAINED: dict[str, tuple[str, Explains]] = {
    # Other replicas show that the epoch of a batch is wrong, so the checkpoint is right.
    "epoch-checkpoint": (
        "epoch-order",
        lambda cause, each: each.last_offset >= 0 and _touch(cause, each),
    ),
    # Replaced records have other timestamps and sequence numbers.
    "time-index": ("replica-divergence", _same_segment),
    "transaction-index": ("replica-divergence", _touch),
    "sequence-gap": ("replica-divergence", _touch_or_follow),
    "sequence-repeat": ("replica-divergence", _touch_or_follow),
}


def without_consequences(findings: list[Finding]) -> list[Finding]:
    """Return the findings that no other finding explains."""

    def explained(each: Finding) -> bool:
        if each.kind not in _EXPLAINED:
            return False
        kind, explains = _EXPLAINED[each.kind]
        return any(cause.kind == kind and explains(cause, each) for cause in findings)

    return [each for each in findings if not explained(each)]
