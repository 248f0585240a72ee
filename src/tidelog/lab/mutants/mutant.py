"""A mutant: a copy of the whole package with some lines of its source changed.

A mutant must not need a switch in the shipped code, so it is made from the source text. Every
module of `tidelog` is loaded a second time under another root name, imports included, with the
changed lines. The old text must occur exactly once. If the source no longer has it, the mutant
fails to load, instead of running the unchanged code.
"""

import importlib
import importlib.util
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, TypeAlias

from tidelog.lab.modelcheck.shipped.cluster_model import Bounds
from tidelog.lab.modelcheck.shipped.lease_model import LeaseBounds
from tidelog.lab.modelcheck.transactions.model import TransactionBounds

AnyBounds: TypeAlias = Bounds | LeaseBounds | TransactionBounds
ROOT = "tidelog"
_IMPORT = re.compile(rf"^(\s*(?:from|import) ){ROOT}\b", re.MULTILINE)


class Change(NamedTuple):
    """A piece of a module's source text, and its replacement."""

    module: str
    old: str
    new: str


class StaleMutant(Exception):
    """The old text of a change does not occur exactly once in the source."""


class MutatedPackage(MetaPathFinder, Loader):
    """The package under another name, with changes. Use it as a context manager."""

    def __init__(self, name: str, changes: Sequence[Change]) -> None:
        self.root = f"{ROOT}_{re.sub('[^a-z0-9]+', '_', name.lower())}"
        self._changes: Mapping[str, list[Change]] = {
            module: [c for c in changes if c.module == module]
            for module in {c.module for c in changes}
        }

    def __enter__(self) -> "MutatedPackage":
        sys.meta_path.insert(0, self)
        for module in self._changes:
            self.load(module)  # detect a stale mutant now, not at its first use
        return self

    def __exit__(self, *_: object) -> None:
        sys.meta_path.remove(self)
        for name in [n for n in sys.modules if n == self.root or n.startswith(f"{self.root}.")]:
            del sys.modules[name]

    def load(self, module: str) -> ModuleType:
        """Return the copy of a module, by its name in the original package."""
        return importlib.import_module(self.root + module.removeprefix(ROOT))

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        """Find a module of the copy: its source is the original's file (import machinery)."""
        if fullname != self.root and not fullname.startswith(f"{self.root}."):
            return None
        original = importlib.util.find_spec(ROOT + fullname.removeprefix(self.root))
        if original is None or original.origin is None:
            return None
        is_package = original.submodule_search_locations is not None
        spec = ModuleSpec(fullname, self, origin=original.origin, is_package=is_package)
        spec.has_location = True
        return spec

    def exec_module(self, module: ModuleType) -> None:
        """Change the source text, then run it (import machinery)."""
        assert module.__spec__ is not None, "import always sets it"
        assert module.__spec__.origin is not None, "and we set its origin"
        text = Path(module.__spec__.origin).read_text()
        for change in self._changes.get(ROOT + module.__name__.removeprefix(self.root), ()):
            if (count := text.count(change.old)) != 1:
                found = f"the text to replace occurs {count} times, not once"
                raise StaleMutant(f"{change.module}: {found}: {change.old!r}")
            text = text.replace(change.old, change.new)
        text = _IMPORT.sub(rf"\g<1>{self.root}", text)
        exec(compile(text, module.__spec__.origin, "exec"), module.__dict__)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A variant of the code without one of its rules."""

    name: str
    rule: str
    source: str
    """The origin of the rule: a bug in Kafka or in this project, or a published model."""
    changes: tuple[Change, ...]
    bounds: AnyBounds | None = None
    """The bounds of the checker's search, whose class selects the model; None if the simulator or a
    story finds the mutant."""
    prologue: tuple[str, ...] = ()
    """The actions before the start of the checker's search."""
    only_stories: bool = False
    """True if the events that must coincide are too rare for a few hundred random runs."""
    first_seed: int = 0
    """Where the simulator's search starts, if few seeds find the mutant."""

    @property
    def finder(self) -> str:
        """The tool that is expected to find the mutant."""
        if self.bounds is not None:
            return "checker"
        return "stories" if self.only_stories else "simulator"


def mutant(
    name: str,
    rule: str,
    source: str,
    *changes: Change,
    bounds: AnyBounds | None = None,
    prologue: tuple[str, ...] = (),
    only_stories: bool = False,
    first_seed: int = 0,
) -> Mutant:
    """Return a mutant; the changes need no tuple around them."""
    return Mutant(name, rule, source, changes, bounds, prologue, only_stories, first_seed)
