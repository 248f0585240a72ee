"""The map of keys and their last offsets."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog.core.storage.cleaning.offset_map import SLOT_BYTES, OffsetMap


@given(st.lists(st.binary(max_size=40), max_size=200))
def test_map_behaves_like_a_dict(keys: list[bytes]) -> None:
    offsets = OffsetMap(1 << 20, len(keys))
    expected = {}
    for offset, key in enumerate(keys):
        assert offsets.put(key, offset)
        expected[key] = offset
    assert offsets.keys == len(expected)
    assert all(offsets.get(key) == offset for key, offset in expected.items())
    assert offsets.get(b"not there, and longer than a slot") == -1


def test_short_keys_and_their_paddings_are_different() -> None:
    keys = [b"\0" * length for length in range(20)] + [b"a", b"a\0", b"\xff" * 15, b"\xff" * 16]
    offsets = OffsetMap(1 << 20, len(keys))
    for offset, key in enumerate(keys):
        assert offsets.get(key) == -1
        assert offsets.put(key, offset)
    assert [offsets.get(key) for key in keys] == list(range(len(keys)))


def test_map_accepts_no_more_keys_than_it_has_room_for() -> None:
    offsets = OffsetMap(100 * SLOT_BYTES, 10**9)
    assert offsets.room == 75
    taken = sum(offsets.put(b"%d" % number, number) for number in range(200))
    assert taken == offsets.keys == 75
    assert offsets.put(b"7", 500), "a known key needs no room"
    assert (offsets.get(b"7"), offsets.get(b"150")) == (500, -1)


def test_the_map_is_not_larger_than_needed() -> None:
    assert OffsetMap(1 << 30, 9).room < 12
