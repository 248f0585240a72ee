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
    """Where the checker looks; None leaves it to others."""
    prologue: tuple[str, ...] = ()
    """What has happened before the checker begins to look."""
    only_stories: bool = False
    """True where what must come together is too rare for a few hundred random runs."""

    @property
    def finder(self) -> str:
        """Who is expected to find it."""
        if self.bounds is not None:
            return "checker"
        return "stories" if self.only_stories else "simulator"
