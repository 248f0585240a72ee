"""Messages between brokers, delivered one by one as the story says.

A follower's request stays in its outbox. An exchange delivers it to the leader and returns
the response. The story may lose either message, or hold it and deliver it later, once or
more. For the follower, a held message becomes a failed request at its next request.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tidelog.core.errors import ErrorCode
from tidelog.core.node import events as on
from tidelog.core.node.messages import (
    Fetch,
    FetchResponse,
    ListOffsetsResponse,
    OffsetForLeaderEpochResponse,
)
from tidelog.core.storage.disk import Region, read_region
from tidelog.lab.story.grammar import StoryError
from tidelog.lab.story.stage.broker import Sent, StoryBroker
from tidelog.lab.story.stage.narration import (
    CONTROLLER,
    compares_epochs,
    message,
    request_text,
    response_text,
)
from tidelog.lab.story.stage.world import World

REQUESTS_MAX = 10
"""An upper limit for the requests around one fetch; no log needs this many."""
REQUEST, REPLY = "request", "reply"


@dataclass(frozen=True, slots=True)
class Fate:
    """What happens to an exchange: `lose` or `hold` its request or its reply."""

    lose: str = ""
    hold: str = ""
    name: str = ""
    """The name of a held message."""


ARRIVES = Fate()


@dataclass(slots=True)
class Held:
    """A held message; the story can deliver it more than once."""

    sent: Sent
    response: object | None
    """The held response; None if the request itself is held."""
    text: str
    """The printed text of the message."""


class Network:
    """The network: runs exchanges, and keeps the held messages."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.held: dict[str, Held] = {}
        self.late: dict[str, Callable[[], None]] = {}
        """Held requests of clients and coordinators: each call delivers one."""

    def fetch(self, broker: StoryBroker, fate: Fate = ARRIVES) -> None:
        """Run one fetch, with the requests needed before it and those that follow from it.

        `fate` applies to the fetch itself.
        """
        fetched = False
        for _ in range(REQUESTS_MAX):
            sent = self._next_request(broker)
            if sent is None:
                if not fetched:
                    self.world.add_line(f"{broker.name} has no request to send")
                return
            is_fetch = isinstance(sent.request, Fetch)
            if is_fetch and fetched:
                broker.outbox.insert(0, sent)
                return
            fetched |= is_fetch
            if not self._exchange(sent, fate if is_fetch else ARRIVES):
                return

    def ask(self, broker: StoryBroker, fate: Fate = ARRIVES) -> None:
        """Run one exchange, whatever the follower's next request is."""
        sent = self._next_request(broker)
        if sent is None:
            self.world.add_line(f"{broker.name} has no request to send")
        else:
            self._exchange(sent, fate)

    def follows(self, broker: StoryBroker) -> bool:
        """Return whether a broker has a request for a leader."""
        sent = self._next_request(broker)
        if sent is not None:
            broker.outbox.insert(0, sent)
        return sent is not None

    def _next_request(self, broker: StoryBroker) -> Sent | None:
        """Return a broker's next request to its leader, or None.

        Stale requests and a held request fail first. So does a fetch without partitions,
        which only removes partitions from its session.
        """
        for _ in range(REQUESTS_MAX):
            partition = broker.partition
            if partition is None:
                return None
            while broker.outbox:
                sent = broker.outbox.pop(0)
                current = sent.leader_epoch == partition.leader_epoch
                has_partition = not isinstance(sent.request, Fetch) or sent.request.partitions
                if current and has_partition and sent.receiver == partition.leader:
                    return sent
                self._fail(sent)
            if broker.held_request is None:
                return None
            correlation, broker.held_request = broker.held_request, None
            self.world.step(broker, on.RequestFailed(correlation, self.world.now_ms))
        return None

    def _exchange(self, sent: Sent, fate: Fate) -> bool:
        """Deliver a request and return its reply; False if either is lost or held."""
        sender = sent.sender
        receiver = self.world.labels[sent.receiver]
        reached = self.world.reachable(sender.name, receiver)
        reached = reached and self.world.brokers[receiver].alive
        lost = fate.lose == REQUEST or not reached
        held = fate.hold == REQUEST
        text = request_text(sent.request, self._compares(sent))
        self._add_message(sender.name, receiver, text, lost=lost, held=held)
        if held:
            self._hold(fate.name, Held(sent, None, text))
            return False
        if lost:
            self._fail(sent)
            return False
        return self._reply(sent, fate)

    def _reply(self, sent: Sent, fate: Fate) -> bool:
        """Let the receiver reply; deliver, lose or hold the reply. True if it was delivered."""
        sender = sent.sender
        receiver = self.world.brokers[self.world.labels[sent.receiver]]
        response = self.handle(sent, receiver)
        lost, held = fate.lose == REPLY, fate.hold == REPLY
        compared = self._compares(sent)
        text = "no response" if response is None else response_text(response, compared)
        self._add_message(receiver.name, sender.name, text, lost=lost, held=held)
        if held and response is not None:
            self._hold(fate.name, Held(sent, response, text))
            return False
        if lost or response is None:
            self._fail(sent)
            return False
        self._arrive(sent, response)
        return True

    def handle(self, sent: Sent, receiver: StoryBroker) -> object | None:
        """Return the receiver's response, with records read from its log at this moment."""
        peer = sent.sender.name
        event = on.RequestReceived(peer, sent.correlation, sent.request, self.world.now_ms)
        self.world.step(receiver, event)
        response = self.world.answers.pop((peer, sent.correlation), None)
        if isinstance(response, FetchResponse):
            for part in response.partitions:
                if isinstance(part.records, Region):
                    part.records = read_region(receiver.disk, part.records)
        return response

    def _compares(self, sent: Sent) -> bool:
        """Return whether the leader's comparison of the epochs decides something new.

        Each fetch has the epoch of the follower's last record. It is shown until a response of this
        leader epoch confirms that the logs agree; later fetches only repeat it.
        """
        done = sent.sender.compared == (sent.incarnation, sent.leader_epoch)
        return not done and compares_epochs(sent.request)

    def _arrive(self, sent: Sent, response: object) -> None:
        if sent.incarnation != sent.sender.incarnation:
            return
        if _agrees(response):
            sent.sender.compared = sent.incarnation, sent.leader_epoch
        event = on.ResponseReceived(sent.correlation, response, self.world.now_ms)
        self.world.step(sent.sender, event, _truncation_reason(response))

    def _fail(self, sent: Sent) -> None:
        if sent.incarnation != sent.sender.incarnation:
            return
        self.world.step(sent.sender, on.RequestFailed(sent.correlation, self.world.now_ms))

    def keep(self, name: str, held: Held) -> None:
        """Hold a message under a name."""
        if name in self.held:
            raise StoryError(f"a message is already held as {name!r}")
        self.held[name] = held

    def _hold(self, name: str, held: Held) -> None:
        self.keep(name, held)
        held.sent.sender.held_request = held.sent.correlation

    def deliver(self, name: str, fate: Fate = ARRIVES) -> None:
        """Deliver a held message; the story may deliver it again.

        `fate` applies to the reply, if the held message is a request.
        """
        held = self.held[name]
        sent = held.sent
        sender, receiver = sent.sender.name, self.world.labels.get(sent.receiver, CONTROLLER)
        before = sent.sender.visible
        if held.response is not None:
            if fate != ARRIVES:
                raise StoryError(f"{name!r} is a reply, which causes no message to lose or hold")
            self._add_message(receiver, sender, held.text, late=True)
            self._arrive(sent, held.response)
        else:
            self._add_message(sender, receiver, held.text, late=True)
            if not self.world.brokers[receiver].alive:
                return
            if not self._reply(sent, fate) and fate != ARRIVES:
                return
        if sent.sender.visible == before:
            self.world.add_line(f"{sender} ignores the message")

    def _add_message(self, sender: str, receiver: str, text: str, **fate: bool) -> None:
        mark = next((name for name, true in fate.items() if true), "")
        self.world.lines.append(message(sender, receiver, text, mark))


def _agrees(response: object) -> bool:
    """Return whether a response to a fetch says that the follower's log does not diverge."""
    match response:
        case FetchResponse(partitions=[part]):
            return part.error is ErrorCode.NONE and part.diverging is None
        case _:
            return False


def _truncation_reason(response: object) -> str:
    """Return the reason for a truncation that results from this response."""
    match response:
        case ListOffsetsResponse():
            return "the leader's LEO"
        case OffsetForLeaderEpochResponse(partitions=[part]) if part.end is None:
            return "its own HW"
        case _:
            return "not in the leader's log"
