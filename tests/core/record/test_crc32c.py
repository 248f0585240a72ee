from pathlib import Path

import pytest

from tidelog.core.record.crc32c import crc32c, load

# RFC 3720, appendix B.4, and the check value of the CRC catalogues.
KNOWN = {
    "nothing": (b"", 0),
    "check value": (b"123456789", 0xE3069283),
    "32 zero bytes": (bytes(32), 0x8A9136AA),
    "32 bytes of ones": (b"\xff" * 32, 0x62A8AB43),
    "rising bytes": (bytes(range(32)), 0x46DD794E),
}


@pytest.mark.parametrize(("data", "expected"), KNOWN.values(), ids=KNOWN)
def test_known_checksums(data: bytes, expected: int) -> None:
    assert crc32c(data) == expected
    assert crc32c(memoryview(bytearray(data))) == expected


def test_continues_from_a_value() -> None:
    assert crc32c(b"56789", crc32c(b"1234")) == crc32c(b"123456789")


def test_package_without_an_extension_is_imported_as_usual(tmp_path: Path) -> None:
    package = tmp_path / "crc32c"
    package.mkdir()
    (package / "__init__.py").touch()
    assert load([str(tmp_path)])(b"123456789") == 0xE3069283


def test_package_not_found_is_imported_as_usual(tmp_path: Path) -> None:
    assert load([str(tmp_path)])(b"123456789") == 0xE3069283
