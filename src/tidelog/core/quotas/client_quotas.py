"""The client quotas of one broker: which limit applies to a client, and what the client has used.

Each broker measures on its own: a quota is what one broker allows, as in Kafka. The limit is that
of the first entity that has one: user and client id, user and default client id, user, default user
and client id, default user and default client id, default user, client id, default client id.
Clients whose limit is that of a user share what it allows; so do clients with the same client id.

A client without a limit is not measured, and without any quota nothing is.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol, TypeAlias

from tidelog.core.quotas.entity import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    Quotas,
    canonical_ip,
)
from tidelog.core.quotas.rate import TokenBucket, WindowedRate

IDLE_MS_MAX = 3_600_000
"""What a client has used is forgotten when it sent nothing for this long."""
CLIENTS_MAX = 10_000
"""Clients that are measured at once, for each quota; beyond that, the longest idle is forgotten."""
CLIENT_ID_BYTES_MAX = 255
"""A longer client id is kept and shown as its beginning and a hash."""
_BEGINNING_BYTES = 200
_UTF8_BYTES_MAX = 4

Sharers: TypeAlias = tuple[str, str]
"""The user and the client id that share a limit; empty: any."""

_ABSENT = ""
_DEFAULT = None


def short_client_id(client_id: str) -> str:
    """Return a client id, or what stands for a long one: a client could name 32 kilobytes in each
    request, and the metrics repeat the client id."""
    if len(client_id) * _UTF8_BYTES_MAX <= CLIENT_ID_BYTES_MAX:
        return client_id
    encoded = client_id.encode()
    if len(encoded) <= CLIENT_ID_BYTES_MAX:
        return client_id
    from hashlib import sha256  # it takes 4 MB of memory

    beginning = encoded[:_BEGINNING_BYTES].decode(errors="ignore")
    return f"{beginning}...{sha256(encoded).hexdigest()[:32]}"


class Windows(NamedTuple):
    """The settings of the measurement: `quota.window.*` and `controller.quota.window.*`."""

    samples: int = 11
    window_s: int = 1
    controller_samples: int = 11
    controller_window_s: int = 1


class QuotaSource(Protocol):
    """The metadata that has the quotas: the image of the cluster."""

    quotas: dict[tuple[tuple[str, str | None], ...], dict[str, float]]
    quota_changes: int


class Usage:
    """What the clients that share one limit have used."""

    __slots__ = ("rate", "throttled", "throttled_ms", "tokens", "used_ms")

    def __init__(self, rate: WindowedRate, tokens: TokenBucket | None) -> None:
        self.rate = rate
        self.tokens = tokens
        self.used_ms = 0
        self.throttled = 0
        """How often the clients were throttled."""
        self.throttled_ms = 0
        """The sum of their throttle times."""


class Limit(NamedTuple):
    """The limit of some clients, and what they have used."""

    value: float
    sharers: Sharers
    usage: Usage


class ClientQuota:
    """The quota of one kind, such as `producer_byte_rate`.

    Its functions take client ids as `short_client_id` returns them.
    """

    __slots__ = ("_limits", "_usages", "_windows", "key")

    def __init__(self, key: str, windows: Windows) -> None:
        self.key = key
        self._windows = windows
        self._limits: dict[tuple[str | None, str | None], float] = {}
        self._usages: dict[Sharers, Usage] = {}

    def set_limits(self, quotas: Quotas) -> None:
        """Use these limits from now on."""
        limits = {}
        for entity, values in quotas.items():
            if self.key in values:
                parts = dict(entity)
                user, client_id = parts.get(USER, _ABSENT), parts.get(CLIENT_ID, _ABSENT)
                limits[user, client_id and short_client_id(client_id)] = values[self.key]
        self._limits = limits
        if not limits:
            self._usages.clear()

    @property
    def window_ms(self) -> int:
        """The time of one sample."""
        return self._windows.window_s * 1000

    def window_total(self, user: str, client_id: str) -> int | None:
        """What a client may use at once without being throttled; None without a limit."""
        found = self.limit_of(user, client_id) if self._limits and user else None
        if found is None:
            return None
        windows = self._windows
        return int(found[0] * (windows.samples - 1) * windows.window_s)

    def find(self, user: str, client_id: str, now_ms: int) -> Limit | None:
        """Return the limit of a client; None without one."""
        found = self.limit_of(user, client_id) if self._limits else None
        if found is None:
            return None
        value, sharers = found
        usage = self._usages.pop(sharers, None)
        if usage is None:
            self._forget_idle(now_ms, CLIENTS_MAX - 1)
            usage = self._new_usage()
        usage.used_ms = now_ms
        self._usages[sharers] = usage  # the longest idle comes first
        return Limit(value, sharers, usage)

    def limit_of(self, user: str, client_id: str) -> tuple[float, Sharers] | None:
        """Return the value of a client's limit, and which clients share it; None without one."""
        limits = self._limits
        if client_id:
            for name in ((user, client_id), (user, _DEFAULT)):
                if name in limits:
                    return limits[name], (user, client_id)
        if (user, _ABSENT) in limits:
            return limits[user, _ABSENT], (user, _ABSENT)
        if client_id:
            for other in ((_DEFAULT, client_id), (_DEFAULT, _DEFAULT)):
                if other in limits:
                    return limits[other], (user, client_id)
        if (_DEFAULT, _ABSENT) in limits:
            return limits[_DEFAULT, _ABSENT], (user, _ABSENT)
        if client_id:
            for last in ((_ABSENT, client_id), (_ABSENT, _DEFAULT)):
                if last in limits:
                    return limits[last], (_ABSENT, client_id)
        return None

    def usages(self, now_ms: int) -> list[tuple[Sharers, Usage]]:
        """Return what clients have used, for metrics."""
        self._forget_idle(now_ms, CLIENTS_MAX)
        return list(self._usages.items())

    def _new_usage(self) -> Usage:
        windows = self._windows
        if self.key == CONTROLLER_MUTATION_RATE:
            samples, window_ms = windows.controller_samples, windows.controller_window_s * 1000
            return Usage(WindowedRate(samples, window_ms), TokenBucket(samples, window_ms))
        return Usage(WindowedRate(windows.samples, windows.window_s * 1000), None)

    def _forget_idle(self, now_ms: int, most: int) -> None:
        usages = self._usages
        while usages:
            sharers = next(iter(usages))
            if len(usages) <= most and now_ms - usages[sharers].used_ms < IDLE_MS_MAX:
                return
            del usages[sharers]


class ConnectionRates:
    """`connection_creation_rate`: how many new connections of one address a broker accepts."""

    __slots__ = ("_default", "_limits", "_max_wait_ms", "_rates", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._max_wait_ms = windows.window_s * 1000
        self._limits: dict[str, float] = {}
        self._default: float | None = None
        self._rates: dict[str, tuple[WindowedRate, int]] = {}

    def set_limits(self, quotas: Quotas) -> None:
        """Use these limits from now on."""
        self._limits, self._default = {}, None
        for entity, values in quotas.items():
            if entity[0][0] != IP or CONNECTION_CREATION_RATE not in values:
                continue
            address = entity[0][1]
            value = values[CONNECTION_CREATION_RATE]
            if address is None:
                self._default = value
            else:
                self._limits[canonical_ip(address) or address] = value

    def wait_ms(self, ip: str, now_ms: int) -> int:
        """Count a new connection; or return how long its client must wait, without counting it."""
        limit = self._limits.get(ip, self._default)
        if limit is None:
            return 0
        rate, _ = self._rates.pop(ip, (None, 0))
        if rate is None:
            self._forget_idle(now_ms)
            rate = WindowedRate(self._windows.samples, self._max_wait_ms)
        self._rates[ip] = rate, now_ms
        rate.record(1, now_ms)
        wait_ms = min(rate.throttle_ms(limit, now_ms), self._max_wait_ms)
        if wait_ms:
            rate.record(-1, now_ms)
        return wait_ms

    def _forget_idle(self, now_ms: int) -> None:
        rates = self._rates
        while rates:
            ip = next(iter(rates))
            if len(rates) < CLIENTS_MAX and now_ms - rates[ip][1] < IDLE_MS_MAX:
                return
            del rates[ip]


class ClientQuotas:
    """All client quotas of one broker, as of the latest metadata."""

    __slots__ = ("_seen", "_source", "connections", "fetch", "mutation", "produce", "request")

    def __init__(self, source: QuotaSource, windows: Windows) -> None:
        self._source = source
        self._seen = 0
        self.produce = ClientQuota(PRODUCER_BYTE_RATE, windows)
        self.fetch = ClientQuota(CONSUMER_BYTE_RATE, windows)
        self.request = ClientQuota(REQUEST_PERCENTAGE, windows)
        self.mutation = ClientQuota(CONTROLLER_MUTATION_RATE, windows)
        self.connections = ConnectionRates(windows)

    def current(self) -> "ClientQuotas":
        """Return the quotas after a look whether they changed."""
        if self._seen != self._source.quota_changes:
            self._seen = self._source.quota_changes
            quotas = self._source.quotas
            for kind in self.kinds():
                kind.set_limits(quotas)
            self.connections.set_limits(quotas)
        return self

    def kinds(self) -> Iterator[ClientQuota]:
        """The quotas of users and client ids."""
        yield self.produce
        yield self.fetch
        yield self.request
        yield self.mutation

    def connection_wait_ms(self, ip: str, now_ms: int) -> int:
        """How long a new connection of this address must wait; 0: it is accepted and counted."""
        if not self._source.quotas:
            return 0
        return self.current().connections.wait_ms(ip, now_ms)
