"""One login module in the form of Kafka's `sasl.jaas.config`.

    org.apache.kafka.common.security.plain.PlainLoginModule required
        username="alice" password="secret" user_alice="secret";

The module's class only names the mechanism: nothing is loaded.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tidelog.core.sasl.mechanism import OAUTHBEARER, PLAIN
from tidelog.core.settings.setting import WrongValue

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_MODULES = {PLAIN: PLAIN_MODULE, OAUTHBEARER: OAUTH_MODULE}
USER_PREFIX = "user_"
_FLAGS = ("required", "requisite", "sufficient", "optional")
_TOKEN = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?\*/)|\"(?P<double>(?:\\.|[^\"\\\n])*)\""
    r"|'(?P<single>(?:\\.|[^'\\\n])*)'|(?P<sign>[=;])|(?P<word>[^\s=;\"']+)",
    re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


class LoginModule(NamedTuple):
    """A login module and its options, which include passwords."""

    name: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.name!r})"

    @property
    def user(self) -> str:
        """The user that this side authenticates as; empty without one."""
        return self.options.get("username", "")

    @property
    def password(self) -> str:
        """The password of `user`."""
        return self.options.get("password", "")

    @property
    def users(self) -> dict[str, str]:
        """The passwords by user of clients that a broker accepts."""
        return {
            name.removeprefix(USER_PREFIX): value
            for name, value in self.options.items()
            if name.startswith(USER_PREFIX)
        }


def parse_jaas(text: str) -> LoginModule:
    """Parse one login module. Raises WrongValue, whose text contains no option's value."""
    tokens = list(_tokens(text))
    if len(tokens) < 2 or tokens[1].text.lower() not in _FLAGS:
        raise WrongValue(f"must look like `{PLAIN_MODULE} required username=... password=...;`")
    options: dict[str, str] = {}
    at = 2
    while at < len(tokens) and not tokens[at].is_sign:
        key, value = tokens[at].text, tokens[at + 2 : at + 3]
        if tokens[at + 1 : at + 2] != [_Token("=", True)] or not value or value[0].is_sign:
            # The word may be the rest of a password that has no quotes.
            number = len(options) + 1
            raise WrongValue(
                f"must have its option {number} as `name=value`; put values with blanks or signs in"
                ' quotes: password="..."'
            )
        options[key] = value[0].text
        at += 3
    if tokens[at:] != [_Token(";", True)]:
        raise WrongValue("must have one login module that ends with `;`")
    return LoginModule(tokens[0].text, options)


def check_module(module: LoginModule, mechanism: str) -> None:
    """Raise WrongValue if the login module is one of another mechanism."""
    expected = module_of(mechanism)
    if module.name != expected:
        raise WrongValue(f"has the login module {module.name}, but {mechanism} needs {expected}")


def module_of(mechanism: str) -> str:
    """Return the class by which Kafka's configurations name a mechanism."""
    return _MODULES.get(mechanism, SCRAM_MODULE)


class _Token(NamedTuple):
    text: str
    is_sign: bool = False


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        match = _TOKEN.match(text, position)
        if match is None:
            raise WrongValue("has a quote without its end")
        position = match.end()
        if match["sign"] is not None:
            yield _Token(match["sign"], True)
        elif match["word"] is not None:
            yield _Token(match["word"])
        elif match["comment"] is None:
            quoted = match["double"] if match["double"] is not None else match["single"]
            yield _Token(re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), quoted))
