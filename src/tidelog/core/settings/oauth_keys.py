"""The settings of SASL OAUTHBEARER under Kafka's names.

Their values are read by `oauth.py`, which is imported only if OAUTHBEARER is used.
"""

from tidelog.core.settings.setting import HIGH, LOW, Setting

KEYS_URL = "sasl.oauthbearer.jwks.endpoint.url"
REFRESH = "sasl.oauthbearer.jwks.endpoint.refresh.ms"
RETRY = "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"
RETRY_MAX = "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"
AUDIENCE = "sasl.oauthbearer.expected.audience"
ISSUER = "sasl.oauthbearer.expected.issuer"
SUBJECT_CLAIM = "sasl.oauthbearer.sub.claim.name"
SCOPE_CLAIM = "sasl.oauthbearer.scope.claim.name"
SKEW = "sasl.oauthbearer.clock.skew.seconds"
TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"
CLIENT_ID = "sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET = "sasl.oauthbearer.client.credentials.client.secret"
SCOPE = "sasl.oauthbearer.scope"
URLENCODE = "sasl.oauthbearer.header.urlencode"
HANDLER = "sasl.server.callback.handler.class"
LOGIN_HANDLER = "sasl.login.callback.handler.class"

_PACKAGE = "org.apache.kafka.common.security.oauthbearer."
_UNSECURED = f"{_PACKAGE}internals.unsecured."
SIGNED_HANDLER = f"{_PACKAGE}OAuthBearerValidatorCallbackHandler"
UNSECURED_HANDLER = f"{_UNSECURED}OAuthBearerUnsecuredValidatorCallbackHandler"
_HANDLERS = (
    SIGNED_HANDLER,
    f"{_PACKAGE}secured.OAuthBearerValidatorCallbackHandler",
    UNSECURED_HANDLER,
)
_LOGIN_HANDLERS = (
    f"{_PACKAGE}OAuthBearerLoginCallbackHandler",
    f"{_PACKAGE}secured.OAuthBearerLoginCallbackHandler",
)

TOKEN_ROWS = (
    Setting(
        TOKEN_URL,
        "string",
        None,
        "Where a broker gets its access token for other brokers: the token endpoint of an identity"
        " provider (https://), or a file with the token (file://), which is read again before the"
        " token expires.",
    ),
    Setting(
        CLIENT_ID,
        "string",
        None,
        "The client id for the token endpoint. The option `clientId` of `sasl.jaas.config` is the"
        " same.",
    ),
    Setting(
        CLIENT_SECRET,
        "password",
        None,
        "The secret for the token endpoint. The option `clientSecret` of `sasl.jaas.config` is the"
        " same.",
    ),
    Setting(
        SCOPE,
        "string",
        None,
        "The scope that is requested from the token endpoint. The option `scope` of"
        " `sasl.jaas.config` is the same.",
        importance=LOW,
    ),
)
"""The settings about the own token; clients read them too."""
HEADER_ROW = Setting(
    URLENCODE,
    "boolean",
    False,
    "Encode client id and secret as URLs do before they are sent to the token endpoint.",
    importance=LOW,
)
OAUTH = (
    Setting(
        KEYS_URL,
        "string",
        None,
        "The keys (JWKS) by which tokens of OAUTHBEARER are checked: an https:// address of the"
        " identity provider, or a file:// one. http:// is allowed for this machine only.",
        importance=HIGH,
        note="Kafka requires its system property `org.apache.kafka.sasl.oauthbearer.allowed.urls`.",
    ),
    Setting(
        REFRESH, "long", 3_600_000, "How often the keys are read again.", "ms", 1, importance=LOW
    ),
    Setting(
        RETRY,
        "long",
        100,
        "How long to wait before reading the keys again after a failure; doubled each time.",
        "ms",
        1,
        importance=LOW,
    ),
    Setting(
        RETRY_MAX,
        "long",
        10_000,
        "The longest wait after a failure. A token with an unknown key makes the broker read the"
        " keys again at most this often.",
        "ms",
        1,
        importance=LOW,
    ),
    Setting(
        AUDIENCE,
        "list",
        (),
        "The allowed audiences: a token must have one of them in its claim `aud`. Empty: tokens"
        " with an audience are refused, as in Kafka.",
        importance=LOW,
    ),
    Setting(
        ISSUER,
        "string",
        None,
        "The issuer that tokens must have in their claim `iss`. Empty: any.",
        importance=LOW,
    ),
    Setting(SUBJECT_CLAIM, "string", "sub", "The claim that names the user.", importance=LOW),
    Setting(SCOPE_CLAIM, "string", "scope", "The claim that has the scopes.", importance=LOW),
    Setting(
        SKEW,
        "int",
        30,
        "How much the clocks of the broker and of the identity provider may differ.",
        "s",
        0,
        importance=LOW,
    ),
    *TOKEN_ROWS,
)
PREFIXED_ROWS = (
    Setting(HANDLER, "class", None, "How tokens are checked.", choices=_HANDLERS),
    Setting(LOGIN_HANDLER, "class", None, "How a token is got.", choices=_LOGIN_HANDLERS),
    HEADER_ROW,
)
"""Settings that brokers have with the prefix of OAUTHBEARER only. Two name classes of Kafka, which
stand for what a broker does without plug-ins."""
OAUTH_KEYS: dict[str, Setting] = {row.name: row for row in OAUTH}
CLIENT_KEYS: dict[str, Setting] = {row.name: row for row in (*TOKEN_ROWS, *PREFIXED_ROWS[1:])}
"""The settings that clients read."""
