"""The kernel reads no byte outside its input: guard pages around it end the process."""

import subprocess
import sys
from pathlib import Path

import tidelog

PROGRAM = '''
import ctypes, mmap, random, sys
import numpy as np
from tidelog.apps.spark.columns import arrow_schema
from tidelog.apps.spark.decoding import kernel
from tidelog.apps.spark.decoding.kernel_decoder import ColumnBuffers
from tidelog.core.record.encoder import encode_batch
from tidelog.core.record.record import Header, Record
from tidelog.core.record.record_batch import HEADER_SIZE

PAGE = mmap.PAGESIZE
library = ctypes.CDLL(None, use_errno=True)
library.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

def guarded(pages):
    """Memory between two pages that end the process when they are touched."""
    memory = mmap.mmap(-1, (pages + 2) * PAGE)
    whole = np.frombuffer(memory, np.uint8)
    begin = whole.__array_interface__["data"][0]
    for page in (begin, begin + (pages + 1) * PAGE):
        assert library.mprotect(page, PAGE, 0) == 0
    return whole[PAGE:-PAGE], begin + PAGE

source, source_at = guarded(2)
if sys.argv[1:] == ["touch"]:
    source[-3:] = 0x80  # a number that goes on behind it
    kernel.fill(np.array([[source_at + 2 * PAGE - 3, 9, 0, 9, 0, 0, 1, 0]]),
                np.zeros(kernel.STATE_FIELDS, np.int64), np.zeros(kernel.OUT_FIELDS, np.int64))
    sys.exit("nothing happened")

# The columns' memory is guarded too: exactly as much as the kernel is told that there is.
buffers = ColumnBuffers(arrow_schema(True), "t", 0, 16, 400, keep=False)
state, out = buffers.state, buffers.out
held = []
for index, size in ((kernel.KEY_DATA, 64), (kernel.VALUE_DATA, 64),
                    (kernel.NAME_DATA, 24), (kernel.CONTENT_DATA, 24)):
    memory, at = guarded(1)
    held.append(memory)
    out[index] = at + PAGE - size
state[kernel.KEY_ROOM] = state[kernel.VALUE_ROOM] = 64
state[kernel.NAME_ROOM] = state[kernel.CONTENT_ROOM] = 24
state[kernel.STOP] = 2**62

draw = random.Random(7)
seeds = []
for number in range(40):
    rows = [Record(draw.choice([None, draw.randbytes(draw.randrange(20))]),
                   draw.choice([None, draw.randbytes(draw.randrange(60))]), draw.randrange(2**40),
                   tuple(Header("ab"[: draw.randrange(3)], draw.choice([None, b"xyz"]))
                         for _ in range(draw.randrange(3))))
            for _ in range(draw.randrange(1, 9))]
    seeds.append((len(rows), bytes(encode_batch(rows))[HEADER_SIZE:]))
told = [0, 0, 0, 0]
for turn in range(60000):
    count, records = seeds[turn % len(seeds)]
    damaged = bytearray(records[: len(records) - draw.choice([0, 0, 0, 1, 5])])
    for _ in range(draw.randrange(5)):
        if damaged:
            damaged[draw.randrange(len(damaged))] = draw.choice([0, 1, 2, 127, 128, 255, 130])
    length = len(damaged)
    source[2 * PAGE - length :] = damaged
    count = draw.choice([count, count, count + 1, 2**31 - 1])
    batch = [source_at + 2 * PAGE - length, length, 5, count + 3, 0, 0, count, 0]
    state[kernel.BATCH : kernel.NEXT_DELTA + 1] = 0
    state[kernel.ROWS : kernel.ODD_NAMES + 1] = 0
    said = kernel.fill(np.array([batch]), state, out)
    told[said] += 1
    assert state[kernel.ROWS] <= 16
    assert state[kernel.KEY_USED] <= 64 and state[kernel.VALUE_USED] <= 64
    assert state[kernel.NAME_USED] <= 24 and state[kernel.CONTENT_USED] <= 24
assert min(told[kernel.END], told[kernel.GROW], told[kernel.CORRUPT]) > 1000, told
'''


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        env={"PYTHONPATH": str(Path(tidelog.__file__).parents[1]), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_no_byte_outside_is_read_or_written() -> None:
    done = run()
    assert done.returncode == 0, done.stderr


def test_the_guard_detects_a_wrong_length() -> None:
    """A batch with a length that is too large ends the process."""
    done = run("touch")
    assert done.returncode < 0, done.stderr
