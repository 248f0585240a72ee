"""The description of a mutant."""

from dataclasses import dataclass

from tidelog.lab.modelcheck.shipped.cluster_model import Bounds
from tidelog.lab.mutants.universe import Change


@dataclass(frozen=True, slots=True)
class Mutant:
    """A variant of the code without one of its rules."""

    name: str
    rule: str
    source: str
    """The origin of the rule: a bug in Kafka or in this project, or a published model."""
    changes: tuple[Change, ...]
    bounds: Bounds | None = None
    """The bounds of the checker's search; None if the simulator or a story finds the mutant."""
    prologue: tuple[str, ...] = ()
    """The actions before the start of the checker's search."""
    only_stories: bool = False
    """True if the events that must coincide are too rare for a few hundred random runs."""

    @property
    def finder(self) -> str:
        """The tool that is expected to find the mutant."""
        if self.bounds is not None:
            return "checker"
        return "stories" if self.only_stories else "simulator"
