"""The OAUTHBEARER side of one broker: checks for its listeners, and its token for other brokers.

Imported only if a listener uses OAUTHBEARER: its libraries take megabytes of a broker's memory.
"""

from collections.abc import Callable

from tidelog.core.api.sasl_login import SaslLogin
from tidelog.core.api.sasl_rules import TokenCheck, token_login
from tidelog.core.settings.broker_settings import BrokerSettings
from tidelog.core.settings.listeners import Listener, uses_sasl
from tidelog.core.settings.oauth import OauthSettings, TokenSource
from tidelog.shell.net.event_loop import EventLoop
from tidelog.shell.oauth.own_token import BrokerToken
from tidelog.shell.oauth.token_check import ListenerTokens


class TokenListeners:
    """The checks of all listeners with OAUTHBEARER."""

    def __init__(
        self, loop: EventLoop, settings: BrokerSettings, report: Callable[[str], None]
    ) -> None:
        """Raises WrongValue if keys can't be used."""
        self._checks: dict[str, TokenCheck] = {}
        made: dict[OauthSettings, ListenerTokens] = {}
        for listener in (*settings.listeners.clients, settings.internal_listener):
            oauth = (
                settings.sasl(listener).oauth if uses_sasl(settings.protocol(listener)) else None
            )
            if oauth is not None:
                if oauth not in made:
                    made[oauth] = ListenerTokens(loop, oauth, report)
                one = made[oauth]
                self._checks[listener.name] = TokenCheck(one.check, one.wall_ms)
        login = settings.broker_login
        self._source: TokenSource | None = None if login is None else login.token
        self._own = None if self._source is None else BrokerToken(loop, self._source, report)

    def check(self, listener: Listener) -> TokenCheck | None:
        """Return the check of a listener's tokens; None without OAUTHBEARER."""
        return self._checks.get(listener.name)

    def login(self, client_id: str) -> SaslLogin:
        """Return a login of this broker at another one. Raises SaslFailed without a token."""
        assert self._own is not None, "brokers use OAUTHBEARER"
        assert self._source is not None
        return token_login(self._own.get(), dict(self._source.extensions), client_id)
