"""Subjects of certificates as text. The expected texts are those of Java 17's X500Principal."""

import pytest

from tidelog.core.authorization.distinguished_name import MalformedCertificate, subject_of

_IDS = {
    "CN": bytes.fromhex("550403"),
    "O": bytes.fromhex("55040a"),
    "OU": bytes.fromhex("55040b"),
    "C": bytes.fromhex("550406"),
    "DC": bytes.fromhex("0992268993f22c640119"),
    "UID": bytes.fromhex("0992268993f22c640101"),
    "mail": bytes.fromhex("2a864886f70d010901"),
}
_UTF8, _IA5, _SEQUENCE, _SET = 0x0C, 0x16, 0x30, 0x31


def _der(tag: int, content: bytes) -> bytes:
    size = len(content)
    length = bytes([size]) if size < 0x80 else bytes([0x82]) + size.to_bytes(2, "big")
    return bytes([tag]) + length + content


def _certificate(*names: tuple[tuple[str, str], ...], version: bool = True) -> bytes:
    """The fields of a certificate up to its subject, and the signature's place."""
    subject = b""
    for pairs in names:
        attributes = [
            _der(_SEQUENCE, _der(6, _IDS[key]) + _der(_tag(key), value.encode()))
            for key, value in pairs
        ]
        subject += _der(_SET, b"".join(attributes))
    fields = [_der(0xA0, _der(2, b"\2"))] if version else []
    fields += [_der(2, b"\1"), _der(_SEQUENCE, b""), _der(_SEQUENCE, b""), _der(_SEQUENCE, b"")]
    fields.append(_der(_SEQUENCE, subject))
    return _der(_SEQUENCE, _der(_SEQUENCE, b"".join(fields)) + _der(_SEQUENCE, b""))


def _tag(key: str) -> int:
    return _IA5 if key in ("mail", "DC") else _UTF8


def _one(key: str, value: str) -> tuple[tuple[str, str], ...]:
    return ((key, value),)


def test_attributes_are_in_reverse_order() -> None:
    certificate = _certificate(_one("O", "Org"), _one("OU", "Users"), _one("CN", "Alice"))

    assert subject_of(certificate) == "CN=Alice,OU=Users,O=Org"


def test_certificates_of_version_1_have_no_version() -> None:
    assert subject_of(_certificate(_one("CN", "a"), version=False)) == "CN=a"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ('a, "b"; <c>', 'a\\, \\"b\\"\\; \\<c\\>'),
        ("  x  y ", "\\ \\ x  y\\ "),
        (" ", "\\ "),
        ("a#b", "a\\#b"),
        ("##", "\\#\\#"),
        ("a=b", "a\\=b"),
        ("x\\y", "x\\\\y"),
        ("é€", "é€"),
        ("n" * 200, "n" * 200),
    ],
)
def test_special_characters_are_escaped(name: str, text: str) -> None:
    assert subject_of(_certificate(_one("CN", name))) == f"CN={text}"


def test_attributes_without_a_keyword_are_hexadecimal() -> None:
    certificate = _certificate(_one("mail", "a@b.c"), _one("CN", "x"))

    assert subject_of(certificate) == "CN=x,1.2.840.113549.1.9.1=#16056140622e63"


def test_domains_and_names_of_several_attributes() -> None:
    certificate = _certificate(_one("DC", "com"), _one("UID", "u1"), (("OU", "x"), ("CN", "Zoë")))

    assert subject_of(certificate) == "OU=x+CN=Zoë,UID=u1,DC=com"


@pytest.mark.parametrize("cut", [0, 1, 2, 10, 40])
def test_damaged_certificates_are_refused(cut: int) -> None:
    with pytest.raises(MalformedCertificate):
        subject_of(_certificate(_one("CN", "a" * 60))[:cut])
