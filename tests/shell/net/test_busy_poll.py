"""Looking for the next request before sleeping, while that pays."""

from tidelog.shell.net.event_loop import CREDIT_MAX, LOSS, RESTS, BusyPoll, Ready

FOUND: Ready = [(7, 1)]


class Polled:
    """Has something to tell, or has not; counts who asks."""

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


def test_nobody_looks_who_was_not_told_to() -> None:
    assert BusyPoll().poll(Polled(), 1000) is None


def test_what_comes_is_found_without_sleep() -> None:
    assert busy_poll().poll(Polled(), 1000) == FOUND


def test_after_a_look_in_vain_it_rests_then_looks_again() -> None:
    one, poll = busy_poll(), Polled(tells=False)
    assert one.poll(poll, 1000) == []
    poll.asked = 0
    assert [one.poll(poll, 1000) for _ in range(RESTS)] == [None] * RESTS
    assert poll.asked == 0
    poll.tells = True
    assert one.poll(poll, 1000) == FOUND


def test_finds_pay_for_some_looks_in_vain() -> None:
    one, poll = busy_poll(), Polled()
    for _ in range(2 * CREDIT_MAX):
        assert one.poll(poll, 1000) == FOUND
    poll.tells = False
    for _ in range(CREDIT_MAX // LOSS):
        assert one.poll(poll, 1000) == []
    assert one.poll(poll, 1000) is None, "the credit is used up"


def test_a_client_that_pauses_after_every_second_request_is_not_looked_for() -> None:
    one, poll, looks = busy_poll(), Polled(), 0
    for turn in range(300):
        poll.tells = turn % 3 != 2
        looks += one.poll(poll, 1000) is not None
    assert looks < 60


def test_nothing_that_is_due_waits_for_it() -> None:
    assert busy_poll().poll(Polled(), 0) == []
