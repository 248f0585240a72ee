"""Commands that print state; they change and judge nothing."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tidelog.core.storage import layout
from tidelog.core.storage.loss_ledger import read_lines
from tidelog.core.types import EpochEntry
from tidelog.lab.spec.snapshot import ReplicaSnapshot
from tidelog.lab.story.grammar import Step
from tidelog.lab.story.play import Command, Play, arguments
from tidelog.lab.story.stage.broker import StoryBroker
from tidelog.lab.story.stage.controller import OTHER
from tidelog.lab.story.stage.narration import format_offsets, members
from tidelog.lab.story.stage.records import format_log

ROLE_WIDTH = len("follower")


def state(play: Play, step: Step) -> None:
    """Print one line for each replica."""
    names = arguments(step, COMMANDS["state"].usage, 0)
    for broker in _replicas(play, names):
        play.world.add_line(f"{broker.name} {describe(play, broker)}")


def _replicas(play: Play, names: Sequence[str]) -> list[StoryBroker]:
    world = play.world
    if names:
        return [world.broker(name) for name in names]
    assigned = world.controller.partition.replicas
    every = world.brokers.values()
    return [broker for broker in every if broker.id in assigned or broker.shown == OTHER]


def describe(play: Play, broker: StoryBroker) -> str:
    """Return text such as `leader   epoch=0 LEO=2 HW=2 log=[m1@0 m2@0]`."""
    return describe_snapshot(role_of(broker), broker.snapshot(play.world.now_ms))


def describe_snapshot(role: str, snapshot: ReplicaSnapshot) -> str:
    """Return the text of `describe` for a role and a snapshot."""
    epoch = f"epoch={snapshot.leader_epoch} " if snapshot.alive else ""
    log = format_log(snapshot.log)
    opened = ",".join(f"{each}:{first}" for each, first in snapshot.open_transactions)
    text = f"{role.ljust(ROLE_WIDTH)} {epoch}{format_offsets(snapshot)}"
    return f"{text}{opened and f' open={opened}'} log=[{log}]"


def role_of(broker: StoryBroker) -> str:
    """Return `leader`, `follower`, `waiting` (without a leader), or `down`."""
    partition = broker.partition
    if not broker.alive:
        return "down"
    if partition is None or partition.leader is None:
        return "waiting"
    return "leader" if partition.is_leader else "follower"


def isr(play: Play, step: Step) -> None:
    """Print the controller's registration: leader, epoch, ISR, ELR and problems."""
    arguments(step, COMMANDS["isr"].usage, 0, 0)
    known = play.world.controller.partition
    leader = play.world.leader()
    text = f"leader={leader.name if leader else 'none'} epoch={known.leader_epoch}"
    text += f" ISR={_members(play, known.isr)}"
    if known.elr:
        text += f" ELR={_members(play, known.elr)}"
    health = _health(play)
    play.world.add_line(text + (f" ({', '.join(health)})" if health else ""))


def _health(play: Play) -> list[str]:
    """Return the problems an operator must see: offline, under min ISR, under-replicated (M16)."""
    known = play.world.controller.partition
    found = ["offline"] if known.leader is None else []
    if len(known.isr) < min(play.world.setup.min_insync_replicas, len(known.replicas)):
        found.append("under min ISR")
    if len(known.isr) < len(known.replicas):
        found.append("under-replicated")
    return found


def _members(play: Play, brokers: Sequence[int]) -> str:
    return members(play.world.labels[broker] for broker in brokers)


def epochs(play: Play, step: Step) -> None:
    """Print the leader epochs of each replica as epoch:start; `@` is for a record's epoch."""
    names = arguments(step, COMMANDS["epochs"].usage, 0)
    for broker in _replicas(play, names):
        entries = broker.snapshot(play.world.now_ms).epochs
        play.world.add_line(f"{broker.name} epochs=[{format_epochs(entries)}]")


def format_epochs(entries: Sequence[EpochEntry]) -> str:
    """Return leader epochs as `0:0 1:2`."""
    return " ".join(f"{entry.epoch}:{entry.start_offset}" for entry in entries)


def log(play: Play, step: Step) -> None:
    """Print one line for each record."""
    (name,) = arguments(step, COMMANDS["log"].usage, 1, 1)
    for entry in play.world.broker(name).snapshot(play.world.now_ms).log:
        play.world.add_line(f"{entry.offset} {entry.id} epoch={entry.epoch}")


def files(play: Play, step: Step) -> None:
    """Print the files on a broker's disk: segments by name, checkpoints with their content."""
    (name,) = arguments(step, COMMANDS["files"].usage, 1, 1)
    disk = play.world.broker(name).disk
    for path in sorted(disk.files):
        base = path.rpartition("/")[2]
        if base.endswith("-checkpoint"):
            rows = bytes(disk.files[path]).decode().splitlines()[2:]
            play.world.add_line(f"{base}: {', '.join(rows) or 'empty'}")
        elif layout.LOG in base or base == layout.CLEAN_SHUTDOWN:
            play.world.add_line(base)


def losses(play: Play, step: Step) -> None:
    """Print the records that truncations dropped, and how many of them were committed."""
    names = arguments(step, COMMANDS["losses"].usage, 0)
    for broker in _replicas(play, names):
        if broker.node is None:
            continue
        for loss in broker.node.losses.recent:
            last, committed = loss.end - 1, loss.committed
            kind = f"{committed} of them committed" if committed else "none of them committed"
            play.world.add_line(f"{broker.name} dropped offsets {loss.start} to {last}, {kind}")


def ledger(play: Play, step: Step) -> None:
    """Print the losses in the loss ledger on each broker's disk, also of brokers that are down."""
    names = arguments(step, COMMANDS["ledger"].usage, 0)
    labels = play.world.labels
    for broker in _replicas(play, names):
        for entry in map(json.loads, read_lines(broker.disk)):
            play.world.add_line(f"{broker.name} ledger: {describe_loss(entry, labels)}")


def describe_loss(entry: Mapping[str, Any], labels: Mapping[int, str]) -> str:
    """Return one entry of a loss ledger as a line."""
    if entry["event"] == "unclean_election":
        since = "" if entry["start"] is None else f" from offset {entry['start']} on"
        leader, epoch = labels[entry["leader"]], entry["leader_epoch"]
        return f"{leader} elected uncleanly in epoch {epoch}, may lack records{since}"
    cause = entry["cause"].replace("_", " ")
    if entry["start"] is None:
        return f"{cause}, HW {entry['high_watermark']}"
    counts = [
        f"{entry[name]} {what}"
        for name, what in (
            ("acked_1", "acked with acks=1"),
            ("acked_all", "acked with acks=all"),
            ("not_acked", "not acked"),
            ("acks_unknown", "unknown"),
        )
        if entry[name]
    ]
    epochs = f"epoch {entry['first_epoch']}"
    if entry["last_epoch"] != entry["first_epoch"]:
        epochs = f"epochs {entry['first_epoch']} to {entry['last_epoch']}"
    offsets = f"offsets {entry['start']} to {entry['end'] - 1} of {epochs}"
    committed = f"{entry['committed']} known to be committed"
    return f"{cause}, removed {offsets}: {', '.join((committed, *counts))}"


def note(play: Play, step: Step) -> None:
    """Print the text of the note."""
    play.world.add_line(step.text.partition(" ")[2])


COMMANDS: dict[str, Command] = {
    "state": Command(state, "state [A …]"),
    "isr": Command(isr, "isr"),
    "epochs": Command(epochs, "epochs [A …]"),
    "log": Command(log, "log A"),
    "files": Command(files, "files A"),
    "losses": Command(losses, "losses [A …]"),
    "ledger": Command(ledger, "ledger [A …]"),
    "note": Command(note, "note WORDS"),
}
"""The commands that only print."""
