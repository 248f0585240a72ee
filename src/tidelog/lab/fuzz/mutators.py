"""Damage frames: change, move, repeat or cut off bytes, or write absurd lengths.

The first four bytes (API key and version) mostly stay: a frame of an unknown API tests little.
"""

from collections.abc import Sequence
from random import Random

_VARINTS = (
    b"\xff\xff\xff\xff\x0f",  # the largest valid one; then: too large, too long, valid
    b"\xff\xff\xff\xff\x10",
    b"\x80\x80\x80\x80\x80\x80",
    b"\x80\x80\x04",
)
NUMBERS = (
    *(
        number.to_bytes(size, "big", signed=True)
        for size in (1, 2, 4, 8)
        for number in (0, 1, -1, 2 ** (8 * size - 1) - 1, -(2 ** (8 * size - 1)), 127, -128)
    ),
    *_VARINTS,
)
KEPT = 4


def mutate(random: Random, frame: bytes, others: Sequence[bytes]) -> bytes:
    """A damaged copy of a frame; `others` supply pieces of other frames."""
    raw = bytearray(frame)
    # random() is far cheaper than other methods of Random, and this runs millions of times.
    draw = random.random
    for _ in range(1 + int(draw() * draw() * 4)):
        first = 0 if draw() < 0.02 else KEPT
        room = len(raw) - first
        at = first + int(draw() * room) if room > 0 else len(raw)
        how = draw()
        if how < 0.35:
            if at < len(raw):
                raw[at] ^= 1 << int(draw() * 8)
        elif how < 0.55:
            number = NUMBERS[int(draw() * len(NUMBERS))]
            raw[at : at + len(number)] = number
        elif how < 0.65:
            del raw[at : at + 1 + int(draw() * 8)]
        elif how < 0.75:
            raw[at:at] = random.randbytes(1 + int(draw() * 8))
        elif how < 0.85:
            del raw[at:]
        elif how < 0.93:
            piece = raw[at : at + 1 + int(draw() * 32)]
            raw[at:at] = piece * (1 + int(draw() * 3))
        else:
            other = others[int(draw() * len(others))]
            cut = int(draw() * len(other))
            raw[at:] = other[cut:]
    return bytes(raw)
