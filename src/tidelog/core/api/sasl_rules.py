"""The logins of one listener: from settings, the metadata store and the cluster's secret."""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from typing import NamedTuple

from tidelog.core.api.sasl_exchange import Login, SaslRules
from tidelog.core.api.sasl_login import SaslLogin, sasl_client
from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.principal import BROKER, USER, Principal
from tidelog.core.sasl.access_token import CheckToken
from tidelog.core.sasl.credential import ScramCredential
from tidelog.core.sasl.mechanism import OAUTHBEARER, PLAIN, SCRAM_SHA_256, RandomBytes
from tidelog.core.sasl.oauthbearer import OauthClient, OauthServer
from tidelog.core.sasl.plain import PlainServer, PlainUsers
from tidelog.core.sasl.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    USUAL_FORM,
    ScramClient,
    ScramForm,
    ScramServer,
    ScramUsers,
    credential_of,
    form_of,
    new_salt,
    salted_password,
)
from tidelog.core.settings.broker_settings import BrokerLogin
from tidelog.core.settings.sasl import SaslSettings

CLUSTER_MECHANISM = "TIDELOG-CLUSTER"
"""SCRAM-SHA-256 with the cluster's secret as the password: a broker that is a client of another
one, or of itself, needs no user. The name in its messages is the address of the broker that the
login is for, so that a false broker can't pass the login on to another one."""
_CLUSTER_SALT = b"tidelog cluster secret"


class TokenCheck(NamedTuple):
    """Checks the tokens of OAUTHBEARER."""

    check: CheckToken
    wall_ms: Callable[[], int]
    """The time of day, with which the end of a token is compared."""


def sasl_rules(
    settings: SaslSettings,
    image: ClusterImage,
    secret: str,
    random_bytes: RandomBytes,
    own: BrokerLogin | None = None,
    address: str = "",
    tokens: TokenCheck | None = None,
) -> SaslRules:
    """Return the rules of a listener. Users of SCRAM are looked up in the image.

    `own`: on a listener for brokers, the login of this broker at others. Brokers accept it although
    the store has no such user: a new cluster needs connections between brokers to store one.
    `address`: on a listener for clients, its advertised `host:port`. Brokers that connected to it
    may log in by the cluster's secret.
    `tokens`: with OAUTHBEARER, how its tokens are checked.
    """

    @cache
    def of_brokers() -> ScramCredential:
        assert own is not None
        salt = new_salt(random_bytes)
        salted = salted_password(own.mechanism, own.password, salt, ITERATIONS_MIN)
        return credential_of(own.mechanism, salted, salt, ITERATIONS_MIN)

    def scram(mechanism: str) -> Callable[[], Login]:
        def find(user: str) -> ScramCredential | None:
            found = image.scram.get((mechanism, user))
            if found is None and own is not None and (mechanism, user) == own[:2]:
                return of_brokers()
            return found

        forms = _Forms(image, mechanism, () if own is None else (USUAL_FORM,))
        users = ScramUsers(mechanism, find, secret.encode(), forms)
        return lambda: Login(ScramServer(users, random_bytes), _user)

    plain = settings.modules.get(PLAIN)
    passwords = PlainUsers({} if plain is None else plain.users)
    begin: dict[str, Callable[[], Login]] = {}
    for mechanism in settings.mechanisms:
        if mechanism == PLAIN:
            begin[mechanism] = lambda: Login(PlainServer(passwords), _user)
        elif mechanism == OAUTHBEARER:
            assert tokens is not None, "a listener with OAUTHBEARER has a check of its tokens"
            begin[mechanism] = _by_token(tokens, has_end=own is None)
        else:
            begin[mechanism] = scram(mechanism)

    @cache
    def of_cluster() -> ScramCredential:
        salted = salted_password(SCRAM_SHA_256, secret, _CLUSTER_SALT, ITERATIONS_MIN)
        return credential_of(SCRAM_SHA_256, salted, _CLUSTER_SALT, ITERATIONS_MIN)

    def cluster() -> Login:
        users = ScramUsers(
            SCRAM_SHA_256, lambda name: of_cluster() if name == address else None, b""
        )
        return Login(ScramServer(users, random_bytes), lambda _user: BROKER)

    if address:
        begin[CLUSTER_MECHANISM] = cluster

    def start(mechanism: str) -> Login | None:
        made = begin.get(mechanism)
        return None if made is None else made()

    return SaslRules(
        settings.mechanisms,
        start,
        settings.max_reauth_ms,
        settings.frame_max,
        settings.failure_delay_ms,
    )


def _by_token(tokens: TokenCheck, *, has_end: bool) -> Callable[[], Login]:
    """Return the function that begins an authentication by OAUTHBEARER. A link between brokers is
    used without a pause, so the end of its token does not end it (`has_end`)."""

    def begin() -> Login:
        server = OauthServer(tokens.check, tokens.wall_ms)
        return Login(server, _user, server.remaining_ms) if has_end else Login(server, _user)

    return begin


def cluster_login(
    secret: str, client_id: str, address: str, random_bytes: RandomBytes
) -> SaslLogin:
    """Return the login of a broker by the cluster's secret, at the broker with this address."""
    client = ScramClient(SCRAM_SHA_256, address, secret, random_bytes, ITERATIONS_MAX)
    return SaslLogin(SCRAM_SHA_256, client, client_id, CLUSTER_MECHANISM)


def broker_login(wanted: BrokerLogin, client_id: str, random_bytes: RandomBytes) -> SaslLogin:
    """Return the login of a broker at another one by the configured user and password.

    The broker's loop derives the key, so a false peer must not choose how long that takes.
    """
    mechanism, user, password, _ = wanted
    client = sasl_client(mechanism, user, password, random_bytes, iterations_max=ITERATIONS_MAX)
    return SaslLogin(mechanism, client, client_id)


def token_login(token: str, extensions: Mapping[str, str], client_id: str) -> SaslLogin:
    """Return the login by an access token."""
    return SaslLogin(OAUTHBEARER, OauthClient(token, extensions), client_id)


def _user(name: str) -> Principal:
    return Principal(USER, name)


class _Forms:
    """Counts the users of one mechanism by form; computed when users have changed."""

    def __init__(self, image: ClusterImage, mechanism: str, further: tuple[ScramForm, ...]) -> None:
        self._image = image
        self._mechanism = mechanism
        self._further = further
        self._changes = -1
        self._found: Counter[ScramForm] = Counter()

    def __call__(self) -> Counter[ScramForm]:
        image = self._image
        if image.scram_changes != self._changes:
            self._changes = image.scram_changes
            of_users = [each for (kind, _), each in image.scram.items() if kind == self._mechanism]
            self._found = Counter((*map(form_of, of_users), *self._further))
        return self._found
