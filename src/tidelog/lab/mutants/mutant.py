"""What a mutant is."""

from dataclasses import dataclass

from tidelog.lab.modelcheck.shipped.cluster_model import Bounds
from tidelog.lab.mutants.universe import Change


@dataclass(frozen=True, slots=True)
class Mutant:
    """A rule taken out."""

    name: str
    rule: str
    source: str
    """Where it is known from: a bug of Kafka's, or a published model."""
    changes: tuple[Change, ...]
    bounds: Bounds | None = None
    """Where the checker looks; None leaves it to the simulator."""
    prologue: tuple[str, ...] = ()
    """What has happened before the checker begins to look."""

    @property
    def finder(self) -> str:
        """Who is expected to find it."""
        return "simulator" if self.bounds is None else "checker"
