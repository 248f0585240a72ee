"""Polling for the next request before the loop sleeps, while that pays."""

from tidelog.shell.net.event_loop import CREDIT_MAX, LOSS, RESTS, BusyPoll, Ready

FOUND: Ready = [(7, 1)]


class Polled:
    """A poll function that returns events or none, and counts its calls."""

    def __init__(self, tells: bool = True) -> None:
        self.tells = tells
        self.asked = 0

    def __call__(self, timeout: float) -> Ready:
        assert timeout == 0, "it does not sleep"
        self.asked += 1
        return FOUND if self.tells else []


def busy_poll() -> BusyPoll:
    one = BusyPoll()
    one.us = 50
    return one


def test_a_loop_does_not_poll_unless_it_is_configured() -> None:
    assert BusyPoll().poll(Polled(), 1000) is None


def test_a_busy_poll_finds_the_next_request() -> None:
    assert busy_poll().poll(Polled(), 1000) == FOUND


def test_after_a_miss_polling_pauses_then_resumes() -> None:
    one, poll = busy_poll(), Polled(tells=False)
    assert one.poll(poll, 1000) == []
    poll.asked = 0
    assert [one.poll(poll, 1000) for _ in range(RESTS)] == [None] * RESTS
    assert poll.asked == 0
    poll.tells = True
    assert one.poll(poll, 1000) == FOUND


def test_hits_pay_for_some_misses() -> None:
    one, poll = busy_poll(), Polled()
    for _ in range(2 * CREDIT_MAX):
        assert one.poll(poll, 1000) == FOUND
    poll.tells = False
    for _ in range(CREDIT_MAX // LOSS):
        assert one.poll(poll, 1000) == []
    assert one.poll(poll, 1000) is None, "the credit is used up"


def test_a_client_that_pauses_after_every_second_request_is_not_polled_for() -> None:
    one, poll, looks = busy_poll(), Polled(), 0
    for turn in range(300):
        poll.tells = turn % 3 != 2
        looks += one.poll(poll, 1000) is not None
    assert looks < 60


def test_busy_polling_delays_nothing_that_is_due() -> None:
    assert busy_poll().poll(Polled(), 0) == []
