"""What a story can do: one dict, a word to a function.

The commands that look and judge (`state`, `expect`, `check` and so on) are in judging.py.
"""

from tidelog.core.node import events as on
from tidelog.core.node.messages import EARLIEST, LATEST
from tidelog.core.record.compression import Codec
from tidelog.core.record.encoder import NO_PRODUCER, Producer
from tidelog.core.replication.events import ACKS_ALL
from tidelog.lab.story.cluster_options import CLUSTER_OPTIONS, read_setup
from tidelog.lab.story.grammar import Step, StoryError
from tidelog.lab.story.play import (
    Command,
    Play,
    arguments,
    deaf_ones,
    fate,
    number,
    one_of,
    truth,
)
from tidelog.lab.story.stage.broker import StoryBroker
from tidelog.lab.story.stage.clients import TIMEOUT_MS
from tidelog.lab.story.stage.narration import CLIENT, CONTROLLER, members, message
from tidelog.lab.story.stage.network import REPLY, REQUEST

ROUNDS_MAX = 60
"""`settle` gives up after so many rounds: something goes round in circles."""
TICK_MS = 1_000
ASK_ISR = Step(0, "ask-isr", "ask-isr", (), {}, frozenset(), None, False, ())


def cluster(play: Play, step: Step) -> None:
    """Set up brokers and one partition; the first leads epoch 0 and all are in sync."""
    play.set_up(read_setup(step))


def produce(play: Play, step: Step) -> None:
    """Each word is a record and a batch of its own, unless batch=true."""
    names = arguments(step, COMMANDS["produce"].usage, 1)
    acks = one_of(step.options.get("acks", "all"), ("0", "1", "all"), "acks")
    codecs = {codec.name.lower(): codec for codec in Codec}
    codec = codecs[one_of(step.options.get("codec", "none"), tuple(codecs), "codec")]
    producer = NO_PRODUCER
    if "producer" in step.options:
        sequence = number(step.options.get("sequence", "0"), "sequence")
        producer = Producer(number(step.options["producer"], "producer"), 0, sequence)
    timeout = number(step.options.get("timeout", str(TIMEOUT_MS)), "timeout")
    one_batch = truth(step.options.get("batch", "false"), "batch")
    to = play.world.broker(step.options["to"]) if "to" in step.options else _leader(play)
    for batch in [names] if one_batch else [(name,) for name in names]:
        level = ACKS_ALL if acks == "all" else int(acks)
        play.stage.clients.produce(to, batch, level, codec, producer, timeout)
        if producer.id >= 0:
            producer = producer._replace(sequence=producer.sequence + len(batch))


def _leader(play: Play) -> StoryBroker:
    leader = play.world.leader()
    if leader is None:
        raise StoryError("nobody leads the partition; elect someone, or say to=A")
    return leader


def fetch(play: Play, step: Step) -> None:
    """A follower asks its leader for records, and takes the reply."""
    for name in arguments(step, COMMANDS["fetch"].usage, 1):
        for _ in range(number(step.options.get("times", "1"), "times")):
            play.stage.network.fetch(play.world.live(name), fate(step))


def ask(play: Play, step: Step) -> None:
    """A follower asks its leader one thing, whatever it is."""
    (name,) = arguments(step, COMMANDS["ask"].usage, 1, 1)
    play.stage.network.ask(play.world.live(name), fate(step))


def deliver(play: Play, step: Step) -> None:
    """A held message arrives after all."""
    (name,) = arguments(step, COMMANDS["deliver"].usage, 1, 1)
    if name not in play.stage.network.held:
        raise StoryError(f"no message is held as {name!r}")
    play.stage.network.deliver(name)


def tick(play: Play, step: Step) -> None:
    """Time passes."""
    words = arguments(step, COMMANDS["tick"].usage, 0, 1)
    play.world.pass_time(number(words[0], "milliseconds") if words else TICK_MS)


def crash(play: Play, step: Step) -> None:
    """Kill processes; nothing that was written is lost."""
    for name in arguments(step, COMMANDS["crash"].usage, 1):
        play.world.crash(play.world.live(name))


def start(play: Play, step: Step) -> None:
    """Start what is down."""
    for name in arguments(step, COMMANDS["start"].usage, 1):
        broker = play.world.broker(name)
        if broker.alive:
            raise StoryError(f"{name} is up already")
        play.world.start(broker)


def stop(play: Play, step: Step) -> None:
    """Stop cleanly: hand over leaderships, leave the ISR, write everything to disk."""
    world = play.world
    for name in arguments(step, COMMANDS["stop"].usage, 1):
        broker = world.live(name)
        world.controller.commit(world.controller.without(broker.id, world.able()))
        world.spread()
        _shut_down(play, broker)


def restart(play: Play, step: Step) -> None:
    """Stop cleanly and start at once, before the controller has looked."""
    for name in arguments(step, COMMANDS["restart"].usage, 1):
        broker = play.world.live(name)
        _shut_down(play, broker)
        play.world.start(broker)


def _shut_down(play: Play, broker: StoryBroker) -> None:
    play.world.step(broker, on.ShutdownRequested(play.world.now_ms))
    if broker.alive:
        raise StoryError(f"{broker.name} can't stop: it does not reach the controller")


def lose_unflushed(play: Play, step: Step) -> None:
    """The power fails: what was not flushed is gone."""
    keep = number(step.options.get("keep", "0"), "keep")
    for name in arguments(step, COMMANDS["lose-unflushed"].usage, 1):
        broker = play.world.broker(name)
        if broker.alive:
            play.world.crash(broker)
        broker.disk.lose_unsynced(keep)
        left = broker.picture(play.world.now_ms).log_end_offset
        play.world.say(f"{name} keeps what was flushed: LEO={left}")


def flush(play: Play, step: Step) -> None:
    """The operating system writes everything out."""
    for name in arguments(step, COMMANDS["flush"].usage, 1):
        broker = play.world.live(name)
        if broker.log is not None:
            broker.log.flush()


def tear(play: Play, step: Step) -> None:
    """Half of the last batch never reached the disk."""
    (name,) = arguments(step, COMMANDS["tear"].usage, 1, 1)
    broker = _down(play, name)
    path = broker.disk.last_log()
    if path is None:
        raise StoryError(f"{name} has no record to tear")
    broker.disk.tear(path)
    play.world.say(f"{name} has half of its last batch")


def flip(play: Play, step: Step) -> None:
    """One bit of a batch on disk turns over."""
    name, offset = arguments(step, COMMANDS["flip"].usage, 2, 2)
    broker = _down(play, name)
    at = number(offset, "offset")
    logs = [path for path in broker.disk.files if path.endswith(".log")]
    if not any(broker.disk.flip(path, at) for path in logs):
        raise StoryError(f"{name} has no record at {offset}")
    play.world.say(f"{name} has a bad bit in the batch with offset {offset}")


def _down(play: Play, name: str) -> StoryBroker:
    broker = play.world.broker(name)
    if broker.alive:
        raise StoryError(f"{name} is up; crash it first")
    return broker


def elect(play: Play, step: Step) -> None:
    """The controller makes a broker leader, if the rules allow it."""
    words = arguments(step, COMMANDS["elect"].usage, 1, 2)
    unclean = words[1:] == ("unclean",)
    if len(words) == 2 and not unclean:
        raise StoryError(f"usage: {COMMANDS['elect'].usage}")
    world = play.world
    broker = world.broker(words[0])
    changed = world.controller.elected(broker.id, world.able(), unclean)
    if changed.leader != broker.id:
        world.say(f"no election: {_why_not(play, broker)}")
        return
    _announce(play, changed, step)


def _why_not(play: Play, broker: StoryBroker) -> str:
    if not broker.alive:
        return f"{broker.name} is down"
    if broker.id not in play.world.able():
        return f"{broker.name} is fenced or out of reach"
    return f"{broker.name} is not in sync"


def _announce(play: Play, changed: object, step: Step) -> None:
    """Write the controller's decision; say it, unless the new leader says so itself."""
    world = play.world
    before = world.controller.partition
    world.controller.commit(changed)  # type: ignore[arg-type]
    after = world.controller.partition
    world.spread(deaf_ones(step))
    leader = world.leader()
    took_office = leader is not None and leader.seen.leader_epoch == after.leader_epoch
    if after.leader_epoch > before.leader_epoch and not took_office:
        who = "nobody" if leader is None else leader.name
        isr = members(world.labels[broker] for broker in after.isr)
        world.say(f"controller: {who} leads epoch {after.leader_epoch}, ISR={isr}")


def fence(play: Play, step: Step) -> None:
    """The controller notices that a broker is gone: out of every ISR, and no leader."""
    world = play.world
    for name in arguments(step, COMMANDS["fence"].usage, 1):
        broker = world.broker(name)
        world.controller.set_fenced(broker.id, fenced=True)
        _announce(play, world.controller.without(broker.id, world.able()), step)


def unfence(play: Play, step: Step) -> None:
    """The controller lets a broker take part again."""
    world = play.world
    for name in arguments(step, COMMANDS["unfence"].usage, 1):
        broker = world.live(name)
        world.controller.set_fenced(broker.id, fenced=False)
        _announce(play, world.controller.reelected(world.able()), step)


def ask_isr(play: Play, step: Step) -> None:
    """Leaders look for followers to drop; the controller answers what was proposed."""
    world = play.world
    names = arguments(step, COMMANDS["ask-isr"].usage, 0)
    wanted = {world.live(name).id for name in names}
    lose = step.options.get("lose", "")
    if lose:
        one_of(lose, (REQUEST, REPLY), "lose")
    for broker in world.brokers.values():
        world.step(broker, on.Ticked(world.now_ms))
    proposals = [sent for sent in world.proposals if not wanted or sent.sender.id in wanted]
    if not proposals:
        world.say("nobody proposes another ISR")
    for sent in proposals:
        world.proposals.remove(sent)
        cut = not world.reachable(sent.sender.name, CONTROLLER)
        mark = "lost" if cut or lose == REQUEST else ""
        (proposal,) = sent.request.proposals  # type: ignore[attr-defined]
        isr = members(world.labels[member.broker] for member in proposal.isr)
        text = f"AlterPartition ISR={isr}"
        world.lines.append(message(sent.sender.name, CONTROLLER, text, mark))
        if mark:
            world.step(sent.sender, on.RequestFailed(sent.correlation, world.now_ms))
            continue
        answer = world.controller.alter(sent.request)  # type: ignore[arg-type]
        error = answer.error or next(iter(answer.results.values())).error
        isr = members(world.labels[broker] for broker in world.controller.partition.isr)
        text = error.name if error else f"ISR={isr}"
        mark = "lost" if lose == REPLY else ""
        world.lines.append(message(CONTROLLER, sent.sender.name, text, mark))
        world.last_error = error
        world.spread(deaf_ones(step))
        event = (
            on.RequestFailed(sent.correlation, world.now_ms)
            if mark
            else on.ResponseReceived(sent.correlation, answer, world.now_ms)
        )
        world.step(sent.sender, event)


def tell(play: Play, step: Step) -> None:
    """A broker that was kept deaf hears the news."""
    words = arguments(step, COMMANDS["tell"].usage, 1, 2)
    if words[1:] not in ((), ("newest",)):
        raise StoryError(f"usage: {COMMANDS['tell'].usage}")
    play.world.tell(play.world.live(words[0]), newest_only=len(words) == 2)


def partition(play: Play, step: Step) -> None:
    """Cut the network between groups; who is not named is cut from nobody."""
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
    """The network is whole again, and everyone hears the news."""
    play.world.cuts.clear()
    play.world.spread()


def reassign(play: Play, step: Step) -> None:
    """Move the partition to these brokers; done when they are all in sync."""
    names = arguments(step, COMMANDS["reassign"].usage, 1)
    replicas = tuple(play.world.broker(name).id for name in names)
    if len(set(replicas)) < len(replicas):
        raise StoryError("a broker is named twice")
    _announce(play, play.world.controller.reassigned(replicas, play.world.able()), step)


def delete_records(play: Play, step: Step) -> None:
    """A client asks to drop what lies before an offset."""
    (offset,) = arguments(step, COMMANDS["delete-records"].usage, 1, 1)
    play.stage.clients.delete_records(_leader(play), number(offset, "offset"))


def consume(play: Play, step: Step) -> None:
    """A consumer reads on, as far as it is shown anything."""
    arguments(step, COMMANDS["consume"].usage, 0, 0)
    options = step.options
    broker = play.world.live(options["from"]) if "from" in options else _leader(play)
    offset = number(options["offset"], "offset") if "offset" in options else None
    epoch = number(options["epoch"], "epoch") if "epoch" in options else None
    play.stage.clients.consume(broker, offset, epoch)


def list_offsets(play: Play, step: Step) -> None:
    """A client asks where the log starts or ends."""
    (which,) = arguments(step, COMMANDS["list-offsets"].usage, 1, 1)
    one_of(which, ("latest", "earliest"), "offset")
    timestamp = LATEST if which == "latest" else EARLIEST
    play.stage.clients.list_offsets(_leader(play), timestamp, which)


def settle(play: Play, _step: Step) -> None:
    """Faults are over: let everyone do its work until nothing changes any more."""
    world = play.world
    heal(play, _step)
    before: object = None
    for _ in range(ROUNDS_MAX):
        _settle_round(play)
        after = [broker.seen for broker in world.brokers.values()], world.controller.partition
        if after == before and not world.proposals:
            world.lines.clear()
            world.say("all is quiet")
            return
        before = after
    world.say("no end in sight")
    play.failures.append(f"not quiet after {ROUNDS_MAX} rounds")


def _settle_round(play: Play) -> None:
    world = play.world
    controller = world.controller
    for broker in world.brokers.values():
        broker.deaf = False
        fenced = controller.image.brokers[broker.id].fenced
        if broker.alive and fenced:
            controller.set_fenced(broker.id, fenced=False)
        elif not broker.alive and not fenced:
            controller.set_fenced(broker.id, fenced=True)
        if not broker.alive:
            controller.commit(controller.without(broker.id, world.able()))
    controller.commit(controller.reelected(world.able()))
    world.spread()
    for broker in world.brokers.values():
        if broker.alive and play.stage.network.follows(broker):
            play.stage.network.fetch(broker)
    if world.proposals:
        ask_isr(play, ASK_ISR)
    world.pass_time(TICK_MS)


COMMANDS: dict[str, Command] = {
    "cluster": Command(
        cluster,
        "cluster A B [C …] [option=value …]",
        "brokers and one partition; the first leads epoch 0, all are in sync",
        CLUSTER_OPTIONS,
    ),
    "produce": Command(
        produce,
        "produce m1 [m2 …] [acks=0|1|all] [to=B] [batch=true] [codec=snappy]"
        " [producer=7 sequence=0] [timeout=MS]",
        "a client writes; each word is a record, m1..m9 are nine; acks=all unless said",
        ("acks", "to", "batch", "codec", "producer", "sequence", "timeout"),
    ),
    "fetch": Command(
        fetch,
        "fetch B [C …] [times=2] [lose=request|reply] [hold=request|reply as=x]",
        "a follower asks its leader for records, with all that must be asked around it",
        ("times", "lose", "hold", "as"),
    ),
    "ask": Command(
        ask,
        "ask B [lose=…] [hold=… as=x]",
        "a follower asks one thing only, whatever is next",
        ("lose", "hold", "as"),
    ),
    "deliver": Command(deliver, "deliver x", "a held message arrives; again, if said again"),
    "tick": Command(tick, "tick [MS]", "time passes, a second unless said"),
    "crash": Command(crash, "crash A [B …]", "kill the process; what it wrote stays"),
    "start": Command(start, "start A [B …]", "a new process; what it led it leads no more"),
    "restart": Command(
        restart, "restart A [B …]", "stop cleanly and start before the controller has looked"
    ),
    "stop": Command(stop, "stop A [B …]", "hand over, leave the ISR, stop cleanly"),
    "lose-unflushed": Command(
        lose_unflushed,
        "lose-unflushed A [B …] [keep=1]",
        "the power fails: only what was flushed stays, and the next `keep` batches",
        ("keep",),
    ),
    "flush": Command(flush, "flush A [B …]", "everything written so far survives a power failure"),
    "tear": Command(tear, "tear A", "half of the last batch is missing (A is down)"),
    "flip": Command(flip, "flip A OFFSET", "one bit of that batch is wrong (A is down)"),
    "elect": Command(
        elect,
        "elect B [unclean] [unseen=A]",
        "the controller makes B leader, if the rules allow it; who is gone leaves the ISR",
        ("unseen",),
    ),
    "fence": Command(
        fence,
        "fence A [B …] [unseen=A]",
        "the controller notices that A is gone: out of the ISR, another leads",
        ("unseen",),
    ),
    "unfence": Command(unfence, "unfence A [B …] [unseen=A]", "A may take part again", ("unseen",)),
    "ask-isr": Command(
        ask_isr,
        "ask-isr [A] [lose=request|reply] [unseen=A]",
        "leaders drop who is too far behind; the controller answers every ISR proposal",
        ("lose", "unseen"),
    ),
    "tell": Command(
        tell, "tell A [newest]", "who missed news hears it, word by word or only the newest"
    ),
    "partition": Command(
        partition,
        "partition A | B C controller client",
        "cut the network between groups; who is not named is cut from nobody",
    ),
    "heal": Command(heal, "heal", "the network is whole, and everyone hears the news"),
    "reassign": Command(
        reassign, "reassign B C [unseen=A]", "move the partition to these brokers", ("unseen",)
    ),
    "delete-records": Command(
        delete_records, "delete-records OFFSET", "a client drops what lies before the offset"
    ),
    "consume": Command(
        consume,
        "consume [from=B] [offset=0] [epoch=0]",
        "a consumer reads on, as far as it is shown anything",
        ("from", "offset", "epoch"),
    ),
    "list-offsets": Command(
        list_offsets, "list-offsets latest|earliest", "a client asks where the log ends or starts"
    ),
    "settle": Command(
        settle, "settle", "no more faults: all fetch, propose and answer until nothing changes"
    ),
}
"""Every word that does something."""
