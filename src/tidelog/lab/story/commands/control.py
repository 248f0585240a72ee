"""Commands for the controller, which acts only when a story says so."""

from tidelog.core.controller.events import AlterPartitionReceived
from tidelog.core.controller.metadata.registrations import PartitionRegistration
from tidelog.core.node import events as on
from tidelog.core.node.membership.isr_proposals import RETRY_MS
from tidelog.core.types import BrokerId, EpochEntry
from tidelog.lab.story.commands.faults import heal
from tidelog.lab.story.grammar import Step, StoryError
from tidelog.lab.story.play import Command, Play, arguments, boolean, fate, number, unseen_by
from tidelog.lab.story.stage.broker import Sent, StoryBroker
from tidelog.lab.story.stage.narration import CONTROLLER, members, message
from tidelog.lab.story.stage.network import REPLY, REQUEST, Fate, Held

ROUNDS_MAX = 60
"""`settle` fails after this number of rounds: the cluster repeats the same changes."""
ROUND_MS = 1_000
ASK_ISR = Step(0, "ask-isr", "ask-isr", (), {}, frozenset(), None, False, ())


def elect(play: Play, step: Step) -> None:
    """Let the controller elect a broker as leader, if the rules allow it."""
    words = arguments(step, COMMANDS["elect"].usage, 1, 2)
    unclean = words[1:] == ("unclean",) or boolean(step.options.get("unclean", "false"), "unclean")
    if len(words) == 2 and words[1] != "unclean":
        raise StoryError(f"usage: {COMMANDS['elect'].usage}")
    world = play.world
    broker = world.broker(words[0])
    changed = world.controller.elected(broker.id, world.able(), unclean)
    if changed.leader != broker.id:
        world.add_line(f"no election: {_why_not(play, broker)}")
        return
    _announce(play, changed, step)


def _why_not(play: Play, broker: StoryBroker) -> str:
    if not broker.alive:
        return f"{broker.name} is down"
    if broker.id not in play.world.able():
        return f"{broker.name} is fenced or out of reach"
    return f"{broker.name} is not in sync"


def _announce(
    play: Play, changed: PartitionRegistration, step: Step, fenced: BrokerId | None = None
) -> None:
    """Write the controller's decision; print it unless the new leader's own line shows it."""
    world = play.world
    before = world.controller.partition
    if fenced is None:
        world.controller.commit(changed)
    else:
        world.controller.fence(fenced, changed)
    world.elect_others()
    after = world.controller.partition
    unclean = after.unclean_election
    if unclean is not None and unclean != before.unclean_election:
        instead = members(world.labels[broker] for broker in (*unclean.old_isr, *unclean.old_elr))
        world.add_line(f"controller: unclean election, instead of {instead}")
    world.send_changes_to_all(unseen_by(step))
    leader = world.leader()
    printed = leader is not None and leader.visible.leader_epoch == after.leader_epoch
    if after.leader_epoch > before.leader_epoch and not printed:
        who = "no leader in" if leader is None else f"{leader.name} leads"
        isr = members(world.labels[broker] for broker in after.isr)
        world.add_line(f"controller: {who} epoch {after.leader_epoch}, ISR={isr}")


def fence(play: Play, step: Step) -> None:
    """Let the controller notice that a broker failed: it loses leadership and leaves the ISR."""
    world = play.world
    for name in arguments(step, COMMANDS["fence"].usage, 1):
        broker = world.broker(name)
        successor = world.broker(step.options["leader"]).id if "leader" in step.options else None
        changed = world.controller.without(broker.id, world.able(), candidate=successor)
        _announce(play, changed, step, fenced=broker.id)


def unfence(play: Play, step: Step) -> None:
    """Let the controller unfence a broker."""
    world = play.world
    for name in arguments(step, COMMANDS["unfence"].usage, 1):
        broker = world.live(name)
        world.controller.set_fenced(broker.id, fenced=False)
        _announce(play, world.controller.reelected(world.able()), step)


def ask_isr(play: Play, step: Step) -> None:
    """Let leaders check for lagging followers; let the controller handle all ISR proposals."""
    world = play.world
    names = arguments(step, COMMANDS["ask-isr"].usage, 0)
    wanted = {world.live(name).id for name in names}
    what = fate(step, REPLY) if "hold" in step.options else fate(step)
    for broker in world.brokers.values():
        world.step(broker, on.Ticked(world.now_ms))
    if not _proposals(play, wanted):
        world.pass_time(RETRY_MS)
    proposals = _proposals(play, wanted)
    if not proposals:
        world.add_line("no leader proposes an ISR change")
    for sent in proposals:
        world.proposals.remove(sent)
        _alter_partition(play, sent, what, unseen_by(step))


def _proposals(play: Play, wanted: set[BrokerId]) -> list[Sent]:
    """Return the pending proposals of these leaders, or of all if `wanted` is empty.

    A leader repeats a lost proposal after RETRY_MS.
    """
    return [sent for sent in play.world.proposals if not wanted or sent.sender.id in wanted]


def _alter_partition(play: Play, sent: Sent, what: Fate, unseen: list[str]) -> None:
    world = play.world
    request = sent.request
    assert isinstance(request, AlterPartitionReceived), "proposals are nothing else"
    (proposal,) = request.proposals
    isr = members(world.labels[member.broker] for member in proposal.isr)
    cut = not world.reachable(sent.sender.name, CONTROLLER)
    mark = "lost" if cut or what.lose == REQUEST else ""
    text = f"AlterPartition ISR={isr}"
    world.lines.append(message(sent.sender.name, CONTROLLER, text, mark))
    if mark:
        world.step(sent.sender, on.RequestFailed(sent.correlation, world.now_ms))
        return
    answer = world.controller.alter(request)
    error = answer.error or next(iter(answer.results.values())).error
    isr = members(world.labels[broker] for broker in world.controller.partition.isr)
    mark = {what.lose: "lost", what.hold: "held"}.get(REPLY, "")
    text = error.name if error else f"ISR={isr}"
    world.lines.append(message(CONTROLLER, sent.sender.name, text, mark))
    world.last_error = error
    world.send_changes_to_all(unseen)
    if what.hold:
        play.stage.network.keep(what.name, Held(sent, answer, text))
    elif what.lose:
        world.step(sent.sender, on.RequestFailed(sent.correlation, world.now_ms))
    else:
        world.step(sent.sender, on.ResponseReceived(sent.correlation, answer, world.now_ms))


def tell(play: Play, step: Step) -> None:
    """Send a broker the metadata changes it missed, or the first few of them."""
    names = arguments(step, COMMANDS["tell"].usage, 1, 2)
    if names[1:] not in ((), ("newest",)):
        raise StoryError(f"usage: {COMMANDS['tell'].usage}")
    words = number(step.options["words"], "words") if "words" in step.options else None
    play.world.send_changes(play.world.live(names[0]), newest_only=len(names) == 2, changes=words)


def reassign(play: Play, step: Step) -> None:
    """Reassign the partition to these brokers; it completes when they are all in sync."""
    names = arguments(step, COMMANDS["reassign"].usage, 1)
    replicas = tuple(play.world.broker(name).id for name in names)
    if len(set(replicas)) < len(replicas):
        raise StoryError("a broker is named twice")
    changed = play.world.controller.reassigned(replicas, play.world.able())
    if changed.reassigning:
        adding = members(play.world.labels[broker] for broker in changed.adding)
        removing = members(play.world.labels[broker] for broker in changed.removing)
        play.world.add_line(f"controller: adding {adding}, removing {removing}")
    _announce(play, changed, step)


def settle(play: Play, _step: Step) -> None:
    """End all network faults, and let all brokers work until nothing changes any more."""
    world = play.world
    heal(play, _step)
    before: object = None
    for _ in range(ROUNDS_MAX):
        _settle_round(play)
        seen = [(broker.visible, _known_epochs(broker)) for broker in world.brokers.values()]
        after = seen, world.controller.partition, world.able()
        live = [broker for broker in world.brokers.values() if broker.alive]
        busy = any(broker.repairing or broker.id not in world.able() for broker in live)
        if after == before and not world.proposals and not busy:
            world.lines.clear()
            world.add_line("the cluster is stable")
            return
        before = after
    world.add_line("the cluster does not become stable")
    play.failures.append(f"the cluster is not stable after {ROUNDS_MAX} rounds")


def _known_epochs(broker: StoryBroker) -> tuple[EpochEntry, ...]:
    """Return the leader epochs that a replica knows.

    A reply may remove only an epoch without records; the next fetch differs then.
    """
    return () if broker.partition is None else tuple(broker.partition.epochs.entries)


def _settle_round(play: Play) -> None:
    world = play.world
    controller = world.controller
    for broker in world.brokers.values():
        fenced = controller.image.brokers[broker.id].fenced
        if broker.alive and fenced and (world.setup.recovery is None or broker.may_join):
            controller.set_fenced(broker.id, fenced=False)
        elif not broker.alive and not fenced:
            controller.set_fenced(broker.id, fenced=True)
        if not broker.alive:
            controller.commit(controller.without(broker.id, world.able()))
    controller.commit(controller.reelected(world.able()))
    world.elect_others()
    world.send_changes_to_all()
    play.stage.coordination.send_markers()
    for broker in world.brokers.values():
        if broker.alive and play.stage.network.follows(broker):
            play.stage.network.fetch(broker)
    if world.proposals:
        ask_isr(play, ASK_ISR)
    world.pass_time(ROUND_MS)


COMMANDS: dict[str, Command] = {
    "elect": Command(elect, "elect B [unclean] [unseen=A]", ("unseen", "unclean")),
    "fence": Command(fence, "fence A [B …] [leader=C] [unseen=A]", ("leader", "unseen")),
    "unfence": Command(unfence, "unfence A [B …] [unseen=A]", ("unseen",)),
    "ask-isr": Command(
        ask_isr,
        "ask-isr [A] [lose=request|reply] [hold=reply as=x] [unseen=A]",
        ("lose", "hold", "as", "unseen"),
    ),
    "tell": Command(tell, "tell A [newest] [words=1]", ("words",)),
    "reassign": Command(reassign, "reassign B C [unseen=A]", ("unseen",)),
    "settle": Command(settle, "settle"),
}
"""The commands for the controller."""
