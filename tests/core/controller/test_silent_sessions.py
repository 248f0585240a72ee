"""When a broker ends the sessions of others that were not renewed, on virtual clocks."""

import pytest

from tidelog.core.controller.metadata.silent_sessions import Renewal, Silent, SilentSessions

TTL_MS = 9_000
THIRD_MS = TTL_MS // 3
OWN, OTHER = 1, 2
AHEAD_MS = 1_000_000
"""How far the clock of the other broker is ahead."""


class Watcher:
    """A broker that checks at its interval, and renews its own session every third of it."""

    def __init__(self) -> None:
        self.rule = SilentSessions()
        self.now_ms = 5_000
        self.rule.opened(OWN, TTL_MS, self.now_ms)
        self.renew_at_ms = self.now_ms + THIRD_MS
        self.store_works = True
        self.revision = 10

    def run(self, for_ms: int) -> list[Silent]:
        """Let time pass; return the sessions to end at the end of it."""
        end_ms = self.now_ms + for_ms
        interval_ms = self.rule.interval_ms
        assert interval_ms is not None
        silent: list[Silent] = []
        while self.now_ms < end_ms:
            self.now_ms = min(self.now_ms + interval_ms, end_ms)
            if self.now_ms >= self.renew_at_ms and self.store_works:
                self.rule.renewed(self.now_ms)
                self.renew_at_ms = self.now_ms + THIRD_MS
            silent = self.rule.silent(self.now_ms)
        return silent

    def see(self, session: int = OTHER, *, late_ms: int = 0) -> None:
        """See a renewal that was sent `late_ms` ago."""
        self.revision += 1
        renewal = Renewal(TTL_MS, self.now_ms - late_ms + AHEAD_MS)
        self.rule.seen(session, renewal, self.revision, self.now_ms)


@pytest.fixture
def watcher() -> Watcher:
    """A watcher that has had its session for a while."""
    watcher = Watcher()
    watcher.run(2 * TTL_MS)
    return watcher


def test_a_session_is_ended_when_its_time_has_passed_since_its_last_renewal(
    watcher: Watcher,
) -> None:
    for _ in range(5):
        watcher.see()
        assert watcher.run(THIRD_MS) == []
    assert watcher.run(TTL_MS - THIRD_MS - 1) == []
    assert watcher.run(1) == [Silent(OTHER, watcher.revision)]


def test_a_broker_does_not_end_its_own_session(watcher: Watcher) -> None:
    watcher.see(OWN)
    assert watcher.run(2 * TTL_MS) == []


def test_a_session_that_ended_is_forgotten(watcher: Watcher) -> None:
    watcher.see()
    watcher.see(3)
    watcher.see(4)
    watcher.rule.ended(OTHER)
    watcher.rule.keep({4})
    assert watcher.run(TTL_MS) == [Silent(4, watcher.revision)]


def test_a_renewal_that_arrives_late_counts_from_when_it_was_sent(watcher: Watcher) -> None:
    watcher.see()
    watcher.run(THIRD_MS + 2_500)
    watcher.see(late_ms=2_500)
    assert watcher.run(TTL_MS - 2_500 - 1) == []
    assert watcher.run(1) != []


def test_the_first_renewal_that_is_seen_counts_from_its_arrival(watcher: Watcher) -> None:
    """It may be the last one before a long silence, but also a new one."""
    watcher.see(late_ms=5_000)
    assert watcher.run(TTL_MS - 1) == []
    assert watcher.run(1) != []


def test_a_renewal_is_never_counted_from_before_the_one_before_it(watcher: Watcher) -> None:
    """The other broker's clock jumped back, or the renewals are those of another process."""
    watcher.see()
    watcher.run(1_000)
    watcher.see(late_ms=50_000)
    assert watcher.run(TTL_MS - 1) == []
    assert watcher.run(1) != []


def test_no_session_is_ended_while_own_renewals_fail(watcher: Watcher) -> None:
    watcher.see()
    watcher.run(THIRD_MS)
    watcher.store_works = False
    assert watcher.run(5 * TTL_MS) == []


@pytest.mark.parametrize(
    ("outage_ms", "patience_ms"),
    [
        (2_500, 0),  # an election of etcd, with time left: as if nothing had been
        (5_500, THIRD_MS),
        (30_000, TTL_MS),  # what etcd gives all sessions too
    ],
)
def test_after_an_outage_other_brokers_get_time_to_renew(
    watcher: Watcher, outage_ms: int, patience_ms: int
) -> None:
    watcher.see()
    watcher.renew_at_ms = watcher.now_ms + THIRD_MS
    watcher.rule.renewed(watcher.now_ms)
    watcher.store_works = False
    assert watcher.run(outage_ms) == []
    watcher.store_works = True
    left_ms = max(patience_ms, TTL_MS - outage_ms)
    assert watcher.run(left_ms - 1) == []
    watcher.run(watcher.rule.interval_ms or 0)
    assert watcher.run(1) != []


def test_time_in_which_the_process_was_suspended_is_no_silence(watcher: Watcher) -> None:
    """Renewals may wait in the socket."""
    watcher.see()
    watcher.run(1_000)
    watcher.now_ms += 800
    watcher.rule.renewed(watcher.now_ms)
    assert watcher.run(TTL_MS - 1_001) == []
    assert watcher.run(1_000) != []


def test_a_broker_without_a_session_ends_none(watcher: Watcher) -> None:
    watcher.see()
    watcher.run(TTL_MS - 1)
    watcher.rule.closed()
    assert watcher.rule.interval_ms is None
    assert watcher.rule.silent(watcher.now_ms + 1) == []


def test_a_broker_with_a_new_session_waits_as_etcd_does() -> None:
    watcher = Watcher()
    watcher.see()
    watcher.now_ms += 100
    watcher.rule.opened(OWN + 5, TTL_MS, watcher.now_ms)
    watcher.see(OWN)
    assert watcher.run(TTL_MS - 1) == []
    assert watcher.run(1_000) != []
