"""Find the undamaged replicas of a damaged partition, so that no user deletes the last good copy.

Invariant: a replica counts as undamaged only if it has all committed records and the audit found
no damage in its log.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from tidelog.apps.audit.report.findings import Finding
from tidelog.apps.audit.report.kinds import COPY, KINDS


class Mending(NamedTuple):
    """A partition with damaged replicas that must be copied again."""

    topic: str
    partition: int
    damaged: list[str]
    sound: list[str]

    @property
    def text(self) -> str:
        name = f"{self.topic}-{self.partition}"
        if not self.sound:
            return f"{name}: no replica is undamaged. Move nothing away; keep a copy of each."
        sound, damaged = " and ".join(self.sound), " and ".join(self.damaged)
        return (
            f"{name}: undamaged on {sound}. While its broker runs and leads the partition, stop the"
            f" brokers of {damaged}, move this partition's folders away there, and start them: they"
            f" copy the log again. While the broker of {sound} is down, do not move any folder."
        )

    def as_data(self) -> dict[str, Any]:
        return {**self._asdict(), "text": self.text}


def mendings(findings: Iterable[Finding], whole: dict[tuple[str, int], list[str]]) -> list[Mending]:
    """Return, for each partition with damaged replicas, which to copy and from which replica.

    `whole` lists, by partition, the replicas that have all committed records.
    """
    damaged: dict[tuple[str, int], set[str]] = {}
    for finding in findings:
        if KINDS[finding.kind].advice == COPY:
            damaged.setdefault((finding.topic, finding.partition), set()).add(finding.replica)
    return [
        Mending(
            *key,
            sorted(bad),
            [replica for replica in whole.get(key, []) if replica not in bad],
        )
        for key, bad in sorted(damaged.items())
    ]
