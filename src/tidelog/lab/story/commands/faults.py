"""Commands for faults of processes, power, clocks and the network, and their repair."""

from tidelog.core.node import events as on
from tidelog.lab.story.commands.damage import cut_log
from tidelog.lab.story.grammar import Step, StoryError
from tidelog.lab.story.play import Command, Play, arguments, number, unseen_by
from tidelog.lab.story.stage.broker import StoryBroker
from tidelog.lab.story.stage.narration import CLIENT, CONTROLLER


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
