"""The demo's comparison finds lost, duplicated and foreign orders, and wrong sums."""

from tidelog.apps.demo import orders
from tidelog.apps.demo.orders import AckedOrder, Sum, number_of, sums, value
from tidelog.apps.demo.outcome import compare_records, compare_sums

ACKED = [AckedOrder(number, number + 10, 0.0, 1_000 * number) for number in range(20)]
RIGHT = [(order.offset, order.number) for order in ACKED]


def test_complete_log_holds() -> None:
    found = compare_records("log", ACKED, RIGHT)
    assert found.holds
    assert (found.acknowledged, found.found) == (20, 20)


def test_missing_tail_is_lost() -> None:
    found = compare_records("log", ACKED, RIGHT[:-2])
    assert (found.lost, found.holds) == ([18, 19], False)


def test_order_at_another_offset_is_lost_and_unexpected() -> None:
    found = compare_records("log", ACKED, [*RIGHT[:-1], (99, 19)])
    assert (found.lost, found.unexpected, found.repeated) == ([19], 1, 0)


def test_duplicated_order_is_found_at_any_offset() -> None:
    assert compare_records("lake", ACKED, [*RIGHT, RIGHT[-1]]).repeated == 1
    again = compare_records("log", ACKED, [*RIGHT, (30, 19)])
    assert (again.repeated, again.unexpected, again.holds) == (1, 1, False)


def test_swapped_orders_are_out_of_order() -> None:
    swapped = [(10, 1), (11, 0), *RIGHT[2:]]
    found = compare_records("log", ACKED, swapped)
    assert (found.out_of_order, sorted(found.lost)) == (1, [0, 1])


def test_altered_record_is_not_an_order() -> None:
    assert number_of(value(7)) == 7
    assert number_of(value(7).replace(b"7", b"8", 1)) == -1
    assert number_of(b"{}") == number_of(b"") == number_of(None) == number_of(b"\xff") == -1


def test_windows_are_compared_one_by_one() -> None:
    wanted = sums(ACKED)
    assert sum(each.orders for each in wanted) == len(ACKED)
    assert {each.window_ms for each in wanted} == {0, 5_000, 10_000, 15_000}
    assert {each.shop for each in wanted} == set(orders.SHOPS)
    whole = compare_sums("table", wanted, reversed(wanted))
    assert whole.holds
    assert (whole.windows, whole.orders) == (4, 20)


def test_window_with_a_missing_or_duplicated_order_is_wrong() -> None:
    wanted = sums(ACKED)
    short = wanted[0]._replace(orders=wanted[0].orders - 1)
    found = compare_sums("table", wanted, [short, *wanted[1:]])
    assert (found.missing, found.wrong, found.holds) == ([wanted[0]], [short], False)
    assert compare_sums("topic", wanted, [*wanted, wanted[-1]]).wrong == [wanted[-1]]
    assert compare_sums("topic", wanted, [*wanted, Sum(0, "moon", 1, 1)]).wrong
    assert not compare_sums("table", [], []).holds
