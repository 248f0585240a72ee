"""Why a broker ended connections, in a few words to count by."""

import pytest

from tidelog.shell.broker.event_log import close_reason


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("the peer closed it", None),
        ("the peer is gone", None),
        ("the broker stops", None),
        ("[Errno 104] Connection reset by peer", None),
        ("malformed request: 3 bytes are missing", "malformed"),
        ("a frame of 1195725856 bytes, 104857600 at most", "too large"),
        ("API 99 version 0 is not offered", "not offered"),
        ("silent for too long", "idle"),
        ("a request that did not come to its end", "slow request"),
        ("17000000 bytes of answers were not taken", "answers not taken"),
        ("something new", "refused"),
    ],
)
def test_reasons(said: str, reason: str | None) -> None:
    assert close_reason(said) == reason
