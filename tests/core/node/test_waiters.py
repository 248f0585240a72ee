"""Requests that wait: answered once, in order, or when their time is over."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog.core.node.deadlines import Deadlines
from tidelog.core.node.waiters import Part, PartQueue, Pending


def pending(parts: int, finished: list[Pending]) -> Pending:
    return Pending("client", 1, ["timed out"] * parts, parts, 100, finished.append)


def part(offset: int, of: Pending | None = None) -> Part:
    return Part(of or pending(1, []), 0, offset=offset)


def test_a_request_is_answered_when_its_last_part_is_settled() -> None:
    finished: list[Pending] = []
    request = pending(2, finished)
    request.settle(1, "b")
    assert finished == []
    request.settle(0, "a")
    assert [p.answers for p in finished] == [["a", "b"]]


def test_a_request_is_answered_once() -> None:
    finished: list[Pending] = []
    request = pending(2, finished)
    request.settle(0, "a")
    request.time_out()
    request.settle(1, "late")
    request.time_out()
    assert [p.answers for p in finished] == [["a", "timed out"]]


@given(st.lists(st.integers(0, 50)), st.integers(0, 50))
def test_requests_reached_by_the_watermark_end_in_order(offsets: list[int], mark: int) -> None:
    queue = PartQueue()
    for offset in offsets:
        queue.add(part(offset))
    reached = [p.offset for p in queue.reached(mark)]
    assert reached == sorted(offset for offset in offsets if offset <= mark)
    assert len(queue) == len(offsets) - len(reached)


def test_timed_out_requests_do_not_accumulate() -> None:
    queue = PartQueue()
    for offset in range(3):
        queue.add(part(offset))
    over = pending(1, [])
    first = PartQueue()
    first.add(part(1, over))
    over.time_out()
    first.forget_done()
    assert len(first) == 0
    queue.forget_done()
    assert len(queue) == 3


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 100)), unique_by=lambda e: e[0]))
def test_deadlines_return_each_item_once_and_in_time(entries: list[tuple[int, int]]) -> None:
    deadlines: Deadlines[int] = Deadlines()
    for item, at in entries:
        deadlines.add(item, at)
    removed = entries[::3]
    for item, at in removed:
        deadlines.remove(item, at)
    left = [entry for entry in entries if entry not in removed]
    assert deadlines.next_ms() == min((at for _, at in left), default=None)
    seen: list[int] = []
    for now in (30, 60, 100):
        due = deadlines.due(now)
        assert all(dict(left)[item] <= now for item in due)
        seen += due
    assert sorted(seen) == sorted(item for item, _ in left)
    assert deadlines.next_ms() is None
    deadlines.remove(1, 1)
