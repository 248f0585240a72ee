"""Why a broker ended connections, in a few words to count by."""

import pytest

from tidelog.shell.broker.event_log import close_reason


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("the peer closed the connection", None),
        ("the peer reset the connection", None),
        ("the broker stops", None),
        ("[Errno 104] Connection reset by peer", None),
        ("malformed request: 3 bytes are missing", "malformed"),
        ("frame of 1195725856 bytes exceeds the limit of 104857600", "too large"),
        ("request of 5000000 bytes, 4194304 at most", "too large"),
        ("API 99 version 0 is not offered", "not offered"),
        ("idle for too long", "idle"),
        ("request not received completely in time", "slow request"),
        ("17000000 bytes of responses were not read", "answers not taken"),
        ("something new", "refused"),
    ],
)
def test_reasons(said: str, reason: str | None) -> None:
    assert close_reason(said) == reason
