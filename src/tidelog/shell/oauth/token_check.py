"""Checks the tokens of clients by the keys of the identity provider, which are read again at
intervals and when a token names an unknown key.

Keys are read in a thread, so that no identity provider holds up the broker. A broker starts without
keys if their server does not respond: tokens are refused until it does.

Keys that can't be read leave the old ones in use. A set without any usable key does not: the
provider has withdrawn its keys, perhaps because they were stolen.
"""

from collections.abc import Callable
from threading import Thread

from tidelog.core.sasl.access_token import (
    AcceptedToken,
    check_signed,
    check_unsecured,
    claims_of,
    refused,
    split_token,
)
from tidelog.core.settings.oauth import OauthSettings, file_of
from tidelog.core.settings.setting import WrongValue
from tidelog.shell.net.event_loop import EventLoop, Timer
from tidelog.shell.oauth.document import CannotRead, read_document
from tidelog.shell.oauth.signing_keys import NoKeys, SigningKeys, UnknownKey, require_library


class ListenerTokens:
    """The check of tokens on one listener."""

    def __init__(
        self, loop: EventLoop, settings: OauthSettings, report: Callable[[str], None]
    ) -> None:
        """Raises WrongValue if the keys are in a file that can't be used, or a library is
        missing. `report` is called with each change of what goes wrong."""
        self._loop = loop
        self._settings = settings
        self._report = report
        self._keys: SigningKeys | None = None
        self._reading = False
        self._last_read_ms: int | None = None
        self._retry_ms = settings.retry_ms
        self._trouble = ""
        self._timer: Timer | None = None
        if settings.unsecured is not None:
            report(
                "a listener accepts tokens without signature: everyone can log in as any user;"
                " use this for development only"
            )
            return
        require_library()
        if file_of(settings.keys_url) is not None:
            found = self._read()
            if isinstance(found, WrongValue):
                raise found
            self._have_read(found)
        else:
            self._begin()

    def wall_ms(self) -> int:
        """The time of day."""
        return self._loop.clock.wall_ms()

    def check(self, token: str) -> AcceptedToken:
        """Check a token. Raises SaslFailed."""
        settings = self._settings
        if settings.unsecured is not None:
            return check_unsecured(token, settings.unsecured, self.wall_ms())
        header = split_token(token).header
        if self._keys is None:
            raise refused(f"there are no keys yet: {self._trouble or 'they are being read'}")
        try:
            payload = self._keys.payload(token, header)
        except UnknownKey:
            self._begin_early()
            raise
        return check_signed(claims_of(payload), settings.rules, self.wall_ms())

    def _begin_early(self) -> None:
        """Read the keys now: the provider may have a new one. Clients choose the ids of keys, so
        this has a limit."""
        last_ms = self._last_read_ms
        if last_ms is None or self._loop.clock.now_ms() - last_ms >= self._settings.retry_max_ms:
            self._begin()

    def _begin(self) -> None:
        if self._reading:
            return
        self._reading = True
        if self._timer is not None:
            self._timer.cancel()

        def run() -> None:
            found = self._read()
            self._loop.call_from_thread(lambda: self._have_read(found))

        try:
            Thread(target=run, name="jwks", daemon=True).start()
        except RuntimeError as error:  # the system allows no more threads
            self._have_read(WrongValue(f"can't read {self._settings.keys_url}: {error}"))

    def _read(self) -> SigningKeys | WrongValue:
        """Return the keys, or why they can't be used."""
        url = self._settings.keys_url
        try:
            return SigningKeys(read_document(url, self._settings.tls))
        except CannotRead as error:
            return WrongValue(str(error))
        except WrongValue as wrong:
            return type(wrong)(f"can't use the keys of {url}: {wrong}")
        except Exception as error:  # noqa: BLE001 - a thread that ends silently would end all logins
            return WrongValue(f"can't read {url}: {type(error).__name__}: {error}")

    def _have_read(self, found: SigningKeys | WrongValue) -> None:
        """Use the new keys, keep the old ones, or use none; schedule the next reading."""
        settings = self._settings
        self._reading = False
        self._last_read_ms = self._loop.clock.now_ms()
        if isinstance(found, WrongValue):
            rest = "; the old keys stay in use" if self._keys is not None else ""
            if isinstance(found, NoKeys):
                self._keys, rest = None, "; tokens are refused until it has one"
            if str(found) != self._trouble:
                self._report(f"{found}{rest}")
            self._trouble = str(found)
            delay_ms = self._retry_ms
            self._retry_ms = min(self._retry_ms * 2, max(settings.retry_max_ms, settings.retry_ms))
        else:
            if self._trouble:
                self._report(f"read the keys of {settings.keys_url} again")
            self._keys, self._trouble = found, ""
            delay_ms, self._retry_ms = settings.refresh_ms, settings.retry_ms
        self._timer = self._loop.after(delay_ms, self._begin)
