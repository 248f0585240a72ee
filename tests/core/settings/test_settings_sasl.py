"""The settings of SASL: login modules, values of listeners and mechanisms, refusals, secrets."""

import pytest

from tidelog.core.sasl.access_token import TokenRules, UnsecuredRules
from tidelog.core.sasl.mechanism import PLAIN, SCRAM_SHA_256, SCRAM_SHA_512
from tidelog.core.settings.broker_settings import (
    BrokerLogin,
    BrokerSettings,
    Entry,
    InvalidSettings,
    Layer,
    resolve,
    settings_of,
)
from tidelog.core.settings.jaas import OAUTH_MODULE, PLAIN_MODULE, SCRAM_MODULE, parse_jaas
from tidelog.core.settings.oauth import OauthSettings, TokenSource
from tidelog.core.settings.oauth_keys import SIGNED_HANDLER, UNSECURED_HANDLER
from tidelog.core.settings.sasl import sasl_listener_key
from tidelog.core.settings.setting import WrongValue

JAAS = f'{PLAIN_MODULE} required username="broker" password="b-hush" user_alice="a-hush";'
SCRAM_JAAS = f"{SCRAM_MODULE} required username='broker' password='s-hush';"
SASL = {
    "node.id": "1",
    "listeners": "SASL_PLAINTEXT://localhost:1",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
}


def problem(**texts: str) -> str:
    with pytest.raises(InvalidSettings) as raised:
        settings_of({**SASL, **texts})
    return str(raised.value)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("M required;", {}),
        ("M REQUIRED a=b;", {"a": "b"}),
        (' M required\n a="b c" \t d=\'e"f\' ; ', {"a": "b c", "d": 'e"f'}),
        (r'M required a="quoted \" and \\ and =;";', {"a": 'quoted " and \\ and =;'}),
        ("M required // no comment\n a=/* in\nside */b;", {"a": "b"}),
        ("M required user_a-b_c.d=e;", {"user_a-b_c.d": "e"}),
        ('M required a = "";', {"a": ""}),
    ],
)
def test_a_login_module_is_parsed_as_by_kafka(text: str, options: dict[str, str]) -> None:
    module = parse_jaas(text)
    assert module.name == "M"
    assert module.options == options


@pytest.mark.parametrize(
    "text",
    [
        "",
        "M",
        "M hush;",
        "M required",
        "M required a=hush",
        "M required a=;",
        "M required a;",
        "M required a hush;",
        "M required = hush;",
        'M required a="hush;',
        "M required a=hush; N required;",
        "M required; hush",
        "M required password=correct hush;",
        "M required password=correct hush horse;",
        "M required password=correct hush=horse hush;",
        "M required password=correct; hush;",
        "M required password='correct' hush';",
        'M required password="correct"hush";',
        "M required password=cor=hush;",
        "M required password=cor;hush;",
    ],
)
def test_an_invalid_login_module_is_refused_without_its_values(text: str) -> None:
    with pytest.raises(WrongValue) as wrong:
        parse_jaas(text)
    assert "hush" not in str(wrong.value)


def test_the_settings_of_a_listener() -> None:
    settings = settings_of(SASL)
    sasl = settings.sasl(settings.listener)
    assert sasl.mechanisms == (PLAIN, SCRAM_SHA_256)
    assert sasl.modules[PLAIN].users == {"alice": "a-hush"}
    assert sasl.max_reauth_ms == {PLAIN: 0, SCRAM_SHA_256: 0}
    assert sasl.failure_delay_ms == 100
    assert settings.broker_login is None, "a loopback listener for brokers has no SASL"


def test_values_of_a_mechanism_precede_those_of_a_listener_and_of_all() -> None:
    own = "listener.name.sasl_plaintext"
    settings = settings_of(
        {
            **SASL,
            "connections.max.reauth.ms": "1000",
            f"{own}.connections.max.reauth.ms": "2000",
            f"{own}.scram-sha-256.connections.max.reauth.ms": "3000",
            f"{own}.sasl.server.max.receive.size": "2048",
            f"{own}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        }
    )
    sasl = settings.sasl(settings.listener)
    assert sasl.max_reauth_ms == {PLAIN: 2000, SCRAM_SHA_256: 3000, SCRAM_SHA_512: 2000}
    assert sasl.frame_max == 2048


def test_one_login_module_for_all_listeners() -> None:
    texts = {key: text for key, text in SASL.items() if not key.endswith("jaas.config")}
    settings = settings_of({**texts, "sasl.jaas.config": JAAS})
    modules = settings.sasl(settings.listener).modules
    assert list(modules) == [PLAIN]
    assert modules[PLAIN].user == "broker"


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("listener.name.out.plain.sasl.jaas.config", "sasl.jaas.config"),
        ("listener.name.out.scram-sha-512.sasl.jaas.config", "sasl.jaas.config"),
        ("listener.name.out.sasl.enabled.mechanisms", "sasl.enabled.mechanisms"),
        ("listener.name.out.connections.max.reauth.ms", "connections.max.reauth.ms"),
        ("listener.name.out.plain.connections.max.reauth.ms", "connections.max.reauth.ms"),
        ("listener.name.plain.sasl.enabled.mechanisms", "sasl.enabled.mechanisms"),
        ("listener.name.out.sasl.jaas.config", None),
        ("listener.name.out.gssapi.sasl.jaas.config", None),
        ("listener.name.out.plain.sasl.enabled.mechanisms", None),
        ("listener.name.out.ssl.keystore.key", None),
        ("sasl.jaas.config", None),
    ],
)
def test_the_names_of_a_listeners_own_settings(name: str, key: str | None) -> None:
    assert sasl_listener_key(name) == key


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "Kerberos"),
        ({"sasl.enabled.mechanisms": ""}, "set sasl.enabled.mechanisms"),
        ({"sasl.enabled.mechanisms": "PLAIN,DIGEST-MD5"}, "DIGEST-MD5 is not supported"),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER"}, "set sasl.oauthbearer.jwks.endpoint.url"),
        (
            {"listener.name.sasl_plaintext.plain.sasl.jaas.config": ""},
            "set listener.name.sasl_plaintext.plain.sasl.jaas.config to",
        ),
        (
            {"listener.name.sasl_plaintext.plain.sasl.jaas.config": SCRAM_JAAS},
            "but PLAIN needs",
        ),
        ({"sasl.jaas.config": "hush"}, "sasl.jaas.config must look like"),
        (
            {"security.inter.broker.protocol": "SASL_PLAINTEXT"},
            "sasl.mechanism.inter.broker.protocol=GSSAPI (Kerberos) is not supported",
        ),
        (
            {
                "security.inter.broker.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            },
            "is not in sasl.enabled.mechanisms",
        ),
        (
            {
                "security.inter.broker.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
            },
            "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config",
        ),
        ({"security.inter.broker.protocol": "TELNET"}, "must be one of"),
    ],
)
def test_settings_that_cant_work_are_refused_without_secrets(
    texts: dict[str, str], reason: str
) -> None:
    text = problem(**texts)
    assert reason in text
    assert "hush" not in text


def test_the_login_of_a_broker() -> None:
    settings = settings_of(
        {
            **SASL,
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
            "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": SCRAM_JAAS,
        }
    )
    assert settings.broker_login == BrokerLogin(SCRAM_SHA_256, "broker", "s-hush")


def test_brokers_on_other_machines_use_sasl_only_if_it_is_set() -> None:
    """They prove the cluster's secret in any case."""
    outside = {**SASL, "listeners": "SASL_PLAINTEXT://10.0.0.1:1"}
    settings = settings_of(outside)
    assert settings.protocol(settings.internal_listener) == "PLAINTEXT"
    assert settings.broker_login is None
    settings = settings_of({**outside, "sasl.mechanism.inter.broker.protocol": "PLAIN"})
    assert settings.protocol(settings.internal_listener) == "SASL_PLAINTEXT"
    assert settings.broker_login == BrokerLogin(PLAIN, "broker", "b-hush")


def test_settings_of_sasl_without_a_listener_warn() -> None:
    texts = {"node.id": "1", "sasl.enabled.mechanisms": "PLAIN"}
    layer = Layer("file", [Entry(name, text, "a file") for name, text in texts.items()])
    assert resolve([layer]).warnings == [
        "no listener uses SASL, so these have no effect: sasl.enabled.mechanisms"
    ]


def test_secrets_are_not_shown() -> None:
    settings: BrokerSettings = settings_of(SASL)
    sasl = settings.sasl(settings.listener)
    login = BrokerLogin(PLAIN, "broker", "b-hush")
    entry = Entry("sasl.jaas.config", JAAS, "a file")
    for shown in (settings, sasl, sasl.modules, login, entry, [login], {"entry": entry}):
        assert "hush" not in repr(shown)
        assert "hush" not in str(shown)


REAUTH = "connections.max.reauth.ms"


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        (
            "listener.name.SASL_PLAINTEXT.ssl.client.auth",
            "required",
            "lower case; did you mean listener.name.sasl_plaintext.ssl.client.auth?",
        ),
        (
            f"listener.name.sasl_plaintext.PLAIN.{REAUTH}",
            "5",
            f"lower case; did you mean listener.name.sasl_plaintext.plain.{REAUTH}?",
        ),
        (
            "listener.name.Sasl_plaintext.Plain.sasl.jaas.config",
            JAAS,
            "lower case; did you mean listener.name.sasl_plaintext.plain.sasl.jaas.config?",
        ),
        (
            "listener.name.sasl_plantext.ssl.client.auth",
            "required",
            "there is no listener SASL_PLANTEXT, but SASL_PLAINTEXT; did you mean"
            " listener.name.sasl_plaintext.ssl.client.auth?",
        ),
        (
            f"listener.name.typo.{REAUTH}",
            "5",
            f"did you mean listener.name.sasl_plaintext.{REAUTH}?",
        ),
        (
            "listener.name.typo.SCRAM-SHA-256.sasl.jaas.config",
            SCRAM_JAAS,
            "did you mean listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config?",
        ),
    ],
)
def test_a_setting_that_no_listener_reads_is_refused(name: str, text: str, reason: str) -> None:
    said = problem(**{name: text})
    assert said.startswith(f"--set {name}: {name}")
    assert said.endswith(reason)
    assert "\n" not in said
    assert "hush" not in said


@pytest.mark.parametrize("listener", ["clients", "brokers", "controller", "other"])
def test_each_listener_of_kafkas_own_files_may_have_settings(listener: str) -> None:
    name = f"listener.name.{listener}.ssl.client.auth"
    settings_of(
        {
            "node.id": "1",
            "listeners": "Clients://localhost:1,BROKERS://localhost:2,CONTROLLER://localhost:3",
            "inter.broker.listener.name": "BROKERS",
            "controller.listener.names": "CONTROLLER,OTHER",
            name: "none",
        }
    )


# -- OAUTHBEARER ---------------------------------------------------------------------------

OAUTH = "listener.name.sasl_plaintext.oauthbearer.sasl"
TOKENS = {
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.oauthbearer.jwks.endpoint.url": "https://issuer.example/keys",
}


def oauth_of(**texts: str) -> OauthSettings:
    settings = settings_of({"node.id": "1", "listeners": "SASL_PLAINTEXT://localhost:1", **texts})
    found = settings.sasl(settings.listener).oauth
    assert found is not None
    return found


def test_how_tokens_are_checked() -> None:
    found = oauth_of(
        **TOKENS,
        **{
            "sasl.oauthbearer.expected.audience": "a,b",
            "listener.name.sasl_plaintext.sasl.oauthbearer.expected.issuer": "me",
            f"{OAUTH}.oauthbearer.sub.claim.name": "mail",
            "sasl.oauthbearer.sub.claim.name": "name",
            "sasl.oauthbearer.clock.skew.seconds": "5",
            "sasl.oauthbearer.scope.claim.name": "of all",
            "listener.name.sasl_plaintext.sasl.oauthbearer.scope.claim.name": "rights",
            f"{OAUTH}.server.callback.handler.class": SIGNED_HANDLER,
        },
    )
    assert found.rules == TokenRules(("a", "b"), "me", "mail", "rights", 5)
    assert found.unsecured is None
    assert (found.refresh_ms, found.retry_ms, found.retry_max_ms) == (3_600_000, 100, 10_000)


def test_an_empty_value_of_a_listener_takes_precedence() -> None:
    found = oauth_of(
        **TOKENS,
        **{
            "sasl.oauthbearer.expected.audience": "a",
            "sasl.oauthbearer.expected.issuer": "me",
            "listener.name.sasl_plaintext.sasl.oauthbearer.expected.audience": "",
            f"{OAUTH}.oauthbearer.expected.issuer": "",
        },
    )
    assert found.rules == TokenRules()


def test_tokens_without_signature_must_be_asked_for() -> None:
    jaas = f'{OAUTH_MODULE} required unsecuredValidatorPrincipalClaimName="name"'
    found = oauth_of(
        **{
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{OAUTH}.server.callback.handler.class": UNSECURED_HANDLER,
            f"{OAUTH}.jaas.config": f'{jaas} unsecuredValidatorRequiredScope="read write";',
        }
    )
    assert found.unsecured == UnsecuredRules("name", "scope", ("read", "write"), 0)


@pytest.mark.parametrize(
    "url",
    [
        "https://issuer.example/keys",
        "https://[::1]:8443/keys",
        "http://localhost:8080/keys",
        "http://127.0.0.1/keys",
        "http://[::1]:80/keys",
        "file:///etc/keys.json",
        "file:/etc/keys.json",
        "file://localhost/etc/keys.json",
    ],
)
def test_addresses_of_keys(url: str) -> None:
    assert oauth_of(**{**TOKENS, "sasl.oauthbearer.jwks.endpoint.url": url}).keys_url == url


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://issuer.example/keys", "must use https"),
        ("http://127.issuer.example/keys", "must use https"),
        ("http://localhost.example/keys", "must use https"),
        ("https://", "must be https://HOST"),
        ("https:issuer.example", "must be https://HOST"),
        ("https://user@issuer.example/", "must be https://HOST"),
        ("ftp://issuer.example/", "must be https://HOST"),
        ("keys.json", "must be https://HOST"),
        ("file://keys.json", "absolute path"),
        ("file:keys.json", "absolute path"),
    ],
)
def test_addresses_of_keys_that_are_refused(url: str, reason: str) -> None:
    with pytest.raises(InvalidSettings, match=reason):
        oauth_of(**{**TOKENS, "sasl.oauthbearer.jwks.endpoint.url": url})


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ({f"{OAUTH}.server.callback.handler.class": "my.Handler"}, "must be one of"),
        ({"sasl.server.callback.handler.class": SIGNED_HANDLER}, "no plug-ins"),
        (
            {"listener.name.sasl_plaintext.plain.sasl.server.callback.handler.class": "my.Handler"},
            "no plug-ins",
        ),
        ({"sasl.oauthbearer.sub.claim.name": ""}, "must not be empty"),
        ({f"{OAUTH}.jaas.config": "x.Module required;"}, "needs org.apache.kafka"),
        (
            {
                f"{OAUTH}.server.callback.handler.class": UNSECURED_HANDLER,
                f"{OAUTH}.jaas.config": f"{OAUTH_MODULE} required"
                ' unsecuredValidatorAllowableClockSkewMs="-1";',
            },
            "must be a whole number",
        ),
        (
            {
                f"{OAUTH}.server.callback.handler.class": UNSECURED_HANDLER,
                f"{OAUTH}.jaas.config": f"{OAUTH_MODULE} required"
                ' unsecuredValidatorRequiredScopes="read";',
            },
            "RequiredScopes of sasl.jaas.config is unknown; did you mean"
            r" unsecuredValidatorRequiredScope\?",
        ),
        (
            {
                f"{OAUTH}.jaas.config": f"{OAUTH_MODULE} required"
                ' ssl.truststore.type="PEM" ssl.truststore.locations="/authorities.pem";'
            },
            "ssl.truststore.locations of sasl.jaas.config is unknown; did you mean"
            r" ssl\.truststore\.location\?",
        ),
    ],
)
def test_checks_of_tokens_that_are_refused(texts: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidSettings, match=reason):
        oauth_of(**TOKENS, **texts)


def own_token(**texts: str) -> TokenSource:
    settings = settings_of(
        {
            "node.id": "1",
            "listeners": "SASL_PLAINTEXT://localhost:1",
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            **TOKENS,
            **texts,
        }
    )
    login = settings.broker_login
    assert login is not None
    assert login.token is not None
    return login.token


def test_where_a_broker_gets_its_token() -> None:
    file = own_token(**{"sasl.oauthbearer.token.endpoint.url": "file:///token"})
    assert file.url == "file:///token"
    options = 'clientId="broker" clientSecret="hush" scope="kafka" extension_traceId="7"'
    found = own_token(
        **{
            f"{OAUTH}.oauthbearer.token.endpoint.url": "https://issuer.example/token",
            f"{OAUTH}.jaas.config": f"{OAUTH_MODULE} required {options};",
            f"{OAUTH}.oauthbearer.header.urlencode": "true",
        }
    )
    assert found.url == "https://issuer.example/token"
    assert (found.client_id, found.client_secret, found.scope) == ("broker", "hush", "kafka")
    assert found.extensions == (("traceId", "7"),)
    assert found.urlencode
    assert "hush" not in repr(found)
    newer = own_token(
        **{
            "sasl.oauthbearer.token.endpoint.url": "https://issuer.example/token",
            "sasl.oauthbearer.client.credentials.client.id": "broker",
            "sasl.oauthbearer.client.credentials.client.secret": "hush",
            "sasl.oauthbearer.scope": "kafka",
        }
    )
    assert newer == found._replace(extensions=(), urlencode=False)


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ({}, "set sasl.oauthbearer.token.endpoint.url"),
        (
            {"sasl.oauthbearer.token.endpoint.url": "https://issuer.example/token"},
            "needs a client id and a secret",
        ),
        (
            {
                "sasl.oauthbearer.token.endpoint.url": "file:///token",
                f"{OAUTH}.jaas.config": f'{OAUTH_MODULE} required extension_auth="x";',
            },
            "extension_auth",
        ),
        (
            {
                "sasl.oauthbearer.token.endpoint.url": "file:///token",
                "sasl.jaas.config": f'{OAUTH_MODULE} required ssl.provider="hush";',
            },
            "the option ssl.provider of sasl.jaas.config is unknown$",
        ),
    ],
)
def test_own_tokens_that_are_refused(texts: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidSettings, match=reason):
        own_token(**texts)
