"""Hostile frames before and in the middle of a login by SASL."""

from typing import Any

import pytest

from tidelog.apps.fuzz import over_sockets
from tidelog.core.api.sasl_exchange import SaslExchange, State
from tidelog.core.principal import USER, Principal
from tidelog.core.sasl.scram import ScramServer
from tidelog.lab.fuzz.campaign import Tally
from tidelog.lab.fuzz.sasl_campaign import STAGES, SaslCampaign

FOREVER_S = 1e12


def run(frames: int, seed: int = 1) -> tuple[Tally, SaslCampaign]:
    campaign = SaslCampaign(seed)
    return campaign.run(frames, FOREVER_S, lambda _: None), campaign


def whats(frames: int = 400) -> str:
    return "\n".join(finding.what for finding in run(frames)[0].findings)


def test_hostile_frames_are_bounded_in_every_state() -> None:
    tally, campaign = run(6000)
    assert tally.findings == []
    assert tally.answered > 500
    assert tally.refused > 500
    assert all(campaign.stages[stage] > 300 for stage in STAGES), campaign.stages


def test_the_same_seed_gives_the_same_run() -> None:
    found = [run(300, seed)[1] for seed in (4, 4, 5)]
    assert found[0].stages == found[1].stages != found[2].stages


# Each check finds the bug that it is for.


def test_an_exception_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = SaslCampaign(1)
    monkeypatch.setattr(SaslCampaign, "_log_in", lambda *_: None)
    monkeypatch.setattr(SaslExchange, "receive", lambda *_: 1 // 0)
    tally = campaign.run(20, FOREVER_S, lambda _: None)
    assert "ZeroDivisionError" in tally.findings[0].what


def test_a_request_before_the_login_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = SaslExchange.receive

    def receive(self: SaslExchange, frame: memoryview, now_ms: int) -> Any:
        found = sound(self, frame, now_ms)
        return found._replace(forward=True) if self.state is State.FAILED else found

    monkeypatch.setattr(SaslExchange, "receive", receive)
    assert "a request was served before the login" in whats()


def test_a_login_without_the_password_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = ScramServer._verify

    def verify(self: ScramServer, message: str, credential: Any) -> bytes:
        try:
            return sound(self, message, credential)
        except Exception:  # noqa: BLE001 - the planted bug
            self.user = "mallory"
            return b""

    monkeypatch.setattr(ScramServer, "_verify", verify)
    assert f"became {Principal(USER, 'mallory')} without a password" in whats()


def test_long_responses_and_large_states_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.core.sasl.scram.MESSAGE_MAX", 1 << 20)
    found = whats(3000)
    assert "a response of" in found
    assert "the state of the login has" in found


def test_a_connection_that_stays_open_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.core.api.sasl_gate.SaslGate._fail", lambda *_: None)
    assert "a failed login, and the connection is not closed" in whats()


def test_strangers_do_not_harm_a_real_broker() -> None:
    """Frames through sockets, before and in the middle of a login: the broker serves, and keeps
    neither sockets nor memory."""
    report = over_sockets.run(3, 600, 60, [], lambda _: None, sasl=True)
    assert report.faults == []
    assert report.frames >= 48  # a round
    assert report.answered > 10
