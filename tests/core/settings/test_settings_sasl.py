"""The settings of SASL: login modules, values of listeners and mechanisms, refusals, secrets."""

import pytest

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
from tidelog.core.settings.jaas import PLAIN_MODULE, SCRAM_MODULE, parse_jaas
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
        ({"sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER"}, "OAUTHBEARER is not supported"),
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
