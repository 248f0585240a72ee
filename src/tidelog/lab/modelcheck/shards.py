"""The states of a search, distributed over processes by hash.

A shard owns the states whose hash selects it: only this shard stores their parents and expands
them. Each level has two phases. First, every shard expands its frontier and sends the states it
found to their owners. Then every owner admits the states that are new. The processes are forked
once, in the middle of the search. So they inherit the states seen so far and the model's filled
tables.
"""

import multiprocessing
import pickle
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Generic, Protocol, TypeVar

S = TypeVar("S")

HASH_PRIME = 1_000_003
"""Packed states differ in high bits as often as in low bits; a prime modulus uses all bits."""


class Expandable(Protocol[S]):
    """The part of a model that a shard uses."""

    invariants: tuple[str, ...]
    goals: tuple[str, ...]

    def next_states(self, state: S) -> Iterable[S]: ...

    def violated(self, state: S) -> Collection[str]: ...

    def reached(self, state: S) -> Collection[str]: ...

    def share(self, state: S) -> object: ...


@dataclass(slots=True)
class Level(Generic[S]):
    """The result of one level: new states, the smallest that breaks each invariant, goals met."""

    states: int = 0
    broken: dict[str, S] = field(default_factory=dict)
    goals: set[str] = field(default_factory=set)

    def add(self, other: "Level[S]") -> None:
        self.states += other.states
        self.goals |= other.goals
        for invariant, state in other.broken.items():
            self.broken[invariant] = _smaller(state, self.broken.get(invariant, state))


def _smaller(one: Any, other: Any) -> Any:
    return one if one < other else other


def owner(share: object, shards: int) -> int:
    """Return the index of the shard that owns states with this `share`."""
    return hash(share) % HASH_PRIME % shards


class Shard(Generic[S]):
    """The states of one process: their parents, and the sorted frontier to expand next."""

    def __init__(self, model: Expandable[S]) -> None:
        self.model = model
        self.parents: dict[S, S | None] = {}
        self.frontier: list[S] = []
        self._goals_left = set(model.goals)

    def keep_share(self, index: int, shards: int) -> None:
        """Drop frontier states of other shards. All states seen stay known; that does no harm."""
        self.frontier = [s for s in self.frontier if owner(self.model.share(s), shards) == index]

    def expand(self, shards: int) -> list[dict[S, S | None]]:
        """Return the new successors of the frontier, by owner, with their smallest parent here."""
        next_states, parents = self.model.next_states, self.parents
        found: list[dict[S, S | None]] = [{} for _ in range(shards)]
        if shards == 1:
            new = found[0]
            for state in self.frontier:
                for successor in next_states(state):
                    if successor not in parents and successor not in new:
                        new[successor] = state
            return found
        seen: set[S] = set()
        share = self.model.share
        for state in self.frontier:
            for successor in next_states(state):
                if successor not in seen and successor not in parents:
                    seen.add(successor)
                    found[owner(share(successor), shards)][successor] = state
        return found

    def admit(self, arrivals: list[dict[S, S | None]]) -> Level[S]:
        """Add the new states among those found for this shard, and check each of them once."""
        parents = self.parents
        new = {s: parent for s, parent in arrivals[0].items() if s not in parents}
        for found in arrivals[1:]:
            for state, parent in found.items():
                if state not in parents:
                    known = new.setdefault(state, parent)
                    if parent != known:
                        new[state] = _smaller(parent, known)
        parents.update(new)
        self.frontier = sorted(new)  # type: ignore[type-var]
        return self._checked(Level(len(new)))

    def _checked(self, level: Level[S]) -> Level[S]:
        violated, reached = self.model.violated, self.model.reached
        for state in self.frontier:
            for invariant in violated(state):
                level.broken.setdefault(invariant, state)
            if self._goals_left:
                level.goals.update(self._goals_left.intersection(reached(state)))
                self._goals_left -= level.goals
        return level


def _serve(shard: Shard[Any], index: int, shards: int, pipe: Connection) -> None:
    """Run a worker: expand, send, admit and report each level, then answer parent queries."""
    started = time.process_time()
    shard.keep_share(index, shards)
    while (order := pipe.recv()) == "expand":
        found = shard.expand(shards)
        own, found[index] = found[index], {}
        pipe.send([pickle.dumps(part, pickle.HIGHEST_PROTOCOL) for part in found])
        arrivals = [pickle.loads(part) for part in pipe.recv()]
        pipe.send(shard.admit([own, *arrivals]))
    while order != "close":
        pipe.send(shard.parents[pipe.recv()])
        order = pipe.recv()
    pipe.send(time.process_time() - started)


class ShardPool(Generic[S]):
    """The worker processes, and the exchange of states between them."""

    def __init__(self, shard: Shard[S], shards: int) -> None:
        context = multiprocessing.get_context("fork")
        self._model = shard.model
        self._pipes: list[Connection] = []
        self._processes = []
        for index in range(shards):
            ours, theirs = context.Pipe()
            self._pipes.append(ours)
            process = context.Process(
                target=self._begin, args=(shard, index, shards, theirs), daemon=True
            )
            process.start()
            theirs.close()
            self._processes.append(process)

    def _begin(self, shard: Shard[S], index: int, shards: int, pipe: Connection) -> None:
        for inherited in self._pipes:  # otherwise the workers never see that the coordinator died
            inherited.close()
        _serve(shard, index, shards, pipe)

    def next_level(self) -> Level[S]:
        for pipe in self._pipes:
            pipe.send("expand")
        found = [self._receive(pipe) for pipe in self._pipes]
        for index, pipe in enumerate(self._pipes):
            pipe.send([parts[index] for sender, parts in enumerate(found) if sender != index])
        level: Level[S] = Level()
        for pipe in self._pipes:
            level.add(self._receive(pipe))
        return level

    def _receive(self, pipe: Connection) -> Any:
        try:
            return pipe.recv()
        except EOFError:
            raise RuntimeError("a worker of the search died; its own error is above") from None

    def parent(self, state: S) -> S | None:
        pipe = self._pipes[owner(self._model.share(state), len(self._pipes))]
        pipe.send("parent")
        pipe.send(state)
        parent: S | None = pipe.recv()
        return parent

    def close(self) -> float:
        for pipe in self._pipes:
            pipe.send("close")
        seconds = sum(pipe.recv() for pipe in self._pipes)
        for process in self._processes:
            process.join()
        return float(seconds)

    def abandon(self) -> None:
        for process in self._processes:
            if process.is_alive():
                process.terminate()
                process.join()
        for pipe in self._pipes:
            pipe.close()
