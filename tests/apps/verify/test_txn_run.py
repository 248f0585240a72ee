"""When a run with transactions waits for its clients, and when it calls them stuck."""

from tidelog.apps.verify.run import SETTLE_S
from tidelog.apps.verify.transactions.run import settles


def settled_after(advances: int, *, of: int) -> bool:
    """Whether a wait ends well if each of `of` steps takes nearly as long as a wait may, and the
    first ones advance."""
    steps = 0

    def hold() -> None:
        nonlocal steps
        steps += 1

    return settles(
        lambda: steps >= of, lambda: min(steps, advances), hold, lambda: steps * SETTLE_S * 0.9
    )


def test_clients_that_advance_are_not_stuck() -> None:
    assert settled_after(20, of=20)


def test_clients_that_no_longer_advance_are_stuck() -> None:
    assert not settled_after(5, of=20)
