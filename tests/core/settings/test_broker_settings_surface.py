"""Settings of listeners and limits: invalid values are refused; the default is localhost."""

import pytest

from tidelog.core.settings.broker_settings import InvalidSettings, settings_of

NODE = {"node.id": "1"}


def test_broker_listens_on_localhost_by_default() -> None:
    settings = settings_of(NODE)
    assert settings.listener.host == "localhost"
    assert settings.internal_listener.host == "127.0.0.1"
    assert not settings.listener.everywhere


def test_connection_limits_by_address() -> None:
    text = "10.0.0.1:100, ::1:7,[fe80::1]:8 ,example.org:0,"
    settings = settings_of({**NODE, "max.connections.per.ip.overrides": text})
    assert settings.connection_overrides == {
        "10.0.0.1": 100,
        "::1": 7,
        "fe80::1": 8,
        "example.org": 0,
    }
    assert settings_of(NODE).connection_overrides == {}


@pytest.mark.parametrize("text", ["other", "10.0.0.1", ":5", "10.0.0.1:", "a:-1", "a:x", "a:٣"])
def test_invalid_connection_limits_are_refused(text: str) -> None:
    with pytest.raises(InvalidSettings, match="host:count"):
        settings_of({**NODE, "max.connections.per.ip.overrides": text})


def test_request_memory_must_hold_the_largest_request() -> None:
    """The same rule as in Kafka; -1 means no limit."""
    with pytest.raises(InvalidSettings, match="104857600"):
        settings_of({**NODE, "queued.max.request.bytes": "104857599"})
    settings_of({**NODE, "queued.max.request.bytes": "104857600"})
    settings_of({**NODE, "queued.max.request.bytes": "-1"})
    settings_of({**NODE, "socket.request.max.bytes": "900000000"})
