"""What a broker stores of a user's password for SCRAM."""

from typing import NamedTuple


class ScramCredential(NamedTuple):
    """The credential of one user for one mechanism: secret, but the password can't be computed from
    it."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"
