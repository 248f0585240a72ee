"""Settings that protect a Kafka broker and that Tidelog does not support yet.

A broker that ignored them would run unprotected, contrary to its file. So such a setting is
refused unless it is empty or at Kafka's default.
"""

from fnmatch import fnmatchcase

_NO_PROVIDER = "Tidelog uses OpenSSL, without plug-ins"
_NO_DYNAMIC_PASSWORDS = "Tidelog keeps no passwords in dynamic settings"
_NO_PLUG_INS = "Tidelog's authentication has no plug-ins"
_NO_TOKENS = "Tidelog has no delegation tokens"
_NO_BUILDERS = "Tidelog has no plug-ins for principals yet"
_NO_VALIDATORS = "Tidelog's checks of access tokens have no plug-ins"
_NO_EXPECTATION = "Tidelog can't check this in access tokens, only expected.audience and .issuer"
_NO_POLICY = "Tidelog has no policies yet"
_REASONS = (
    ("security.providers", _NO_PROVIDER),
    ("ssl.engine.factory.class", _NO_PROVIDER),
    ("password.encoder.secret", _NO_DYNAMIC_PASSWORDS),
    ("*sasl.*.callback.handler.class", _NO_PLUG_INS),
    ("listener.name.*.sasl.*", "Tidelog knows no such setting of its SASL mechanisms"),
    ("listener.name.*.connections.max.reauth.ms", "only SASL mechanisms have this setting"),
    ("sasl.oauthbearer.jwt.validator.class", _NO_VALIDATORS),
    ("sasl.oauthbearer.expected.*", _NO_EXPECTATION),
    ("delegation.token.secret.key", _NO_TOKENS),
    ("principal.builder.class", _NO_BUILDERS),
    ("*.policy.class.name", _NO_POLICY),
)
_NO_PROTECTION = {
    "principal.builder.class": "org.apache.kafka.common.security.authenticator"
    ".DefaultKafkaPrincipalBuilder",
    "sasl.oauthbearer.jwt.validator.class": "org.apache.kafka.common.security.oauthbearer"
    ".DefaultJwtValidator",
}
"""Kafka's defaults, which request no protection."""


def unmet_protection(name: str, text: str) -> str | None:
    """The reason why the setting is refused; None if it requests no protection."""
    text = text.strip()
    if not text or text == _NO_PROTECTION.get(name):
        return None
    for pattern, reason in _REASONS:
        if fnmatchcase(name, pattern):
            return f"{reason}, and the broker would run unprotected; remove the setting"
    return None
