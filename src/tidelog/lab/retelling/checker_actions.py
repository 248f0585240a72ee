"""Translate the model checker's actions into commands of a story.

Checker and stories run the same code, so most actions have a matching command. There are three
differences:

- In the checker, a broker receives a metadata change only with `Learn`. So each command of the
  controller lists all brokers in `unseen=`, and a separate `tell` delivers the change.
- A message in flight in the checker is a message that the story holds. A lost message is one
  that the story never delivers.
- In the checker, a broker is fenced only for a moment. So `unfence` follows at once, unless it
  would elect a leader.

With a bound of 0 messages in flight, one action is a request and everything that follows from
it, including ISR proposals and their responses.
"""

import re
from collections.abc import Callable

from tidelog.core.controller.events import AlterPartitionReceived
from tidelog.core.controller.metadata import keys
from tidelog.lab.modelcheck.shipped import messages as wire
from tidelog.lab.modelcheck.shipped.cluster_model import Bounds
from tidelog.lab.modelcheck.shipped.invariants import broker_name
from tidelog.lab.modelcheck.shipped.local_step import PARTITION_EPOCH, fields_of
from tidelog.lab.modelcheck.shipped.state import State
from tidelog.lab.retelling.draft import StoryDraft
from tidelog.lab.story.grammar import StoryError

LAG_MS = 1_000
"""replica.lag.time.max.ms of a story in which a follower lags."""
LATE_MS = 2_000
"""How long a follower lags: longer than LAG_MS."""
RETRY_MS = 60
"""The time after which a leader retries its ISR proposal."""
PROPOSALS_MAX = 5
"""The most proposals to answer in a row; with more, leader and controller are in a loop."""
_ACTION = re.compile(r"^(\w+)\((.*)\)$")


class CheckerActions:
    """Translates one action after the other; raises StoryError if no command expresses it."""

    def __init__(self, draft: StoryDraft, bounds: Bounds, *, lags: bool) -> None:
        self._draft = draft
        self._at_once = bounds.messages == 0
        self._names = [broker_name(broker) for broker in range(bounds.replicas)]
        self._unseen = "unseen=" + ",".join(self._names)
        self._held: dict[wire.Message, str] = {}
        self._held_ever = 0
        self._refusals: dict[str, str] = {}
        """By leader, the name of the held response that refuses its proposal."""
        self._fenced: set[str] = set()
        self._writers: dict[str, Callable[[str, State, State], None]] = {
            "LeaderWrite": self._write,
            "FollowerAsk": self._request,
            "FollowerLags": self._lag,
            "Deliver": self._deliver,
            "Learn": self._learn,
            "ControllerElectLeader": self._elect,
            "ControllerFence": self._fence,
            "Restart": self._restart,
            "RestartCut": self._restart,
            "Report": self._report,
        }
        self._action = ""
        draft.add(self._cluster(bounds, lags))

    def _cluster(self, bounds: Bounds, lags: bool) -> str:
        options = []
        if bounds.min_insync_replicas > 1:
            options.append(f"min.insync.replicas={bounds.min_insync_replicas}")
        if bounds.records > 1:
            options.append("replica.fetch.max.bytes=1")
        if lags:
            options.append(f"lag={LAG_MS}")
        return " ".join(["cluster", *self._names, *options])

    def add_action(self, number: int, action: str, before: State, after: State) -> None:
        """Add the commands for the action that leads from one state to the next."""
        match = _ACTION.match(action)
        assert match is not None, "actions read Name(argument)"
        self._action = f"{number}. {action}"
        self._writers[match[1]](match[2], before, after)
        if self._at_once:
            self._answer_proposals()
        for message in after[2]:
            if message[0] == wire.PROPOSE and message not in before[2]:
                self._let_propose(broker_name(message[1]))

    def _let_propose(self, leader: str) -> None:
        """Deliver the held refusal: a leader that waits for a response sends no new proposal."""
        if leader in self._refusals:
            self._add("deliver", self._refusals.pop(leader))
            self._add(f"tick {RETRY_MS}")

    def _add(self, *words: str) -> None:
        self._draft.add(" ".join(word for word in words if word), self._action)

    def _answer_proposals(self) -> None:
        """Answer each pending proposal. If it is accepted, deliver the change to its leader."""
        world = self._draft.world
        for _ in range(PROPOSALS_MAX):
            if world.proposals:
                leader, before = world.proposals[0].sender.name, world.controller.partition
                self._add("ask-isr", leader, self._unseen)
                if world.controller.partition is not before:
                    self._deliver_changes(leader, 1)

    # -- clients, followers, leaders ---------------------------------------------------------

    def _write(self, leader: str, before: State, _after: State) -> None:
        known = self._draft.world.leader()
        to = "" if known is not None and known.name == leader else f"to={leader}"
        self._add(f"produce m{before[3][2] + 1}", to)

    def _request(self, follower: str, _before: State, after: State) -> None:
        if self._at_once:
            self._add("ask", follower)
            return
        broker = self._names.index(follower)
        for message in [m for m in self._held if m[0] in wire.QUESTIONS and m[1] == broker]:
            self._held[(*message[:-1], wire.ABANDONED)] = self._held.pop(message)
        requests = (m for m in after[2] if m[0] in wire.QUESTIONS and m[1] == broker)
        question = next((m for m in requests if m[-1] == wire.AWAITED), None)
        if question is None:
            self._add("ask", follower, "lose=request")
        else:
            self._add("ask", follower, f"hold=request as={self._hold(question)}")

    def _lag(self, pair: str, _before: State, _after: State) -> None:
        leader, follower = pair.split(", ")
        self._add(f"tick {LATE_MS} slow={follower} at={leader}")

    # -- the network -------------------------------------------------------------------------

    def _hold(self, message: wire.Message) -> str:
        self._held_ever += 1
        name = self._held[message] = f"x{self._held_ever}"
        return name

    def _deliver(self, title: str, before: State, after: State) -> None:
        kind, _, route = title.partition(" ")
        candidates = [m for m in before[2] if wire.NAMES[m[0]] == kind and _route(m) == route]
        fresh = [m for m in after[2] if m not in before[2] and m[2] == candidates[0][1]]
        reply = next((m for m in fresh if m[0] in wire.REPLIES), None)
        # Of two equal requests, only the last gets a response.
        answered = wire.ABANDONED if reply is None else wire.AWAITED
        message = min(candidates, key=lambda m: (m in after[2], m[-1] != answered))
        if message[0] == wire.PROPOSE:
            self._propose(message, before, after)
            return
        if message[0] == wire.ANSWER and not message[5]:
            self._accepted(message)
            return
        held = self._held.pop(message, "")
        if not held:
            raise StoryError("the story never sent this message")
        if message[0] not in wire.QUESTIONS or message[-1] == wire.ABANDONED:
            self._add("deliver", held)
            return
        fate = "lose=reply" if reply is None else f"hold=reply as={self._hold(reply)}"
        self._add("deliver", held, fate)

    # -- ISR proposals -----------------------------------------------------------------------

    def _propose(self, message: wire.Message, before: State, after: State) -> None:
        """Deliver an ISR proposal to the controller.

        An acceptance has no effect until the leader receives the metadata change. A refusal may
        be late or lost.
        """
        leader = broker_name(message[1])
        self._drop_older_proposal(leader, message)
        accepted = after[1][-1] != before[1][-1]
        fresh = (m for m in after[2] if m not in before[2] and m[0] == wire.ANSWER)
        answer = next((m for m in fresh if m[2] == message[1]), None)
        fate = ""
        if not accepted:
            fate = f"hold=reply as={self._hold(answer)}" if answer else "lose=reply"
            if answer:
                self._refusals[leader] = self._held[answer]
        self._add("ask-isr", leader, self._unseen, fate)

    def _drop_older_proposal(self, leader: str, message: wire.Message) -> None:
        """Lose the leader's older proposal: a broker has at most one proposal in flight."""
        for sent in self._draft.world.proposals:
            request = sent.request
            assert isinstance(request, AlterPartitionReceived), "proposals are nothing else"
            (proposal,) = request.proposals
            members = tuple(sorted(member.broker - 1 for member in proposal.isr))
            wanted = message[3], message[4], message[5]
            found = members, proposal.partition_epoch, proposal.leader_epoch
            if sent.sender.name == leader and found != wanted:
                self._add("ask-isr", leader, "lose=request")
                self._add(f"tick {RETRY_MS}")
                return

    def _accepted(self, answer: wire.Message) -> None:
        partition = self._draft.world.brokers[broker_name(answer[2])].partition
        if partition is not None and partition.partition_epoch < answer[7]:
            self._deliver_changes(broker_name(answer[2]), answer[7] - partition.partition_epoch)

    # -- the controller ----------------------------------------------------------------------

    def _learn(self, what: str, before: State, _after: State) -> None:
        name, epoch = what.split(", ")
        known = fields_of(before[0][self._names.index(name)][0])[PARTITION_EPOCH]
        if int(epoch) > known:  # stories deliver in order; an old change has no effect
            self._deliver_changes(name, int(epoch) - known)

    def _deliver_changes(self, name: str, changes: int) -> None:
        """Deliver the next `changes` changes of the partition to a broker, as one change.

        So the broker does not see that another broker was fenced for a moment.
        """
        world = self._draft.world
        broker, controller = world.brokers[name], world.controller
        known = -1 if broker.partition is None else broker.partition.partition_epoch
        all_known = known + changes >= controller.partition.partition_epoch
        limit = "" if all_known else f"words={changes}"
        missed = controller.changes_after(broker.watches or 0)
        changed = (change.key for batch in missed for change in batch.changes)
        fenced = any(key.startswith(keys.BROKER_STATES) for key in changed)
        self._add("tell", name, "newest" if changes > 1 or fenced else "", limit)

    def _elect(self, name: str, _before: State, _after: State) -> None:
        if name in self._fenced:
            self._unfence(name)
        partition = self._draft.world.controller.partition
        if partition.leader != self._draft.world.brokers[name].id:
            self._add("elect", name, self._unseen)

    def _fence(self, name: str, before: State, after: State) -> None:
        leader = after[1][-1][0]
        successor = f"leader={broker_name(leader)}" if before[1][-1][0] != leader >= 0 else ""
        self._add("fence", name, successor, self._unseen)
        self._fenced.add(name)
        if leader >= 0:
            self._unfence(name)

    def _unfence(self, name: str) -> None:
        self._fenced.discard(name)
        self._add("unfence", name, self._unseen)

    def _restart(self, what: str, before: State, after: State) -> None:
        name, _, end = what.partition(", ")
        if self._names.index(name) in before[1][-1][3]:
            leader = after[1][-1][0]
            successor = f"leader={broker_name(leader)}" if before[1][-1][0] != leader >= 0 else ""
            self._add("fence", name, successor, self._unseen)
        self._fenced.discard(name)
        newest = after[1][-1][2]
        behind = [
            other
            for other, (frozen, _) in zip(self._names, before[0], strict=True)
            if other != name and fields_of(frozen)[PARTITION_EPOCH] < newest
        ]
        for other in self._names:
            withheld = self._draft.world.brokers[other].metadata_withheld
            if withheld and other != name and other not in behind:
                self._add("tell", other)
        unseen = "unseen=" + ",".join(behind) if behind else ""
        self._add("restart", name, f"cut={end}" if end else "", unseen)

    def _report(self, _name: str, _before: State, _after: State) -> None:
        raise StoryError("a story's controller handles reports only with the option `recovery`")


def _route(message: wire.Message) -> str:
    return f"{broker_name(message[1])}->{broker_name(message[2])}"
