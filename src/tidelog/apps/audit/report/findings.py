"""Findings of the audit: damage and notices, each with its exact place."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from tidelog.apps.audit.report.kinds import DAMAGE, KINDS
from tidelog.apps.audit.scan.summary import Remark


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
