"""The gate of a listener with SASL: frames of clients that are not authenticated yet.

An authenticated connection hands its frames to the listener's dispatch directly, so its requests
cost no more than on a listener without SASL. Only if `connections.max.reauth.ms` is set, each
request is checked against the end of the authentication.

Invariant: no frame reaches the dispatch before the authentication, except ApiVersions.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from tidelog.core.api.exchange import CloseCode, Reply
from tidelog.core.api.peer_session import PeerSession
from tidelog.core.api.sasl_exchange import Outcome, SaslExchange, SaslRefused, SaslRules, State
from tidelog.core.api_table import SASL_AUTHENTICATE, SASL_HANDSHAKE
from tidelog.core.wire.primitives import MalformedRequest

After: TypeAlias = Callable[[int, Callable[[], None]], object]
"""Runs a callback after some milliseconds."""
Frame: TypeAlias = Callable[[Any, memoryview], None]
"""Handles a frame of a connection."""


class GatedConnection(Protocol):
    """A connection that has to authenticate."""

    session: PeerSession

    def reserve(self) -> Reply:
        """Reserve the place of the next response."""
        ...

    def refuse(self, reason: str, code: CloseCode = CloseCode.REFUSED) -> None:
        """Close the connection."""
        ...

    def handle_by(self, handle: Frame) -> None:
        """Pass further frames to this function."""
        ...


class SaslGate:
    """Authenticates the connections of one listener."""

    def __init__(
        self,
        rules: SaslRules,
        serve: Frame,
        authenticated: Callable[[Any], None],
        failed: Callable[[Any, str], None],
        now_ms: Callable[[], int],
        after: After,
        fault: Callable[[Exception], None] | None = None,
    ) -> None:
        """`serve` handles the requests of authenticated connections. `authenticated` is called for
        each once; `failed` with the reason at each failure, before its response is delayed."""
        self._rules = rules
        self._serve = serve
        self._authenticated = authenticated
        self._failed = failed
        self._now_ms = now_ms
        self._after = after
        self._fault = fault

    def frame(self, connection: GatedConnection, frame: memoryview) -> None:
        """Handle a frame of a connection that may not be authenticated yet."""
        session = connection.session
        exchange = session.sasl
        if exchange is None:
            exchange = session.sasl = SaslExchange(self._rules)
        if exchange.state is State.COMPLETE:
            self._serve_until_expired(connection, frame)
        elif exchange.state is not State.FAILED:  # else the connection is about to be closed
            self._receive(connection, exchange, frame)

    def _receive(
        self, connection: GatedConnection, exchange: SaslExchange, frame: memoryview
    ) -> None:
        again = exchange.principal is not None
        try:
            outcome = exchange.receive(frame, self._now_ms())
        except SaslRefused as refused:
            self._fail(connection, Outcome(failure=str(refused)))
            return
        except MalformedRequest as malformed:
            connection.refuse(f"malformed request: {malformed}", CloseCode.MALFORMED)
            return
        except Exception as error:  # a bug must cost one connection only
            if self._fault is None:
                raise
            self._fault(error)
            connection.refuse("internal error; see the broker's log")
            return
        if outcome.forward:
            self._serve(connection, frame)
        elif outcome.failure:
            self._fail(connection, outcome)
        else:
            assert outcome.response is not None, "a request that did not fail has a response"
            if outcome.refused:
                self._failed(connection, outcome.refused)
            connection.reserve().fill(outcome.response)
            if exchange.state is State.COMPLETE:
                self._complete(connection, exchange, again=again)

    def _complete(
        self, connection: GatedConnection, exchange: SaslExchange, *, again: bool
    ) -> None:
        assert exchange.principal is not None
        limited = exchange.expires_ms is not None
        connection.handle_by(self._serve_until_expired if limited else self._serve)
        if not again:
            connection.session.principal = exchange.principal
            self._authenticated(connection)

    def _fail(self, connection: GatedConnection, outcome: Outcome) -> None:
        """Respond and close the connection after a delay, which slows down guessing.

        The failure is recorded now: a client that hangs up during the delay must not hide it.
        """
        if not outcome.is_recorded:
            self._failed(connection, outcome.failure)
        reply = connection.reserve() if outcome.response is not None else None

        def end() -> None:
            if reply is not None and outcome.response is not None:
                reply.fill(outcome.response)
            connection.refuse(outcome.failure, CloseCode.NOT_COUNTED)

        if self._rules.failure_delay_ms:
            self._after(self._rules.failure_delay_ms, end)
        else:
            end()

    def _serve_until_expired(self, connection: GatedConnection, frame: memoryview) -> None:
        """Handle a frame of a connection whose authentication ends."""
        exchange: SaslExchange = connection.session.sasl
        key = int.from_bytes(frame[:2], "big")
        if exchange.state is not State.COMPLETE:
            self.frame(connection, frame)
        elif key == SASL_HANDSHAKE and exchange.begin_again(self._now_ms()):
            self._receive(connection, exchange, frame)
        elif (
            exchange.expires_ms is not None
            and self._now_ms() >= exchange.expires_ms
            and key not in (SASL_HANDSHAKE, SASL_AUTHENTICATE)
        ):
            reason = f"{exchange.principal} did not authenticate again in time"
            self._failed(connection, reason)
            connection.refuse(reason, CloseCode.NOT_COUNTED)
        else:
            self._serve(connection, frame)
