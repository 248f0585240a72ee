"""Brokers with their dispatch: request frames in, response frames out."""

from collections.abc import Callable
from typing import Any

from api_cluster import ApiCluster
from node_cluster import resolve_records

from tidelog.core.api.dispatch import Dispatch
from tidelog.core.api.exchange import Chunks, CloseCode
from tidelog.core.api.handshake import NONCE_BYTES, ListeningHandshake, Member
from tidelog.core.api.internal_dispatch import InternalDispatch
from tidelog.core.api.peer_session import PeerSession
from tidelog.core.node import effects as do
from tidelog.core.types import BrokerId
from tidelog.core.wire.codec import decode_response, encode_request

CLUSTER_ID, SECRET = "cluster-1", "of the cluster"
PROBE_MS = 50


def member(broker: BrokerId) -> Member:
    return Member(CLUSTER_ID, broker, SECRET)


def address(broker: BrokerId) -> str:
    """Return the address at which the broker is registered for other brokers."""
    return f"127.0.0.1:{9000 + broker}"


class Answer:
    """The slot of one response."""

    def __init__(self, line: "Line") -> None:
        self.line = line
        self.frame: bytes | None = None

    @property
    def abandoned(self) -> bool:
        return self.line.closed is not None

    def fill(self, chunks: Chunks) -> None:
        assert self.frame is None, "answered twice"
        self.frame = b"".join(bytes(chunk) for chunk in chunks)  # type: ignore[arg-type]

    def refuse(self, reason: str, code: CloseCode = CloseCode.REFUSED) -> None:
        self.line.refuse(reason, code)


class Line:
    """A connection: the responses sent on it, and why it was closed."""

    peer_host = "127.0.0.1"

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.put_back: list[bytes] = []
        self.muted_ms: list[int] = []
        self.closed: str | None = None
        self.close_code = CloseCode.NOT_COUNTED
        self.session = PeerSession()

    def mute(self, for_ms: int) -> None:
        self.muted_ms.append(for_ms)

    def reserve(self) -> Answer:
        self.answers.append(Answer(self))
        return self.answers[-1]

    def reserve_alone(self, frame: memoryview) -> Answer | None:
        """Reserve a slot once all earlier requests are answered, as a real connection does."""
        if any(answer.frame is None for answer in self.answers):
            self.put_back.append(bytes(frame))
            return None
        return self.reserve()

    def send_now(self, chunks: Chunks) -> None:
        self.reserve().fill(chunks)

    def refuse(self, reason: str, code: CloseCode = CloseCode.REFUSED) -> None:
        self.closed, self.close_code = reason, code


class DispatchCluster(ApiCluster):
    """A cluster whose brokers handle requests from `Line` connections."""

    set_faults: Any = None
    nonces = 0
    fault: Callable[[Exception], None] | None = None

    def dispatch(self, broker: BrokerId) -> Dispatch:
        return Dispatch(
            self._broker(broker),
            lambda event: self.step(broker, event),
            lambda: self.now_ms,
            self._when_settled,
            lambda act: self.at(self.now_ms, act),
            fault=self.fault,
        )

    def _when_settled(self, act: Callable[[], None], unsettled: Callable[[], bool]) -> None:
        """Call `act` now, or when the store has answered which brokers are dead."""
        if unsettled():
            self.at(self.now_ms + PROBE_MS, act)
        else:
            act()

    def internal(self, broker: BrokerId) -> InternalDispatch:
        return InternalDispatch(
            self.dispatch(broker),
            lambda: ListeningHandshake(member(broker), address(broker), self._nonce()),
            self.nodes[broker].image.topic_names,
            lambda event: self.step(broker, event),
            lambda: self.now_ms,
            self.set_faults,
        )

    def _nonce(self) -> bytes:
        self.nonces += 1
        return self.nonces.to_bytes(NONCE_BYTES, "big")

    def _respond(self, broker: BrokerId, peer: Any, correlation: int, response: Any) -> None:
        if hasattr(peer, "respond"):
            resolve_records(self.disks[broker], response)
            peer.respond(correlation, response)
        else:
            super()._respond(broker, peer, correlation, response)

    def _carry_out(self, broker: BrokerId, node: Any, effect: do.Effect) -> None:
        if isinstance(effect, do.Close):
            effect.peer.refuse("by the node")  # type: ignore[attr-defined]
        else:
            super()._carry_out(broker, node, effect)

    def send(self, dispatch: Any, line: Line, frame: bytes) -> None:
        """Send a frame without its length, in a writable buffer."""
        dispatch.frame(line, memoryview(bytearray(frame)))

    def exchange(
        self, dispatch: Any, api_key: int, version: int, request: Any, line: Line | None = None
    ) -> Any:
        """Send a request, and wait for its response."""
        line = line or Line()
        before = len(line.answers)
        self.send(dispatch, line, encode_request(api_key, version, 5, "test", request)[4:])
        assert line.closed is None, line.closed
        [answer] = line.answers[before:]
        self.run_until(lambda: answer.frame is not None)
        assert answer.frame is not None
        assert int.from_bytes(answer.frame[:4], "big") == len(answer.frame) - 4
        correlation_id, response = decode_response(api_key, version, answer.frame[4:])
        assert correlation_id == 5
        return response
