"""The name of a principal that a client certificate proves: its distinguished name, changed by the
rules of `ssl.principal.mapping.rules`.

The rules are Kafka's (SslPrincipalMapper): `DEFAULT` is the distinguished name itself;
`RULE:PATTERN/REPLACEMENT/` applies if the pattern matches the whole name, and `L` or `U` behind it
change the result to lower or upper case. The first rule that applies decides.

Patterns are those of Python's `re`. They differ from Java's only in rare constructs; Java's way to
name a group is translated.
"""

import re
from typing import NamedTuple

_RULE = r"(DEFAULT)|RULE:((\\.|[^\\/])*)/((\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(,\s*|$)")
_PARSER = re.compile(_RULE)
_REFERENCE = re.compile(r"\\(.)|\$([0-9]+)", re.DOTALL)


class InvalidRules(ValueError):
    """The rules can't be used; the text says why."""


class NoRuleApplies(ValueError):
    """No rule applies to the distinguished name of a certificate."""


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    replacement: str
    case: str
    """"L" or "U"; empty: the case stays as it is."""

    def apply(self, name: str) -> str | None:
        if self.pattern.fullmatch(name) is None:
            return None
        result = self.pattern.sub(self._expanded, name)
        return {"L": result.lower(), "U": result.upper()}.get(self.case, result)

    def _expanded(self, match: re.Match[str]) -> str:
        def expand(reference: re.Match[str]) -> str:
            escaped, digits = reference.group(1, 2)
            return escaped if escaped is not None else _group(match, digits)

        return _REFERENCE.sub(expand, self.replacement)


def _group(match: re.Match[str], digits: str) -> str:
    """Return a group by the longest number that is one; text that names no group stays."""
    groups = match.re.groups
    for end in range(len(digits), 0, -1):
        if int(digits[:end]) <= groups:
            return (match.group(int(digits[:end])) or "") + digits[end:]
    return f"${digits}"


class SslPrincipalNames:
    """Maps the distinguished names of certificates to names of users."""

    __slots__ = ("_rules",)

    def __init__(self, rules: str = "DEFAULT") -> None:
        """Parse the rules. Raises InvalidRules."""
        self._rules = [parsed for text in _split(rules) for parsed in _parse(text)]

    def name_of(self, distinguished_name: str) -> str:
        """Return the name of the user. Raises NoRuleApplies."""
        for rule in self._rules:
            name = distinguished_name if rule is None else rule.apply(distinguished_name)
            if name is not None:
                return name
        raise NoRuleApplies(f"no rule of ssl.principal.mapping.rules fits {distinguished_name}")


def _split(rules: str) -> list[str]:
    return [found.group(1) for found in _SPLITTER.finditer(rules.strip())]


def _parse(text: str) -> list[_Rule | None]:
    """Parse one rule; None is DEFAULT, and an empty text is no rule."""
    found = _PARSER.match(text)
    assert found is not None, "the pattern matches an empty text"
    if found.end() != len(text):
        raise InvalidRules(f"rule {text!r} is invalid at {text[found.end() :]!r}")
    if found.group(1) is not None:
        return [None]
    if found.group(2) is None:
        return []
    pattern = re.sub(r"\(\?<(?=[A-Za-z])", "(?P<", found.group(2))
    try:
        return [_Rule(re.compile(pattern), found.group(4), found.group(6))]
    except re.error as error:
        raise InvalidRules(f"rule {text!r}: its pattern is invalid: {error}") from None
