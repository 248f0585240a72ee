"""Write a failing run as a story, as far as a story can express it.

A run has long polls, sessions and heartbeats. A story (scenarios/README.md) has one partition,
and only its commands happen. So the recorder watches the replicas of the failing partition and
writes the commands that cause the same changes: a produce that was appended, a fetch that
changed the leader's or the follower's state, a crash, a start, a decision of the controller.
The recorder does not note when each broker learns of an election: in the story all learn of it at
once. It leaves out events that no command expresses, so an invariant that was violated in the run
may hold in the story. `write_stories` therefore yields several versions; the caller plays them to
find one that shows the violation (`tidelog story check`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tidelog.core.controller.metadata.registrations import PartitionRegistration
from tidelog.core.node import events as on
from tidelog.core.node.measuring.journal import Note
from tidelog.core.node.messages import Fetch, Produce
from tidelog.core.record.record_batch import parse
from tidelog.core.replication.events import ACKS_ALL
from tidelog.core.replication.replica import Replica
from tidelog.core.types import BrokerId, Offset, TopicPartition
from tidelog.lab.historical_truncation import POLICIES
from tidelog.lab.sim.machine.process import Process
from tidelog.lab.sim.simulation import TOPIC, Simulation, Violation
from tidelog.lab.sim.swarm import Plan

NEEDS_QUIET = ("logs-agree", "settles")
"""Invariants that are checked at the end, when the cluster has settled."""


@dataclass(slots=True)
class _Before:
    """State of a replica before a step."""

    log_end_offset: int
    high_watermark: int
    followers: dict[BrokerId, int | None]


class StoryRecorder:
    """Observes a run together with the oracle, and collects the story's steps."""

    def __init__(self, simulation: Simulation, partition: TopicPartition) -> None:
        self.steps: list[str] = []
        self.steps_at_failure: int | None = None
        self._partition = partition
        self._oracle = simulation.oracle
        self._names: dict[BrokerId, str] = {}
        self._known: PartitionRegistration | None = None
        self._records = 0
        self._fenced: set[BrokerId] = set()
        self._stopped_at: dict[BrokerId, tuple[int, int]] = {}
        """Index of its crash among the steps, and its log end then."""
        self._event: tuple[type, tuple[object, ...]] | None = None
        self._before: _Before | None = None

    # -- observer --------------------------------------------------------------------------

    def about_to_step(self, process: Process, kind: type, fields: tuple[object, ...]) -> None:
        self._event = kind, fields
        replica = self._replica(process)
        self._before = None if replica is None else _state_of(replica)

    def _replica(self, process: Process) -> Replica | None:
        hosted = None if process.node is None else process.node.replicas.get(self._partition)
        return None if hosted is None else hosted.partition

    def stepped(self, process: Process) -> None:
        self._oracle.stepped(process)
        replica, before, event = self._replica(process), self._before, self._event
        if replica is None or before is None or event is None or process.id not in self._names:
            return
        kind, fields = event
        if kind is on.RequestReceived:
            self._handled(process.id, replica, before, fields[2])
        elif kind is on.ResponseReceived and not replica.is_leader:
            now = _state_of(replica)
            if (now.log_end_offset, now.high_watermark) != (
                before.log_end_offset,
                before.high_watermark,
            ):
                self._fetched(process.id)

    def _handled(
        self, broker: BrokerId, replica: Replica, before: _Before, request: object
    ) -> None:
        if isinstance(request, Produce) and replica.log_end_offset > before.log_end_offset:
            self._produced(broker, request)
        elif isinstance(request, Fetch) and request.replica in self._names:
            follower = request.replica
            assert follower is not None
            if _state_of(replica).followers.get(follower) != before.followers.get(follower):
                self._add_step(f"fetch {self._names[follower]} lose=reply")

    def _produced(self, broker: BrokerId, request: Produce) -> None:
        count = parse(request.partitions[0].records).count
        first = self._records + 1
        self._records += count
        name = f"m{first}" if count == 1 else f"m{first}..m{self._records} batch=true"
        acks = "" if request.acks == ACKS_ALL else f" acks={request.acks}"
        known = self._known
        stale = known is not None and known.leader != broker
        to = f" to={self._names[broker]}" if stale else ""
        self._add_step(f"produce {name}{acks}{to}")

    def _fetched(self, broker: BrokerId) -> None:
        name = self._names[broker]
        if self.steps and self.steps[-1] == f"fetch {name} lose=reply":
            self.steps.pop()
        self._add_step(f"fetch {name}")

    def stopped(self, process: Process, *, clean: bool) -> None:
        replica = self._replica(process)
        if process.id in self._names:
            end = 0 if replica is None else replica.log_end_offset
            self._stopped_at[process.id] = len(self.steps), end
            self._add_step(f"crash {self._names[process.id]}")
        self._oracle.stopped(process, clean=clean)

    def emptied(self, process: Process, partition: TopicPartition) -> None:
        """Notify the oracle. The next `started` writes the step `lose-unflushed`."""
        self._oracle.emptied(process, partition)

    def is_damaged(self, partition: TopicPartition) -> bool:
        return self._oracle.is_damaged(partition)

    def may_damage(self, process: Process, partition: TopicPartition) -> bool:
        return self._oracle.may_damage(process, partition)

    def damaged(self, process: Process, partition: TopicPartition) -> None:
        """Notify the oracle. The next `started` writes `lose-unflushed` if records are missing."""
        self._oracle.damaged(process, partition)

    def log_end(self, process: Process, partition: TopicPartition) -> Offset:
        return self._oracle.log_end(process, partition)

    def may_put_back(
        self, process: Process, partition: TopicPartition, log_end_offset: Offset
    ) -> bool:
        return self._oracle.may_put_back(process, partition, log_end_offset)

    def outdated(self, process: Process, partition: TopicPartition) -> None:
        self._oracle.outdated(process, partition)

    def noted(self, process: Process, notes: Sequence[Note]) -> None:
        self._oracle.noted(process, notes)

    def started(self, process: Process) -> None:
        self._oracle.started(process)
        if process.id not in self._stopped_at:
            return
        index, end = self._stopped_at.pop(process.id)
        shadow = self._oracle.truths[self._partition].shadows[process.id]
        name = self._names[process.id]
        if shadow.end < end and index < len(self.steps):
            kept = len({entry.base for entry in shadow.entries})
            self.steps[index] = f"lose-unflushed {name}" + (f" keep={kept}" if kept else "")
        self._add_step(f"start {name}")

    # -- the controller --------------------------------------------------------------------

    def store_changed(self) -> None:
        self._oracle.store_changed()
        new = self._oracle.truths[self._partition].registration
        old, self._known = self._known, new
        if new is None or new is old:
            return
        if old is None:
            self._name(new)
            return
        if new.leader is not None and new.leader != old.leader:
            self._elected(new)
        for broker in old.isr:
            if broker not in new.isr and broker not in (old.leader, new.leader):
                self._fence(broker)
        for broker in new.isr:
            if broker not in old.isr and broker != new.leader and broker in self._names:
                self._join(broker)

    def _name(self, first: PartitionRegistration) -> None:
        order = [first.leader, *(b for b in first.replicas if b != first.leader)]
        for letter, broker in zip("ABCDEFGHI", order, strict=False):
            if broker is not None:
                self._names[broker] = letter

    def _elected(self, new: PartitionRegistration) -> None:
        if new.leader not in self._names:
            return
        name = self._names[new.leader]
        if new.leader in self._fenced:
            self._fenced.discard(new.leader)
            self._add_step(f"unfence {name}")
        unclean = new.unclean_election
        uncleanly = unclean is not None and unclean.leader_epoch == new.leader_epoch
        self._add_step(f"elect {name}" + (" unclean" if uncleanly else ""))

    def _fence(self, broker: BrokerId) -> None:
        if broker in self._names and broker not in self._fenced:
            self._fenced.add(broker)
            self._add_step(f"fence {self._names[broker]}")

    def _join(self, broker: BrokerId) -> None:
        name = self._names[broker]
        if broker in self._fenced:
            self._fenced.discard(broker)
            self._add_step(f"unfence {name}")
        self._add_step(f"fetch {name} times=2")
        self._add_step("ask-isr")

    def _add_step(self, step: str) -> None:
        self.steps.append(step)

    @property
    def names(self) -> list[str]:
        return list(self._names.values())


def _state_of(replica: Replica) -> _Before:
    progress = {broker: f.log_end_offset for broker, f in replica.followers.items()}
    return _Before(replica.log_end_offset, replica.high_watermark, progress)


def _partition_of(violation: Violation) -> TopicPartition:
    """Return the partition of a violation: its text begins with the name."""
    name = violation.what.partition(":")[0]
    topic, dash, number = name.rpartition("-")
    return TopicPartition(TOPIC, int(number) if dash and topic == TOPIC else 0)


def write_stories(plan: Plan, policy: str, violation: Violation) -> Iterator[str]:
    """Yield stories of how `plan` violates an invariant, the likeliest first.

    They differ in how soon a high watermark is checkpointed, which is fixed for a whole story.
    """
    simulation = Simulation(plan, POLICIES[policy])
    recorder = StoryRecorder(simulation, _partition_of(violation))
    simulation.site.observer = recorder
    simulation.site.listener = recorder.about_to_step
    simulation.site.store.on_change = recorder.store_changed
    simulation.on_violation = _mark(recorder, violation.invariant)
    simulation.run()
    end = recorder.steps_at_failure
    steps = recorder.steps if end is None else recorder.steps[:end]
    for checkpoints in ("slow-checkpoints=true ", ""):
        cluster = f"cluster {' '.join(recorder.names)} {checkpoints}{_options(plan)}"
        lines = [*_head(plan, policy, violation), cluster, *steps, *_tail(violation)]
        yield "\n".join(lines)


def _mark(recorder: StoryRecorder, invariant: str) -> Callable[[str], None]:
    def note(broken: str) -> None:
        if broken == invariant and recorder.steps_at_failure is None:
            recorder.steps_at_failure = len(recorder.steps)

    return note


def _options(plan: Plan) -> str:
    options = [f"min.insync.replicas={plan.min_insync_replicas}", "drop-unclean-stops=true"]
    if plan.unclean:
        options.append("unclean=true")
    if plan.flush_before_ack:
        options.append("flush=1")
    return " ".join(options)


def _head(plan: Plan, policy: str, violation: Violation) -> list[str]:
    return [
        f"# Seed {plan.seed} breaks {violation.invariant} under {policy}",
        "#",
        "# Written by the simulator. The violation:",
        *(f"# {line}" for line in violation.what.splitlines()),
        "",
        f"policies: {policy}",
        "",
    ]


def _tail(violation: Violation) -> list[str]:
    if violation.invariant in NEEDS_QUIET:
        return ["settle", "expect violated logs-agree", ""]
    return [f"expect violated {violation.invariant}", ""]
