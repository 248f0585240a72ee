"""The logins of one listener: from settings, the metadata store and the cluster's secret."""

from collections.abc import Callable
from functools import cache

from tidelog.core.api.sasl_exchange import Login, SaslRules
from tidelog.core.api.sasl_login import SaslLogin
from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.principal import BROKER, USER, Principal
from tidelog.core.sasl.credential import ScramCredential
from tidelog.core.sasl.mechanism import PLAIN, SCRAM_SHA_256, RandomBytes
from tidelog.core.sasl.plain import PlainServer, PlainUsers
from tidelog.core.sasl.scram import (
    ITERATIONS_MIN,
    ScramClient,
    ScramServer,
    ScramUsers,
    credential_of,
    salted_password,
)
from tidelog.core.settings.sasl import SaslSettings

CLUSTER_MECHANISM = "TIDELOG-CLUSTER"
"""SCRAM-SHA-256 with the cluster's secret as the password: a broker that is a client of another
one, or of itself, needs no user."""
_CLUSTER_USER = "broker"
_CLUSTER_SALT = b"tidelog cluster secret"


def sasl_rules(
    settings: SaslSettings, image: ClusterImage, secret: str, random_bytes: RandomBytes
) -> SaslRules:
    """Return the rules of a listener. Users of SCRAM are looked up in the image."""

    def scram(mechanism: str) -> Callable[[], Login]:
        def find(user: str) -> ScramCredential | None:
            return image.scram.get((mechanism, user))

        users = ScramUsers(mechanism, find, secret.encode())
        return lambda: Login(ScramServer(users, random_bytes), _user)

    plain = settings.modules.get(PLAIN)
    passwords = PlainUsers({} if plain is None else plain.users)
    begin: dict[str, Callable[[], Login]] = {
        mechanism: (lambda: Login(PlainServer(passwords), _user))
        if mechanism == PLAIN
        else scram(mechanism)
        for mechanism in settings.mechanisms
    }

    @cache
    def of_cluster() -> ScramCredential:
        salted = salted_password(SCRAM_SHA_256, secret, _CLUSTER_SALT, ITERATIONS_MIN)
        return credential_of(SCRAM_SHA_256, salted, _CLUSTER_SALT, ITERATIONS_MIN)

    def cluster() -> Login:
        users = ScramUsers(
            SCRAM_SHA_256, lambda user: of_cluster() if user == _CLUSTER_USER else None, b""
        )
        return Login(ScramServer(users, random_bytes), lambda _user: BROKER)

    begin[CLUSTER_MECHANISM] = cluster

    def start(mechanism: str) -> Login | None:
        made = begin.get(mechanism)
        return None if made is None else made()

    return SaslRules(settings.mechanisms, start, settings.max_reauth_ms, settings.failure_delay_ms)


def cluster_login(secret: str, client_id: str, random_bytes: RandomBytes) -> SaslLogin:
    """Return the login of a broker by the cluster's secret."""
    client = ScramClient(SCRAM_SHA_256, _CLUSTER_USER, secret, random_bytes)
    return SaslLogin(SCRAM_SHA_256, client, client_id, CLUSTER_MECHANISM)


def _user(name: str) -> Principal:
    return Principal(USER, name)
