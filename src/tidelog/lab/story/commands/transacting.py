"""Commands for transactional producers, their coordinator, and a consumer group."""

from tidelog.core.node.coordinating.marker_sender import RETRY_MS
from tidelog.lab.story.grammar import Step, StoryError
from tidelog.lab.story.play import Command, Play, arguments, fate, number
from tidelog.lab.story.stage.network import REPLY, REQUEST
from tidelog.lab.story.stage.producers import TRANSACTION_TIMEOUT_MS, TRANSACTIONAL_ID


def init(play: Play, step: Step) -> None:
    """Start a transactional producer: it fences all earlier ones with its transactional id."""
    (name,) = arguments(step, COMMANDS["init"].usage, 1, 1)
    _require_coordinator(play)
    if name in play.world.brokers:
        raise StoryError(f"{name} is a broker; give the producer another name")
    timeout = number(step.options.get("timeout", str(TRANSACTION_TIMEOUT_MS)), "timeout")
    play.stage.producers.init(name, step.options.get("id", TRANSACTIONAL_ID), timeout)


def _require_coordinator(play: Play) -> None:
    if not play.world.setup.coordinators:
        raise StoryError("transactions need a coordinator, such as: cluster A B coordinators=C")


def commit(play: Play, step: Step) -> None:
    """Let a producer commit its transaction."""
    _end(play, step, committed=True)


def abort(play: Play, step: Step) -> None:
    """Let a producer abort its transaction."""
    _end(play, step, committed=False)


def _end(play: Play, step: Step, *, committed: bool) -> None:
    (name,) = arguments(step, COMMANDS[step.word].usage, 1, 1)
    late = fate(step, REQUEST).name
    producers = play.stage.producers
    producers.end(producers.known(name), committed=committed, late=late)


def markers(play: Play, step: Step) -> None:
    """Deliver the markers that coordinators have sent; those that failed are sent again."""
    arguments(step, COMMANDS["markers"].usage, 0, 0)
    _require_coordinator(play)
    what = fate(step, REQUEST) if "hold" in step.options else fate(step, REQUEST, REPLY)
    if play.stage.coordination.send_markers(what):
        return
    play.world.pass_time(RETRY_MS)
    if not play.stage.coordination.send_markers(what):
        play.world.add_line("no marker waits")


def transactions(play: Play, step: Step) -> None:
    """Print the state of each transactional id, as its coordinator describes it."""
    arguments(step, COMMANDS["transactions"].usage, 0, 0)
    _require_coordinator(play)
    for name in play.stage.producers.transactional_ids():
        play.world.add_line(f"{name} {play.stage.producers.describe(name)}")


def join(play: Play, step: Step) -> None:
    """Let a consumer join the group."""
    (name,) = arguments(step, COMMANDS["join"].usage, 1, 1)
    _require_coordinator(play)
    if name in play.world.brokers:
        raise StoryError(f"{name} is a broker; give the consumer another name")
    play.stage.members.join(name)


def fetch_offset(play: Play, step: Step) -> None:
    """Let a consumer of the group fetch the committed offset."""
    (name,) = arguments(step, COMMANDS["fetch-offset"].usage, 1, 1)
    play.stage.members.fetch_offset(play.stage.members.known(name).name)


def send_offset(play: Play, step: Step) -> None:
    """Let a producer commit an offset of the group in its transaction."""
    usage = COMMANDS["send-offset"].usage
    (offset,) = arguments(step, usage, 1, 1)
    if not {"by", "of"} <= step.options.keys():
        raise StoryError(f"usage: {usage}")
    producer = play.stage.producers.known(step.options["by"])
    member = play.stage.members.known(step.options["of"])
    play.stage.producers.send_offset(producer, number(offset, "offset"), member)


COMMANDS: dict[str, Command] = {
    "init": Command(init, "init p1 [id=t] [timeout=MS]", ("id", "timeout")),
    "commit": Command(commit, "commit p1 [hold=request as=x]", ("hold", "as")),
    "abort": Command(abort, "abort p1 [hold=request as=x]", ("hold", "as")),
    "markers": Command(
        markers, "markers [lose=request|reply] [hold=request as=x]", ("lose", "hold", "as")
    ),
    "transactions": Command(transactions, "transactions"),
    "join": Command(join, "join c1"),
    "fetch-offset": Command(fetch_offset, "fetch-offset c1"),
    "send-offset": Command(send_offset, "send-offset OFFSET by=p1 of=c1", ("by", "of")),
}
"""The commands for transactions and for the consumer group."""
