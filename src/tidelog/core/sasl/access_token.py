"""Access tokens in the form of JWT (RFC 7519): their parts, and what a broker requires of them.

The shell checks the signature of a token before its claims are read here (shell/oauth). The rules
for claims are those of Kafka's validators.
"""

from binascii import Error as NotBase64
from binascii import a2b_base64
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tidelog.core.sasl.mechanism import SaslFailed

HEADER_MAX = 8192
"""The longest header of a token, in base64: a client that is not authenticated chooses it."""
_INVALID = '{"status":"invalid_token"}'


class TokenRules(NamedTuple):
    """What the claims of a signed token must be."""

    audiences: tuple[str, ...] = ()
    """A token with other audiences only is refused. Empty: a token with any audience is."""
    issuer: str | None = None
    subject_claim: str = "sub"
    scope_claim: str = "scope"
    skew_s: int = 30


class UnsecuredRules(NamedTuple):
    """What the claims of a token without signature must be: everyone can make such tokens."""

    subject_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: tuple[str, ...] = ()
    skew_ms: int = 0


class AcceptedToken(NamedTuple):
    """A valid token: its user, and when it expires."""

    user: str
    expires_ms: int
    """Milliseconds since 1970."""


class TokenParts(NamedTuple):
    """The parts of a token that says nothing about its signature yet."""

    header: Mapping[str, Any]
    payload: bytes
    signature: str


def refused(reason: str, status: str = "") -> SaslFailed:
    """Return the failure of a token. The client gets `status` in a message of its own (RFC 7628,
    section 3.2.2), and no reason."""
    public = status or _INVALID
    return SaslFailed(reason, public, public.encode())


def split_token(token: str) -> TokenParts:
    """Split a token. Raises SaslFailed."""
    parts = token.split(".", 3)
    if len(parts) != 3 or not parts[0] or not parts[1]:
        raise refused("the token is not a JWT: it does not have three parts")
    if len(parts[0]) > HEADER_MAX:
        raise refused(f"the token's header exceeds {HEADER_MAX} bytes")
    header = _document(_decoded(parts[0]), "header")
    if "crit" in header:
        raise refused("the token's header has `crit`: extensions are not supported")
    return TokenParts(header, _decoded(parts[1]), parts[2])


def claims_of(payload: bytes) -> Mapping[str, Any]:
    """Parse the payload of a token. Raises SaslFailed."""
    return _document(payload, "payload")


def check_signed(claims: Mapping[str, Any], rules: TokenRules, now_ms: int) -> AcceptedToken:
    """Check the claims of a token whose signature is right. Raises SaslFailed."""
    expires_s = _time(claims, "exp")
    issued_s = _time(claims, "iat")
    begins_s = _time(claims, "nbf", is_required=False)
    now_s = now_ms // 1000
    assert expires_s is not None
    assert issued_s is not None
    if expires_s < 0 or issued_s < 0:
        raise refused("the token has a negative `exp` or `iat`")
    if now_s - rules.skew_s >= expires_s:
        raise refused(f"the token expired {now_s - expires_s} seconds ago")
    if expires_s < issued_s or (begins_s is not None and expires_s < begins_s):
        raise refused("the token expires before it is valid")
    if begins_s is not None and now_s + rules.skew_s < begins_s:
        raise refused(f"the token is not valid for another {begins_s - now_s} seconds")
    for name in ("iss", "sub", "jti"):
        if name in claims and not isinstance(claims[name], str):
            raise refused(f"the token's claim {name} is not a text")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise refused(f"the token's issuer is {claims.get('iss')!r:.80}, not {rules.issuer!r}")
    _check_audience(claims, rules.audiences)
    user = _subject(claims, rules.subject_claim)
    _check_scopes(claims.get(rules.scope_claim), rules.scope_claim)
    return AcceptedToken(user, expires_s * 1000)


def check_unsecured(token: str, rules: UnsecuredRules, now_ms: int) -> AcceptedToken:
    """Check a token without signature. Raises SaslFailed."""
    parts = split_token(token)
    if parts.header.get("alg") != "none" or parts.signature:
        raise refused("the listener accepts tokens without signature only")
    claims = claims_of(parts.payload)
    user = _subject(claims, rules.subject_claim)
    expires_ms = _ms(claims, "exp")
    issued_ms = _ms(claims, "iat", is_required=False)
    assert expires_ms is not None
    if now_ms - rules.skew_ms >= expires_ms:
        raise refused("the token expired")
    if issued_ms is not None and issued_ms > now_ms + rules.skew_ms:
        raise refused("the token was issued in the future")
    if issued_ms is not None and expires_ms <= issued_ms:
        raise refused("the token expires before it was issued")
    found = claims.get(rules.scope_claim, [])
    scopes = [_trimmed(found)] if isinstance(found, str) else found
    missing = [
        one for one in rules.required_scope if not isinstance(scopes, list) or one not in scopes
    ]
    if missing:
        wanted = f"[{', '.join(rules.required_scope)}]"  # as Kafka spells a list
        status = f'{{"status":"insufficient_scope", "scope":"{wanted}"}}'
        raise refused(f"the token lacks the scope {missing[0]}", status)
    return AcceptedToken(user, expires_ms)


def expiry_of(token: str) -> int:
    """Return when a token expires that this side got for itself, in milliseconds since 1970. Its
    signature is for the broker to check. Raises SaslFailed."""
    expires_ms = _ms(claims_of(split_token(token).payload), "exp")
    assert expires_ms is not None
    return expires_ms


def _document(data: bytes, part: str) -> dict[str, Any]:
    from json import loads

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        # RFC 7519 lets a parser refuse such a token, or take the last value. Others take the first.
        members: dict[str, Any] = {}
        for name, value in pairs:
            if name in members:
                raise refused(f"the token's {part} has {name!r:.80} twice")
            members[name] = value
        return members

    try:
        found = loads(data, object_pairs_hook=unique)
    except (ValueError, RecursionError):  # also UnicodeDecodeError
        raise refused(f"the token's {part} is not JSON") from None
    if not isinstance(found, dict):
        raise refused(f"the token's {part} is not a JSON object")
    return found


def _decoded(text: str) -> bytes:
    """Decode base64 with the letters - and _, without padding (RFC 7515)."""
    padded = text.translate(_LETTERS) + "=" * (-len(text) % 4)
    try:
        return a2b_base64(padded, strict_mode=True)
    except (NotBase64, ValueError):
        raise refused("the token has invalid base64") from None


_LETTERS = str.maketrans("-_+/=", "+/~~~")
"""The letters of ordinary base64 become invalid ones."""


def _number(claims: Mapping[str, Any], name: str, *, is_required: bool) -> float | None:
    value = claims.get(name)
    if value is None:
        if is_required:
            raise refused(f"the token has no claim {name}")
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _LATEST_S:
        raise refused(f"the token's claim {name} is not a time")
    return value


_LATEST_S = 1 << 53
"""A float has every whole number below this; it also excludes infinity and NaN."""


def _time(claims: Mapping[str, Any], name: str, *, is_required: bool = True) -> int | None:
    value = _number(claims, name, is_required=is_required)
    return None if value is None else int(value)


def _ms(claims: Mapping[str, Any], name: str, *, is_required: bool = True) -> int | None:
    value = _number(claims, name, is_required=is_required)
    return None if value is None else int(value * 1000)


def _subject(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not _trimmed(value):
        raise refused(
            f"the token's claim {name}, which names the user, is missing, empty or not a text"
        )
    return _trimmed(value)


def _trimmed(text: str) -> str:
    """Remove blanks at the ends as Java's `trim` does, so that names differ if they do in Kafka."""
    return text.strip(_BLANKS)


_BLANKS = "".join(map(chr, range(0x21)))
"""Control characters and the blank, but no other Unicode blanks, such as U+00A0."""


def _check_audience(claims: Mapping[str, Any], expected: tuple[str, ...]) -> None:
    found = claims.get("aud")
    audiences = [found] if isinstance(found, str) else found
    if audiences is None:
        if expected:
            raise refused("the token has no audience")
        return
    if not isinstance(audiences, list) or not all(isinstance(one, str) for one in audiences):
        raise refused("the token's audience is neither a text nor a list of texts")
    if not any(one in expected for one in audiences):
        wanted = ", ".join(expected) or "no audience (sasl.oauthbearer.expected.audience)"
        raise refused(f"the token's audience is {found!r:.80}; expected is {wanted}")


def _check_scopes(found: object, name: str) -> None:
    scopes = [found] if isinstance(found, str) else found if isinstance(found, list) else []
    seen = set()
    for scope in scopes:
        if not isinstance(scope, str) or not _trimmed(scope) or _trimmed(scope) in seen:
            raise refused(f"the token's claim {name} has an empty, duplicate or invalid scope")
        seen.add(_trimmed(scope))


CheckToken = Callable[[str], AcceptedToken]
"""Checks a token, with its signature. Raises SaslFailed."""
