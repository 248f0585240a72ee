"""SHA-2 and HMAC without OpenSSL, which would take 4 MB of a broker's memory."""

from collections.abc import Callable
from typing import Any, NamedTuple

try:
    from _sha2 import sha256, sha512  # type: ignore[import-not-found]
except ImportError:  # before Python 3.12
    from _sha256 import sha256  # type: ignore[import-not-found]
    from _sha512 import sha512  # type: ignore[import-not-found]

_INNER = bytes(byte ^ 0x36 for byte in range(256))
_OUTER = bytes(byte ^ 0x5C for byte in range(256))


class Hash(NamedTuple):
    """A hash function, and the sizes that HMAC needs."""

    name: str
    """Its name in `hashlib`."""
    new: Callable[[bytes], Any]
    size: int
    block: int

    def digest(self, data: bytes) -> bytes:
        return bytes(self.new(data).digest())

    def hmac(self, key: bytes, message: bytes) -> bytes:
        """RFC 2104."""
        if len(key) > self.block:
            key = self.digest(key)
        key = key.ljust(self.block, b"\0")
        return self.digest(key.translate(_OUTER) + self.digest(key.translate(_INNER) + message))


SHA_256 = Hash("sha256", sha256, 32, 64)
SHA_512 = Hash("sha512", sha512, 64, 128)
