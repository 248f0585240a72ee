"""Names of principals from certificates, by the cases of Kafka's own documentation and tests."""

import pytest

from tidelog.core.authorization.ssl_names import InvalidRules, NoRuleApplies, SslPrincipalNames

RULES = ", ".join(
    [
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L",
        "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
        "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U",
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U",
        "DEFAULT",
    ]
)


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_the_first_rule_that_applies_decides(subject: str, name: str) -> None:
    assert SslPrincipalNames(RULES).name_of(subject) == name


def test_without_rules_the_name_is_the_subject() -> None:
    assert SslPrincipalNames().name_of("CN=a,O=b") == "CN=a,O=b"


def test_a_certificate_that_no_rule_fits_has_no_name() -> None:
    names = SslPrincipalNames("RULE:^CN=(.*?),OU=x$/$1/")

    with pytest.raises(NoRuleApplies, match="CN=a"):
        names.name_of("CN=a")


def test_a_comma_in_a_name_is_escaped() -> None:
    names = SslPrincipalNames("RULE:^CN=((\\\\, *|\\w)+)(,.*|$)/$1/,DEFAULT")

    assert names.name_of("CN=Tkac\\, Adam,OU=ITZ,DC=geodis,DC=cz") == "Tkac\\, Adam"


@pytest.mark.parametrize(
    ("rule", "subject", "name"),
    [
        ("RULE:^CN=(.*)$/$1@$2/", "CN=a", "a@$2"),  # there is no second group
        ("RULE:^CN=(.*)$/$12/", "CN=a", "a2"),
        ("RULE:^CN=(.*)$/$0/", "CN=a", "CN=a"),
        ("RULE:^CN=(.*)$/\\$1/", "CN=a", "$1"),
        ("RULE:^CN=(?<user>.*)$/$1/", "CN=a", "a"),
        ("RULE:^CN=(a)|(b)$/$1-$2/", "CN=a", "a-"),
    ],
)
def test_replacements_refer_to_groups(rule: str, subject: str, name: str) -> None:
    assert SslPrincipalNames(rule).name_of(subject) == name


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "DEFAUL",
        "DEFAULT/L",
        "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
        "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/LU",
        "RULE:^CN=(.*$/$1/",
    ],
)
def test_invalid_rules_are_refused(rules: str) -> None:
    with pytest.raises(InvalidRules):
        SslPrincipalNames(rules)


def test_empty_rules_are_ignored() -> None:
    assert SslPrincipalNames(" , ,, DEFAULT ,,").name_of("CN=a") == "CN=a"
