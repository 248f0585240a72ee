"""Commands for faults of processes, power, clocks, files and the network, and their repair."""

from tidelog.core.node import events as on
from tidelog.core.storage import layout
from tidelog.core.types import Offset
from tidelog.lab.story.grammar import Step, StoryError
from tidelog.lab.story.play import Command, Play, arguments, boolean, number, unseen_by
from tidelog.lab.story.stage.broker import StoryBroker
from tidelog.lab.story.stage.controller import PARTITION
from tidelog.lab.story.stage.narration import CLIENT, CONTROLLER

# -- files of a broker that is down ------------------------------------------------------


EPOCH_MAX = 2**31 - 1
CHECKPOINTS = (layout.RECOVERY_POINTS, layout.HIGH_WATERMARKS, layout.LOG_STARTS)
"""Files of the whole broker; they are missing if the broker crashed before it wrote them."""


def tear(play: Play, step: Step) -> None:
    """Cut the last batch in half, as if only half of it reached the disk."""
    (name,) = arguments(step, COMMANDS["tear"].usage, 1, 1)
    broker = _down(play, name)
    if not broker.disk.tear():
        raise StoryError(f"{name} has no record to tear")
    play.world.add_line(f"{name} has half of its last batch")


def flip(play: Play, step: Step) -> None:
    """Flip one bit of a batch on disk."""
    name, offset, path = _batch(play, step)
    play.world.broker(name).disk.flip(path, offset)
    play.world.add_line(f"{name} has a bad bit in the batch with offset {offset}")


def zero(play: Play, step: Step) -> None:
    """Overwrite a batch on disk with zeros."""
    name, offset, path = _batch(play, step)
    play.world.broker(name).disk.zero(path, offset)
    play.world.add_line(f"{name} has zeros instead of the batch with offset {offset}")


def put_epoch(play: Play, step: Step) -> None:
    """Change the leader epoch of a batch; no checksum covers this field."""
    name, text, epoch = arguments(step, COMMANDS["put-epoch"].usage, 3, 3)
    broker, offset = _down(play, name), number(text, "offset")
    path = _segment(broker, offset)
    broker.disk.put_epoch(path, offset, number(epoch, "epoch", EPOCH_MAX))
    play.world.add_line(f"{name} has epoch {epoch} in the batch with offset {offset}")


def cut(play: Play, step: Step) -> None:
    """Truncate a segment before a batch."""
    name, offset, _ = _batch(play, step)
    cut_log(play.world.broker(name), offset)
    play.world.add_line(f"{name} has a segment that ends before offset {offset}")


def delete_segment(play: Play, step: Step) -> None:
    """Delete a segment and its indexes."""
    name, offset, path = _batch(play, step)
    disk = play.world.broker(name).disk
    stem = path.removesuffix(layout.LOG)
    for kind in layout.SEGMENT_KINDS:
        disk.delete(stem + kind)
    play.world.add_line(f"{name} lacks the segment with offset {offset}")


def delete_folder(play: Play, step: Step) -> None:
    """Delete the partition's folder, or everything that the broker has on disk."""
    (name,) = arguments(step, COMMANDS["delete-folder"].usage, 1, 1)
    broker = _down(play, name)
    everything = boolean(step.options.get("all", "false"), "all")
    for folder in broker.disk.list_dir("") if everything else [layout.partition_dir(PARTITION)]:
        broker.disk.delete_dir(folder)
        broker.disk.delete(folder)
    play.world.add_line(
        f"{name} lacks {'everything it had on disk' if everything else 'its folder'}"
    )


def break_disk(play: Play, step: Step) -> None:
    """Let the disk with the partition fail; the broker has another log directory."""
    (name,) = arguments(step, COMMANDS["break-disk"].usage, 1, 1)
    broker = play.world.broker(name)
    if not broker.other_disks:
        raise StoryError("brokers have one disk; begin with: cluster A B disks=2")
    broker.first_disk.broken = True
    play.world.add_line(f"the disk of {name} with the partition fails")


def repair_disk(play: Play, step: Step) -> None:
    """Repair the disk with the partition; the broker uses it after its next start."""
    (name,) = arguments(step, COMMANDS["repair-disk"].usage, 1, 1)
    play.world.broker(name).first_disk.broken = False
    play.world.add_line(f"the disk of {name} is repaired")


def put_file(play: Play, step: Step) -> None:
    """Replace the content of a file; `|` ends a line."""
    words = arguments(step, COMMANDS["put-file"].usage, 2)
    broker = _down(play, words[0])
    path = next((p for p in broker.disk.files if p.rpartition("/")[2] == words[1]), None)
    if path is None and words[1] in CHECKPOINTS:
        path = words[1]
    if path is None:
        raise StoryError(f"{words[0]} has no file {words[1]!r}; see: files {words[0]}")
    lines = " ".join(words[2:]).split(" | ")
    broker.disk.write(path, "".join(f"{line}\n" for line in lines).encode())


def _batch(play: Play, step: Step) -> tuple[str, int, str]:
    """Parse `A 3`: return a broker that is down, an offset in its log, and the batch's file."""
    name, text = arguments(step, COMMANDS[step.word].usage, 2, 2)
    broker = _down(play, name)
    offset = number(text, "offset")
    return name, offset, _segment(broker, offset)


def cut_log(broker: StoryBroker, offset: Offset) -> None:
    """Truncate a segment before the batch with this offset; the broker is down."""
    broker.disk.cut(_segment(broker, offset), offset)


def _segment(broker: StoryBroker, offset: Offset) -> str:
    path = broker.disk.segment_of(offset)
    if path is None:
        raise StoryError(f"{broker.name} has no record at {offset}")
    return path


def _down(play: Play, name: str) -> StoryBroker:
    broker = play.world.broker(name)
    if broker.alive:
        raise StoryError(f"{name} is up; crash it first")
    return broker


# -- processes, power, clocks and the network --------------------------------------------


def crash(play: Play, step: Step) -> None:
    """Kill broker processes; their writes stay."""
    for name in arguments(step, COMMANDS["crash"].usage, 1):
        play.world.crash(play.world.live(name))


def start(play: Play, step: Step) -> None:
    """Start brokers that are down."""
    for name in arguments(step, COMMANDS["start"].usage, 1):
        broker = play.world.broker(name)
        if broker.alive:
            raise StoryError(f"{name} is up already")
        play.world.start(broker, unseen=unseen_by(step))


def stop(play: Play, step: Step) -> None:
    """Stop brokers cleanly: hand over leadership, leave the ISR, flush everything."""
    world = play.world
    for name in arguments(step, COMMANDS["stop"].usage, 1):
        broker = world.live(name)
        world.controller.commit(world.controller.without(broker.id, world.able()))
        world.send_changes_to_all()
        _shut_down(play, broker)


def restart(play: Play, step: Step) -> None:
    """Stop brokers cleanly and start them before the controller notices."""
    for name in arguments(step, COMMANDS["restart"].usage, 1):
        broker = play.world.live(name)
        _shut_down(play, broker)
        if "cut" in step.options:
            cut_log(broker, number(step.options["cut"], "cut"))
        play.world.start(broker, unseen=unseen_by(step))


def _shut_down(play: Play, broker: StoryBroker) -> None:
    play.world.step(broker, on.ShutdownRequested(play.world.now_ms))
    if broker.alive:
        raise StoryError(f"{broker.name} can't stop: it does not reach the controller")


def lose_unflushed(play: Play, step: Step) -> None:
    """Fail the power of machines: writes that were not flushed are lost."""
    keep = number(step.options.get("keep", "0"), "keep")
    for name in arguments(step, COMMANDS["lose-unflushed"].usage, 1):
        broker = play.world.broker(name)
        if broker.alive:
            play.world.crash(broker)
        broker.disk.lose_unsynced(keep)
        left = broker.snapshot(play.world.now_ms).log_end_offset
        play.world.add_line(f"{name} keeps what was flushed: LEO={left}")


def flush(play: Play, step: Step) -> None:
    """Flush the logs of brokers, as the operating system does."""
    for name in arguments(step, COMMANDS["flush"].usage, 1):
        broker = play.world.live(name)
        if broker.log is not None:
            broker.log.flush()


def set_clock(play: Play, step: Step) -> None:
    """Set the wall clock of machines; their brokers may be up or down."""
    ahead_ms = number(step.options.get("ahead", "0"), "ahead")
    behind_ms = number(step.options.get("behind", "0"), "behind")
    for name in arguments(step, COMMANDS["set-clock"].usage, 1):
        broker = play.world.broker(name)
        broker.clock_ahead_ms = ahead_ms - behind_ms
        play.world.read_clock(broker)


def partition(play: Play, step: Step) -> None:
    """Cut the network between groups; parties that are not named keep all connections."""
    groups: list[list[str]] = [[]]
    for word in arguments(step, COMMANDS["partition"].usage, 3):
        if word == "|":
            groups.append([])
        else:
            if word not in (CONTROLLER, CLIENT):
                play.world.broker(word)
            groups[-1].append(word)
    if len(groups) < 2 or not all(groups):
        raise StoryError(f"usage: {COMMANDS['partition'].usage}")
    for index, group in enumerate(groups):
        for other in groups[index + 1 :]:
            play.world.cuts |= {frozenset((a, b)) for a in group for b in other}


def heal(play: Play, _step: Step) -> None:
    """Repair the network, and send all brokers the metadata changes they missed."""
    play.world.cuts.clear()
    for broker in play.world.brokers.values():
        broker.metadata_withheld = False
    play.world.send_changes_to_all()


COMMANDS: dict[str, Command] = {
    "tear": Command(tear, "tear A"),
    "flip": Command(flip, "flip A OFFSET"),
    "zero": Command(zero, "zero A OFFSET"),
    "put-epoch": Command(put_epoch, "put-epoch A OFFSET EPOCH"),
    "cut": Command(cut, "cut A OFFSET"),
    "delete-segment": Command(delete_segment, "delete-segment A OFFSET"),
    "delete-folder": Command(delete_folder, "delete-folder A [all=true]", ("all",)),
    "break-disk": Command(break_disk, "break-disk A"),
    "repair-disk": Command(repair_disk, "repair-disk A"),
    "put-file": Command(put_file, "put-file A FILE WORDS | …"),
    "crash": Command(crash, "crash A [B …]"),
    "start": Command(start, "start A [B …] [unseen=C]", ("unseen",)),
    "restart": Command(restart, "restart A [B …] [cut=OFFSET] [unseen=C]", ("cut", "unseen")),
    "stop": Command(stop, "stop A [B …]"),
    "lose-unflushed": Command(lose_unflushed, "lose-unflushed A [B …] [keep=1]", ("keep",)),
    "flush": Command(flush, "flush A [B …]"),
    "set-clock": Command(
        set_clock, "set-clock A [B …] [ahead=MS] [behind=MS]", ("ahead", "behind")
    ),
    "partition": Command(partition, "partition A | B C controller client"),
    "heal": Command(heal, "heal"),
}
"""The commands for faults and repairs."""
