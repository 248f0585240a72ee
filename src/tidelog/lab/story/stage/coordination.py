"""The messages of coordinators: between them, with the leaders of partitions, and markers.

Coordinators replicate their own topics, and requests of leaders reach them, without a command. Only
markers wait for a command: stories about transactions show what happens before they are written.
"""

from tidelog.core.node import events as on
from tidelog.core.node.messages import AddPartitionsToTxn, WriteTxnMarkers
from tidelog.core.types import Offset
from tidelog.lab.story.stage.broker import Sent
from tidelog.lab.story.stage.coordinator_log import OFFSETS, TRANSACTIONS
from tidelog.lab.story.stage.narration import message, request_text, response_text
from tidelog.lab.story.stage.network import ARRIVES, REPLY, REQUEST, Fate, Network
from tidelog.lab.story.stage.world import World

ROUNDS_MAX = 60
"""More rounds than any exchange between coordinators takes."""


class Coordination:
    """Delivers the messages of coordinators."""

    def __init__(self, world: World, network: Network) -> None:
        self.world = world
        self.network = network
        self._open: list[tuple[Sent, int, bool]] = []
        """Requests without a response yet, the incarnation of their receiver, and whether the
        response will be lost."""

    def run(self) -> None:
        """Deliver everything but markers, until nothing changes any more."""
        if not self.world.setup.coordinators:
            return
        before: object = None
        for _ in range(ROUNDS_MAX):
            self._deliver_responses()
            waiting = [sent for sent in self.world.calls if not _has_markers(sent)]
            for sent in waiting:
                self.world.calls.remove(sent)
                self._deliver(sent)
            after = self._offsets(), len(self._open)
            asked = any(isinstance(sent.request, AddPartitionsToTxn) for sent in waiting)
            if after == before and not asked:
                return
            before = after

    def _offsets(self) -> list[tuple[Offset, Offset]]:
        """Return the end and the high watermark of each replica of the internal topics."""
        nodes = [broker.node for broker in self.world.brokers.values() if broker.node is not None]
        hosted = [node.replicas.get(name) for node in nodes for name in (TRANSACTIONS, OFFSETS)]
        parts = [each.partition for each in hosted if each is not None]
        return [(part.log_end_offset, part.high_watermark) for part in parts]

    def send_markers(self, fate: Fate = ARRIVES) -> bool:
        """Deliver the requests with markers that were sent; False if there are none."""
        waiting = [sent for sent in self.world.calls if _has_markers(sent) and _is_current(sent)]
        self.world.calls = [sent for sent in self.world.calls if not _has_markers(sent)]
        for sent in waiting:
            self._deliver(sent, fate)
        self.run()
        return bool(waiting)

    def _deliver(self, sent: Sent, fate: Fate = ARRIVES) -> None:
        world, sender = self.world, sent.sender
        if not _is_current(sent):
            return
        receiver = world.brokers[world.labels[sent.receiver]]
        reached = receiver.alive and world.reachable(sender.name, receiver.name)
        lost = not reached or fate.lose == REQUEST
        if _is_shown(sent):
            mark = "lost" if lost else "held" if fate.hold else ""
            text = request_text(sent.request)
            world.lines.append(message(sender.name, receiver.name, text, mark))
        if lost:
            world.step(sender, on.RequestFailed(sent.correlation, world.now_ms))
        elif fate.hold:
            self.network.late[fate.name] = lambda: self._arrive_late(sent)
        else:
            self._arrive(sent, lose_reply=fate.lose == REPLY)

    def _arrive_late(self, sent: Sent) -> None:
        receiver = self.world.labels[sent.receiver]
        text = request_text(sent.request)
        self.world.lines.append(message(sent.sender.name, receiver, text, "late"))
        self._arrive(sent)
        self.run()

    def _arrive(self, sent: Sent, *, lose_reply: bool = False) -> None:
        receiver = self.world.brokers[self.world.labels[sent.receiver]]
        if not receiver.alive:
            return
        response = self.network.handle(sent, receiver)
        if response is None:
            self._open.append((sent, receiver.incarnation, lose_reply))
        else:
            self._return(sent, response, lose_reply=lose_reply)

    def _deliver_responses(self) -> None:
        """Deliver the responses that became ready, and fail requests to brokers that stopped."""
        waiting, self._open = self._open, []
        for sent, incarnation, lose_reply in waiting:
            receiver = self.world.brokers[self.world.labels[sent.receiver]]
            key = (sent.sender.name, sent.correlation)
            response = self.world.answers.pop(key, None)
            if response is not None:
                self._return(sent, response, lose_reply=lose_reply)
            elif receiver.alive and receiver.incarnation == incarnation:
                self._open.append((sent, incarnation, lose_reply))
            elif _is_current(sent):
                self.world.step(sent.sender, on.RequestFailed(sent.correlation, self.world.now_ms))

    def _return(self, sent: Sent, response: object, *, lose_reply: bool) -> None:
        world, sender = self.world, sent.sender
        if _is_shown(sent):
            mark = "lost" if lose_reply or not _is_current(sent) else ""
            receiver = world.labels[sent.receiver]
            world.lines.append(message(receiver, sender.name, response_text(response), mark))
        if not _is_current(sent):
            return
        event = on.ResponseReceived(sent.correlation, response, world.now_ms)
        failed = on.RequestFailed(sent.correlation, world.now_ms)
        world.step(sender, failed if lose_reply else event)


def _is_current(sent: Sent) -> bool:
    """Whether the process that sent the request still runs."""
    return sent.sender.alive and sent.incarnation == sent.sender.incarnation


def _has_markers(sent: Sent) -> bool:
    return isinstance(sent.request, WriteTxnMarkers)


def _is_shown(sent: Sent) -> bool:
    """Whether stories show a message. They do not show the replication of internal topics."""
    return isinstance(sent.request, WriteTxnMarkers | AddPartitionsToTxn)
