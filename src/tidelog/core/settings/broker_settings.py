"""One broker's settings: every value, and where it comes from.

Layers override one another; the last one takes precedence. All errors are reported at once, each
with the place to fix it. An unknown setting only causes a warning, unless it is meant to protect
the broker (protection.py).

Invariant: the values of a BrokerSettings are valid, each by itself and in combination.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.core.sasl.mechanism import OAUTHBEARER
from tidelog.core.settings import listeners as addresses
from tidelog.core.settings.broker_keys import (
    BROKER,
    CONNECTION_RATE,
    UNIT_MS,
    broker_setting,
    connection_rate_listener,
    unit_of,
)
from tidelog.core.settings.listeners import Listener, Listeners
from tidelog.core.settings.sasl import (
    BETWEEN_BROKERS,
    SASL,
    SASL_KEYS,
    SaslSettings,
    check_mechanism,
    read_own_token,
    read_sasl,
    split_sasl_key,
)
from tidelog.core.settings.setting import INT_MAX, Setting, Value, WrongValue, parse, spell
from tidelog.core.settings.tls import TLS_KEYS, TlsSettings, listener_key, read_tls
from tidelog.core.settings.topic_keys import SYNONYMS, TOPIC

if TYPE_CHECKING:
    from tidelog.core.settings.oauth import TokenSource

_INTERNAL = "tidelog.internal"
"""The name of `tidelog.internal.listener`; those in `listeners` are in upper case."""
_LOOPBACK = "127.0.0.1"
_METRICS = "METRICS"
_SQLITE = "sqlite:"
_ETCD = ("etcd://", "etcds://")


class Entry(NamedTuple):
    """One setting as given; `place` is a file and line, a variable or an option."""

    name: str
    text: str
    place: str

    def __repr__(self) -> str:
        return f"Entry({self.name!r}, {self.place!r})"


class Layer(NamedTuple):
    """Entries of one kind: "tidelog up", "file", "environment" or "command line"."""

    kind: str
    entries: list[Entry]


class Source(NamedTuple):
    """The kind and place that a value comes from."""

    kind: str
    place: str = ""


DEFAULT = Source("default")


class InvalidSetting(NamedTuple):
    """One invalid setting and the reason."""

    name: str
    value: str
    place: str
    reason: str

    def __str__(self) -> str:
        shown = f"{self.name}={self.value}" if self.value else self.name
        return f"{self.place}: {shown}: {self.reason}"


class InvalidSettings(ValueError):
    """All invalid settings, one line each."""

    def __init__(self, problems: Iterable[InvalidSetting]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class BrokerLogin(NamedTuple):
    """The credentials of a broker towards other brokers."""

    mechanism: str
    user: str
    password: str
    token: "TokenSource | None" = None
    """With OAUTHBEARER, where its access token comes from; it has no user and no password then."""

    def __repr__(self) -> str:
        return f"BrokerLogin({self.mechanism!r}, {self.user!r})"


class BrokerSettings:
    """The values by Kafka's names, with the types of the table."""

    __slots__ = ("_given", "_sources")

    def __init__(self, given: dict[str, Value], sources: dict[str, Source]) -> None:
        self._given = given
        self._sources = sources

    def get(self, name: str) -> Any:
        return self._given[name] if name in self._given else BROKER[name].default

    def source(self, name: str) -> Source:
        return self._sources.get(name, DEFAULT)

    def overrides(self) -> dict[str, str]:
        """The settings that were given and are not empty."""
        texts = {name: spell(value) for name, value in sorted(self._given.items())}
        return {name: text for name, text in texts.items() if text is not None}

    def topic_default(self, topic_key: str) -> Any:
        """The value of a topic setting for topics that do not set it."""
        for name in SYNONYMS.get(topic_key, ()):
            value = self._given.get(name)
            if value is not None:
                return in_topic_unit(name, topic_key, value)
        return TOPIC[topic_key].default

    @property
    def node_id(self) -> int:
        number = self.get("node.id")
        return int(self.get("broker.id") if number is None else number)

    @property
    def log_dirs(self) -> list[str]:
        """The directories for partitions."""
        folders = self.get("log.dirs")
        if folders:
            return [str(folder) for folder in folders]
        return [str(self.get("log.dir") or f"tidelog-data/broker-{self.node_id}")]

    @property
    def log_dir(self) -> str:
        """The first directory for partitions."""
        return self.log_dirs[0]

    @property
    def metadata_store(self) -> str:
        """The URL of the metadata store: sqlite:PATH, etcd://... or etcds://..."""
        store = self.get("tidelog.metadata.store")
        if store is not None:
            return str(store)
        folder, slash, _ = self.log_dir.rstrip("/").rpartition("/")
        return f"{_SQLITE}{folder}{slash}cluster.db"

    @property
    def listeners(self) -> Listeners:
        """The listeners for clients, and the one for brokers if `listeners` has it."""
        return addresses.split_listeners(
            self.get("listeners"),
            self.get("controller.listener.names"),
            self.get("listener.security.protocol.map"),
            self.get("inter.broker.listener.name"),
        )

    @property
    def listener(self) -> Listener:
        """The first listener for clients."""
        return self.listeners.clients[0]

    @property
    def internal_listener(self) -> Listener:
        """The listener for other brokers.

        By default its host is that of the first client listener, so that other machines reach
        both or, if clients get a loopback address, none of them.
        """
        clients, between_brokers = self.listeners
        if between_brokers is not None:
            return between_brokers
        text = self.get("tidelog.internal.listener")
        if text:
            return Listener(_INTERNAL, *addresses.parse_address(text))
        hosts = clients[0].host, self.advertised(clients[0], 0, "").host
        local = any(map(addresses.is_loopback, hosts))
        return Listener(_INTERNAL, _LOOPBACK if local else hosts[0], 0)

    def protocol(self, listener: Listener) -> str:
        """The protocol of a listener.

        For `tidelog.internal.listener`, use Kafka's settings for connections between brokers.
        Without them, use SSL if clients use SSL and other machines can reach the listener, and SASL
        if a mechanism for brokers is set: they prove the cluster's secret in any case.
        """
        if listener.name == _INTERNAL:
            if self.source("security.inter.broker.protocol") != DEFAULT:
                return str(self.get("security.inter.broker.protocol"))
            named = self.get("inter.broker.listener.name") is not None
            if not named and addresses.is_loopback(listener.host):
                return addresses.PLAINTEXT
        name = self._settings_of(listener)
        found = addresses.protocol_of(name, self.get("listener.security.protocol.map"))
        by_default = listener.name == _INTERNAL and self.source(BETWEEN_BROKERS) == DEFAULT
        return addresses.without_sasl(found) if by_default else found

    def tls(self, listener: Listener) -> TlsSettings:
        """The TLS settings of a listener: its own, else those for all. Raises WrongValue."""
        name = self._settings_of(listener).lower()

        def get(key: str) -> Value:
            own = f"listener.name.{name}.{key}"
            return self._given[own] if own in self._given else self.get(key)

        return read_tls(get)

    def sasl(self, listener: Listener) -> SaslSettings:
        """The SASL settings of a listener. Raises WrongValue."""
        return read_sasl(self._settings_of(listener), self.get, self._given)

    def connection_rate(self, listener: Listener) -> int:
        """How many new connections a listener accepts per second."""
        name = f"listener.name.{self._settings_of(listener).lower()}.{CONNECTION_RATE}"
        found = self._given.get(name)
        return found if isinstance(found, int) else INT_MAX

    @property
    def broker_login(self) -> BrokerLogin | None:
        """How this broker authenticates to others; None if their listener has no SASL. Raises
        WrongValue."""
        listener = self.internal_listener
        if not addresses.uses_sasl(self.protocol(listener)):
            return None
        mechanism = str(self.get(BETWEEN_BROKERS))
        check_mechanism(mechanism, BETWEEN_BROKERS)
        sasl = self.sasl(listener)
        if mechanism not in sasl.mechanisms:
            raise WrongValue(f"{BETWEEN_BROKERS}={mechanism} is not in sasl.enabled.mechanisms")
        module = sasl.modules.get(mechanism)
        if mechanism == OAUTHBEARER:
            name = self._settings_of(listener)
            token = read_own_token(name, self.get, self._given, module)
            return BrokerLogin(mechanism, "", "", token)
        if module is None or not (module.user and module.password):
            name = f"listener.name.{self._settings_of(listener).lower()}.{mechanism.lower()}"
            raise WrongValue(
                f"brokers use {mechanism}: set username and password in {name}.sasl.jaas.config"
            )
        return BrokerLogin(mechanism, module.user, module.password)

    @property
    def listener_prefixes(self) -> set[str]:
        """The names by which listeners may have own settings, in lower case as in Kafka.

        Those of controllers have no effect here, but are in Kafka's own files.
        """
        every = [addresses.parse_listener(text).name for text in self.get("listeners")]
        every += self.get("controller.listener.names")
        every.append(self._settings_of(self.internal_listener))
        if self.metrics_use_tls:
            every.append(_METRICS)
        return {name.lower() for name in every}

    def _settings_of(self, listener: Listener) -> str:
        """The name under which a listener's protocol and TLS settings are given."""
        if listener.name != _INTERNAL:
            return listener.name
        return str(self.get("inter.broker.listener.name") or self.listener.name).upper()

    @property
    def connection_overrides(self) -> dict[str, int]:
        """The largest number of connections by host, for some hosts."""
        return addresses.parse_overrides(self.get("max.connections.per.ip.overrides"))

    @property
    def metrics_listener(self) -> Listener | None:
        """The listener for Prometheus; None if there is none."""
        text = self.get("tidelog.metrics.listener")
        return None if not text else Listener(_METRICS, *addresses.parse_address(text))

    @property
    def metrics_use_tls(self) -> bool:
        """Whether there is a listener for Prometheus, and it uses TLS."""
        wanted = self.get("tidelog.metrics.security.protocol") == addresses.SSL
        return wanted and bool(self.get("tidelog.metrics.listener"))

    def advertised(self, listener: Listener, bound_port: int, hostname: str) -> Listener:
        """The address of a listener for clients and brokers, once its port is known."""
        advertised = self.get("advertised.listeners") or ()
        return addresses.advertised_listener(listener, advertised, bound_port, hostname)

    def advertised_internal(
        self, bound_host: str, bound_port: int, hostname: str
    ) -> tuple[str, int]:
        """Host and port at which other brokers reach the listener for brokers.

        `bound_host` is the address that it is bound to. A host that was set for it stands for
        itself; a listener that follows the first client listener follows its advertised host.
        """
        clients, between_brokers = self.listeners
        if between_brokers is not None:
            _, host, port = self.advertised(between_brokers, bound_port, hostname)
            if host == "localhost":  # an address, for the Unix socket beside it
                host = bound_host if addresses.is_loopback(bound_host) else _LOOPBACK
            return host, port
        listener = self.internal_listener
        is_own = bool(self.get("tidelog.internal.listener"))
        if addresses.is_loopback(listener.host) or (is_own and not listener.everywhere):
            return bound_host, bound_port
        return self.advertised(clients[0], 0, hostname).host, bound_port


class Resolved(NamedTuple):
    """Valid settings, and warnings about them."""

    settings: BrokerSettings
    warnings: list[str]


def resolve(layers: Iterable[Layer]) -> Resolved:
    """Merge layers, the last one on top, and validate the result. Raises InvalidSettings."""
    found: dict[str, tuple[Entry, str]] = {}
    for layer in layers:
        for entry in layer.entries:
            found[entry.name] = entry, layer.kind
    problems: list[InvalidSetting] = []
    given: dict[str, Value] = {}
    sources: dict[str, Source] = {}
    unknown = []
    for name, (entry, kind) in found.items():
        setting = broker_setting(name)
        if setting is None or not setting.has_effect:
            problems += _unmet_protection(entry, setting)
            if name not in BROKER:
                unknown.append(entry)
        if setting is None:
            continue
        try:
            given[name] = parse(setting, entry.text)
            sources[name] = Source(kind, entry.place)
        except WrongValue as wrong:
            problems.append(InvalidSetting(name, entry.text, entry.place, str(wrong)))
    settings = BrokerSettings(given, sources)
    problems += _conflicts(settings, {problem.name for problem in problems})
    problems += _without_listener([entry for entry, _ in found.values()], settings)
    if problems:
        raise InvalidSettings(problems)
    return Resolved(settings, [*_warn_unknown(unknown), *_warn_unlikely(settings)])


def _unmet_protection(entry: Entry, setting: Setting | None) -> Iterator[InvalidSetting]:
    """Report a setting that asks for protection Tidelog does not have, without secret values."""
    from tidelog.core.settings.protection import unmet_protection

    reason = unmet_protection(entry.name, entry.text)
    if reason is not None:
        secret = setting is None or setting.type == "password"
        yield InvalidSetting(entry.name, "" if secret else entry.text, entry.place, reason)


def _without_listener(entries: list[Entry], settings: BrokerSettings) -> Iterator[InvalidSetting]:
    """Report settings of a listener that no listener reads: it would lack a protection."""
    own = [entry for entry in entries if entry.name.startswith("listener.name.")]
    if not own:
        return
    try:
        known = settings.listener_prefixes
    except WrongValue:
        return  # reported by `_listener` or `_internal`
    for entry in own:
        tls, sasl = listener_key(entry.name), split_sasl_key(entry.name)
        if tls is not None:
            listener, mechanism, key = tls[0], "", tls[1]
        elif sasl is not None:
            listener, mechanism, key = sasl
        elif (rate_of := connection_rate_listener(entry.name)) is not None:
            listener, mechanism, key = rate_of, "", CONNECTION_RATE
        else:
            continue
        if listener in known and mechanism == mechanism.lower():
            continue
        if listener.lower() in known:
            nearest = listener.lower()
            reason = "the names of the listener and the mechanism must be in lower case"
        else:
            from difflib import get_close_matches

            names = sorted(known)
            [nearest] = get_close_matches(listener.lower(), names, n=1) or names[:1]
            reason = f"there is no listener {listener.upper()}, but {', '.join(names).upper()}"
        parts = ("listener.name", nearest, *filter(None, (mechanism.lower(),)), key)
        is_secret = key != CONNECTION_RATE and (TLS_KEYS | SASL_KEYS)[key].type == "password"
        value = "" if is_secret else entry.text
        yield InvalidSetting(
            entry.name, value, entry.place, f"{reason}; did you mean {'.'.join(parts)}?"
        )


def settings_of(texts: Mapping[str, str]) -> BrokerSettings:
    """Settings from texts, without warnings (for tests and tools)."""
    entries = [Entry(name, text, f"--set {name}") for name, text in texts.items()]
    return resolve([Layer("command line", entries)]).settings


def fencing_margin_ms(session_timeout_ms: int) -> int:
    """How long before the possible end of its session a broker stops acting as leader."""
    return max(500, session_timeout_ms // 10)


def in_topic_unit(broker_key: str, topic_key: str, value: Value) -> Value:
    """Convert a broker's default to the unit of the topic setting: hours to milliseconds."""
    if len(SYNONYMS[topic_key]) == 1 or not isinstance(value, int):
        return value
    return max(value * UNIT_MS[unit_of(broker_key)], -1)


def _conflicts(settings: BrokerSettings, wrong: set[str]) -> Iterator[InvalidSetting]:
    """Report settings that are valid by themselves but not in combination."""
    for names, reason in _RULES:
        if not wrong.intersection(names) and (text := reason(settings)) is not None:
            name = next((n for n in names if settings.source(n) != DEFAULT), names[0])
            is_secret = BROKER[name].type == "password"
            value = "" if is_secret else spell(settings.get(name)) or ""
            yield InvalidSetting(name, value, settings.source(name).place or "settings", text)


def _node_id(settings: BrokerSettings) -> str | None:
    number, older = settings.get("node.id"), settings.get("broker.id")
    if number is None and older is None:
        return "every broker needs its own id; set node.id"
    if None not in (number, older) and number != older:
        return f"node.id is {number} and broker.id is {older}; set one of them"
    return None


def _different_folders(settings: BrokerSettings) -> str | None:
    folders = [folder.rstrip("/") for folder in settings.get("log.dirs") or ()]
    twice = [folder for folder in folders if folders.count(folder) > 1]
    if twice:
        return f"{twice[0]} is named twice; name each log directory once"
    return None


def _listener(settings: BrokerSettings) -> str | None:
    try:
        clients, between_brokers = settings.listeners
        every = clients if between_brokers is None else (*clients, between_brokers)
        addresses.check_advertised(every, settings.get("advertised.listeners") or ())
    except WrongValue as wrong:
        return str(wrong)
    return None


def _inter_broker(settings: BrokerSettings) -> str | None:
    """Kafka's rule, and Tidelog's own listener for brokers."""
    if settings.get("inter.broker.listener.name") is None:
        return None
    if settings.source("security.inter.broker.protocol") != DEFAULT:
        return (
            "only one of inter.broker.listener.name and security.inter.broker.protocol may be set;"
            " remove security.inter.broker.protocol"
        )
    try:
        between_brokers = settings.listeners.between_brokers
    except WrongValue:
        return None  # reported by `_listener`
    if between_brokers is not None and settings.get("tidelog.internal.listener"):
        return f"brokers use the listener {between_brokers.name}; remove tidelog.internal.listener"
    return None


def _tls(settings: BrokerSettings) -> str | None:
    """Check that each listener with TLS has a key, and between brokers also the authorities to
    trust."""
    try:
        internal = settings.internal_listener
        between_brokers = settings.get("security.inter.broker.protocol")
        if between_brokers and between_brokers not in addresses.PROTOCOLS:
            only = ", ".join(addresses.PROTOCOLS)
            return f"security.inter.broker.protocol must be one of {only}"
        for listener in (*settings.listeners.clients, internal):
            protocol = settings.protocol(listener)
            if addresses.uses_tls(protocol) and not settings.tls(listener).has_key:
                return f"the listener {listener.name} uses {protocol}: set ssl.keystore.location"
        if not addresses.uses_tls(settings.protocol(internal)):
            for name in settings.get("controller.listener.names"):
                used = addresses.protocol_of(
                    name.upper(), settings.get("listener.security.protocol.map")
                )
                if addresses.uses_tls(used):
                    return (
                        f"{name} uses {used}, but Tidelog's brokers use {internal}:"
                        " set security.inter.broker.protocol=SSL"
                    )
    except WrongValue as wrong:
        return str(wrong)
    return None


def _sasl(settings: BrokerSettings) -> str | None:
    """Check that each listener with SASL has mechanisms and what they need."""
    try:
        listeners = (*settings.listeners.clients, settings.internal_listener)
    except WrongValue:
        return None  # reported by `_listener` or `_internal`
    try:
        for listener in listeners:
            if addresses.uses_sasl(settings.protocol(listener)):
                settings.sasl(listener)
        _ = settings.broker_login
    except WrongValue as wrong:
        return str(wrong)
    return None


def _internal(settings: BrokerSettings) -> str | None:
    try:
        listener = settings.internal_listener
        client = settings.advertised(settings.listener, 0, "")
    except WrongValue as wrong:
        return str(wrong)
    if listener.everywhere and addresses.is_loopback(client.host):
        return (
            f"{listener} listens on all addresses, but advertised.listeners has"
            f" {client.host}: set its host to one that the other brokers can reach"
        )
    return None


def _metrics(settings: BrokerSettings) -> str | None:
    try:
        listener = settings.metrics_listener
        if listener is not None and settings.metrics_use_tls and not settings.tls(listener).has_key:
            return (
                "the metrics use SSL: set listener.name.metrics.ssl.keystore.location, or"
                " ssl.keystore.location"
            )
    except WrongValue as wrong:
        return str(wrong)
    return None


def _store(settings: BrokerSettings) -> str | None:
    text = settings.get("tidelog.metadata.store")
    if text is None or (text.startswith(_SQLITE) and len(text) > len(_SQLITE)):
        return None
    if text.startswith(_ETCD):
        return None
    return f"must be {_SQLITE}PATH or {_ETCD[0]}HOST:PORT,HOST:PORT/PREFIX"


def _heartbeat(settings: BrokerSettings) -> str | None:
    """Heartbeats must be sent before a broker stops leading, `fencing_margin_ms` before the end
    of its session."""
    session = settings.get("broker.session.timeout.ms")
    longest = session - fencing_margin_ms(session)
    if settings.get("broker.heartbeat.interval.ms") < longest:
        return None
    return (
        f"broker.heartbeat.interval.ms must be below {longest}"
        f" with broker.session.timeout.ms={session}"
    )


def _overrides(settings: BrokerSettings) -> str | None:
    try:
        settings.connection_overrides  # noqa: B018 - raises if it is invalid
    except WrongValue as wrong:
        return str(wrong)
    return None


def _request_memory(settings: BrokerSettings) -> str | None:
    queued, largest = (
        settings.get(name) for name in ("queued.max.request.bytes", "socket.request.max.bytes")
    )
    if settings.source("queued.max.request.bytes") == DEFAULT or not 0 <= queued < largest:
        return None
    return f"must be at least socket.request.max.bytes ({largest}); -1: no limit"


def _fetch_wait(settings: BrokerSettings) -> str | None:
    wait = settings.get("replica.fetch.wait.max.ms")
    for name in ("replica.lag.time.max.ms", "replica.socket.timeout.ms"):
        if wait > settings.get(name):
            return f"replica.fetch.wait.max.ms ({wait}) must be at most {name}"
    return None


_RULES = (
    (("node.id", "broker.id"), _node_id),
    (("log.dirs",), _different_folders),
    (
        (
            "listeners",
            "advertised.listeners",
            "listener.security.protocol.map",
            "controller.listener.names",
            "inter.broker.listener.name",
        ),
        _listener,
    ),
    (
        (
            "inter.broker.listener.name",
            "security.inter.broker.protocol",
            "tidelog.internal.listener",
            "listeners",
        ),
        _inter_broker,
    ),
    (
        ("tidelog.internal.listener", "listeners", "advertised.listeners"),
        _internal,
    ),
    (
        (
            "listeners",
            "listener.security.protocol.map",
            "security.inter.broker.protocol",
            "tidelog.internal.listener",
            *TLS_KEYS,
        ),
        _tls,
    ),
    (
        (
            "listeners",
            "listener.security.protocol.map",
            "security.inter.broker.protocol",
            *(row.name for row in SASL),
        ),
        _sasl,
    ),
    (("tidelog.metrics.listener", "tidelog.metrics.security.protocol"), _metrics),
    (("tidelog.metadata.store",), _store),
    (("max.connections.per.ip.overrides",), _overrides),
    (("queued.max.request.bytes", "socket.request.max.bytes"), _request_memory),
    (("broker.heartbeat.interval.ms", "broker.session.timeout.ms"), _heartbeat),
    (
        ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms", "replica.socket.timeout.ms"),
        _fetch_wait,
    ),
)


def _warn_unknown(entries: list[Entry]) -> Iterator[str]:
    """Warn about settings without effect: Kafka's in one line, unknown ones with a suggestion."""
    if not entries:
        return
    from tidelog.core.settings.ignored_keys import is_kafkas, nearest

    kafkas = sorted(entry.name for entry in entries if is_kafkas(entry.name))
    if kafkas:
        yield f"settings of Kafka without effect in Tidelog: {', '.join(kafkas)}"
    for entry in entries:
        if not is_kafkas(entry.name):
            guess = nearest(entry.name)
            hint = "" if guess is None else f"; did you mean {guess}?"
            yield f"{entry.place}: unknown setting {entry.name}{hint}"


def _warn_open_metrics(settings: BrokerSettings) -> Iterator[str]:
    listener, file = settings.metrics_listener, settings.get("tidelog.metrics.credentials.file")
    if listener is None or addresses.is_loopback(listener.host):
        return
    if not settings.metrics_use_tls:
        what = "the password of the metrics" if file else "the metrics"
        yield (
            f"other machines can read {what} at {listener.host}: set"
            " tidelog.metrics.security.protocol=SSL, or a tidelog.metrics.listener on 127.0.0.1"
        )
    elif not file and settings.tls(listener).client_auth != "required":
        yield (
            f"every machine that reaches {listener.host} gets the metrics: set"
            " tidelog.metrics.credentials.file"
        )


def _warn_unlikely(settings: BrokerSettings) -> Iterator[str]:
    """Warn about values that are allowed but hardly intended."""
    every = (*settings.listeners.clients, settings.internal_listener)
    unused = [name for name in TLS_KEYS if settings.source(name) != DEFAULT]
    uses_tls = any(addresses.uses_tls(settings.protocol(one)) for one in every)
    if unused and not uses_tls and not settings.metrics_use_tls:
        yield f"no listener uses SSL, so these have no effect: {', '.join(unused)}"
    unused = [name for name in SASL_KEYS if settings.source(name) != DEFAULT]
    if unused and not any(addresses.uses_sasl(settings.protocol(one)) for one in every):
        yield f"no listener uses SASL, so these have no effect: {', '.join(unused)}"
    yield from _warn_open_metrics(settings)
    factor = settings.get("default.replication.factor")
    minimum = settings.get("min.insync.replicas")
    if minimum > factor > 1:
        yield (
            f"min.insync.replicas is {minimum} and default.replication.factor {factor}: a produce"
            " with acks=all fails on topics that are created with the default factor"
        )
