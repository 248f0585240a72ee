"""The subject of a certificate as the text of RFC 2253, in the form of Java's X500Principal.

Kafka's principals of certificates, its ACLs and its mapping rules use this text. Attributes are in
reverse order, the common name first; those without a keyword in RFC 2253, such as e-mail addresses,
are an object identifier with the hexadecimal value.
"""

from collections.abc import Iterator
from typing import NamedTuple

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.6": "C",
    "2.5.4.9": "STREET",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_SEQUENCE, _SET, _OBJECT_ID, _EXPLICIT_VERSION = 0x30, 0x31, 0x06, 0xA0
_ENCODINGS = {
    0x0C: "utf-8",
    0x13: "ascii",
    0x14: "latin-1",
    0x16: "ascii",
    0x1E: "utf-16-be",
    0x1C: "utf-32-be",
}
"""By tag of a string type. A value of another type is written in hexadecimal."""
_ESCAPED = ',=+<>#;"\\'
_SUBJECT = 4
"""The place of the subject among the fields of a certificate that follow the version."""


class MalformedCertificate(ValueError):
    """The bytes are not a certificate."""


class _Value(NamedTuple):
    tag: int
    content: bytes
    whole: bytes
    """Tag, length and content."""


def subject_of(certificate: bytes) -> str:
    """Return the subject of a certificate in DER. Raises MalformedCertificate."""
    try:
        [signed] = _values(certificate)
        to_sign = next(_values(signed.content))
        fields = [v for v in _values(to_sign.content) if v.tag != _EXPLICIT_VERSION]
        return _name(fields[_SUBJECT].content)
    except (IndexError, ValueError, StopIteration) as error:
        raise MalformedCertificate(f"not a certificate in DER: {error}") from None


def _values(data: bytes) -> Iterator[_Value]:
    at = 0
    while at < len(data):
        tag, length, start = data[at], data[at + 1], at + 2
        if length >= 0x80:
            size = length & 0x7F
            length = int.from_bytes(data[start : start + size], "big")
            start += size
        if start + length > len(data):
            raise MalformedCertificate("a value extends past its end")
        yield _Value(tag, data[start : start + length], data[at : start + length])
        at = start + length


def _name(content: bytes) -> str:
    names = [
        "+".join(_attribute(*_values(pair.content)) for pair in _values(each.content))
        for each in _values(content)
    ]
    return ",".join(reversed(names))


def _attribute(kind: _Value, value: _Value) -> str:
    identifier = _object_id(kind.content)
    keyword = _KEYWORDS.get(identifier)
    encoding = _ENCODINGS.get(value.tag)
    if keyword is None or encoding is None:
        return f"{keyword or identifier}=#{value.whole.hex()}"
    return f"{keyword}={_escaped(value.content.decode(encoding))}"


def _object_id(content: bytes) -> str:
    numbers = [0]
    for byte in content:
        numbers[-1] = numbers[-1] << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(0)
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:-1])))


def _escaped(text: str) -> str:
    inside = text.strip(" ")
    before = len(text) - len(text.lstrip(" ")) if inside else len(text)
    after = len(text) - len(text.rstrip(" ")) if inside else 0
    escaped = "".join(f"\\{char}" if char in _ESCAPED else char for char in inside)
    return "\\ " * before + escaped + "\\ " * after
