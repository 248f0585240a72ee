"""Findings: what is wrong or worth knowing, and exactly where."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from tidelog.apps.audit.report.kinds import DAMAGE, KINDS
from tidelog.apps.audit.scan.summary import Remark


class Finding(NamedTuple):
    """One of them."""

    kind: str
    replica: str
    topic: str
    partition: int
    file: str
    """Below the replica's log directory."""
    position: int
    """Byte in the file; -1 where none matters."""
    first_offset: int
    last_offset: int
    """Both -1 where no offsets are concerned."""
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
    """Whose findings."""

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
        """One about a file of this place."""
        path = f"{self.folder}{file}"
        return Finding(kind, *self, path, position, *offsets, text)

    def remarked(self, remarks: Iterable[Remark], file: str = "") -> list[Finding]:
        """What a single file or stretch showed by itself."""
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
    """Damage first, then by place; each once."""
    return sorted(
        dict.fromkeys(findings),
        key=lambda f: (not f.is_damage, f.topic, f.partition, f.replica, f.file, f.position),
    )
