"""Commands for clients, followers and time."""

from tidelog.core.node.messages import EARLIEST, LATEST
from tidelog.core.record.compression import Codec
from tidelog.core.record.encoder import NO_PRODUCER, Producer
from tidelog.core.record.record_batch import MAX_SEQUENCE
from tidelog.core.replication.events import ACKS_ALL, ACKS_NONE
from tidelog.lab.story.cluster_options import CLUSTER_OPTIONS, read_setup
from tidelog.lab.story.grammar import Step, StoryError
from tidelog.lab.story.play import Command, Play, arguments, boolean, fate, number, one_of
from tidelog.lab.story.stage.broker import StoryBroker
from tidelog.lab.story.stage.clients import TIMEOUT_MS
from tidelog.lab.story.stage.network import REPLY, REQUEST

TICK_MS = 1_000
TIMES_MAX = 1_000
ACKS = {"0": ACKS_NONE, "1": 1, "all": ACKS_ALL, "-1": ACKS_ALL}


def cluster(play: Play, step: Step) -> None:
    """Create brokers and one partition; the first leads epoch 0 and all are in sync."""
    play.set_up(read_setup(step))


def produce(play: Play, step: Step) -> None:
    """Produce records, one batch for each argument, or one batch with `batch=true`."""
    names = arguments(step, COMMANDS["produce"].usage, 1)
    play.stage.clients.produced.update(names)
    acks = one_of(step.options.get("acks", "all"), tuple(ACKS), "acks")
    codecs = {codec.name.lower(): codec for codec in Codec}
    codec = codecs[one_of(step.options.get("codec", "none"), tuple(codecs), "codec")]
    producer = NO_PRODUCER
    if "producer" in step.options:
        sequence = number(step.options.get("sequence", "0"), "sequence", MAX_SEQUENCE)
        producer = Producer(number(step.options["producer"], "producer"), 0, sequence)
    timeout = number(step.options.get("timeout", str(TIMEOUT_MS)), "timeout")
    one_batch = boolean(step.options.get("batch", "false"), "batch")
    to = play.world.broker(step.options["to"]) if "to" in step.options else _leader(play)
    if to is None:
        return
    if "by" in step.options:
        late = fate(step, REQUEST).name
        transactional = play.stage.producers.known(step.options["by"])
        play.stage.producers.produce(transactional, to, names, late)
        return
    for batch in [names] if one_batch else [(name,) for name in names]:
        play.stage.clients.produce(to, batch, ACKS[acks], codec, producer, timeout)
        if producer.id >= 0:
            sequence = (producer.sequence + len(batch)) & MAX_SEQUENCE
            producer = producer._replace(sequence=sequence)


def _leader(play: Play) -> StoryBroker | None:
    """Return the leader for clients; without a leader, print that and return None."""
    leader = play.world.leader()
    if leader is None:
        play.stage.clients.report_no_leader()
    return leader


def fetch(play: Play, step: Step) -> None:
    """Let followers fetch from their leader."""
    times = number(step.options.get("times", "1"), "times")
    if not 1 <= times <= TIMES_MAX:
        raise StoryError(f"times is between 1 and {TIMES_MAX}")
    for name in arguments(step, COMMANDS["fetch"].usage, 1):
        for _ in range(times):
            play.stage.network.fetch(play.world.live(name), fate(step))


def ask(play: Play, step: Step) -> None:
    """Let a follower send its next request, whatever it is."""
    (name,) = arguments(step, COMMANDS["ask"].usage, 1, 1)
    play.stage.network.ask(play.world.live(name), fate(step))


def deliver(play: Play, step: Step) -> None:
    """Deliver a held message."""
    (name,) = arguments(step, COMMANDS["deliver"].usage, 1, 1)
    if name in play.stage.network.late:
        play.stage.network.late[name]()
        return
    if name not in play.stage.network.held:
        raise StoryError(f"no message is held as {name!r}")
    play.stage.network.deliver(name, fate(step, REPLY))


def tick(play: Play, step: Step) -> None:
    """Let time pass; with `slow=` only one follower falls behind."""
    words = arguments(step, COMMANDS["tick"].usage, 0, 1)
    elapsed_ms = _milliseconds(words[0]) if words else TICK_MS
    if "slow" in step.options:
        _let_others_keep_up(play, step, elapsed_ms)
    elif "at" in step.options:
        raise StoryError("at=A needs slow=B")
    play.world.pass_time(elapsed_ms)


def _milliseconds(text: str) -> int:
    """Parse `1500`, `1500ms` or `30s`."""
    figures = text.removesuffix("s").removesuffix("m")
    if figures and figures + "s" == text:
        return number(figures, "milliseconds") * 1_000
    return number(figures if figures + "ms" == text else text, "milliseconds")


def _let_others_keep_up(play: Play, step: Step, elapsed_ms: int) -> None:
    """Let all followers but `slow` count as caught up after the time passes.

    With `at`, `slow` falls behind only in the view of this leader.
    """
    slow = play.world.broker(step.options["slow"])
    at = play.world.live(step.options["at"]) if "at" in step.options else None
    for leader in play.world.brokers.values():
        followers = {} if leader.partition is None else leader.partition.followers
        for broker, progress in followers.items():
            if broker != slow.id or at not in (None, leader):
                progress.last_caught_up_ms += elapsed_ms


def consume(play: Play, step: Step) -> None:
    """Let the consumer read until a fetch returns no record."""
    arguments(step, COMMANDS["consume"].usage, 0, 0)
    options = step.options
    broker = play.world.live(options["from"]) if "from" in options else _leader(play)
    offset = number(options["offset"], "offset") if "offset" in options else None
    epoch = number(options["epoch"], "epoch") if "epoch" in options else None
    if broker is not None:
        play.stage.clients.consume(broker, offset, epoch, committed=_reads_committed(step))


def _reads_committed(step: Step) -> bool:
    levels = ("read_uncommitted", "read_committed")
    return one_of(step.options.get("isolation", levels[0]), levels, "isolation") == levels[1]


def list_offsets(play: Play, step: Step) -> None:
    """Request the offset where the log starts or ends."""
    (which,) = arguments(step, COMMANDS["list-offsets"].usage, 1, 1)
    one_of(which, ("latest", "earliest"), "offset")
    timestamp = LATEST if which == "latest" else EARLIEST
    leader = _leader(play)
    if leader is not None:
        committed = _reads_committed(step)
        play.stage.clients.list_offsets(leader, timestamp, which, committed=committed)


def delete_records(play: Play, step: Step) -> None:
    """Request the deletion of all records before an offset."""
    (offset,) = arguments(step, COMMANDS["delete-records"].usage, 1, 1)
    leader = _leader(play)
    if leader is not None:
        play.stage.clients.delete_records(leader, number(offset, "offset"))


COMMANDS: dict[str, Command] = {
    "cluster": Command(cluster, "cluster A B [C …] [option=value …]", CLUSTER_OPTIONS),
    "produce": Command(
        produce,
        "produce m1 [m2 …] [acks=0|1|all] [to=B] [batch=true] [codec=snappy]"
        " [producer=7 sequence=0] [timeout=MS] | produce m1 [m2 …] by=p1 [to=B]"
        " [hold=request as=x]",
        ("acks", "to", "batch", "codec", "producer", "sequence", "timeout", "by", "hold", "as"),
    ),
    "fetch": Command(
        fetch,
        "fetch B [C …] [times=2] [lose=request|reply] [hold=request|reply as=x]",
        ("times", "lose", "hold", "as"),
    ),
    "ask": Command(ask, "ask B [lose=…] [hold=… as=x]", ("lose", "hold", "as")),
    "deliver": Command(deliver, "deliver x [lose=reply] [hold=reply as=y]", ("lose", "hold", "as")),
    "tick": Command(tick, "tick [MS] [slow=B [at=A]]", ("slow", "at")),
    "consume": Command(
        consume,
        "consume [from=B] [offset=0] [epoch=0] [isolation=read_committed]",
        ("from", "offset", "epoch", "isolation"),
    ),
    "list-offsets": Command(
        list_offsets,
        "list-offsets latest|earliest [isolation=read_committed]",
        ("isolation",),
    ),
    "delete-records": Command(delete_records, "delete-records OFFSET"),
}
"""The commands for clients, followers and time."""
