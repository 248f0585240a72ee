"""A host that sleeps until `wake_ms` misses no deadline."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog.core.node.deadlines import FAR_MS, Deadlines, WakeTime

times = st.integers(1, 50)
changes = st.one_of(
    st.tuples(st.just("add"), times),
    st.tuples(st.just("remove"), times),
    st.tuples(st.just("due"), times),
    st.tuples(st.just("ask"), st.none() | times),
    st.tuples(st.just("other"), st.none() | times),
    st.tuples(st.just("exact"), times),
)


@given(st.lists(changes, max_size=40))
def test_wake_time_is_never_too_late(history: list[tuple[str, int | None]]) -> None:
    often: Deadlines[int] = Deadlines()
    asked: list[int | None] = [None]
    other: list[int | None] = [None]
    wake = WakeTime((often.next_ms, lambda: other[0]), (often,), lambda: asked[0])
    for what, at in history:
        if what == "add" and at is not None:
            often.add(at, at)
        elif what == "remove" and at is not None:
            often.remove(at, at)
        elif what == "due" and at is not None:
            often.due(at)
        elif what == "ask":
            asked[0] = at
        elif what == "other":
            other[0] = at
            wake.forget()
        else:
            wake.exact()
        entries = [entry for bucket in often._buckets.values() for entry in bucket]
        soonest = min(
            [*entries, *(at for at in (asked[0], other[0]) if at is not None)] or [FAR_MS]
        )
        assert wake.bound(0) <= soonest
        assert wake.bound(FAR_MS) == soonest, "where the bound has passed it is made exact"


def test_frequent_deadlines_do_not_check_the_other_clocks() -> None:
    often: Deadlines[str] = Deadlines()
    looks: list[int] = []

    def other() -> int:
        looks.append(1)
        return 100

    wake = WakeTime((often.next_ms, other), (often,), lambda: None)
    assert wake.bound(0) == 100
    assert len(looks) == 1
    often.add("a", 30)
    assert wake.bound(0) == 30
    often.remove("a", 30)
    assert wake.bound(29) == 30, "too early is no harm"
    assert len(looks) == 1
    assert wake.bound(30) == 100
    assert len(looks) == 2
    wake.forget()
    wake.bound(0)
    assert len(looks) == 3
